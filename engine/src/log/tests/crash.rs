//! Every write may be the last: the machine stops at each step of a program, by kill or power loss, and the log is opened again.
//!
//! After a kill the log holds everything that was stored; after a power loss everything below the recovery point; in both cases a
//! prefix of what was appended, with the epochs and producers that a replay of that prefix gives.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use sakia_io::sim::{Crash, Failing, Random};
use sakia_io::{Arena, Class, spawn};
use sakia_protocol::batch::headers;
use sakia_protocol::ids::{LeaderEpoch, Offset, ProducerId};

use super::harness::{
    FOLDER, Shared, Site, append, batch, crashed, key, open, outline, produced, read_all, replicated, shared,
    small_segments, store,
};
use crate::log::producers::Producers;
use crate::log::{Continuation, LastRun, Log, LogError, Opening};

/// Every batch ever appended that is not cut off, with (base, next, epoch).
#[derive(Clone, Default)]
struct Lineage(Vec<(Outline, Bytes)>);

type Outline = (i64, i64, i32);

/// What the world outside knows of the log.
#[derive(Default)]
struct Ledger {
    lineage: Lineage,
    /// While a truncation runs, the log may hold the old one.
    before_cut: Option<Lineage>,
    stored: i64,
    synced: i64,
    start: i64,
    /// What the owner wrote into its checkpoint files.
    recovery_point: Option<i64>,
    log_start: Option<i64>,
    sequence: i32,
}

impl Lineage {
    fn end(&self) -> i64 {
        self.0.last().map_or(0, |((_, next, _), _)| *next)
    }

    /// A log that lost so much that it ends below its checkpointed start begins again there.
    fn restart(&mut self, start: i64) {
        let epoch = self.epoch();
        self.0 = vec![((start, start, epoch), Bytes::new())];
    }

    fn epoch(&self) -> i32 {
        self.0.last().map_or(0, |((.., epoch), _)| *epoch)
    }

    fn from(&self, start: i64) -> Vec<u8> {
        self.0.iter().filter(|((_, next, _), _)| *next > start).flat_map(|(_, bytes)| bytes.to_vec()).collect()
    }

    fn push(&mut self, bytes: &Bytes) {
        let outline = outline(bytes);
        self.0.push((outline[0], bytes.clone()));
    }
}

/// Opens the log with a writer that tells the ledger what is stored.
async fn open_watched(ledger: &Shared<Ledger>) -> Log {
    let how = {
        let ledger = ledger.borrow();
        Opening {
            last_run: LastRun::Crashed,
            recovery_point: ledger.recovery_point.map(Offset::new),
            log_start: ledger.log_start.map(Offset::new),
            has_failed: false,
        }
    };
    let log = Log::open(FOLDER.as_ref(), "orders", key(), small_segments(), Arena::new(64 << 20), how).await.unwrap();
    let (writer, ledger) = (log.clone(), Rc::clone(ledger));
    spawn(Class::Foreground, async move {
        while let Ok(stored) = writer.write_next().await {
            let mut ledger = ledger.borrow_mut();
            // What is stored while the log is being cut is about to go.
            if ledger.before_cut.is_none() {
                ledger.stored = ledger.stored.max(stored.get());
            }
        }
    })
    .detach();
    log
}

/// Random steps for ever; the crash ends it.
async fn program(ledger: Shared<Ledger>, mut random: Random) {
    let log = open_watched(&ledger).await;
    loop {
        step(&log, &ledger, &mut random).await;
        let mut ledger = ledger.borrow_mut();
        ledger.synced = ledger.synced.max(log.recovery_point().get());
        ledger.start = log.start().get();
        if random.chance(1, 3) {
            ledger.recovery_point = Some(log.recovery_point().get());
            ledger.log_start = Some(log.start().get());
        }
    }
}

