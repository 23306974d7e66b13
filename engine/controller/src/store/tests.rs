//! The log against raft's own suite, against a model under crashes, and against damage.

use std::cell::RefCell;
use std::fmt::Debug;
use std::io;
use std::ops::{Range, RangeBounds};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openraft::async_runtime::Oneshot;
use openraft::impls::leader_id_std::LeaderId;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::{EntryPayload, OptionalSend, RaftLogReader, StorageError};
use sakia_io::sim::{Crash, Failing, World};
use sakia_io::{Class, ShardSpec, Spawner, Task, Threads, fs, now, sleep, spawn};

use super::record::{Record, put_record};
use super::replay::{BLOCK, Contents, Place, ReplayError, read_segment};
use super::{LogStore, OpenLogError};
use crate::raft_types::{Entry, LogId, ProposalBytes, Quorum, Term, Vote};
use crate::runtime::Oneshots;
use crate::state_machine::StateMachine;

const HOUR: Duration = Duration::from_secs(3600);
const SEGMENT: usize = 16 * BLOCK;

fn id(term: u64, index: u64) -> LogId {
    LogId { leader_id: Term::new(term), index }
}

fn entry(term: u64, index: u64, len: usize) -> Entry {
    Entry { log_id: id(term, index), payload: EntryPayload::Normal(ProposalBytes(vec![7; len])) }
}

fn vote(term: u64) -> Vote {
    Vote { leader_id: LeaderId { term, voted_for: 1 }, committed: false }
}

/// Opens stores in folders of their own.
struct Builder {
    root: PathBuf,
    next: AtomicU64,
}

impl Builder {
    fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), next: AtomicU64::new(0) }
    }

    async fn folder(&self) -> PathBuf {
        let folder = self.root.join(self.next.fetch_add(1, Ordering::Relaxed).to_string());
        fs::create_dir_all(&folder).await.unwrap();
        folder
    }
}

impl StoreBuilder<Quorum, LogStore, StateMachine> for Builder {
    async fn build(&self) -> Result<((), LogStore, StateMachine), StorageError<Quorum>> {
        let folder = self.folder().await;
        let (store, writing) = LogStore::open(&folder, 0, SEGMENT).await.unwrap();
        writing.detach();
        Ok(((), store, StateMachine::open(&folder).await.unwrap()))
    }
}

type Open = (LogStore, Task<()>);

/// Closes and reopens the log before each call.
#[derive(Clone)]
struct Reopened {
    open: Rc<RefCell<Option<Open>>>,
    folder: PathBuf,
}

impl Reopened {
    async fn store(&self) -> LogStore {
        let open = self.open.borrow_mut().take();
        if let Some((store, writing)) = open {
            drop(store);
            writing.await;
        }
        let (store, writing) = LogStore::open(&self.folder, 0, SEGMENT).await.unwrap();
        *self.open.borrow_mut() = Some((store.clone(), writing));
        store
    }
}

struct ReopeningBuilder(Builder);

impl StoreBuilder<Quorum, Reopened, StateMachine> for ReopeningBuilder {
    async fn build(&self) -> Result<((), Reopened, StateMachine), StorageError<Quorum>> {
        let folder = self.0.folder().await;
        let machine = StateMachine::open(&folder).await.unwrap();
        Ok(((), Reopened { open: Rc::default(), folder }, machine))
    }
}

impl RaftLogReader<Quorum> for Reopened {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<Entry>> {
        self.store().await.try_get_log_entries(range).await
    }
    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        self.store().await.read_vote().await
    }
}

impl RaftLogStorage<Quorum> for Reopened {
    type LogReader = Self;
    async fn get_log_state(&mut self) -> io::Result<LogState<Quorum>> {
        self.store().await.get_log_state().await
    }
    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }
    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.store().await.save_vote(vote).await
    }
    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        self.store().await.save_committed(committed).await
    }
    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        self.store().await.read_committed().await
    }
    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Quorum>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.store().await.append(entries, callback).await
    }
    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        self.store().await.truncate_after(last).await
    }
    async fn purge(&mut self, id: LogId) -> io::Result<()> {
        self.store().await.purge(id).await
    }
}

