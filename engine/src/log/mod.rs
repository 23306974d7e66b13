//! The log of one partition: the only place where records are kept.
//!
//! Path: a checked batch is copied once into the tail (`state`, `tail`), the writer puts whole blocks of it on disk
//! (`writer`), leases of the same memory go to the combiner, consumers and followers read tail or disk (`reader`).
//! Reading order: `segment` (files), `index`, `tail`, `state`, `writer`, `reader`, `search`; then what keeps the log right over
//! time: `epochs`, `producers`, `snapshot`, `upkeep` (settle, flush, close), `retention`, `cut` (truncation), `recovery` and `scan`; and what lies
//! beside the partitions: `checkpoint`, `folder`.
//!
//! A log has two ends (R1): `appended` in memory, `stored` on disk; offsets that leave the broker are stored offsets.
//! Invariant: bytes of a batch never change once appended (R5). After a failed write or sync every call fails (R6).
//! Invariant: a log that is opened again after the process died holds every stored batch; after a power loss every batch
//! below the recovery point; in both cases nothing that was not appended.

pub mod checkpoint;
mod cut;
pub mod epochs;
mod error;
pub mod folder;
pub mod index;
pub mod limits;
pub mod producers;
mod reader;
mod recovery;
pub mod retention;
mod scan;
mod search;
pub mod segment;
pub mod snapshot;
mod state;
mod tail;
#[cfg(test)]
mod tests;
mod turn;
mod upkeep;
mod walk;
mod writer;

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use sakia_io::{Arena, now, wall_clock_ms};
use sakia_protocol::batch::{CheckedBatch, StampedTime, TimestampType};
use sakia_protocol::ids::{LeaderEpoch, Offset, PartitionKey};

pub(crate) use error::is_want;
pub use error::{AppendError, LogError, Refusal};
pub use reader::{AtLeastOne, LogRead};
pub use search::TimestampQuery;
pub use state::Lent;
pub use tail::TailFull;

use producers::Verdict;
use retention::RetentionSettings;
use segment::RollSettings;
use state::{State, Surroundings};
use turn::{Bell, Turn};
use walk::walk;

/// Settings of one log; all of them may change while it is open (`Log::change_settings`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogSettings {
    /// `segment.bytes`, `segment.ms`.
    pub roll: RollSettings,
    /// `retention.bytes`, `retention.ms`.
    pub retention: RetentionSettings,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `flush.messages`: sync before more records than this are stored but not synced; `None` never.
    pub flush_messages: Option<u64>,
    /// `flush.ms`: `Log::upkeep` syncs what is stored longer than this; `None` never.
    pub flush_age: Option<Duration>,
    /// `producer.id.expiration.ms`.
    pub producer_expiry: Duration,
    /// Whether files are opened for direct I/O.
    pub io: FileIo,
}

impl Default for LogSettings {
    /// Kafka's defaults, direct I/O.
    fn default() -> Self {
        Self {
            roll: RollSettings { bytes: 1 << 30, age: Duration::from_hours(7 * 24) },
            retention: RetentionSettings { bytes: None, age: Some(Duration::from_hours(7 * 24)) },
            timestamp_type: TimestampType::CreateTime,
            flush_messages: None,
            flush_age: None,
            producer_expiry: Duration::from_hours(24),
            io: FileIo::Direct,
        }
    }
}

/// How segments are opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileIo {
    /// Past the page cache.
    Direct,
    /// Through it, where the file system cannot do better.
    Buffered,
}

/// What is known about the folder's last run when a log is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Opening {
    /// How the last run ended.
    pub last_run: LastRun,
    /// From `recovery-point-offset-checkpoint`.
    pub recovery_point: Option<Offset>,
    /// From `log-start-offset-checkpoint`.
    pub log_start: Option<Offset>,
    /// A write or sync failed in the folder: what is read behind the recovery point may be in a cache that a sync has given
    /// up, so it is written again.
    pub has_failed: bool,
}

/// How the last run of a data folder ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LastRun {
    /// Every log was closed.
    Closed,
    /// Not known to have been clean: the end of the log is checked byte by byte.
    #[default]
    Crashed,
}

/// A leader's append that succeeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// Offset of the first record; the original's for a duplicate.
    pub base: Offset,
    /// Offset behind the last; the answer waits until the log is stored or replicated up to here (R4).
    pub next: Offset,
    /// The time that a topic with `LogAppendTime` gave the records (ms).
    pub log_append_time_ms: Option<i64>,
    /// Whether something was appended.
    pub kind: AppendedAs,
}

/// Whether a batch was new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AppendedAs {
    /// It stands at the end of the log.
    New,
    /// It stood in the log already; nothing was appended.
    Duplicate,
}

/// How replicated bytes may continue a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Continuation {
    /// Every batch begins where the one before it ends.
    Exact,
    /// Offsets may be missing between batches, where compaction took them (bytes from a leader only, R9).
    OverGaps,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Health {
    Open,
    Closed,
    Offline(String),
}

/// One partition's log on its owner shard. Clones are the same log. `!Send`.
#[derive(Clone)]
pub struct Log(Rc<Inner>);