async fn step(log: &Log, ledger: &Shared<Ledger>, random: &mut Random) {
    match random.below(16) {
        0..=6 => append_some(log, ledger, random),
        7..=9 => store(log).await,
        10 => {
            let bytes = {
                let ledger = ledger.borrow();
                let epoch = ledger.lineage.epoch() + i32::from(random.chance(1, 3));
                replicated(
                    &batch(3, random.index(3000), 9000),
                    Offset::new(ledger.lineage.end()),
                    LeaderEpoch::new(epoch),
                )
            };
            ledger.borrow_mut().lineage.push(&bytes);
            log.append_as_follower(&bytes, Continuation::Exact).unwrap();
        }
        11 => {
            log.flush().await.unwrap();
        }
        12 => truncate(log, ledger, random).await,
        13 => {
            store(log).await;
            let (start, stored) = (log.start().get(), log.stored().get());
            let to = start + (stored - start) / 2;
            log.advance_start(Offset::new(to));
            ledger.borrow_mut().start = to;
            log.apply_retention(0, log.stored()).await.unwrap();
        }
        14 => {
            log.release_if_idle(Duration::ZERO);
        }
        _ => sakia_io::sleep(Duration::from_micros(random.below(2000))).await,
    }
}

fn append_some(log: &Log, ledger: &Shared<Ledger>, random: &mut Random) {
    let mut ledger = ledger.borrow_mut();
    for _ in 0..=random.below(3) {
        let new = if random.chance(1, 2) {
            let records = 1 + i64::try_from(random.below(4)).unwrap();
            let new = produced(9, 0, ledger.sequence, records);
            ledger.sequence += i32::try_from(records).unwrap();
            new
        } else {
            batch(1 + i64::try_from(random.below(4)).unwrap(), random.index(2000), 5000)
        };
        let epoch = LeaderEpoch::new(ledger.lineage.epoch() + i32::from(random.chance(1, 5)));
        log.begin_epoch(epoch);
        let appended = log.append_as_leader(&new, epoch, 0).unwrap();
        ledger.lineage.push(&replicated(&new, appended.base, epoch));
    }
}

async fn truncate(log: &Log, ledger: &Shared<Ledger>, random: &mut Random) {
    let (start, end) = (log.start().get(), log.appended().get());
    let back = i64::try_from(random.below(12)).unwrap();
    let to = (end - back).max(start);
    {
        let mut ledger = ledger.borrow_mut();
        let old = ledger.lineage.clone();
        ledger.lineage.0.retain(|((_, next, _), _)| *next <= to);
        let end = ledger.lineage.end();
        ledger.stored = ledger.stored.min(end);
        ledger.synced = ledger.synced.min(end);
        ledger.start = ledger.start.min(end);
        ledger.before_cut = Some(old);
    }
    log.truncate(Offset::new(to)).await.unwrap();
    let mut ledger = ledger.borrow_mut();
    ledger.before_cut = None;
    // The owner lowers its checkpoints before it appends again.
    ledger.recovery_point = Some(log.recovery_point().get());
    ledger.log_start = Some(log.start().get());
    // Sequences go on where the shorter log ends.
    ledger.sequence =
        known(&ledger.lineage).producer(ProducerId::new(9)).map_or(0, |p| p.window.last().unwrap().last_sequence + 1);
}

fn known(lineage: &Lineage) -> Producers {
    let mut producers = Producers::default();
    for (_, bytes) in &lineage.0 {
        headers(bytes).for_each(|batch| producers.record(&batch.header));
    }
    producers
}