#[test]
fn rafts_own_suite_passes() {
    let world = World::new(1);
    let suite = Suite::test_all(Builder::new("/suite"));
    world.block_on(&world.machine("controller"), HOUR, suite).unwrap().unwrap();
}

#[test]
fn rafts_own_suite_passes_when_the_log_is_reopened_before_each_call() {
    let world = World::new(2);
    let suite = Suite::test_all(ReopeningBuilder(Builder::new("/suite")));
    world.block_on(&world.machine("controller"), HOUR, suite).unwrap().unwrap();
}

#[test]
fn rafts_own_suite_passes_on_a_real_disk() {
    let root = std::env::temp_dir().join(format!("sakia-controller-suite-{}", std::process::id()));
    let folder = root.clone();
    let shard = Threads.start(
        ShardSpec { name: "suite".to_owned(), cpu: None },
        Box::new(move || {
            Box::pin(async move {
                Suite::test_all(Builder::new(folder.clone())).await.unwrap();
                fs::remove_dir_all(&folder).await.unwrap();
            })
        }),
    );
    shard.unwrap().join();
    assert!(!root.exists(), "the suite ran to its end");
}

/// What a run did: the state after each record, in the order in which they were queued, and how many are confirmed.
#[derive(Clone, Default)]
struct History {
    states: Vec<Contents>,
    confirmed: usize,
}

impl History {
    fn follow(&mut self, record: Record) {
        let mut next = self.states.last().cloned().unwrap_or_default();
        next.follow(record).unwrap();
        self.states.push(next);
    }

    fn last(&self) -> Contents {
        self.states.last().cloned().unwrap_or_default()
    }
}

/// `SAKIA_SIM_SEEDS` and `SAKIA_SIM_START` run more, or others.
fn seeds(count: u64) -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let start = number("SAKIA_SIM_START").unwrap_or(0);
    start..start + number("SAKIA_SIM_SEEDS").unwrap_or(count)
}

/// Goes on with a log for ever, noting in `history` what it does and what is confirmed.
async fn load(mut store: LogStore, history: Rc<RefCell<History>>, mut random: sakia_io::sim::Random) {
    let term = history.borrow().last().summary.vote.map_or(1, |vote| vote.leader_id.term + 1);
    loop {
        let last = history.borrow().last();
        let next = last.last().map_or(0, |id| id.index + 1);
        match random.below(12) {
            0 => {
                history.borrow_mut().follow(Record::Vote(vote(term)));
                let through = history.borrow().states.len();
                store.save_vote(&vote(term)).await.unwrap();
                confirm(&history, through);
            }
            1 if last.entries.len() > 2 => {
                let from = next - random.within(1..3);
                history.borrow_mut().follow(Record::Truncate { from });
                let through = history.borrow().states.len();
                let keep = last.entries.get(&(from - 1)).map(|entry| entry.log_id);
                store.truncate_after(keep).await.unwrap();
                confirm(&history, through);
            }
            2 if last.entries.len() > 8 => {
                let upto = *last.entries.first_key_value().unwrap().0 + random.within(0..8);
                let upto = last.entries[&upto].log_id;
                history.borrow_mut().follow(Record::Purge(upto));
                let through = history.borrow().states.len();
                store.purge(upto).await.unwrap();
                confirm(&history, through);
            }
            3 if next > 0 => {
                let committed = last.last().unwrap();
                history.borrow_mut().follow(Record::Committed(committed));
                store.save_committed(Some(committed)).await.unwrap();
            }
            _ => {
                let len = usize::try_from(random.below(6000)).unwrap();
                let entries: Vec<Entry> = (0..random.within(1..5)).map(|step| entry(term, next + step, len)).collect();
                for entry in &entries {
                    history.borrow_mut().follow(Record::Entry(entry.clone()));
                }
                let through = history.borrow().states.len();
                let (sender, answer) = Oneshots::channel();
                store.append(entries, IOFlushed::signal(sender)).await.unwrap();
                let history = Rc::clone(&history);
                spawn(Class::Foreground, async move {
                    answer.await.unwrap().unwrap();
                    confirm(&history, through);
                })
                .detach();
            }
        }
        if random.chance(1, 3) {
            sleep(random.duration(&(Duration::ZERO..Duration::from_millis(2)))).await;
        }
    }
}

