//! One record of the controller's own log: framing and byte form.
//!
//! ```text
//! len u32 (of kind and body, never 0) · crc32c u32 over kind and body · kind u8 · body
//! ```
//! Records follow one another; a write begins on a 4 KiB block and is filled with zeros to the next, so len 0 means: go
//! on at the next block, or, at the beginning of a block, nothing was written here. The 8 bytes before a body never
//! straddle two blocks (zeros fill the first), else filling and frame could not be told apart. Big-endian; memberships in CBOR (the
//! raft library's own form), everything else by hand. Pure.

use openraft::EntryPayload;
use openraft::impls::leader_id_std::LeaderId;

use super::replay::BLOCK;
use crate::limits::LOG_RECORD_BYTES_MAX;
use crate::raft_types::{Entry, LogId, ProposalBytes, Term, Vote};
use crate::wire::{Cursor, Wire, WireError, malformed};

const SEGMENT_MAGIC: [u8; 4] = *b"SKLG";
const SEGMENT_FORMAT: u16 = 1;
pub(crate) const FRAME_HEAD: usize = 8;

/// What the log says, in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Record {
    /// First record of a segment.
    Segment {
        /// Counts from 1.
        number: u64,
        /// Whose log.
        node: u64,
    },
    /// The vote from here on.
    Vote(Vote),
    /// An entry behind all others.
    Entry(Entry),
    /// Entries from this index on are void.
    Truncate {
        /// The first void index.
        from: u64,
    },
    /// Entries up to this one are in a snapshot.
    Purge(LogId),
    /// Entries up to this one are known to be committed.
    Committed(LogId),
    /// Last record of a segment: the log goes on in the next.
    End,
}

/// What stands at a position.
#[derive(Debug)]
pub(crate) enum Frame<'a> {
    /// Kind and body, checked.
    Record(&'a [u8]),
    /// Zeros: nothing up to the next block.
    Padding,
}

/// Appends the record with its frame to bytes that begin at a block.
pub(crate) fn put_record(record: &Record, out: &mut Vec<u8>) {
    if BLOCK - out.len() % BLOCK < FRAME_HEAD {
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_HEAD]);
    put_body(record, out);
    let body = out.get(start + FRAME_HEAD..).expect("the frame stands before it");
    assert!(body.len() <= LOG_RECORD_BYTES_MAX, "a log record of {} bytes", body.len());
    let len = u32::try_from(body.len()).expect("bounded by LOG_RECORD_BYTES_MAX");
    let crc = crc32c::crc32c(body);
    let head = out.get_mut(start..start + FRAME_HEAD).expect("reserved above");
    head[..4].copy_from_slice(&len.to_be_bytes());
    head[4..].copy_from_slice(&crc.to_be_bytes());
}

/// Reads the frame at `position` and the position behind it; `None` if there is no valid one.
pub(crate) fn frame_at(bytes: &[u8], position: usize) -> Option<(Frame<'_>, usize)> {
    let rest = bytes.get(position..)?;
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
    if len == 0 {
        return Some((Frame::Padding, position.checked_add(1)?));
    }
    let (crc, rest) = rest.split_first_chunk::<4>()?;
    let body = rest.get(..len)?;
    let valid = len <= LOG_RECORD_BYTES_MAX && crc32c::crc32c(body) == u32::from_be_bytes(*crc);
    valid.then_some((Frame::Record(body), position + FRAME_HEAD + len))
}

/// Reads kind and body of a frame that was checked.
pub(crate) fn take_record(body: &[u8]) -> Result<Record, WireError> {
    let mut input = Cursor::new(body);
    let record = match u8::take(&mut input)? {
        1 => take_segment(&mut input)?,
        2 => Record::Vote(take_vote(&mut input)?),
        3 => Record::Entry(take_entry(&mut input)?),
        4 => Record::Truncate { from: u64::take(&mut input)? },
        5 => Record::Purge(take_log_id(&mut input)?),
        6 => Record::Committed(take_log_id(&mut input)?),
        7 => Record::End,
        _ => return Err(malformed("log record kind")),
    };
    if input.is_empty() { Ok(record) } else { Err(malformed("log record length")) }
}

fn put_body(record: &Record, out: &mut Vec<u8>) {
    match record {
        Record::Segment { number, node } => {
            out.push(1);
            out.extend_from_slice(&SEGMENT_MAGIC);
            SEGMENT_FORMAT.put(out);
            number.put(out);
            node.put(out);
        }
        Record::Vote(vote) => {
            out.push(2);
            vote.leader_id.term.put(out);
            vote.leader_id.voted_for.put(out);
            u8::from(vote.committed).put(out);
        }
        Record::Entry(entry) => {
            out.push(3);
            put_log_id(&entry.log_id, out);
            put_payload(entry, out);
        }
        Record::Truncate { from } => {
            out.push(4);
            from.put(out);
        }
        Record::Purge(id) => {
            out.push(5);
            put_log_id(id, out);
        }
        Record::Committed(id) => {
            out.push(6);
            put_log_id(id, out);
        }
        Record::End => out.push(7),
    }
}

