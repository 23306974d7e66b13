//! Judges the message types of `sakia-protocol` from outside; only tests use it.
//!
//! `frame` writes random messages straight from the tables, sharing no code with the generated types. The tests pass
//! them through ours and through `kafka-protocol` (which was made from Kafka's own definitions) and compare bytes, and
//! damage them to see that ours refuses without harm. All randomness comes from a seed.

pub mod frame;
pub mod ours;
pub mod random;

/// Request or response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// What a client sends.
    Request,
    /// What comes back.
    Response,
}

impl Side {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Request, Self::Response];
}