struct Inner {
    folder: PathBuf,
    topic: String,
    key: PartitionKey,
    arena: Arena,
    settings: Cell<LogSettings>,
    state: RefCell<State>,
    health: RefCell<Health>,
    /// Rings at appends, at writes and when the log closes: the writer waits for it.
    appended: Bell,
    /// Held while the end of the files changes: a write, a cut.
    pen: Turn,
    /// Held while state files, syncs and whole segments are dealt with. Taken before `pen`.
    upkeep: Turn,
    settling: Cell<bool>,
}

impl Log {
    /// Opens the log in the partition's folder: creates it, or recovers what is there.
    ///
    /// # Errors
    /// `Offline`: the disk failed. `OtherTopic`: the folder is another topic's. `Unreadable`: want of memory or open files.
    /// `Damaged`: a file that no run of ours left like that; other damage is no error, it is repaired.
    pub async fn open(
        folder: &Path,
        topic: &str,
        key: PartitionKey,
        settings: LogSettings,
        arena: Arena,
        how: Opening,
    ) -> Result<Self, LogError> {
        let state = recovery::recover(folder, topic, key, settings, how).await?;
        Ok(Self(Rc::new(Inner {
            folder: folder.to_owned(),
            topic: topic.to_owned(),
            key,
            arena,
            settings: Cell::new(settings),
            state: RefCell::new(state),
            health: RefCell::new(Health::Open),
            appended: Bell::default(),
            pen: Turn::default(),
            upkeep: Turn::default(),
            settling: Cell::new(false),
        })))
    }

    /// Which partition it is.
    #[must_use]
    pub fn key(&self) -> PartitionKey {
        self.0.key
    }

