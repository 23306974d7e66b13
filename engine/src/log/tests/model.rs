//! A log is one vector of batches: random steps, compared after each.

use bytes::Bytes;
use sakia_io::sim::Random;
use sakia_protocol::batch::crc::crc32c;
use sakia_protocol::ids::{LeaderEpoch, Offset};

use super::harness::{Site, batch, closed, open, read_all, replicated, small_segments, store};
use crate::log::retention::RetentionSettings;
use crate::log::{AtLeastOne, Continuation, Log, LogError, LogSettings, Opening};

#[derive(Default)]
struct Model {
    /// (base, next, epoch, bytes), without those below the first segment.
    batches: Vec<(Offset, Offset, LeaderEpoch, Bytes)>,
    start: Start,
    lent: Vec<(Bytes, u32)>,
}

/// The log start; 0 at first.
#[derive(Clone, Copy)]
struct Start(Offset);

impl Default for Start {
    fn default() -> Self {
        Self(Offset::ZERO)
    }
}

impl Model {
    fn end(&self) -> Offset {
        self.batches.last().map_or(self.start.0, |(_, next, ..)| *next).max(self.start.0)
    }

    fn epoch(&self) -> LeaderEpoch {
        self.batches.last().map_or(LeaderEpoch::ZERO, |(_, _, epoch, _)| *epoch)
    }

    fn read(&self, from: Offset, below: Offset, bytes_max: usize, at_least_one: AtLeastOne) -> (Vec<u8>, Offset) {
        let (mut bytes, mut next) = (Vec::new(), from);
        for (_, end, _, batch) in self.batches.iter().filter(|(_, end, ..)| *end > from) {
            let fits = bytes.len() + batch.len() <= bytes_max || (bytes.is_empty() && at_least_one == AtLeastOne::Yes);
            if *end > below || !fits {
                break;
            }
            bytes.extend_from_slice(batch);
            next = *end;
        }
        (bytes, next)
    }

    fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let found = self.batches.iter().find(|(base, next, ..)| *base <= offset && offset < *next);
        found.map(|(_, _, epoch, _)| *epoch)
    }

    fn end_of_epoch(&self, asked: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        let reachable = || self.batches.iter().filter(|(_, next, ..)| *next > self.start.0);
        let latest = reachable().map(|(_, _, epoch, _)| *epoch).max()?;
        if asked > latest {
            return None;
        }
        let above = reachable().find(|(_, _, epoch, _)| *epoch > asked);
        let end = above.map_or(self.end(), |(base, ..)| (*base).max(self.start.0));
        let floor = reachable().map(|(_, _, epoch, _)| *epoch).filter(|epoch| *epoch <= asked).max();
        Some((floor.unwrap_or(asked), end))
    }
}

async fn step(log: &mut Log, model: &mut Model, random: &mut Random, settings: LogSettings) {
    match random.below(20) {
        0..=5 => append_as_leader(log, model, random),
        6..=8 => append_as_follower(log, model, random),
        9..=11 => store(log).await,
        12 => truncate(log, model, random).await,
        13 => {
            store(log).await;
            let how = Opening { log_start: Some(log.start()), ..closed() };
            log.close().await.unwrap();
            *log = open(settings, how).await;
        }
        14 => {
            log.flush().await.unwrap();
            assert!(log.recovery_point() == log.stored() && log.stored() == log.appended());
        }
        15 => {
            store(log).await;
            log.release_if_idle(std::time::Duration::ZERO);
            assert_eq!(log.memory_start(), None);
        }
        16 => advance_start(log, model, random).await,
        17 => lend(log, model, random),
        _ => read(log, model, random).await,
    }
}

fn append_as_leader(log: &Log, model: &mut Model, random: &mut Random) {
    let (records, len) = (1 + random.below(5), random.index(1500));
    let new = batch(i64::try_from(records).unwrap(), len, 1000 + i64::try_from(random.below(100_000)).unwrap());
    let epoch = if random.chance(1, 4) { model.epoch().next() } else { model.epoch() };
    log.begin_epoch(epoch);
    let appended = log.append_as_leader(&new, epoch, 0).unwrap();
    assert_eq!(appended.base, model.end());
    model.batches.push((appended.base, appended.next, epoch, replicated(&new, appended.base, epoch)));
}

fn append_as_follower(log: &Log, model: &mut Model, random: &mut Random) {
    let mut bytes = Vec::new();
    for _ in 0..=random.below(3) {
        let new = batch(1 + i64::try_from(random.below(4)).unwrap(), random.index(3000), 5000);
        let epoch = if random.chance(1, 4) { model.epoch().next() } else { model.epoch() };
        let placed = replicated(&new, model.end(), epoch);
        bytes.extend_from_slice(&placed);
        let base = model.end();
        let next = base.advance(new.offsets());
        model.batches.push((base, next, epoch, placed));
    }
    assert_eq!(log.append_as_follower(&bytes, Continuation::Exact).unwrap(), model.end());
}