fn confirm(history: &RefCell<History>, through: usize) {
    let mut history = history.borrow_mut();
    history.confirmed = history.confirmed.max(through);
}

#[test]
fn whatever_the_crash_the_log_is_a_prefix_with_everything_confirmed() {
    for seed in seeds(40) {
        let world = World::new(seed);
        let machine = world.machine("controller");
        let mut random = world.random();
        let history = Rc::new(RefCell::new(History::default()));
        for round in 0..6 {
            let (shared, load_random) = (Rc::clone(&history), world.random());
            let client = world.spawn_client(&machine, async move {
                let folder = Path::new("/meta");
                fs::create_dir_all(folder).await.unwrap();
                fs::sync_dir(Path::new("/")).await.unwrap();
                let (store, writing) = LogStore::open(folder, 1, SEGMENT).await.unwrap();
                {
                    let found = store.contents.borrow().clone();
                    let mut history = shared.borrow_mut();
                    let empty = (history.confirmed == 0).then(Contents::default);
                    let possible = history.states.iter().skip(history.confirmed.saturating_sub(1));
                    assert!(
                        possible.chain(&empty).any(|state| *state == found),
                        "seed {seed} round {round}: {} of {} records were confirmed, found {:?}, last {:?}",
                        history.confirmed,
                        history.states.len(),
                        found.summary,
                        found.last()
                    );
                    *history = History { states: vec![found], confirmed: 1 };
                }
                load(store, shared, load_random).await;
                writing.await;
            });
            world.run_for(random.duration(&(Duration::from_micros(100)..Duration::from_millis(60))));
            assert!(!client.is_done());
            machine.crash(*random.pick(&[Crash::Kill, Crash::PowerLoss]));
            machine.up();
        }
    }
}

#[test]
fn purged_segments_are_removed_and_the_vote_survives_them() {
    let world = World::new(3);
    let machine = world.machine("controller");
    let run = async {
        let folder = Path::new("/meta");
        fs::create_dir_all(folder).await.unwrap();
        let (mut store, writing) = LogStore::open(folder, 1, SEGMENT).await.unwrap();
        store.save_vote(&vote(9)).await.unwrap();
        for index in 0..100 {
            let (sender, answer) = Oneshots::channel();
            store.append([entry(9, index, 3000)], IOFlushed::signal(sender)).await.unwrap();
            answer.await.unwrap().unwrap();
        }
        store.purge(id(9, 98)).await.unwrap();
        drop(store);
        writing.await;
        let segments = fs::list_dir(folder).await.unwrap().len();
        let (mut store, _writing) = LogStore::open(folder, 1, SEGMENT).await.unwrap();
        let state = store.get_log_state().await.unwrap();
        (segments, store.read_vote().await.unwrap(), state)
    };
    let (segments, found, state) = world.block_on(&machine, HOUR, run).unwrap();
    assert!(segments <= 2, "{segments} segments are left");
    assert_eq!(found, Some(vote(9)));
    assert_eq!((state.last_purged_log_id, state.last_log_id), (Some(id(9, 98)), Some(id(9, 99))));
}

#[test]
fn a_failed_sync_is_final() {
    let world = World::new(4);
    let machine = world.machine("controller");
    let disk = machine.disk();
    let run = async move {
        let folder = Path::new("/meta");
        fs::create_dir_all(folder).await.unwrap();
        let (mut store, _writing) = LogStore::open(folder, 1, SEGMENT).await.unwrap();
        disk.fail_syncs(Failing::next());
        let first = store.save_vote(&vote(1)).await;
        let second = store.save_vote(&vote(2)).await;
        (first.is_err(), second.is_err())
    };
    assert_eq!(world.block_on(&machine, HOUR, run).unwrap(), (true, true));
}

