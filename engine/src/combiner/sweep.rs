//! Deletion of combined objects by age (R22, `replica` mode: an object is never the only copy).
//!
//! Path: age marks of the running stream → delete requests; then, page by page, what older registrations of this broker
//! left. A late reader gets bytes from its leader.

use std::rc::Rc;
use std::time::Duration;

use sakia_io::{sleep, wall_clock_ms};
use sakia_remote::ObjectKey;
use sakia_remote::garbage::Deletion;
use tracing::debug;

use super::Combiner;

/// How often the age marks are looked at; a small part of any sensible retention.
const LOOK: Duration = Duration::from_millis(500);

/// Looks between two listings of what older registrations left: each listing is billed.
const LOOKS_PER_LISTING: u32 = 1200;

impl Combiner {
    /// Deletes what is old, for ever.
    pub(super) async fn sweep(self: Rc<Self>) {
        let mut looks: u32 = 0;
        let mut after: Option<ObjectKey> = None;
        loop {
            sleep(LOOK).await;
            self.sweep_own().await;
            if looks.is_multiple_of(LOOKS_PER_LISTING) || after.is_some() {
                after = self.sweep_older(after).await;
            }
            looks = looks.wrapping_add(1);
        }
    }

    async fn sweep_own(&self) {
        while let Some(deletion) = self.due() {
            if let Err(error) = self.store.delete(deletion.keys.clone()).await {
                debug!("old objects could not be deleted, trying again later: {error}");
                return;
            }
            if let Some(open) = self.open.borrow_mut().as_mut() {
                open.garbage.deleted(&deletion);
            }
        }
    }

    fn due(&self) -> Option<Deletion> {
        self.open.borrow().as_ref()?.garbage.due(wall_clock_ms())
    }

    /// One page of this broker's names; gives the name after which to go on.
    async fn sweep_older(&self, after: Option<ObjectKey>) -> Option<ObjectKey> {
        let prefix = self.space()?.broker_prefix(self.settings.node_id);
        let page = match self.store.list(&prefix, after.as_ref()).await {
            Ok(page) => page,
            Err(error) => {
                debug!("older objects could not be listed, trying again later: {error}");
                return None;
            }
        };
        let sweep = self.open.borrow().as_ref()?.garbage.sweep(&page, wall_clock_ms());
        if !sweep.keys.is_empty() && self.store.delete(sweep.keys).await.is_err() {
            return None;
        }
        sweep.next_after
    }
}