    /// Name of its topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.0.topic
    }

    /// The partition's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// First offset that may be read.
    #[must_use]
    pub fn start(&self) -> Offset {
        self.0.state.borrow().start
    }

    /// End of the log in memory (R1).
    #[must_use]
    pub fn appended(&self) -> Offset {
        self.0.state.borrow().appended
    }

    /// End of the log on disk: what may be reported and served (R1).
    #[must_use]
    pub fn stored(&self) -> Offset {
        self.0.state.borrow().stored
    }

    /// Everything below survives a power loss; goes into `recovery-point-offset-checkpoint`.
    #[must_use]
    pub fn recovery_point(&self) -> Offset {
        self.0.state.borrow().recovery_point
    }

    /// Bytes of all batches.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.state.borrow().bytes()
    }

    /// Number of segments, the active one included.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.0.state.borrow().segments.len()
    }

    /// First offset that can still be lent or read without the disk; `None` if nothing is in memory.
    #[must_use]
    pub fn memory_start(&self) -> Option<Offset> {
        self.0.state.borrow().tail.first()
    }

    /// First offset of the oldest open transaction.
    #[must_use]
    pub fn first_open_transaction(&self) -> Option<Offset> {
        self.0.state.borrow().producers.first_open_transaction()
    }

    /// Number of producer ids that are remembered.
    #[must_use]
    pub fn producer_ids(&self) -> usize {
        self.0.state.borrow().producers.len()
    }

    /// Leader epoch of the last record.
    #[must_use]
    pub fn latest_epoch(&self) -> Option<LeaderEpoch> {
        self.0.state.borrow().epochs.latest().map(|latest| latest.epoch)
    }

    /// Leader epoch of the record at `offset`.
    #[must_use]
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let state = self.0.state.borrow();
        if offset >= state.appended { None } else { state.epochs.epoch_at(offset) }
    }

    /// Reads the log's leader epochs.
    pub fn with_epochs<T>(&self, read: impl FnOnce(&epochs::EpochCache) -> T) -> T {
        read(&self.0.state.borrow().epochs)
    }

    /// Kafka's OffsetForLeaderEpoch over what is stored: the largest epoch at or below `epoch` and where it ends. A leadership
    /// that has begun but written nothing counts as the latest.
    #[must_use]
    pub fn end_of_epoch(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        let state = self.0.state.borrow();
        let latest = state.epochs.latest();
        let begun = state.begun_epoch.filter(|begun| latest.is_none_or(|latest| latest.epoch < *begun));
        if begun == Some(epoch) {
            return Some((epoch, state.stored));
        }
        let (found, end) = match state.epochs.end_of(epoch, state.stored) {
            None if begun.is_some_and(|begun| epoch < begun) => {
                (latest.map_or(epoch, |latest| latest.epoch), state.stored)
            }
            answer => answer?,
        };
        Some((found, end.min(state.stored)))
    }

    /// This broker leads from now on in `epoch`; the epoch gets its entry with its first append.
    pub fn begin_epoch(&self, epoch: LeaderEpoch) {
        let mut state = self.0.state.borrow_mut();
        assert!(
            state.epochs.latest().is_none_or(|latest| latest.epoch <= epoch),
            "a leadership begins above the log's epochs"
        );
        state.begun_epoch = Some(epoch);
    }

    /// Appends a client's batch at the end, in leadership `epoch`. Synchronous: one copy into the tail; the answer waits for
    /// `stored` (or more) to reach `next`.
    ///
    /// # Errors
    /// Nothing was appended.
    pub fn append_as_leader(
        &self,
        batch: &CheckedBatch,
        epoch: LeaderEpoch,
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        self.check_open()?;
        let settings = self.0.settings.get();
        let mut state = self.0.state.borrow_mut();
        assert!(state.begun_epoch.is_none_or(|begun| begun == epoch), "a leader appends in the epoch it has begun");
        if batch.len() > usize::try_from(settings.roll.bytes).unwrap_or(usize::MAX) {
            return Err(AppendError::TooLarge { bytes: batch.len(), segment_bytes: settings.roll.bytes });
        }
        let broker_time =
            |timestamp_ms| (settings.timestamp_type == TimestampType::LogAppendTime).then_some(timestamp_ms);
        if let Verdict::Duplicate(original) = state.producers.check(batch.header())? {
            let log_append_time_ms = broker_time(original.timestamp_ms);
            return Ok(Appended {
                base: original.base(),
                next: original.next(),
                log_append_time_ms,
                kind: AppendedAs::Duplicate,
            });
        }
        let time = broker_time(now_ms).map_or(StampedTime::FromRecords, StampedTime::AppendedAt);
        let base = state.appended;
        let placed = batch.place(base, epoch, time);
        let around = Surroundings { arena: &self.0.arena, roll: settings.roll, now_ms, now: now() };
        state.append(placed.header(), placed.header_bytes(), placed.body(), &around).map_err(AppendError::Busy)?;
        let next = state.appended;
        drop(state);
        self.0.appended.ring();
        Ok(Appended { base, next, log_append_time_ms: broker_time(now_ms), kind: AppendedAs::New })
    }

    /// Appends replicated batches, whose checksums were verified, and returns the new end in memory. If memory runs out midway it
    /// is below the end of `batches`: the caller comes again with the rest.
    ///
    /// # Errors
    /// Nothing was appended: the bytes do not continue this log, or there is no room for the first batch.
    pub fn append_as_follower(&self, batches: &[u8], continuation: Continuation) -> Result<Offset, LogError> {
        self.check_open()?;
        let mut state = self.0.state.borrow_mut();
        check_continues(&state, batches, continuation)?;
        state.begun_epoch = None;
        let roll = self.0.settings.get().roll;
        let around = Surroundings { arena: &self.0.arena, roll, now_ms: wall_clock_ms(), now: now() };
        let before = state.appended;
        for batch in walk(batches) {
            match state.append(&batch.header, batch.head, batch.body, &around) {
                Ok(()) => {}
                Err(full) if state.appended == before => return Err(LogError::Busy(full.to_string())),
                Err(_) => break,
            }
        }
        let end = state.appended;
        drop(state);
        self.0.appended.ring();
        Ok(end)
    }

    /// Lends appended bytes from the batch boundary `from` on (see [`Lent`]): at most `bytes_max`, at least one batch. `None` if there
    /// is nothing behind `from`, or if it is no longer in memory (`memory_start`).
    #[must_use]
    pub fn lend(&self, from: Offset, bytes_max: usize) -> Option<Lent> {
        self.0.state.borrow().lend(from, bytes_max)
    }

    /// The settings have changed.
    pub fn change_settings(&self, settings: LogSettings) {
        self.0.settings.set(settings);
    }

    fn check_open(&self) -> Result<(), LogError> {
        match &*self.0.health.borrow() {
            Health::Open => Ok(()),
            Health::Closed => Err(LogError::Closed),
            Health::Offline(cause) => Err(LogError::Offline(cause.clone())),
        }
    }

    /// R6: the folder is offline; every later call fails.
    fn fail(&self, action: &str, file: &Path, error: &std::io::Error) -> LogError {
        let cause = format!("{action} of {} failed: {error}", file.display());
        tracing::error!(topic = %self.0.topic, partition = %self.0.key.partition, %cause, "log is offline");
        *self.0.health.borrow_mut() = Health::Offline(cause.clone());
        self.0.appended.ring();
        LogError::Offline(cause)
    }
}

/// Looks at all of the bytes before any is appended.
fn check_continues(state: &State, batches: &[u8], continuation: Continuation) -> Result<(), LogError> {
    let mut end = state.appended;
    let mut latest = state.epochs.latest().map(|latest| latest.epoch);
    let mut batches_in = walk(batches);
    for batch in batches_in.by_ref() {
        let base = batch.header.base_offset;
        let continues = base == end || (continuation == Continuation::OverGaps && base > end);
        if !continues {
            return Err(LogError::Refused(Refusal::NotAtEnd { base, end }));
        }
        let epoch = batch.header.leader_epoch;
        if epoch.is_none() || epoch < latest {
            return Err(LogError::Refused(Refusal::Epoch { base, epoch, latest }));
        }
        latest = epoch;
        end = batch.header.next_offset();
    }
    if batches_in.position() != batches.len() {
        return Err(LogError::Refused(Refusal::NotWhole { good: batches_in.position() }));
    }
    Ok(())
}
