//! Single rules of the log.

use std::time::Duration;

use sakia_io::sim::Crash;
use sakia_io::{Arena, Class, spawn};
use sakia_protocol::batch::{
    BatchBuilder, BatchHeader, Compression, NewRecord, ScanEnd, TimestampType, check_replicated, scan,
};
use sakia_protocol::ids::{LeaderEpoch, Offset};

use super::harness::{
    FOLDER, Site, append, batch, closed, crashed, epoch, key, offset, open, outline, produced, read_all, replicated,
    shared, small_segments, store,
};
use crate::log::producers::ProducerError;
use crate::log::retention::RetentionSettings;
use crate::log::segment::RollSettings;
use crate::log::{
    AppendError, AppendedAs, AtLeastOne, Continuation, Log, LogError, LogSettings, Opening, Refusal, TimestampQuery,
};

#[test]
fn a_topic_with_append_time_gets_the_brokers_time_and_a_right_checksum() {
    Site::new(1).run(async {
        let settings = LogSettings { timestamp_type: TimestampType::LogAppendTime, ..small_segments() };
        let log = open(settings, closed()).await;
        let appended = log.append_as_leader(&produced(1, 0, 0, 3), epoch(0), 777_000).unwrap();
        assert_eq!(appended.log_append_time_ms, Some(777_000));
        let again = log.append_as_leader(&produced(1, 0, 0, 3), epoch(0), 888_000).unwrap();
        assert_eq!((again.kind, again.log_append_time_ms), (AppendedAs::Duplicate, Some(777_000)));
        store(&log).await;
        let bytes = read_all(&log).await;
        assert!(check_replicated(&bytes).all(|batch| batch.is_ok()));
        let header = BatchHeader::parse(&bytes).unwrap();
        assert_eq!(
            (header.max_timestamp_ms, header.attributes.timestamp_type()),
            (777_000, TimestampType::LogAppendTime)
        );
        let found = log.offset_for_timestamp(TimestampQuery::At(777_000), log.stored()).await.unwrap();
        assert_eq!(found, Some((777_000, offset(0))));
    });
}

#[test]
fn a_duplicate_is_answered_with_the_offsets_of_its_original_before_that_is_stored() {
    Site::new(2).run(async {
        let log = open(small_segments(), closed()).await;
        log.append_as_leader(&produced(1, 0, 0, 5), epoch(0), 0).unwrap();
        let first = log.append_as_leader(&produced(1, 0, 5, 5), epoch(0), 0).unwrap();
        let again = log.append_as_leader(&produced(1, 0, 5, 5), epoch(0), 0).unwrap();
        assert_eq!((again.base, again.next, again.kind), (first.base, first.next, AppendedAs::Duplicate));
        assert!(log.stored() < again.next, "the caller waits for the original (R4)");
        assert_eq!(log.appended(), offset(10));
        let old = log.append_as_leader(&produced(1, 0, 20, 5), epoch(0), 0);
        assert!(matches!(old, Err(AppendError::Producer(ProducerError::OutOfOrder { expected: 10, .. }))));
        assert_eq!(log.appended(), offset(10));
    });
}

#[test]
fn a_batch_larger_than_a_segment_is_refused() {
    Site::new(3).run(async {
        let log = open(small_segments(), closed()).await;
        let refused = log.append_as_leader(&batch(1, 17_000, 0), epoch(0), 0);
        assert!(matches!(refused, Err(AppendError::TooLarge { segment_bytes: 16_384, .. })));
        assert_eq!(log.appended(), Offset::ZERO);
    });
}

#[test]
fn a_rolled_segment_is_cut_to_its_batches_and_its_files_stand() {
    let site = Site::new(4);
    site.run(async {
        let log = open(small_segments(), closed()).await;
        for number in 0..30 {
            append(&log, &batch(1, 1777, number)).await;
        }
        // The roll's files are written behind; the flush waits for them.
        log.flush().await.unwrap();
    });
    let names = site.names();
    let logs: Vec<&String> = names.iter().filter(|name| name.ends_with(".log")).collect();
    assert_eq!(logs.len(), 4);
    let mut next = 0;
    for (at, name) in logs.iter().enumerate() {
        let content = site.content(name);
        assert_eq!(**name, format!("{next:020}.log"));
        let mut walk = scan(&content);
        let end = walk.finish();
        assert!(end == ScanEnd::Complete || (at == 3 && end == ScanEnd::Zeros), "{name}: {end}");
        next = walk.next_offset().unwrap().get();
        for ending in ["index", "timeindex"] {
            assert!(names.contains(&name.replace("log", ending)), "{name} has its {ending}");
        }
        assert!(at == 3 || names.contains(&format!("{next:020}.snapshot")));
    }
}

