//! Spoiled files: a start never fails for them, and never believes them.

use bytes::Bytes;
use sakia_protocol::batch::{StampedTime, headers};
use sakia_protocol::ids::{Offset, ProducerId};

use super::harness::{
    Site, append, batch, closed, crashed, epoch, offset, open, outline, produced, read_all, shared, small_segments,
    store,
};
use crate::log::{AtLeastOne, LastRun, Log, Opening, TimestampQuery};

/// What a restart must not change.
struct Seen {
    start: Offset,
    end: Offset,
    bytes: Vec<u8>,
    epochs: Vec<Option<(i32, i64)>>,
    /// Whether the last five batches of the producer are recognised, and which sequence comes next.
    duplicates: Vec<bool>,
    times: Vec<Option<(i64, Offset)>>,
}

impl Seen {
    fn assert_equals(&self, after: &Self, context: &str) {
        assert_eq!((self.start, self.end), (after.start, after.end), "{context}");
        assert!(self.bytes == after.bytes, "{context}");
        assert_eq!(self.epochs, after.epochs, "{context}");
        assert_eq!(self.duplicates, after.duplicates, "{context}");
        assert_eq!(self.times, after.times, "{context}");
    }
}

async fn look(log: &Log) -> Seen {
    let mut times = Vec::new();
    for at in [0, 1005, 1080, 2000, 100_000] {
        times.push(log.offset_for_timestamp(TimestampQuery::At(at), log.stored()).await.unwrap());
    }
    times.push(log.offset_for_timestamp(TimestampQuery::Max, log.stored()).await.unwrap());
    let ends =
        (0..4).map(|number| log.end_of_epoch(epoch(number)).map(|(epoch, end)| (epoch.get(), end.get()))).collect();
    let duplicates = {
        let state = log.0.state.borrow();
        let window =
            state.producers.producer(ProducerId::new(9)).map(|producer| producer.window.clone()).unwrap_or_default();
        (0..10).map(|number| window.iter().any(|batch| batch.last_sequence == number * 2 + 1)).collect()
    };
    Seen { start: log.start(), end: log.stored(), bytes: read_all(log).await, epochs: ends, duplicates, times }
}

/// Four segments, three epochs, one producer, closed.
fn closed_log(site: &Site) -> Seen {
    site.run(async {
        let log = open(small_segments(), closed()).await;
        for number in 0..40 {
            let leader_epoch = epoch(i32::try_from(number / 15).unwrap());
            log.begin_epoch(leader_epoch);
            log.append_as_leader(&batch(2, 700, 1000 + number * 2), leader_epoch, 0).unwrap();
            if number % 4 == 0 {
                let sequence = i32::try_from(number / 2).unwrap();
                log.append_as_leader(&produced(9, 0, sequence, 2), leader_epoch, 0).unwrap();
            }
        }
        store(&log).await;
        assert!(log.segments() >= 4);
        let seen = look(&log).await;
        log.close().await.unwrap();
        seen
    })
}

fn state_files(site: &Site) -> Vec<String> {
    let names = site.names();
    assert!(
        names.iter().any(|name| name.ends_with(".snapshot")) && names.contains(&"leader-epoch-checkpoint".to_owned())
    );
    names.into_iter().filter(|name| !name.ends_with(".log")).collect()
}

#[test]
fn every_state_file_may_be_empty_garbled_or_missing_after_a_clean_stop() {
    let files = {
        let site = Site::new(1);
        closed_log(&site);
        state_files(&site)
    };
    for name in files {
        for spoil in [Some(Vec::new()), Some(b"\x93garbage \xff\x00 12345".to_vec()), None] {
            let site = Site::new(1);
            let before = closed_log(&site);
            match &spoil {
                Some(content) => site.write_file(&name, content.clone()),
                None => site.remove_file(&name),
            }
            let after = site.run(async {
                let log = open(small_segments(), closed()).await;
                let after = look(&log).await;
                assert_eq!(append(&log, &batch(1, 10, 9000)).await, after.end);
                log.close().await.unwrap();
                after
            });
            before.assert_equals(&after, &format!("{name} spoiled by {spoil:?}"));
        }
    }
}

