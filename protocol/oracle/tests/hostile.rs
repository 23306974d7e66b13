//! Damaged and random frames: every one is read or refused, none makes the process panic or take memory that the frame
//! does not justify. `SAKIA_FUZZ_FRAMES` sets how many (default 100,000), `SAKIA_FUZZ_SEED` which.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::env;

use bytes::Bytes;
use sakia_protocol::api::ApiKey;
use sakia_protocol::codec::Reader;
use sakia_protocol::header::RequestHeader;
use sakia_protocol_oracle::frame::{Tags, message};
use sakia_protocol_oracle::random::Random;
use sakia_protocol_oracle::{Side, ours};

/// Memory a message may take while it is read and written: this many times its frame, and a fixed amount.
const MEMORY_PER_BYTE: usize = 64;
const MEMORY_FIXED: usize = 64 * 1024;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// Counts what the current thread holds.
struct Counting;

fn taken(bytes: usize) {
    let live = LIVE.get() + bytes;
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
}

fn given(bytes: usize) {
    LIVE.set(LIVE.get().saturating_sub(bytes));
}

#[expect(unsafe_code, reason = "an allocator can only be observed by being one; every call goes to the system's")]
// Safety: each method passes its arguments unchanged to the system allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        given(layout.size());
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        taken(size);
        given(layout.size());
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn setting(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().expect("a setting of this test is a number"))
}

/// Damages `frame` in one of the ways that lengths, counts and tags are sensitive to.
fn damage(frame: &mut Vec<u8>, random: &mut Random) {
    let place = random.below(frame.len() + 1);
    match random.below(8) {
        0 if place < frame.len() => frame[place] ^= 1 << random.below(8),
        1 if place < frame.len() => frame[place] = 0xff,
        2 => overwrite(frame, place, &[0x7f, 0xff, 0xff, 0xff]),
        3 => overwrite(frame, place, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        4 => frame.truncate(place),
        5 => {
            // A count that the bytes after it may just hold, in either form.
            let len = if random.one_in(16) { random.below(200_000) } else { random.below(2000) };
            let any = random.byte();
            let fill = *random.pick(&[0, 1, 2, any]);
            let [.., second, third, fourth] = len.to_be_bytes();
            let [.., middle, _] = (len << 1).to_be_bytes();
            let [.., high, _, _] = (len << 2).to_be_bytes();
            let compact = [fourth | 0x80, middle | 0x80, high];
            let plain = [0, second, third, fourth];
            let head = if random.one_in(2) { &compact[..] } else { &plain[..] };
            frame.truncate(place);
            frame.extend(head);
            frame.extend(std::iter::repeat_n(fill, len));
        }
        6 => {
            let end = place + random.below(frame.len() - place + 1);
            let copy = frame[place..end].to_vec();
            frame.splice(place..place, copy);
        }
        _ => frame.insert(place, random.byte()),
    }
}

fn overwrite(frame: &mut Vec<u8>, place: usize, bytes: &[u8]) {
    let end = frame.len().min(place + bytes.len());
    frame.splice(place..end, bytes.iter().copied());
}

#[test]
fn damaged_frames_are_refused_within_their_memory() {
    let apis = sakia_codegen::read_tables().unwrap();
    let mut random = Random::new(setting("SAKIA_FUZZ_SEED", 7));
    let mut read = 0;
    let frames = setting("SAKIA_FUZZ_FRAMES", 100_000);
    let mut worst = (0, String::new());
    for number in 0..frames {
        let api = random.pick(&apis);
        let key = ApiKey::from_wire(api.key).unwrap();
        let versions = usize::try_from(api.versions.last - api.versions.first).unwrap();
        let version = api.versions.first + i16::try_from(random.below(versions + 1)).unwrap();
        let side = *random.pick(&Side::BOTH);
        let mut frame = if random.one_in(4) {
            (0..random.below(64)).map(|_| random.byte()).collect()
        } else {
            message(api, side, version, Tags::Loose, &mut random).to_vec()
        };
        for _ in 0..random.below(8) {
            damage(&mut frame, &mut random);
        }
        let frame = Bytes::from(frame);
        let before = LIVE.get();
        PEAK.set(before);
        let first = ours::rewrite(key, side, version, &frame);
        let used = PEAK.get() - before;
        let name = || format!("frame {number}: {key} {side:?} version {version}, {} bytes", frame.len());
        assert!(used <= MEMORY_PER_BYTE * frame.len() + MEMORY_FIXED, "{}: took {used} bytes", name());
        let per_byte = used.saturating_sub(MEMORY_FIXED) / frame.len().max(1);
        if per_byte > worst.0 {
            worst = (per_byte, name());
        }
        if let Ok(first) = first {
            read += 1;
            assert_eq!(ours::rewrite(key, side, version, &first), Ok(first), "{}", name());
        }
    }
    println!("{read} of {frames} frames were read; most memory beyond the fixed amount: {} times {}", worst.0, worst.1);
    assert!(frames < 1000 || read > frames / 20, "the damage is so great that nothing is tested");
}

#[test]
fn any_bytes_before_a_body_are_a_header_or_an_error() {
    let mut random = Random::new(setting("SAKIA_FUZZ_SEED", 7));
    for _ in 0..setting("SAKIA_FUZZ_FRAMES", 100_000) {
        let mut frame: Vec<u8> = (0..random.below(32)).map(|_| random.byte()).collect();
        if frame.len() > 4 && random.one_in(2) {
            frame[..2].copy_from_slice(&random.pick(ApiKey::ALL).key().to_be_bytes());
            frame[2] = 0;
            frame[3] &= 15;
        }
        let frame = Bytes::from(frame);
        if let Ok(header) = RequestHeader::decode(&mut Reader::new(&frame)) {
            assert!(header.client_id.is_none_or(|client_id| client_id.len() < frame.len()));
        }
    }
}
