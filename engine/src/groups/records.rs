//! The records of `__consumer_offsets`, in Kafka's own formats, so that Kafka's tools read them.
//!
//! Pure. Big-endian; key and value begin with their version:
//! ```text
//! key 0, 1   version i16 · group string · topic string · partition i32
//!   value 0    offset i64 · metadata string · commit time i64
//!   value 1    offset i64 · metadata string · commit time i64 · expiry time i64
//!   value 2    offset i64 · metadata string · commit time i64
//!   value 3    offset i64 · leader epoch i32 · metadata string · commit time i64
//! key 2      version i16 · group string
//!   value 0-3  protocol type string · generation i32 · protocol string or null · leader string or null ·
//!              [2+] state since i64 · members: count i32, each { id string · [3+] instance id string or null ·
//!              client id string · client host string · [1+] rebalance timeout i32 · session timeout i32 ·
//!              subscription bytes · assignment bytes }
//! ```
//! Version 4 of both values has the same fields in compact form. Written are 3, and 1 for an offset whose client named its
//! expiry. Keys of other versions belong to newer kinds of groups and are skipped. A null value is a tombstone.

use std::time::Duration;

use bytes::Bytes;
use sakia_protocol::codec::{Form, Reader, WireError, Writer};
use sakia_protocol::ids::{LeaderEpoch, Offset};

use super::offsets::Committed;

const OFFSET_KEY_VERSION: i16 = 1;
const GROUP_KEY_VERSION: i16 = 2;
const VALUE_VERSION: i16 = 3;
const EXPIRING_OFFSET_VERSION: i16 = 1;
const COMPACT_VERSION: i16 = 4;

/// One record.
#[derive(Clone, PartialEq, Debug)]
pub enum GroupRecord {
    /// An offset, or its end.
    Offset { group_id: String, topic: String, partition: i32, committed: Option<Committed> },
    /// A group as it stands in a generation, or its end.
    Group { group_id: String, state: Option<GroupState> },
}

/// A group as its record keeps it.
#[derive(Clone, PartialEq, Debug)]
pub struct GroupState {
    /// `consumer`, `connect`, ...; empty for a group that only commits.
    pub protocol_type: String,
    /// Its generation.
    pub generation: i32,
    /// The protocol that was chosen.
    pub protocol: Option<String>,
    /// Member id of the leader.
    pub leader: Option<String>,
    /// When the group entered its state.
    pub state_since_ms: Option<i64>,
    /// Its members.
    pub members: Vec<MemberState>,
}

/// A member as the group's record keeps it.
#[derive(Clone, PartialEq, Debug)]
pub struct MemberState {
    /// Its id.
    pub member_id: String,
    /// Its instance id, if it is static.
    pub instance_id: Option<String>,
    /// Client id of its connection.
    pub client_id: String,
    /// Address of its connection.
    pub client_host: String,
    /// How long it may take to join again.
    pub rebalance_timeout: Duration,
    /// How long it may be silent.
    pub session_timeout: Duration,
    /// Its metadata under the chosen protocol.
    pub subscription: Bytes,
    /// Its part of the assignment.
    pub assignment: Bytes,
}

