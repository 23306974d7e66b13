//! Operations in flight, by slot. Freed slots are used again, last freed first, so that the order depends on nothing but
//! the calls. Pure.

use crate::driver::OpId;

pub(crate) struct Slots<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    occupied: usize,
}

struct Entry<T> {
    turn: u32,
    value: Option<T>,
}

impl<T> Slots<T> {
    pub(crate) fn new() -> Slots<T> {
        Slots { entries: Vec::new(), free: Vec::new(), occupied: 0 }
    }

    pub(crate) fn insert(&mut self, value: T) -> OpId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { turn: 0, value: None });
            u32::try_from(self.entries.len() - 1).expect("four thousand million operations do not fit in memory")
        });
        self.occupied += 1;
        let entry = &mut self.entries[usize::try_from(slot).expect("a slot is an index of this vector")];
        assert!(entry.value.is_none(), "a free slot is empty");
        entry.turn = entry.turn.wrapping_add(1);
        entry.value = Some(value);
        OpId::new(slot, entry.turn)
    }

    pub(crate) fn get_mut(&mut self, id: OpId) -> Option<&mut T> {
        let entry = self.entries.get_mut(id.slot())?;
        let slot = u32::try_from(id.slot()).ok()?;
        if OpId::new(slot, entry.turn) == id { entry.value.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, id: OpId) -> Option<T> {
        self.get_mut(id)?;
        let value = self.entries[id.slot()].value.take();
        self.free.push(u32::try_from(id.slot()).expect("a slot number has 32 bits"));
        self.occupied -= 1;
        value
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.occupied
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_an_earlier_use_of_a_slot_finds_nothing() {
        let mut slots = Slots::new();
        let first = slots.insert('a');
        assert_eq!(slots.remove(first), Some('a'));
        let second = slots.insert('b');
        assert_eq!(first.slot(), second.slot());
        assert!(slots.get_mut(first).is_none());
        assert!(slots.remove(first).is_none());
        assert_eq!(slots.remove(second), Some('b'));
        assert_eq!(slots.len(), 0);
    }
}