#[test]
fn a_segment_rolls_when_its_first_record_is_too_old_for_the_next() {
    Site::new(5).run(async {
        let roll = RollSettings { bytes: 1 << 20, age: Duration::from_secs(10) };
        let log = open(LogSettings { roll, ..small_segments() }, closed()).await;
        for timestamp_ms in [1000, 11_000, 11_001, 21_002, 90_000_000_000, 21_003] {
            append(&log, &batch(1, 10, timestamp_ms)).await;
        }
        assert_eq!(log.segments(), 4, "at 11,001, 21,002 and the far future; what follows that does not roll again");
        log.roll_if_due(90_000_010_001);
        assert_eq!(log.segments(), 5);
        log.roll_if_due(99_000_010_001);
        assert_eq!(log.segments(), 5, "an empty segment is not rolled");
        append(&log, &batch(1, 10, 5)).await;
        assert_eq!(outline(&read_all(&log).await).len(), 7);
    });
}

#[test]
fn after_a_kill_an_acknowledged_batch_is_a_duplicate_and_the_next_one_follows() {
    let site = Site::new(6);
    site.run(async {
        let log = open(small_segments(), closed()).await;
        append(&log, &produced(1, 0, 0, 10)).await;
    });
    site.machine.crash(Crash::Kill);
    site.machine.up();
    site.run(async {
        let log = open(small_segments(), crashed()).await;
        let again = log.append_as_leader(&produced(1, 0, 0, 10), epoch(1), 0).unwrap();
        assert_eq!((again.kind, again.base, again.next), (AppendedAs::Duplicate, offset(0), offset(10)));
        assert_eq!(log.append_as_leader(&produced(1, 0, 10, 10), epoch(1), 0).unwrap().base, offset(10));
        assert!(log.append_as_leader(&produced(1, 0, 30, 1), epoch(1), 0).is_err());
    });
}

#[test]
fn when_everything_was_deleted_offsets_go_on_and_a_producer_may_start_anywhere() {
    for crash in [false, true] {
        let site = Site::new(7);
        site.run(async move {
            let retention = RetentionSettings { bytes: None, age: Some(Duration::from_secs(1)) };
            let log = open(LogSettings { retention, ..small_segments() }, closed()).await;
            for number in 0..20 {
                append(&log, &batch(1, 1777, number)).await;
            }
            append(&log, &produced(1, 0, 0, 10)).await;
            assert_eq!(log.apply_retention(1_000_000, log.stored()).await.unwrap(), offset(30));
            assert_eq!((log.segments(), log.bytes()), (1, 0));
            if !crash {
                log.close().await.unwrap();
            }
        });
        assert_eq!(site.names().iter().filter(|name| name.ends_with(".log")).count(), 1);
        site.machine.crash(if crash { Crash::PowerLoss } else { Crash::Kill });
        site.machine.up();
        site.run(async move {
            let log = open(small_segments(), if crash { crashed() } else { closed() }).await;
            assert_eq!((log.start(), log.stored()), (offset(30), offset(30)));
            assert_eq!(log.append_as_leader(&produced(1, 0, 30, 1), epoch(0), 0).unwrap().base, offset(30));
        });
    }
}

#[test]
fn retention_by_size_takes_the_oldest_segments_and_their_files() {
    let site = Site::new(8);
    site.run(async {
        let retention = RetentionSettings { bytes: Some(20_000), age: Some(Duration::from_secs(1)) };
        let log = open(LogSettings { retention, ..small_segments() }, closed()).await;
        // A clock that runs ahead: by age nothing would ever go.
        for number in 0..40 {
            append(&log, &batch(1, 1777, 9_000_000_000_000 + number)).await;
        }
        let segments = log.segments();
        assert_eq!(
            log.apply_retention(0, Offset::ZERO).await.unwrap(),
            Offset::ZERO,
            "nothing above the high watermark goes"
        );
        let start = log.apply_retention(0, log.stored()).await.unwrap();
        assert!(log.segments() < segments && log.bytes() >= 20_000 && start > Offset::ZERO);
        assert!(matches!(
            log.read(Offset::ZERO, log.stored(), 1, AtLeastOne::Yes).await,
            Err(LogError::OutOfRange { .. })
        ));
        assert_eq!(outline(&read_all(&log).await)[0].0, start.get());
        let first = format!("{start:020}.log");
        let names: Vec<String> =
            sakia_io::fs::list_dir(FOLDER.as_ref()).await.unwrap().into_iter().map(|entry| entry.name).collect();
        let logs: Vec<&String> = names.iter().filter(|name| name.ends_with(".log")).collect();
        assert_eq!((logs.len(), logs[0]), (log.segments(), &first));
    });
}

