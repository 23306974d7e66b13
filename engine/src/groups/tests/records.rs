//! The records of `__consumer_offsets` as bytes.

use sakia_protocol::ids::{LeaderEpoch, Offset};

use super::super::offsets::Committed;
use super::super::records::{GroupState, MemberState, RecordError};
use super::*;

fn offset_record(expires_ms: Option<i64>) -> GroupRecord {
    GroupRecord::Offset {
        group_id: "g".to_owned(),
        topic: "to".to_owned(),
        partition: 3,
        committed: Some(Committed {
            offset: Offset::new(0x0102),
            leader_epoch: if expires_ms.is_none() { Some(LeaderEpoch::new(5)) } else { None },
            metadata: "m".to_owned(),
            committed_ms: 0x0a0b,
            expires_ms,
        }),
    }
}

fn group_record() -> GroupRecord {
    let member = MemberState {
        member_id: "i-1".to_owned(),
        instance_id: Some("i".to_owned()),
        client_id: "c".to_owned(),
        client_host: "/h".to_owned(),
        rebalance_timeout: ms(0x0300),
        session_timeout: ms(0x0200),
        subscription: Bytes::from_static(b"su"),
        assignment: Bytes::from_static(b"a"),
    };
    GroupRecord::Group {
        group_id: "g".to_owned(),
        state: Some(GroupState {
            protocol_type: "consumer".to_owned(),
            generation: 9,
            protocol: Some("range".to_owned()),
            leader: Some("i-1".to_owned()),
            state_since_ms: Some(7),
            members: vec![member.clone(), MemberState { instance_id: None, ..member }],
        }),
    }
}

const OFFSET_KEY: &[u8] = b"\0\x01\0\x01g\0\x02to\0\0\0\x03";
const OFFSET_VALUE: &[u8] = b"\0\x03\0\0\0\0\0\0\x01\x02\0\0\0\x05\0\x01m\0\0\0\0\0\0\x0a\x0b";
const EXPIRING_VALUE: &[u8] = b"\0\x01\0\0\0\0\0\0\x01\x02\0\x01m\0\0\0\0\0\0\x0a\x0b\0\0\0\0\0\0\x0c\x0d";
const GROUP_KEY: &[u8] = b"\0\x02\0\x01g";
const GROUP_VALUE: &[u8] = b"\0\x03\0\x08consumer\0\0\0\x09\0\x05range\0\x03i-1\0\0\0\0\0\0\0\x07\0\0\0\x02\
\0\x03i-1\0\x01i\0\x01c\0\x02/h\0\0\x03\0\0\0\x02\0\0\0\0\x02su\0\0\0\x01a\
\0\x03i-1\xff\xff\0\x01c\0\x02/h\0\0\x03\0\0\0\x02\0\0\0\0\x02su\0\0\0\x01a";

fn decode(key: &[u8], value: &[u8]) -> Result<Option<GroupRecord>, RecordError> {
    GroupRecord::decode(&Bytes::copy_from_slice(key), Some(&Bytes::copy_from_slice(value)))
}

#[test]
fn records_are_kafkas_bytes_and_are_read_back() {
    let cases = [
        (offset_record(None), OFFSET_KEY, OFFSET_VALUE),
        (offset_record(Some(0x0c0d)), OFFSET_KEY, EXPIRING_VALUE),
        (group_record(), GROUP_KEY, GROUP_VALUE),
    ];
    for (record, key, value) in cases {
        assert_eq!(record.key().expect("short"), key);
        assert_eq!(record.value().expect("short").expect("a value"), value);
        assert_eq!(decode(key, value), Ok(Some(record)));
    }
}

#[test]
fn older_and_compact_values_are_read() {
    let key = b"\0\0\0\x01g\0\x02to\0\0\0\x03";
    let mut expected = offset_record(None);
    if let GroupRecord::Offset { committed: Some(committed), .. } = &mut expected {
        committed.leader_epoch = None;
    }
    for version in [0_u8, 2] {
        let mut value = b"\0\0\0\0\0\0\0\0\x01\x02\0\x01m\0\0\0\0\0\0\x0a\x0b".to_vec();
        value[1] = version;
        assert_eq!(decode(key, &value), Ok(Some(expected.clone())), "version {version}");
    }
    let compact = b"\0\x04\0\0\0\0\0\0\x01\x02\0\0\0\x05\x02m\0\0\0\0\0\0\x0a\x0b\0";
    assert_eq!(decode(OFFSET_KEY, compact), Ok(Some(offset_record(None))));
    let oldest =
        b"\0\0\0\x08consumer\0\0\0\x09\xff\xff\xff\xff\0\0\0\x01\0\x01m\0\x01c\0\x02/h\0\0\x02\0\0\0\0\0\0\0\0\0";
    match decode(GROUP_KEY, oldest) {
        Ok(Some(GroupRecord::Group { state: Some(state), .. })) => {
            assert_eq!((state.protocol, state.leader, state.state_since_ms), (None, None, None));
            assert_eq!(state.members[0].rebalance_timeout, ms(0x0200), "as long as the session");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn tombstones_and_foreign_kinds_are_told_apart() {
    let tombstone = GroupRecord::decode(&Bytes::from_static(GROUP_KEY), None);
    assert_eq!(tombstone, Ok(Some(GroupRecord::Group { group_id: "g".to_owned(), state: None })));
    for kind in 3..=23_u8 {
        assert_eq!(decode(&[0, kind, 9, 9], b"whatever"), Ok(None));
    }
}

#[test]
fn damaged_records_are_errors_and_never_panics() {
    for (key, value) in [(OFFSET_KEY, OFFSET_VALUE), (OFFSET_KEY, EXPIRING_VALUE), (GROUP_KEY, GROUP_VALUE)] {
        for len in 0..value.len() {
            assert!(decode(key, &value[..len]).is_err(), "cut at {len}");
        }
        for len in 0..key.len() {
            assert!(decode(&key[..len], value).is_err(), "key cut at {len}");
        }
        for place in 0..value.len() {
            for bit in 0..8 {
                let mut damaged = value.to_vec();
                damaged[place] ^= 1 << bit;
                let _ = decode(key, &damaged);
            }
        }
        let longer = [value, b"x"].concat();
        assert!(decode(key, &longer).is_err());
    }
    assert_eq!(decode(OFFSET_KEY, b"\0\x05"), Err(RecordError::Version { version: 5 }));
}
