//! Faults that a test switches on with `POST /_fault`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Of so many bodies one is spoilt.
const SPOILT_EVERY: u64 = 3;
/// A prime far above the bits of any object.
const PLACE_STEP: u64 = 0x9E37_79B9_7F4A_7C55;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Fault {
    /// Nothing.
    #[default]
    None,
    /// No request is carried out or answered until the fault is changed.
    Hang,
    /// Every request is answered with 503 SlowDown and not carried out.
    Error503,
    /// Puts are carried out and not answered until the fault is changed.
    LosePutReply,
    /// One bit of every third body that is read is flipped.
    SpoilGet,
}

impl Fault {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "none" => Some(Self::None),
            "hang" => Some(Self::Hang),
            "error503" => Some(Self::Error503),
            "lose-put-reply" => Some(Self::LosePutReply),
            "spoil-get" => Some(Self::SpoilGet),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Hang => "hang",
            Self::Error503 => "error503",
            Self::LosePutReply => "lose-put-reply",
            Self::SpoilGet => "spoil-get",
        }
    }
}

/// The fault that is on.
#[derive(Default)]
pub(crate) struct FaultSwitch {
    fault: Mutex<Fault>,
    changed: Notify,
    reads: AtomicU64,
}

impl FaultSwitch {
    pub(crate) fn now(&self) -> Fault {
        *self.fault.lock().expect("no holder of this lock panics")
    }

    pub(crate) fn set(&self, fault: Fault) {
        *self.fault.lock().expect("no holder of this lock panics") = fault;
        self.changed.notify_waiters();
    }

    /// Waits while `fault` is on.
    pub(crate) async fn wait_while(&self, fault: Fault) {
        loop {
            let changed = self.changed.notified();
            if self.now() != fault {
                return;
            }
            changed.await;
        }
    }

    /// While bodies are spoilt: the number of a body that is to be damaged, of others `None`.
    pub(crate) fn spoils(&self) -> Option<u64> {
        if self.now() != Fault::SpoilGet {
            return None;
        }
        let read = 1 + self.reads.fetch_add(1, Ordering::Relaxed);
        read.is_multiple_of(SPOILT_EVERY).then_some(read / SPOILT_EVERY)
    }
}

/// Flips one bit of a body. From one number to the next the place moves far, so that every part of an object is hit.
pub(crate) fn spoil(body: &mut [u8], number: u64) {
    let bits = 8 * u64::try_from(body.len()).expect("usize fits u64");
    if bits > 0 {
        let bit = number.wrapping_mul(PLACE_STEP) % bits;
        body[usize::try_from(bit / 8).expect("below the length")] ^= 1 << (bit % 8);
    }
}