#[test]
fn retention_and_flush_get_their_turn_beside_a_busy_writer() {
    Site::new(20).run(async {
        let retention = RetentionSettings { bytes: Some(3 << 20), age: None };
        let roll = RollSettings { bytes: 1 << 20, age: Duration::from_hours(1) };
        let log = open(LogSettings { retention, roll, ..small_segments() }, closed()).await;
        let busy = log.clone();
        // A producer that never leaves the writer without work.
        let producer = spawn(Class::Foreground, async move {
            for number in 0.. {
                if busy.append_as_leader(&batch(1, 4000, number), epoch(0), 0).is_err() {
                    sakia_io::sleep(Duration::from_micros(100)).await;
                }
                sakia_io::sleep(Duration::from_micros(20)).await;
            }
        });
        for _ in 0..20 {
            sakia_io::sleep(Duration::from_millis(5)).await;
            let soon = Duration::from_millis(200);
            sakia_io::timeout(soon, log.apply_retention(0, log.stored())).await.expect("in time").unwrap();
            sakia_io::timeout(soon, log.flush()).await.expect("in time").unwrap();
        }
        assert!(log.start() > Offset::ZERO);
        drop(producer);
    });
}

#[test]
fn a_time_is_found_inside_a_batch_compressed_or_not() {
    Site::new(9).run(async {
        let log = open(small_segments(), closed()).await;
        for compression in
            [Compression::None, Compression::Lz4, Compression::Zstd, Compression::Gzip, Compression::Snappy]
        {
            let mut builder = BatchBuilder::new(compression);
            let start = log.appended().get() * 1000;
            for late in [5, 9, 7] {
                builder.push(NewRecord { timestamp_ms: start + late, value: Some(b"value"), ..NewRecord::default() });
            }
            append(&log, &builder.build()).await;
        }
        let find = async |query| log.offset_for_timestamp(query, log.stored()).await.unwrap();
        for number in 0..5 {
            let base = number * 3;
            assert_eq!(find(TimestampQuery::At(base * 1000 + 5)).await, Some((base * 1000 + 5, offset(base))));
            assert_eq!(find(TimestampQuery::At(base * 1000 + 6)).await, Some((base * 1000 + 9, offset(base + 1))));
        }
        assert_eq!(find(TimestampQuery::Max).await, Some((12_009, offset(13))));
        assert_eq!(find(TimestampQuery::At(12_010)).await, None);
        let bounded = log.offset_for_timestamp(TimestampQuery::At(12_005), offset(12)).await.unwrap();
        assert_eq!(bounded, None, "above the bound nothing is found");
        log.advance_start(offset(1));
        assert_eq!(find(TimestampQuery::At(0)).await, Some((9, offset(1))), "nothing below the start is found");
    });
}

#[test]
fn a_follower_takes_only_what_continues_its_log() {
    Site::new(10).run(async {
        let log = open(small_segments(), closed()).await;
        let first = replicated(&batch(5, 10, 0), offset(0), epoch(3));
        assert_eq!(log.append_as_follower(&first, Continuation::Exact).unwrap(), offset(5));
        let refusal = |bytes: &[u8], continuation| match log.append_as_follower(bytes, continuation) {
            Err(LogError::Refused(refusal)) => refusal,
            other => panic!("{other:?}"),
        };
        let at_end = Refusal::NotAtEnd { base: offset(0), end: offset(5) };
        assert_eq!(refusal(&first, Continuation::OverGaps), at_end);
        let gap = replicated(&batch(2, 10, 0), offset(8), epoch(3));
        assert_eq!(refusal(&gap, Continuation::Exact), Refusal::NotAtEnd { base: offset(8), end: offset(5) });
        let older = replicated(&batch(1, 10, 0), offset(5), epoch(2));
        assert!(matches!(refusal(&older, Continuation::Exact), Refusal::Epoch { .. }));
        let mut torn = replicated(&batch(1, 10, 0), offset(5), epoch(3)).to_vec();
        let whole = torn.len();
        torn.extend_from_slice(&replicated(&batch(1, 10, 0), offset(6), epoch(3))[..70]);
        assert_eq!(refusal(&torn, Continuation::Exact), Refusal::NotWhole { good: whole });
        assert_eq!(log.appended(), offset(5), "nothing of a refused reply is kept");

        assert_eq!(log.append_as_follower(&gap, Continuation::OverGaps).unwrap(), offset(10));
        store(&log).await;
        for asked in 5..10 {
            let read = log.read(offset(asked), offset(10), 10_000, AtLeastOne::Yes).await.unwrap();
            assert_eq!(outline(&read.bytes.concat()), vec![(8, 10, 3)], "asked for {asked} in the gap");
        }
        log.release_if_idle(Duration::ZERO);
        let read = log.read(offset(6), offset(10), 10_000, AtLeastOne::Yes).await.unwrap();
        assert_eq!(outline(&read.bytes.concat()), vec![(8, 10, 3)], "and from disk");
    });
}