#[test]
fn damage_before_the_last_write_refuses_the_log_and_damage_at_its_end_does_not() {
    let world = World::new(5);
    let machine = world.machine("controller");
    let write = async {
        let folder = Path::new("/meta");
        fs::create_dir_all(folder).await.unwrap();
        for _ in 0..2 {
            let (mut store, writing) = LogStore::open(folder, 1, SEGMENT).await.unwrap();
            for term in 1..4 {
                store.save_vote(&vote(term)).await.unwrap();
            }
            drop(store);
            writing.await;
        }
        let names: Vec<String> = fs::list_dir(folder).await.unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["00000000000000000001.log", "00000000000000000002.log"]);
    };
    world.block_on(&machine, HOUR, write).unwrap();
    let open = || async { LogStore::open(Path::new("/meta"), 1, SEGMENT).await.map(|(store, _)| store) };
    let last_vote = 3 * u64::try_from(BLOCK).unwrap() + 12;
    machine.disk().damage("/meta/00000000000000000002.log", last_vote, &[0xff]).unwrap();
    let found = world.block_on(&machine, HOUR, open()).unwrap().unwrap();
    assert_eq!(found.contents.borrow().summary.vote, Some(vote(2)), "the torn end is dropped");
    machine.disk().damage("/meta/00000000000000000001.log", last_vote, &[0xff]).unwrap();
    let refused = world.block_on(&machine, HOUR, open()).unwrap();
    assert!(matches!(refused, Err(OpenLogError::Replay(ReplayError::Damaged { segment: 1, .. }))));
}

#[test]
fn another_nodes_log_is_refused() {
    let world = World::new(6);
    let run = async {
        let folder = Path::new("/meta");
        fs::create_dir_all(folder).await.unwrap();
        drop(LogStore::open(folder, 1, SEGMENT).await.unwrap());
        LogStore::open(folder, 2, SEGMENT).await.map(|_| ())
    };
    let refused = world.block_on(&world.machine("controller"), HOUR, run).unwrap();
    assert!(matches!(refused, Err(OpenLogError::Replay(ReplayError::OtherNode { found: 1, expected: 2 }))));
}

#[test]
fn a_last_segment_cut_at_any_byte_gives_a_prefix() {
    let mut bytes = Vec::new();
    let mut states = vec![(0, Contents::default())];
    let mut contents = Contents::default();
    let records = [
        Record::Segment { number: 1, node: 1 },
        Record::Vote(vote(1)),
        Record::Entry(entry(1, 0, 10)),
        Record::Entry(entry(1, 1, 5000)),
        Record::Truncate { from: 1 },
        Record::Entry(entry(2, 1, 20)),
        Record::Purge(id(1, 0)),
        Record::Committed(id(2, 1)),
    ];
    for (number, record) in records.into_iter().enumerate() {
        put_record(&record, &mut bytes);
        contents.follow(record).unwrap();
        states.push((bytes.len(), contents.clone()));
        if number % 2 == 1 {
            bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        }
    }
    for cut in 0..bytes.len() {
        let mut torn = bytes[..cut].to_vec();
        torn.resize(4 * bytes.len(), 0);
        let mut found = Contents::default();
        read_segment(&mut found, 1, 1, Place::Last, &torn).unwrap();
        let expected = states.iter().rev().find(|(end, _)| *end <= cut).unwrap();
        // The bytes that are cut off may have been zeros.
        let later = states.iter().find(|(end, _)| *end > cut);
        assert!(found == expected.1 || later.is_some_and(|(_, state)| found == *state), "cut at {cut}");
    }
}

#[test]
fn a_simulated_log_replays_from_its_seed() {
    let run = |seed| {
        let world = World::new(seed);
        let machine = world.machine("controller");
        let (history, random) = (Rc::default(), world.random());
        let _client = world.spawn_client(&machine, async move {
            fs::create_dir_all(Path::new("/meta")).await.unwrap();
            let (store, _writing) = LogStore::open(Path::new("/meta"), 1, SEGMENT).await.unwrap();
            load(store, history, random).await;
            now()
        });
        world.run_for(Duration::from_millis(200));
        world.trace_hash()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