#[test]
fn all_state_files_may_be_missing_at_once() {
    for how in [closed(), crashed(), Opening { recovery_point: Some(offset(50)), ..crashed() }] {
        let site = Site::new(2);
        let before = closed_log(&site);
        state_files(&site).iter().for_each(|name| site.remove_file(name));
        let after = site.run(async move { look(&open(small_segments(), how).await).await });
        before.assert_equals(&after, &format!("{how:?}"));
        assert!(before.duplicates.iter().filter(|known| **known).count() == 5);
    }
}

#[test]
fn a_recovery_point_beyond_the_end_is_clamped() {
    let site = Site::new(3);
    let before = closed_log(&site);
    let beyond = Offset::new(before.end.get() + 1000);
    for last_run in [LastRun::Closed, LastRun::Crashed] {
        let how = Opening { last_run, recovery_point: Some(beyond), ..Opening::default() };
        let (after, point) = site.run(async move {
            let log = open(small_segments(), how).await;
            let seen = look(&log).await;
            let point = log.recovery_point();
            log.close().await.unwrap();
            (seen, point)
        });
        before.assert_equals(&after, &format!("{last_run:?}"));
        assert!(point <= after.end);
    }
}

#[test]
fn a_log_that_ends_below_its_start_begins_again_there_and_stays_there() {
    let site = Site::new(4);
    let end = closed_log(&site).end;
    for name in site.names().iter().filter(|name| name.ends_with(".log")).skip(1) {
        site.remove_file(name);
    }
    let start = Offset::new(end.get() + 5);
    for how in [Opening { log_start: Some(start), ..closed() }, closed(), crashed()] {
        site.run(async move {
            let log = open(small_segments(), how).await;
            assert_eq!((log.start(), log.stored(), log.appended()), (start, start, start), "{how:?}");
            assert_eq!(log.latest_epoch(), None);
            log.close().await.unwrap();
        });
    }
    site.run(async move {
        let log = open(small_segments(), closed()).await;
        assert_eq!(append(&log, &batch(1, 10, 0)).await, start);
    });
}

/// One segment of three batches as bytes, and where the last one begins.
fn three_batches() -> (Vec<u8>, usize) {
    let mut bytes = Vec::new();
    let mut last = 0;
    for number in 0..3_i64 {
        last = bytes.len();
        let placed = produced(9, 0, i32::try_from(number).unwrap() * 2, 2);
        bytes.extend_from_slice(&placed.place(offset(number * 2), epoch(0), StampedTime::FromRecords).to_bytes());
    }
    (bytes, last)
}

/// Opens a folder that holds these bytes as its only segment, after a crash; appends, closes, and opens again.
fn open_bytes(segment: Vec<u8>) -> Vec<(i64, i64, i32)> {
    let site = Site::new(5);
    site.run(async { sakia_io::fs::create_dir_all(super::harness::FOLDER.as_ref()).await.unwrap() });
    site.write_file("00000000000000000000.log", segment);
    let found = shared(Vec::new());
    let into = std::rc::Rc::clone(&found);
    site.run(async move {
        let log = open(small_segments(), crashed()).await;
        *into.borrow_mut() = outline(&read_all(&log).await);
        let end = log.stored();
        assert_eq!(append(&log, &batch(1, 3000, 77)).await, end);
        log.close().await.unwrap();
        let log = open(small_segments(), closed()).await;
        assert_eq!(log.stored(), end.next());
        let all = outline(&read_all(&log).await);
        assert_eq!(all.last(), Some(&(end.get(), end.get() + 1, 0)));
        assert_eq!(all[..all.len() - 1], into.borrow()[..]);
    });
    found.take()
}

#[test]
fn a_tail_torn_at_any_byte_of_the_last_batch_is_dropped() {
    let (bytes, last) = three_batches();
    let two = vec![(0, 2, 0), (2, 4, 0)];
    for cut in last..bytes.len() {
        assert_eq!(open_bytes(bytes[..cut].to_vec()), two, "cut at {cut}");
        let mut padded = bytes[..cut].to_vec();
        padded.resize(4096, 0);
        // The last byte of a record without headers is a zero itself: then nothing is missing.
        if !padded.starts_with(&bytes) {
            assert_eq!(open_bytes(padded), two, "zeros from {cut} on");
        }
    }
    let mut whole = bytes;
    for zeros in [0, 1, 60, 61, 4096, 10_000] {
        whole.resize(whole.len() + zeros, 0);
        assert_eq!(open_bytes(whole.clone()), vec![(0, 2, 0), (2, 4, 0), (4, 6, 0)], "{zeros} zeros behind");
    }
}