#[test]
fn the_epoch_of_a_leader_that_wrote_nothing_counts_as_the_latest() {
    Site::new(11).run(async {
        let log = open(small_segments(), closed()).await;
        log.begin_epoch(epoch(4));
        assert_eq!(log.end_of_epoch(epoch(4)), Some((epoch(4), offset(0))));
        append_in(&log, 4).await;
        log.begin_epoch(epoch(6));
        assert_eq!(log.latest_epoch(), Some(epoch(4)));
        let ends = [(3, Some((3, 0))), (4, Some((4, 2))), (5, Some((4, 2))), (6, Some((6, 2))), (7, None)];
        for (asked, expected) in ends {
            let found = log.end_of_epoch(epoch(asked)).map(|(epoch, end)| (epoch.get(), end.get()));
            assert_eq!(found, expected, "epoch {asked}");
        }
    });
}

async fn append_in(log: &Log, leader_epoch: i32) {
    log.append_as_leader(&batch(2, 10, 0), epoch(leader_epoch), 0).unwrap();
    store(log).await;
}

#[test]
fn what_is_appended_but_not_stored_is_lent_and_not_read() {
    Site::new(12).run(async {
        let log = open(small_segments(), closed()).await;
        append(&log, &batch(2, 10, 0)).await;
        log.append_as_leader(&batch(2, 10, 50), epoch(0), 0).unwrap();
        log.begin_epoch(epoch(1));
        log.append_as_leader(&batch(2, 10, 90), epoch(1), 0).unwrap();
        assert_eq!((log.stored(), log.appended()), (offset(2), offset(6)));
        let read = log.read(offset(2), offset(6), 1000, AtLeastOne::Yes).await.unwrap();
        assert!(read.is_empty() && read.next == offset(2));
        let lent = log.lend(offset(0), 1 << 20).unwrap();
        assert_eq!((lent.next, lent.max_timestamp_ms), (offset(4), 51), "a lease ends where the epoch does");
        let next = log.lend(lent.next, 1).unwrap();
        assert_eq!((next.next, next.leader_epoch), (offset(6), epoch(1)));
        assert!(log.lend(offset(6), 1).is_none());
        assert_eq!(
            log.end_of_epoch(epoch(0)),
            Some((epoch(0), offset(2))),
            "offsets that leave are stored offsets (R1)"
        );
    });
}

#[test]
fn batches_that_arrive_during_a_write_go_together_in_the_next() {
    Site::new(13).run(async {
        let log =
            Log::open(FOLDER.as_ref(), "orders", key(), small_segments(), Arena::new(1 << 20), closed()).await.unwrap();
        log.append_as_leader(&batch(1, 100, 0), epoch(0), 0).unwrap();
        let writes = shared(Vec::new());
        let (writer, seen) = (log.clone(), std::rc::Rc::clone(&writes));
        let task = spawn(Class::Foreground, async move {
            loop {
                let stored = writer.write_next().await.unwrap();
                seen.borrow_mut().push(stored.get());
            }
        });
        sakia_io::yield_now().await;
        for number in 0..9 {
            log.append_as_leader(&batch(1, 100, number), epoch(0), 0).unwrap();
        }
        store(&log).await;
        sakia_io::yield_now().await;
        assert!(writes.borrow().ends_with(&[10]) && writes.borrow().len() <= 2, "{:?}", writes.borrow());
        drop(task);
    });
}