/// Opens the log after the crash and compares it with the ledger; the ledger then knows what is left.
async fn check(ledger: Shared<Ledger>, crash: Crash, seed: u64) {
    let log = open_watched(&ledger).await;
    let read = read_all(&log).await;
    let mut ledger = ledger.borrow_mut();
    let start = log.start().get();
    let floor = if crash == Crash::Kill { ledger.stored } else { ledger.synced };
    let context = format!("seed {seed} {crash:?}: {start}..{} floor {floor}", log.stored());
    assert!(log.stored().get() >= floor, "{context}: acknowledged bytes are lost");
    assert!(start <= ledger.start.max(ledger.log_start.unwrap_or(0)), "{context}: the start runs ahead");
    let candidates = [Some(&ledger.lineage), ledger.before_cut.as_ref()];
    let fits =
        |lineage: &&Lineage| lineage.from(start).starts_with(&read) && log.stored().get() <= lineage.end().max(start);
    let Some(lineage) = candidates.into_iter().flatten().find(fits) else {
        panic!("{context}: {:?} is no prefix of {:?}", outline(&read), outline(&ledger.lineage.from(start)));
    };
    let mut left = lineage.clone();
    left.0.retain(|((_, next, _), _)| *next <= log.stored().get());
    if left.end() < start {
        left.restart(start);
    }
    check_epochs(&log, &left, start, &context);
    check_producers(&log, &left, start, &context);
    let sequence = known(&left).producer(ProducerId::new(9)).map_or(0, |p| p.window.last().unwrap().last_sequence + 1);
    let kept = Ledger {
        stored: log.stored().get(),
        synced: floor.min(log.recovery_point().get()),
        start,
        lineage: left,
        recovery_point: Some(log.recovery_point().get()),
        log_start: Some(start),
        sequence,
        before_cut: None,
    };
    *ledger = kept;
}

fn check_epochs(log: &Log, left: &Lineage, start: i64, context: &str) {
    for ((base, next, epoch), _) in left.0.iter().filter(|((_, next, _), _)| *next > start) {
        let base = (*base).max(start);
        assert_eq!(
            log.epoch_at(Offset::new(base)),
            Some(LeaderEpoch::new(*epoch)),
            "{context}: epoch of {base}..{next}"
        );
    }
    if left.end() > start {
        assert_eq!(log.latest_epoch(), Some(LeaderEpoch::new(left.epoch())), "{context}");
    }
}

/// The last batch is always known; of those before it, the log knows the newest.
fn check_producers(log: &Log, left: &Lineage, start: i64, context: &str) {
    let mut replayed = known(left);
    replayed.forget_below(Offset::new(start));
    let state = log.0.state.borrow();
    let ids = |producers: &Producers| producers.iter().map(|(id, _)| id).collect::<Vec<_>>();
    assert_eq!(ids(&state.producers), ids(&replayed), "{context}");
    for (id, producer) in state.producers.iter() {
        let all = &replayed.producer(id).unwrap().window;
        assert!(!producer.window.is_empty() && all.ends_with(&producer.window), "{context}: {producer:?} {all:?}");
    }
}

fn crash_at(seed: u64, operations: u64, crash: Crash) {
    let site = Site::new(seed);
    let ledger = shared(Ledger::default());
    for round in 0..3 {
        let until = site.world.operations() + operations;
        let client = site.world.spawn_client(&site.machine, program(Rc::clone(&ledger), site.world.random()));
        site.world.run_until(Duration::from_secs(3600), |world| world.operations() >= until).unwrap();
        assert!(!client.is_done());
        site.machine.crash(crash);
        site.machine.up();
        site.run(check(Rc::clone(&ledger), crash, seed * 100 + round));
        // The log that was opened for the check dies with its shard, like a process that is killed.
        site.machine.crash(Crash::Kill);
        site.machine.up();
    }
}

#[test]
fn a_kill_at_any_step_loses_nothing_that_was_stored() {
    for operations in 1..250 {
        crash_at(operations % 7, operations, Crash::Kill);
    }
}

#[test]
fn a_power_loss_at_any_step_loses_nothing_below_the_recovery_point() {
    for operations in 1..250 {
        crash_at(operations % 7, operations, Crash::PowerLoss);
    }
}

