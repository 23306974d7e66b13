//! Faults that a test switches on with `POST /_fault`.

use std::sync::Mutex;

use tokio::sync::Notify;

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
}

impl Fault {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "none" => Some(Self::None),
            "hang" => Some(Self::Hang),
            "error503" => Some(Self::Error503),
            "lose-put-reply" => Some(Self::LosePutReply),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Hang => "hang",
            Self::Error503 => "error503",
            Self::LosePutReply => "lose-put-reply",
        }
    }
}

/// The fault that is on.
#[derive(Default)]
pub(crate) struct FaultSwitch {
    fault: Mutex<Fault>,
    changed: Notify,
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
}