async fn truncate(log: &Log, model: &mut Model, random: &mut Random) {
    let to = pick(random, model.start.0, model.end().next());
    let before = log.appended();
    log.truncate(to).await.unwrap();
    model.batches.retain(|(_, next, ..)| *next <= to);
    assert!(
        log.appended() <= to && (to == before || log.stored() == log.appended()),
        "the log ends at or below the cut"
    );
    // A cut inside the batch that holds the start takes the start along.
    model.start.0 = model.start.0.min(log.appended());
    assert_eq!(log.start(), model.start.0);
}

async fn advance_start(log: &Log, model: &mut Model, random: &mut Random) {
    store(log).await;
    let start = pick(random, model.start.0, model.end().next());
    log.advance_start(start);
    model.start.0 = start;
    assert_eq!(log.apply_retention(0, log.stored()).await.unwrap(), start);
}

fn lend(log: &Log, model: &mut Model, random: &mut Random) {
    if model.batches.is_empty() {
        return;
    }
    let (base, _, epoch, _) = random.pick(&model.batches).clone();
    let Some(lent) = log.lend(base, random.index(10_000)) else {
        assert!(log.memory_start().is_none_or(|start| base < start));
        return;
    };
    let (expected, _) = model.read(base, lent.next, usize::MAX, AtLeastOne::Yes);
    assert_eq!((lent.base, lent.leader_epoch), (base, epoch));
    assert!(lent.bytes == expected && lent.crc32c == crc32c(&expected) && !expected.is_empty());
    assert_eq!(model.epoch_at(Offset::new(lent.next.get() - 1)), Some(epoch));
    model.lent.push((lent.bytes, lent.crc32c));
}

async fn read(log: &Log, model: &Model, random: &mut Random) {
    let from = pick(random, model.start.0, model.end().next());
    let below = pick(random, model.start.0, model.end().next());
    let bytes_max = random.index(20_000);
    let at_least_one = if random.chance(1, 2) { AtLeastOne::Yes } else { AtLeastOne::No };
    let stored = log.stored();
    let read = log.read(from, below.min(stored), bytes_max, at_least_one).await.unwrap();
    let (bytes, next) = model.read(from, below.min(stored), bytes_max, at_least_one);
    assert!(read.bytes.concat() == bytes, "from {from} below {below} max {bytes_max}");
    assert_eq!(read.next, next);
}

fn pick(random: &mut Random, from: Offset, below: Offset) -> Offset {
    let from_plain = u64::try_from(from.get()).unwrap();
    let below = u64::try_from(below.get()).unwrap();
    Offset::new(i64::try_from(random.within(from_plain..below.max(from_plain + 1))).unwrap())
}

async fn compare(log: &Log, model: &Model) {
    assert_eq!(log.appended(), model.end());
    assert_eq!(log.start(), model.start.0);
    for (bytes, crc) in &model.lent {
        assert_eq!(crc32c(bytes), *crc, "lent bytes never change (R5)");
    }
    let above = log.appended().next();
    let refused = log.read(above, above, 1, AtLeastOne::Yes).await;
    assert!(matches!(refused, Err(LogError::OutOfRange { .. })), "{refused:?}");
    for (base, ..) in &model.batches {
        if *base >= model.start.0 {
            assert_eq!(log.epoch_at(*base), model.epoch_at(*base), "epoch at {base}");
        }
    }
}

#[test]
fn a_log_behaves_like_one_vector_of_batches() {
    for seed in 0..60 {
        let site = Site::new(seed);
        let mut random = site.world.random();
        site.run(async move {
            let settings = LogSettings { retention: RetentionSettings::default(), ..small_segments() };
            let mut log = open(settings, closed()).await;
            let mut model = Model::default();
            for _ in 0..200 {
                step(&mut log, &mut model, &mut random, settings).await;
                compare(&log, &model).await;
            }
            store(&log).await;
            let first = model.epoch_at(log.start()).unwrap_or(LeaderEpoch::ZERO);
            for asked in first.get()..model.epoch().get() + 2 {
                let asked = LeaderEpoch::new(asked);
                // An empty log still knows the epoch it was in.
                if model.start.0 < model.end() {
                    assert_eq!(log.end_of_epoch(asked), model.end_of_epoch(asked), "epoch {asked}");
                }
            }
            let (all, _) = model.read(model.start.0, model.end(), usize::MAX, AtLeastOne::Yes);
            assert!(read_all(&log).await == all);
        });
    }
}
