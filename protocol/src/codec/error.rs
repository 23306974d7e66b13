//! Why bytes are not a message. Small and `Copy`: a bad frame costs no allocation.

/// What is wrong with a frame, or with a value that should become one. The peer's mistake on the way in (the caller
/// closes the connection), ours on the way out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// A field reaches beyond the end of the frame.
    #[error("frame ends inside a field")]
    Short,
    /// Bytes are left after the last field.
    #[error("{0} bytes follow the last field")]
    Trailing(usize),
    /// A length or count below -1.
    #[error("length {0} is negative")]
    NegativeLength(i32),
    /// A list claims more elements than the rest of the frame can hold.
    #[error("list of {0} elements does not fit into the frame")]
    CountAboveFrame(u32),
    /// A field is null that must not be.
    #[error("field must not be null")]
    Null,
    /// A string is longer than 32767 bytes.
    #[error("string of {0} bytes is too long")]
    StringTooLong(usize),
    /// A byte range, list or frame has more than 2^31 - 1 bytes or elements.
    #[error("length {0} is too large for the wire")]
    TooLarge(usize),
    /// A string is not UTF-8.
    #[error("string is not UTF-8")]
    NotUtf8,
    /// A variable-length number has more bits than its type.
    #[error("variable-length number is too long")]
    VarintTooLong,
    /// The marker before a nullable struct is neither 1 nor -1.
    #[error("marker {0} before a nullable struct")]
    Marker(i8),
    /// Tagged fields do not come in strictly growing order.
    #[error("tagged field {0} is repeated or out of order")]
    TagOrder(u32),
    /// A tagged field does not fill the size it states.
    #[error("tagged field {0} does not have its stated size")]
    TagSize(u32),
    /// A value has no meaning where it stands (kinds, versions of our own formats).
    #[error("value {0} has no meaning here")]
    Value(i64),
    /// The request's api key is not one we know.
    #[error("api key {0} is unknown")]
    UnknownApi(i16),
    /// The message does not exist in this version.
    #[error("version {0} of the message does not exist")]
    Version(i16),
}