#[test]
fn a_writer_dropped_in_the_middle_of_a_write_takes_the_log_offline() {
    Site::new(14).run(async {
        let log =
            Log::open(FOLDER.as_ref(), "orders", key(), small_segments(), Arena::new(1 << 20), closed()).await.unwrap();
        append_without_writer(&log);
        // Opening the file takes one wait, the write itself the next; whichever is cut short, nothing is acknowledged.
        for micros in [1, 30, 200, 2000] {
            let _ = sakia_io::timeout(Duration::from_micros(micros), log.write_next()).await;
        }
        let open = log.append_as_leader(&batch(1, 10, 0), epoch(0), 0);
        assert!(open.is_err() || log.stored() == offset(1), "{open:?} {}", log.stored());
    });
}

fn append_without_writer(log: &Log) {
    log.append_as_leader(&batch(1, 10, 0), LeaderEpoch::ZERO, 0).unwrap();
}

#[test]
fn an_idle_log_holds_no_chunk_and_goes_on_in_the_same_block() {
    Site::new(15).run(async {
        let arena = Arena::new(1 << 20);
        let log = Log::open(FOLDER.as_ref(), "orders", key(), small_segments(), arena.clone(), closed()).await.unwrap();
        for number in 0..3 {
            append_without_writer(&log);
            log.write_next().await.unwrap();
            assert!(arena.in_use() > 0);
            assert!(!log.release_if_idle(Duration::from_secs(5)), "not idle yet");
            sakia_io::sleep(Duration::from_secs(5)).await;
            assert!(log.release_if_idle(Duration::from_secs(5)));
            assert_eq!(arena.in_use(), 0);
            assert_eq!(outline(&read_all(&log).await).len(), number + 1);
        }
    });
}

#[test]
fn a_log_without_memory_refuses_and_goes_on_when_there_is_some() {
    Site::new(16).run(async {
        let arena = Arena::new(64 * 1024);
        let log = Log::open(FOLDER.as_ref(), "orders", key(), small_segments(), arena.clone(), closed()).await.unwrap();
        let hoard = arena.chunk(64 * 1024).unwrap();
        let refused = log.append_as_leader(&batch(1, 10, 0), epoch(0), 0);
        assert!(matches!(refused, Err(AppendError::Busy(_))));
        let bytes = replicated(&batch(1, 10, 0), offset(0), epoch(0));
        assert!(matches!(log.append_as_follower(&bytes, Continuation::Exact), Err(LogError::Busy(_))));
        assert_eq!(log.appended(), Offset::ZERO);
        drop(hoard);
        assert_eq!(log.append_as_follower(&bytes, Continuation::Exact).unwrap(), offset(1));
    });
}

#[test]
fn with_flush_messages_of_one_what_is_stored_survives_a_power_loss() {
    for seed in 0..30 {
        let site = Site::new(seed);
        let stored = shared(Offset::ZERO);
        let seen = std::rc::Rc::clone(&stored);
        let client = site.world.spawn_client(&site.machine, async move {
            let log = open(LogSettings { flush_messages: Some(1), ..small_segments() }, closed()).await;
            // The name of the first file is made durable as any owner does before it acknowledges under this setting.
            log.flush().await.unwrap();
            for number in 0.. {
                append(&log, &batch(2, 700, number)).await;
                *seen.borrow_mut() = log.stored();
            }
        });
        site.world.run_for(Duration::from_millis(20 + seed));
        assert!(!client.is_done() && *stored.borrow() > Offset::ZERO);
        site.machine.crash(Crash::PowerLoss);
        site.machine.up();
        let left = site.run(async { open(small_segments(), crashed()).await.stored() });
        assert!(left >= *stored.borrow(), "seed {seed}: {left} of {}", stored.borrow());
    }
}

#[test]
fn a_closed_log_answers_questions_and_refuses_the_rest() {
    Site::new(17).run(async {
        let log = open(small_segments(), closed()).await;
        append(&log, &batch(2, 10, 0)).await;
        log.close().await.unwrap();
        assert_eq!((log.stored(), log.recovery_point()), (offset(2), offset(2)));
        assert!(matches!(log.close().await, Err(LogError::Closed)));
        assert!(matches!(log.flush().await, Err(LogError::Closed)));
        assert!(matches!(log.write_next().await, Err(LogError::Closed)));
        assert!(matches!(log.read(offset(0), offset(2), 1, AtLeastOne::Yes).await, Err(LogError::Closed)));
        let refused = log.append_as_leader(&batch(2, 10, 0), epoch(0), 0);
        assert!(matches!(refused, Err(AppendError::Log(LogError::Closed))));
    });
}