/// Why a record cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// A newer broker wrote it.
    #[error("version {version} of a value is not known")]
    Version { version: i16 },
    /// Not what its version says.
    #[error("a record of the offsets topic is damaged: {0}")]
    Damaged(#[from] WireError),
    /// A number has no meaning.
    #[error("{field} of a record of the offsets topic is {value}")]
    Invalid { field: &'static str, value: i64 },
}

impl GroupRecord {
    /// The record's key.
    ///
    /// # Errors
    /// A name is longer than the format allows.
    pub fn key(&self) -> Result<Bytes, WireError> {
        let mut w = Writer::new();
        match self {
            Self::Offset { group_id, topic, partition, .. } => {
                w.i16(OFFSET_KEY_VERSION);
                w.string(group_id)?;
                w.string(topic)?;
                w.i32(*partition);
            }
            Self::Group { group_id, .. } => {
                w.i16(GROUP_KEY_VERSION);
                w.string(group_id)?;
            }
        }
        Ok(w.into_bytes())
    }

    /// The record's value; `None` for a tombstone.
    ///
    /// # Errors
    /// A text is longer than the format allows.
    pub fn value(&self) -> Result<Option<Bytes>, WireError> {
        let mut w = Writer::new();
        match self {
            Self::Offset { committed: Some(committed), .. } => write_offset(&mut w, committed)?,
            Self::Group { state: Some(state), .. } => write_group(&mut w, state)?,
            Self::Offset { committed: None, .. } | Self::Group { state: None, .. } => return Ok(None),
        }
        Ok(Some(w.into_bytes()))
    }

    /// Reads a record of the topic; `None` for a kind that classic groups do not have.
    ///
    /// # Errors
    /// The record is damaged, or newer than this broker.
    pub fn decode(key: &Bytes, value: Option<&Bytes>) -> Result<Option<Self>, RecordError> {
        let mut r = Reader::new(key);
        let record = match r.i16()? {
            0 | OFFSET_KEY_VERSION => Self::Offset {
                group_id: r.string()?,
                topic: r.string()?,
                partition: r.i32()?,
                committed: value.map(read_offset).transpose()?,
            },
            GROUP_KEY_VERSION => Self::Group { group_id: r.string()?, state: value.map(read_group).transpose()? },
            _ => return Ok(None),
        };
        r.end()?;
        Ok(Some(record))
    }
}

fn write_offset(w: &mut Writer, committed: &Committed) -> Result<(), WireError> {
    let version = if committed.expires_ms.is_some() { EXPIRING_OFFSET_VERSION } else { VALUE_VERSION };
    w.i16(version);
    w.i64(committed.offset.get());
    if version >= 3 {
        w.i32(LeaderEpoch::to_wire(committed.leader_epoch));
    }
    w.string(&committed.metadata)?;
    w.i64(committed.committed_ms);
    if let Some(expires_ms) = committed.expires_ms {
        w.i64(expires_ms);
    }
    Ok(())
}

fn read_version(r: &mut Reader<'_>) -> Result<i16, RecordError> {
    let version = r.i16()?;
    if !(0..=COMPACT_VERSION).contains(&version) {
        return Err(RecordError::Version { version });
    }
    r.set_form(Form::of(version, COMPACT_VERSION));
    Ok(version)
}

fn read_offset(value: &Bytes) -> Result<Committed, RecordError> {
    let mut r = Reader::new(value);
    let version = read_version(&mut r)?;
    let offset = r.i64()?;
    let committed = Committed {
        offset: Offset::from_wire(offset).ok_or(RecordError::Invalid { field: "offset", value: offset })?,
        leader_epoch: if version >= 3 { LeaderEpoch::from_wire(r.i32()?) } else { None },
        metadata: r.string()?,
        committed_ms: r.i64()?,
        expires_ms: if version == 1 { Some(r.i64()?).filter(|expires_ms| *expires_ms >= 0) } else { None },
    };
    r.skip_tagged()?;
    r.end()?;
    Ok(committed)
}

fn write_group(w: &mut Writer, state: &GroupState) -> Result<(), WireError> {
    w.i16(VALUE_VERSION);
    w.string(&state.protocol_type)?;
    w.i32(state.generation);
    w.nullable_string(state.protocol.as_deref())?;
    w.nullable_string(state.leader.as_deref())?;
    w.i64(state.state_since_ms.unwrap_or(-1));
    w.length(Some(state.members.len()))?;
    for member in &state.members {
        w.string(&member.member_id)?;
        w.nullable_string(member.instance_id.as_deref())?;
        w.string(&member.client_id)?;
        w.string(&member.client_host)?;
        w.i32(to_millis(member.rebalance_timeout));
        w.i32(to_millis(member.session_timeout));
        w.bytes(&member.subscription)?;
        w.bytes(&member.assignment)?;
    }
    Ok(())
}

fn read_group(value: &Bytes) -> Result<GroupState, RecordError> {
    let mut r = Reader::new(value);
    let version = read_version(&mut r)?;
    let (protocol_type, generation) = (r.string()?, r.i32()?);
    let (protocol, leader) = (r.nullable_string()?, r.nullable_string()?);
    let state_since_ms = if version >= 2 { Some(r.i64()?).filter(|since_ms| *since_ms >= 0) } else { None };
    let count = r.count(14)?;
    let members = (0..count).map(|_| read_member(&mut r, version)).collect::<Result<Vec<_>, _>>()?;
    r.skip_tagged()?;
    r.end()?;
    Ok(GroupState { protocol_type, generation, protocol, leader, state_since_ms, members })
}

fn read_member(r: &mut Reader<'_>, version: i16) -> Result<MemberState, RecordError> {
    let member_id = r.string()?;
    let instance_id = if version >= 3 { r.nullable_string()? } else { None };
    let (client_id, client_host) = (r.string()?, r.string()?);
    let rebalance_timeout = if version >= 1 { Some(from_millis(r.i32()?, "rebalance timeout")?) } else { None };
    let session_timeout = from_millis(r.i32()?, "session timeout")?;
    let member = MemberState {
        member_id,
        instance_id,
        client_id,
        client_host,
        rebalance_timeout: rebalance_timeout.unwrap_or(session_timeout),
        session_timeout,
        subscription: r.bytes()?,
        assignment: r.bytes()?,
    };
    r.skip_tagged()?;
    Ok(member)
}

fn to_millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

fn from_millis(value: i32, field: &'static str) -> Result<Duration, RecordError> {
    let millis = u64::try_from(value).map_err(|_| RecordError::Invalid { field, value: i64::from(value) })?;
    Ok(Duration::from_millis(millis))
}
