//! What a simulated bucket holds and how it answers. Pure: chance comes from its seed, time from the caller.
//!
//! Invariant: everything that draws does so in the order of calls, so a seed replays a run.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::{Faults, Latency, ListedObject, Listing, Reach, StoreError, Verb};
use crate::key::ObjectKey;
use crate::store::{CreateOnly, More, Put};

const PAGE: usize = 1000;

pub(super) struct Object {
    pub(super) bytes: Bytes,
    pub(super) modified_ms: i64,
}

pub(super) struct State {
    pub(super) objects: BTreeMap<ObjectKey, Object>,
    pub(super) faults: Faults,
    pub(super) latency: Latency,
    random: u64,
}

pub(super) struct BucketAnswer<T> {
    pub(super) result: Result<T, StoreError>,
    pub(super) reply_lost: bool,
}

impl State {
    pub(super) fn new(seed: u64, latency: Latency) -> Self {
        Self { objects: BTreeMap::new(), faults: Faults::default(), latency, random: seed }
    }

    /// SplitMix64.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn hits(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.draw() % 1000 < u64::from(per_mille)
    }

    pub(super) fn draw_latency(&mut self, verb: Verb) -> Duration {
        let usual = if verb == Verb::Put { self.latency.put } else { self.latency.get };
        // 0.8 to 1.6 of the usual, in thousandths.
        let thousandths = u32::try_from(800 + self.draw() % 801).expect("below 1601");
        usual * thousandths / 1000 + self.faults.slow
    }

    /// `None`: this client gets no answer and nothing happens.
    pub(super) fn answer<T>(
        &mut self,
        client: &str,
        verb: Verb,
        apply: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Option<BucketAnswer<T>> {
        if self.faults.reach == Reach::Down || self.faults.cut_clients.contains(client) {
            return None;
        }
        if self.hits(self.faults.slow_downs_per_mille) {
            let result = Err(StoreError::Retry { why: "503 SlowDown".to_owned() });
            return Some(BucketAnswer { result, reply_lost: false });
        }
        let result = apply(self);
        let reply_lost = verb == Verb::Put && self.loses_put_reply();
        Some(BucketAnswer { result, reply_lost })
    }

    fn loses_put_reply(&mut self) -> bool {
        if self.faults.next_lost_put_replies > 0 {
            self.faults.next_lost_put_replies -= 1;
            return true;
        }
        self.hits(self.faults.lost_put_replies_per_mille)
    }

    pub(super) fn put(&mut self, put: Put, modified_ms: i64) -> Result<(), StoreError> {
        if put.create_only == CreateOnly::Yes {
            if self.faults.next_conflicts > 0 {
                self.faults.next_conflicts -= 1;
                return Err(StoreError::Conflict);
            }
            if self.objects.contains_key(&put.key) {
                return Err(StoreError::Exists);
            }
        }
        // Copied, as a network would: the bucket never shares memory with a writer.
        let mut bytes = BytesMut::with_capacity(put.parts.iter().map(Bytes::len).sum());
        for part in &put.parts {
            bytes.extend_from_slice(part);
        }
        self.objects.insert(put.key, Object { bytes: bytes.freeze(), modified_ms });
        Ok(())
    }

    pub(super) fn get(&mut self, key: &ObjectKey, range: Range<u64>) -> Result<Bytes, StoreError> {
        assert!(range.start < range.end, "a get asks for bytes");
        if self.faults.hidden.contains(key) {
            return Err(StoreError::Missing);
        }
        let short = self.hits(self.faults.short_gets_per_mille);
        let object = &self.objects.get(key).ok_or(StoreError::Missing)?.bytes;
        let length = super::length(object);
        if range.end > length {
            return Err(StoreError::OutOfRange { asked: range.end, length: Some(length) });
        }
        if short {
            return Err(StoreError::BadReply { why: "one byte short".to_owned() });
        }
        let position = |at: u64| usize::try_from(at).expect("inside an object in memory");
        Ok(object.slice(position(range.start)..position(range.end)))
    }

    pub(super) fn list(&self, prefix: &str, after: Option<&ObjectKey>) -> Listing {
        let from = ObjectKey::new(prefix);
        let mut names = self
            .objects
            .range(from..)
            .take_while(|(key, _)| key.as_str().starts_with(prefix))
            .filter(|(key, _)| after.is_none_or(|after| *key > after));
        let objects: Vec<_> = names
            .by_ref()
            .take(PAGE)
            .map(|(key, object)| ListedObject {
                key: key.clone(),
                length: super::length(&object.bytes),
                modified_ms: object.modified_ms,
            })
            .collect();
        Listing { objects, more: if names.next().is_some() { More::Yes } else { More::No } }
    }
}
