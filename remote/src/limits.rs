//! Every bound of this crate, with its reason and what happens at it. Pure.

/// An object is due for freezing at this many record bytes (`…combiner.task.upload.bytes`). At it: frozen at the next
/// free PUT slot.
pub const UPLOAD_BYTES: usize = 512 * 1024;

/// Record bytes an object grows to while no PUT slot is free. At it: the next range waits for the next object.
pub const OBJECT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bytes lent to the packer and not yet frozen (`…combiner.queue.size`). At it: the range is given back, the
/// partition's followers fall back to bytes, produce goes on.
pub const QUEUE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Slices in one object: 16,384 × 81 bytes keep the manifest below 1.4 MB. At it: the next range waits.
pub const OBJECT_SLICES_MAX: usize = 16_384;

/// Longest whole object that a reference (u32 lengths) may name. At it: refused at encoding, an error at reading.
pub const OBJECT_LENGTH_MAX: u64 = 1024 * 1024 * 1024;

/// Objects in one fetch reply. At it: the rest comes with the next reply.
pub const REPLY_OBJECTS_MAX: usize = 1024;

/// Slices excluded per referenced object. At it: the whole object is left out and its partitions get bytes.
pub const EXCLUDED_SLICES_MAX: usize = 4096;

/// Partitions that ask for bytes in one fetch request. At it: the rest asks in the next request.
pub const BYTES_UNTIL_MAX: usize = 65_536;

/// Keys in one delete request (S3's own bound).
pub const DELETE_KEYS_MAX: usize = 1000;

/// Age marks a stream keeps for deletion. At it: new objects join the newest mark, so they are deleted later, never
/// earlier.
pub const AGE_MARKS_MAX: usize = 65_536;

/// Requests waiting for one store thread. At it: the caller waits.
pub const STORE_QUEUE_MAX: usize = 256;

/// Requests of one store thread in flight. At it: the next waits in the thread's queue.
pub const STORE_IN_FLIGHT_MAX: usize = 64;

const _: () = assert!(UPLOAD_BYTES <= OBJECT_BYTES_MAX, "an object that is due fits the object");
const _: () = assert!(OBJECT_BYTES_MAX < QUEUE_BYTES_MAX, "the queue holds at least one full object");
const _: () = assert!(OBJECT_LENGTH_MAX <= 0xffff_ffff, "lengths in a reference are u32");