fn put_payload(entry: &Entry, out: &mut Vec<u8>) {
    match &entry.payload {
        EntryPayload::Blank => out.push(0),
        EntryPayload::Normal(proposal) => {
            out.push(1);
            out.extend_from_slice(&proposal.0);
        }
        EntryPayload::Membership(membership) => {
            out.push(2);
            ciborium::into_writer(membership, out).expect("a membership is serializable and memory takes it");
        }
    }
}

fn take_segment(input: &mut Cursor<'_>) -> Result<Record, WireError> {
    if input.bytes(4, "segment magic")? != SEGMENT_MAGIC || u16::take(input)? != SEGMENT_FORMAT {
        return Err(malformed("segment format"));
    }
    Ok(Record::Segment { number: u64::take(input)?, node: u64::take(input)? })
}

fn take_vote(input: &mut Cursor<'_>) -> Result<Vote, WireError> {
    let leader_id = LeaderId { term: u64::take(input)?, voted_for: u64::take(input)? };
    match u8::take(input)? {
        committed @ 0..=1 => Ok(Vote { leader_id, committed: committed == 1 }),
        _ => Err(malformed("vote")),
    }
}

fn take_entry(input: &mut Cursor<'_>) -> Result<Entry, WireError> {
    let log_id = take_log_id(input)?;
    let kind = u8::take(input)?;
    let rest = input.bytes(input.remaining().len(), "entry")?;
    let payload = match kind {
        0 if rest.is_empty() => EntryPayload::Blank,
        1 => EntryPayload::Normal(ProposalBytes(rest.to_vec())),
        2 => EntryPayload::Membership(ciborium::from_reader(rest).map_err(|_| malformed("membership"))?),
        _ => return Err(malformed("entry payload")),
    };
    Ok(Entry { log_id, payload })
}

fn put_log_id(id: &LogId, out: &mut Vec<u8>) {
    id.leader_id.term.put(out);
    id.index.put(out);
}

fn take_log_id(input: &mut Cursor<'_>) -> Result<LogId, WireError> {
    Ok(LogId { leader_id: Term::new(u64::take(input)?), index: u64::take(input)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Record> {
        let id = LogId { leader_id: Term::new(3), index: 9 };
        let membership = openraft::Membership::new_with_defaults(vec![[1, 2].into()], []);
        vec![
            Record::Segment { number: 1, node: 3 },
            Record::Vote(Vote { leader_id: LeaderId { term: 4, voted_for: 2 }, committed: true }),
            Record::Entry(Entry { log_id: id, payload: EntryPayload::Blank }),
            Record::Entry(Entry { log_id: id, payload: EntryPayload::Normal(ProposalBytes(vec![1, 2, 3])) }),
            Record::Entry(Entry { log_id: id, payload: EntryPayload::Membership(membership) }),
            Record::Truncate { from: 8 },
            Record::Purge(id),
            Record::Committed(id),
            Record::End,
        ]
    }

    #[test]
    fn every_record_reads_back() {
        for record in samples() {
            let mut bytes = Vec::new();
            put_record(&record, &mut bytes);
            let (frame, next) = frame_at(&bytes, 0).expect("a whole frame");
            let Frame::Record(body) = frame else { panic!("not padding") };
            assert_eq!(next, bytes.len());
            assert_eq!(take_record(body), Ok(record));
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_is_no_record() {
        let mut bytes = Vec::new();
        put_record(&Record::Truncate { from: 77 }, &mut bytes);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(frame_at(&damaged, 0).is_none(), "bit {bit}");
        }
    }

    #[test]
    fn a_frame_that_would_straddle_two_blocks_goes_to_the_next() {
        let proposal = |len| EntryPayload::Normal(ProposalBytes(vec![9; len]));
        let log_id = LogId { leader_id: Term::new(1), index: 0 };
        for left in 0..2 * FRAME_HEAD {
            let mut bytes = Vec::new();
            let head = FRAME_HEAD + 18; // kind, log id and payload kind
            put_record(&Record::Entry(Entry { log_id, payload: proposal(BLOCK - head - left) }), &mut bytes);
            assert_eq!(bytes.len(), BLOCK - left);
            put_record(&Record::End, &mut bytes);
            let padded = if left < FRAME_HEAD { BLOCK } else { BLOCK - left };
            assert_eq!(bytes.len(), padded + FRAME_HEAD + 1, "{left} bytes left");
        }
    }

    #[test]
    fn golden_bytes_of_a_vote() {
        let mut bytes = Vec::new();
        put_record(&Record::Vote(Vote { leader_id: LeaderId { term: 4, voted_for: 2 }, committed: true }), &mut bytes);
        let body = [2, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 2, 1];
        assert_eq!(bytes[..4], [0, 0, 0, 18]);
        assert_eq!(bytes[4..8], crc32c::crc32c(&body).to_be_bytes());
        assert_eq!(bytes[8..], body);
    }
}