#[test]
fn a_failed_write_or_sync_takes_the_log_offline_for_good_and_loses_nothing_that_was_stored() {
    for seed in 0..40 {
        let site = Site::new(seed);
        let stored = {
            let disk = site.machine.disk();
            let mut random = site.world.random();
            site.run(async move {
                let log = open(small_segments(), crashed()).await;
                for number in 0..5 {
                    append(&log, &batch(2, 900, number)).await;
                }
                let failing = Failing::next().on("orders-0");
                if seed % 2 == 0 {
                    disk.fail_writes(failing);
                } else {
                    disk.fail_syncs(failing);
                }
                let epoch = LeaderEpoch::ZERO;
                let mut answer = Ok(());
                for number in 0..200 {
                    if let Err(error) = log.append_as_leader(&batch(2, random.index(900), number), epoch, 0) {
                        answer = Err(error);
                        break;
                    }
                    sakia_io::sleep(Duration::from_micros(400)).await;
                }
                assert!(answer.is_err(), "the log goes offline");
                disk.heal();
                let stored = log.stored();
                assert!(matches!(log.write_next().await, Err(LogError::Offline(_))));
                assert!(matches!(log.flush().await, Err(LogError::Offline(_))));
                assert!(matches!(log.truncate(Offset::ZERO).await, Err(LogError::Offline(_))));
                assert!(matches!(log.close().await, Err(LogError::Offline(_))));
                assert_eq!(log.stored(), stored);
                stored
            })
        };
        site.machine.crash(Crash::Kill);
        site.machine.up();
        site.run(async move {
            let log = open(small_segments(), crashed()).await;
            assert!(log.stored() >= stored);
        });
    }
}

#[test]
fn what_a_failed_sync_gave_up_is_written_again_by_the_next_start() {
    for seed in 0..20 {
        let site = Site::new(seed);
        let disk = site.machine.disk();
        let (first, last) = (2 + i64::try_from(seed).unwrap(), 40);
        let point = site.run(async move {
            let log = open(small_segments(), crashed()).await;
            for number in 0..first {
                append(&log, &batch(2, 700, number)).await;
            }
            let point = log.flush().await.unwrap();
            disk.fail_syncs(Failing::next().on("orders-0"));
            let mut number = first;
            // A segment may be rolled, and synced, before the log is flushed.
            while number < last && log.append_as_leader(&batch(2, 700, number), LeaderEpoch::ZERO, 0).is_ok() {
                sakia_io::sleep(Duration::from_millis(1)).await;
                number += 1;
            }
            assert!(matches!(log.flush().await, Err(LogError::Offline(_))));
            disk.heal();
            point
        });
        site.machine.crash(Crash::Kill);
        site.machine.up();
        let (bytes, point) = site.run(async move {
            let how = Opening { recovery_point: Some(point), has_failed: true, ..crashed() };
            let log = open(small_segments(), how).await;
            let point = log.flush().await.unwrap();
            (read_all(&log).await, point)
        });
        site.machine.crash(Crash::PowerLoss);
        site.machine.up();
        site.run(async move {
            let how = Opening { recovery_point: Some(point), ..crashed() };
            let log = open(small_segments(), how).await;
            assert_eq!(read_all(&log).await, bytes);
            assert!(log.stored() == point && outline(&bytes).len() > usize::try_from(first).unwrap());
        });
    }
}

/// Found once, each by a random crash: a recovery point at the base of a segment whose predecessor was synced but not cut (1063);
/// lost bytes behind the end of the file that came back with the next power loss (6, 5241); an epoch file that knew an epoch whose
/// records were lost (5).
#[test]
fn crashes_that_found_something_once() {
    for (seed, operations) in [(1063, 77), (6, 13), (5241, 40), (5, 61)] {
        crash_at(seed, operations, Crash::PowerLoss);
        crash_at(seed, operations, Crash::Kill);
    }
}

#[test]
fn many_seeds_crash_late() {
    for seed in 1000..1060 {
        for operations in [301, 450] {
            crash_at(seed, operations, if seed % 2 == 0 { Crash::Kill } else { Crash::PowerLoss });
        }
    }
}
