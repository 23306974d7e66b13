//! Folders of partitions that the cluster does not know: their topics were deleted while this broker was down.
//!
//! Path: the first image with this process's registration, before any shard has it → folders of unknown topics are set aside
//! under a name that no partition has → deleted a week later. A shard takes one back whose topic is known after all.
//!
//! Invariant (R22): a folder is set aside only by an image that knows at least as much as the folder. How much that is stands in
//! `metadata-seen`, which is written before a shard hears of a new topic. A controller that knows less was restored from an
//! old copy: topics that it does not know may be alive, so everything stays, also later, when its log has grown. One that lost
//! no more entries than a restart of the cluster adds cannot be told from one that lost none: therefore nothing is deleted
//! at once.

use std::rc::Rc;

use sakia_controller::Image;
use sakia_io::planted::{Planted, is_planted};
use sakia_io::{fs, sleep, wall_clock_ms};
use sakia_protocol::ids::{BrokerId, MetadataIndex, PartitionKey, TopicId};
use tracing::{error, warn};

use super::Broker;
use super::stream::Trouble;
use crate::control::limits::{STRAYS_KEPT, STRAYS_LOOK};
use crate::log::checkpoint::MetadataSeen;
use crate::log::folder::{PartitionFolder, partitions, set_aside, strays, topic_of};

/// What an image may say about folders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Say {
    /// It knows every topic that has a folder here and was not deleted.
    Everything,
    /// Nobody knows how much the folder has seen.
    Nothing,
    /// It knows less than the folder.
    Less,
}

/// Pure.
fn say(seen: Option<MetadataSeen>, image: &Image) -> Say {
    match seen {
        Some(_) if is_planted(Planted::OldImageBelieved) => Say::Everything,
        None => Say::Nothing,
        Some(seen) if seen.is_lost || seen.incarnation != image.incarnation || seen.index > image.index => Say::Less,
        Some(_) => Say::Everything,
    }
}

/// Whether the cluster wants nothing of this folder: its topic is gone, or its replica was moved away. Pure.
fn is_stray(image: &Image, me: BrokerId, folder: &PartitionFolder, topic_id: TopicId) -> bool {
    let record = image.partition(&PartitionKey { topic_id, partition: folder.partition });
    record.is_none_or(|record| !record.replicas.contains(&me))
}

impl Broker {
    /// Holds the folders against the first image. No shard has opened a log yet.
    pub(super) async fn judge_folders(&self, image: &Image) -> Result<(), Trouble> {
        if self.seen.get().is_some() {
            return Ok(());
        }
        let seen = MetadataSeen::read(&self.folder).await.map_err(|error| self.unreadable(&error))?;
        let now = MetadataSeen { incarnation: image.incarnation, index: image.index, is_lost: false };
        let now = match say(seen, image) {
            Say::Everything => {
                self.set_strays_aside(image).await.map_err(|error| self.unreadable(&error))?;
                now
            }
            Say::Nothing => now,
            Say::Less => {
                error!(
                    broker = %self.settings.node_id, index = %image.index, ?seen,
                    "the controller knows less than this folder has seen; folders of topics that it does not know are kept"
                );
                seen.map_or(now, |seen| MetadataSeen { is_lost: true, ..seen })
            }
        };
        self.write_seen(now).await?;
        self.judged.wake();
        Ok(())
    }

    /// Metadata up to `index` is about to be handed to the shards, and names topics that may get folders.
    pub(super) async fn see(&self, index: MetadataIndex) -> Result<(), Trouble> {
        match self.seen.get() {
            Some(seen) if seen.index < index => self.write_seen(MetadataSeen { index, ..seen }).await,
            // Before the first image no shard makes a folder.
            _ => Ok(()),
        }
    }

    async fn write_seen(&self, seen: MetadataSeen) -> Result<(), Trouble> {
        seen.write(&self.folder).await.map_err(|error| self.unreadable(&error))?;
        self.seen.set(Some(seen));
        Ok(())
    }

    fn unreadable(&self, error: &std::io::Error) -> Trouble {
        Trouble::Final(format!("the data folder {} failed: {error}", self.folder.display()))
    }

    async fn set_strays_aside(&self, image: &Image) -> std::io::Result<()> {
        for folder in partitions(&self.folder).await? {
            let Some(topic_id) = topic_of(&self.folder.join(folder.name())).await? else { continue };
            if is_stray(image, self.settings.node_id, &folder, topic_id) {
                let days = STRAYS_KEPT.as_secs() / 86_400;
                warn!(folder = folder.name(), topic = %topic_id, days, "the cluster does not know this partition: set aside, and deleted later");
                set_aside(&self.folder, &folder, wall_clock_ms()).await?;
            }
        }
        Ok(())
    }

    /// Deletes what was set aside long ago, for ever.
    pub(super) async fn delete_strays(self: Rc<Self>) {
        let kept_ms = i64::try_from(STRAYS_KEPT.as_millis()).expect("a week");
        self.judged.wait().await;
        loop {
            // A cluster that has lost topics may know them again one day.
            if self.seen.get().is_some_and(|seen| !seen.is_lost)
                && let Err(why) = self.delete_strays_before(wall_clock_ms() - kept_ms).await
            {
                warn!("folders that were set aside could not be deleted: {why}");
            }
            sleep(STRAYS_LOOK).await;
        }
    }

    async fn delete_strays_before(&self, limit_ms: i64) -> std::io::Result<()> {
        for stray in strays(&self.folder).await?.into_iter().filter(|stray| stray.since_ms <= limit_ms) {
            warn!(folder = stray.name, "deleting a partition that the cluster has not known for a long time");
            fs::remove_dir_all(&self.folder.join(&stray.name)).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sakia_protocol::ids::Uuid;

    use super::*;

    #[test]
    fn only_an_image_that_knows_as_much_as_the_folder_says_anything_about_it() {
        let mut image = Image::default();
        image.advance(MetadataIndex::new(50));
        image.incarnation = Uuid::from_bytes([1; 16]);
        let seen = MetadataSeen { incarnation: image.incarnation, index: MetadataIndex::new(50), is_lost: false };
        assert_eq!(say(Some(seen), &image), Say::Everything);
        assert_eq!(say(Some(MetadataSeen { index: MetadataIndex::new(51), ..seen }), &image), Say::Less);
        assert_eq!(say(Some(MetadataSeen { incarnation: Uuid::ZERO, ..seen }), &image), Say::Less);
        assert_eq!(say(Some(MetadataSeen { is_lost: true, ..seen }), &image), Say::Less);
        assert_eq!(say(None, &image), Say::Nothing);
    }
}