#[test]
fn a_tail_with_any_changed_byte_under_the_checksum_is_dropped() {
    let (bytes, last) = three_batches();
    // Base offset (8) and leader epoch (4) lie outside the checksum; length, magic and the sum itself do not go unnoticed.
    for at in (last + 8..last + 12).chain(last + 16..bytes.len()) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert_eq!(open_bytes(damaged), vec![(0, 2, 0), (2, 4, 0)], "byte {at}");
    }
}

#[test]
fn batches_that_go_back_in_offset_or_epoch_end_the_log() {
    let placed = |base, leader_epoch| {
        batch(2, 30, 5).place(offset(base), epoch(leader_epoch), StampedTime::FromRecords).to_bytes().to_vec()
    };
    let first = placed(0, 3);
    for second in [placed(1, 3), placed(0, 3), placed(2, 2)] {
        let mut bytes = first.clone();
        bytes.extend_from_slice(&second);
        let site = Site::new(6);
        site.run(async { sakia_io::fs::create_dir_all(super::harness::FOLDER.as_ref()).await.unwrap() });
        site.write_file("00000000000000000000.log", bytes);
        let left = site.run(async { outline(&read_all(&open(small_segments(), crashed()).await).await) });
        assert_eq!(left, vec![(0, 2, 3)]);
    }
}

#[test]
fn a_damaged_segment_in_the_middle_ends_the_log_and_later_segments_go() {
    let site = Site::new(7);
    let before = closed_log(&site);
    let logs: Vec<String> = site.names().into_iter().filter(|name| name.ends_with(".log")).collect();
    site.machine.disk().damage(Site::path(&logs[1]), 100, b"XXXX").unwrap();
    let first: i64 = logs[1].split_once('.').unwrap().0.parse().unwrap();
    let left = site.run(async {
        let log = open(small_segments(), crashed()).await;
        let left = read_all(&log).await;
        assert_eq!(append(&log, &batch(1, 10, 0)).await, log.stored().get().checked_sub(1).map(Offset::new).unwrap());
        left
    });
    assert!(before.bytes.starts_with(&left));
    assert_eq!(outline(&left).last().map(|(_, next, _)| *next), Some(first));
    assert!(site.names().iter().all(|name| !logs[2..].contains(name)));
}

#[test]
fn a_read_of_damaged_bytes_is_an_error_and_other_offsets_can_still_be_read() {
    let site = Site::new(8);
    closed_log(&site);
    let logs: Vec<String> = site.names().into_iter().filter(|name| name.ends_with(".log")).collect();
    site.machine.disk().damage(Site::path(&logs[0]), 8, b"\xff\xff\xff\xff").unwrap();
    site.run(async {
        let log = open(small_segments(), closed()).await;
        let read = log.read(Offset::ZERO, log.stored(), 1000, AtLeastOne::Yes).await;
        assert!(matches!(read, Err(crate::log::LogError::Damaged { .. })), "{read:?}");
        let later = Offset::new(log.stored().get() - 1);
        let read = log.read(later, log.stored(), 1000, AtLeastOne::Yes).await.unwrap();
        let bytes: Vec<Bytes> = read.bytes;
        assert_eq!(headers(&bytes.concat()).count(), 1);
    });
}

#[test]
fn a_folder_of_another_topic_is_not_opened() {
    let site = Site::new(9);
    closed_log(&site);
    site.write_file(
        "partition.metadata",
        crate::log::checkpoint::encode_topic_id(sakia_protocol::ids::Uuid::from_bytes([1; 16])),
    );
    site.run(async {
        let (key, arena) = (super::harness::key(), sakia_io::Arena::new(1 << 20));
        let opened = Log::open(super::harness::FOLDER.as_ref(), "orders", key, small_segments(), arena, closed()).await;
        assert!(matches!(opened.err(), Some(crate::log::LogError::OtherTopic { .. })));
    });
}