#[test]
fn a_restart_at_another_offset_is_empty_there_and_stays() {
    let site = Site::new(18);
    site.run(async {
        let log = open(small_segments(), closed()).await;
        for number in 0..30 {
            append(&log, &batch(1, 1777, number)).await;
        }
        log.restart_empty(offset(500)).await.unwrap();
        assert_eq!(
            (log.start(), log.stored(), log.appended(), log.segments()),
            (offset(500), offset(500), offset(500), 1)
        );
        let bytes = replicated(&batch(3, 10, 0), offset(500), epoch(7));
        log.append_as_follower(&bytes, Continuation::Exact).unwrap();
        store(&log).await;
    });
    site.machine.crash(Crash::Kill);
    site.machine.up();
    site.run(async {
        let log = open(small_segments(), crashed()).await;
        assert_eq!((log.start(), log.stored(), log.latest_epoch()), (offset(500), offset(503), Some(epoch(7))));
        log.truncate(offset(3)).await.unwrap();
        assert_eq!((log.start(), log.stored(), log.latest_epoch()), (offset(3), offset(3), None));
    });
}

#[test]
fn data_folders_are_locked_listed_and_remember_what_was_written() {
    use crate::log::checkpoint::{CleanStop, OffsetCheckpoint};
    use crate::log::folder::{Checkpoints, DataFolder, PartitionFolder, delete_partition, partitions};
    let site = Site::new(19);
    let partition = PartitionFolder { topic: "orders".to_owned(), partition: key().partition };
    let partition = std::rc::Rc::new(partition);
    let again = std::rc::Rc::clone(&partition);
    site.run(async move {
        let folder = DataFolder::open("/data".as_ref()).await.unwrap();
        assert_eq!(folder.clean_stop(), None);
        assert_eq!(
            DataFolder::open("/data".as_ref()).await.err().map(|error| error.kind()),
            Some(std::io::ErrorKind::WouldBlock)
        );
        let log = open(small_segments(), folder.opening(&partition)).await;
        append(&log, &batch(3, 10, 0)).await;
        log.close().await.unwrap();
        let one = |at| OffsetCheckpoint { offsets: [(("orders".to_owned(), key().partition), at)].into() };
        let checkpoints = Checkpoints {
            recovery_points: one(log.recovery_point()),
            log_starts: one(log.start()),
            high_watermarks: one(offset(2)),
        };
        folder.write_checkpoints(&checkpoints).await.unwrap();
        CleanStop { broker_epoch: None }.leave(folder.path()).await.unwrap();
    });
    site.run(async move {
        let folder = DataFolder::open("/data".as_ref()).await.unwrap();
        assert_eq!(folder.clean_stop(), Some(CleanStop { broker_epoch: None }));
        assert_eq!(partitions(folder.path()).await.unwrap(), vec![(*again).clone()]);
        let expected = Opening { recovery_point: Some(offset(3)), log_start: Some(offset(0)), ..closed() };
        assert_eq!(folder.opening(&again), expected);
        assert_eq!(folder.high_watermarks().offsets.values().copied().collect::<Vec<_>>(), vec![offset(2)]);
        assert!(
            !sakia_io::fs::exists("/data/.kafka_cleanshutdown".as_ref()).await.unwrap(),
            "the mark is gone at once"
        );
        delete_partition(folder.path(), &again, 5).await.unwrap();
        assert_eq!(partitions(folder.path()).await.unwrap(), vec![]);
    });
}

#[test]
fn the_writer_tells_what_a_flush_has_written() {
    Site::new(40).run(async {
        let arena = Arena::new(64 << 20);
        let log =
            Log::open(std::path::Path::new(FOLDER), "orders", key(), small_segments(), arena, closed()).await.unwrap();
        log.append_as_leader(&batch(3, 50, 0), epoch(0), 0).unwrap();
        log.flush().await.unwrap();
        let told = sakia_io::timeout(Duration::from_secs(1), log.write_next()).await;
        assert_eq!(told.expect("the end has moved").unwrap(), offset(3));
        let silent = sakia_io::timeout(Duration::from_secs(1), log.write_next()).await;
        assert!(silent.is_err(), "each end is told once");
    });
}
