//! What the log's committed entries make of the image, on this node.
//!
//! Path: from raft (committed entries, in order) to the image, the recent events, and the task that proposed.
//!
//! Invariant: image, events and `applied` change together, without a wait between; the published image is immutable.
//! An entry that this binary cannot read stops the node: it is never skipped.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use futures_core::Stream;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine, Snapshot};
use openraft::{EntryPayload, OptionalSend};
use sakia_protocol::ids::MetadataIndex;

use crate::apply::{Decision, decide_proposal};
use crate::command::Proposal;
use crate::error::CommandError;
use crate::event::Event;
use crate::image::Image;
use crate::raft_types::{Entry, LogId, Membership, Outcome, ProposalBytes, Quorum, Term};
use crate::recent::RecentEvents;
use crate::snapshot::{self, Meta};
use crate::watch;

/// The state after the last applied entry.
struct Machine {
    image: Arc<Image>,
    applied: Option<LogId>,
    membership: Membership,
    recent: RecentEvents,
}

/// Shared by raft (which applies) and the controller (which reads). Clones are the same machine.
#[derive(Clone)]
pub(crate) struct StateMachine {
    machine: Rc<RefCell<Machine>>,
    applied_index: Rc<watch::Sender<MetadataIndex>>,
    folder: Rc<Path>,
}

impl StateMachine {
    /// Begins with the newest snapshot in `folder`, or with nothing.
    pub(crate) async fn open(folder: &Path) -> io::Result<Self> {
        let (image, applied, membership) = match snapshot::load(folder).await? {
            Some(loaded) => (loaded.image, loaded.meta.last_log_id, loaded.meta.last_membership),
            None => (Image::default(), None, Membership::default()),
        };
        let index = image.index;
        let recent = RecentEvents::new(index);
        let machine = Machine { image: Arc::new(image), applied, membership, recent };
        let applied_index = Rc::new(watch::Sender::new(index));
        Ok(Self { machine: Rc::new(RefCell::new(machine)), applied_index, folder: folder.into() })
    }

    pub(crate) fn image(&self) -> Arc<Image> {
        Arc::clone(&self.machine.borrow().image)
    }

    pub(crate) fn applied(&self) -> Option<LogId> {
        self.machine.borrow().applied
    }

    pub(crate) fn events_after(&self, index: MetadataIndex) -> Option<Vec<(MetadataIndex, Event)>> {
        self.machine.borrow().recent.after(index)
    }

    /// Returns when something above `index` is applied.
    pub(crate) async fn wait_past(&self, index: MetadataIndex) {
        let mut applied = self.applied_index.subscribe();
        // The sender lives in `self`, so the wait cannot fail.
        let _ = applied.wait_for(|applied| *applied > index).await;
    }

    fn apply_entry(&self, entry: Entry) -> io::Result<Outcome> {
        let mut guard = self.machine.borrow_mut();
        let machine = &mut *guard;
        let index = metadata_index(entry.log_id.index);
        let result = match entry.payload {
            EntryPayload::Blank => None,
            EntryPayload::Membership(membership) => {
                machine.membership = Membership::new(Some(entry.log_id), membership);
                None
            }
            EntryPayload::Normal(proposal) => Some(machine.apply_proposal(index, &proposal)?),
        };
        Arc::make_mut(&mut machine.image).advance(index);
        machine.applied = Some(entry.log_id);
        drop(guard);
        self.applied_index.send_replace(index);
        Ok(Outcome { result })
    }
}

impl Machine {
    fn apply_proposal(
        &mut self,
        index: MetadataIndex,
        bytes: &ProposalBytes,
    ) -> io::Result<Result<Decision, CommandError>> {
        let proposal = Proposal::decode(&bytes.0).map_err(io::Error::other)?;
        let result = decide_proposal(&self.image, index, &proposal);
        match &result {
            Ok(decision) => {
                let image = Arc::make_mut(&mut self.image);
                for event in &decision.events {
                    image.apply(index, event);
                }
                self.recent.add(index, decision.events.clone());
            }
            Err(error) => tracing::debug!(%index, %error, "command refused"),
        }
        Ok(result)
    }
}

fn metadata_index(index: u64) -> MetadataIndex {
    MetadataIndex::new(i64::try_from(index).expect("log indexes stay below 2^63"))
}

impl RaftStateMachine<Quorum> for StateMachine {
    type SnapshotData = Bytes;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, Membership)> {
        let machine = self.machine.borrow();
        Ok((machine.applied, machine.membership.clone()))
    }

    async fn apply<Entries>(&mut self, mut entries: Entries) -> io::Result<()>
    where
        Entries: Stream<Item = io::Result<EntryResponder<Quorum>>> + Unpin + OptionalSend,
    {
        while let Some(next) = poll_fn(|cx| Pin::new(&mut entries).poll_next(cx)).await {
            let (entry, responder) = next?;
            let outcome = self.apply_entry(entry)?;
            if let Some(responder) = responder {
                responder.send(outcome);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        let machine = self.machine.borrow();
        let meta = Meta { last_log_id: machine.applied, last_membership: machine.membership.clone() };
        Builder { meta, image: Arc::clone(&machine.image), folder: self.folder.to_path_buf() }
    }

    async fn install_snapshot(&mut self, meta: &Meta, data: Bytes) -> io::Result<()> {
        let (found, image) = snapshot::decode(&data).map_err(io::Error::other)?;
        if found.last_log_id != meta.last_log_id {
            return Err(io::Error::other("the snapshot reaches to another entry than announced"));
        }
        snapshot::save(&self.folder, meta.last_log_id, data.to_vec()).await?;
        let index = image.index;
        {
            let mut machine = self.machine.borrow_mut();
            machine.recent = RecentEvents::new(index);
            machine.image = Arc::new(image);
            machine.applied = meta.last_log_id;
            machine.membership = meta.last_membership.clone();
        }
        self.applied_index.send_replace(index);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot<Term, u64, openraft::BasicNode, Bytes>>> {
        let loaded = snapshot::load(&self.folder).await?;
        Ok(loaded.map(|loaded| Snapshot { meta: loaded.meta, snapshot: loaded.bytes.into() }))
    }
}

/// Writes one snapshot; the image it holds does not change meanwhile.
pub(crate) struct Builder {
    meta: Meta,
    image: Arc<Image>,
    folder: PathBuf,
}

impl RaftSnapshotBuilder<Quorum> for Builder {
    type SnapshotData = Bytes;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot<Term, u64, openraft::BasicNode, Bytes>> {
        let (meta, image) = (self.meta.clone(), Arc::clone(&self.image));
        let bytes = sakia_io::blocking(move || snapshot::encode(&meta, &image)).await;
        snapshot::save(&self.folder, self.meta.last_log_id, bytes.clone()).await?;
        Ok(Snapshot { meta: self.meta.clone(), snapshot: bytes.into() })
    }
}
