//! Bounds of the control plane: why each, and what happens at it.

use std::time::Duration;

use crate::limits::STOP_LIMIT;

/// Largest answer that a broker takes from the controller: the image of the largest cluster fits
/// (`CLUSTER_PARTITIONS_MAX` partitions, about 100 MB). A larger one breaks the connection.
pub const CONTROLLER_ANSWER_BYTES_MAX: usize = 512 << 20;

/// Largest answer to anything else a broker asks the controller.
pub const ADMIN_ANSWER_BYTES_MAX: usize = 64 << 20;

/// Requests of clients on their way to the controller. At the bound further ones are not answered: their connection is
/// closed and the client tries again.
pub const FORWARDS_MAX: usize = 256;

/// How long a forwarded request may take, unanswered attempts to reach the controller included.
pub const FORWARD_MAX: Duration = Duration::from_secs(30);

/// Questions for missing topics under way. At the bound the answer is LEADER_NOT_AVAILABLE, so that clients ask again.
pub const AUTO_CREATES_MAX: usize = 64;

/// How long a client's question waits for a topic that it creates: the controller's answer, then the shards' view.
pub const AUTO_CREATE_MAX: Duration = Duration::from_secs(5);

/// Questions for a producer id that wait for a block. At the bound the answer is COORDINATOR_LOAD_IN_PROGRESS.
pub const PRODUCER_ID_QUESTIONS_MAX: usize = 1024;

/// How long a question for a producer id may take.
pub const PRODUCER_ID_MAX: Duration = Duration::from_secs(5);

/// How long one AlterPartition may take. Leaders propose again by themselves.
pub const ALTER_PARTITION_MAX: Duration = Duration::from_secs(10);

/// Partitions in one AlterPartition; more go with the next.
pub const PROPOSALS_PER_REQUEST_MAX: usize = 2_000;

/// Messages with proposals that wait for the one on its way. At the bound the answer is REQUEST_TIMED_OUT.
pub const PROPOSALS_WAITING_MAX: usize = 1024;

/// How long a broker lets its stream of metadata wait for news.
pub const STREAM_WAIT: Duration = Duration::from_secs(2);

/// Longest wait that the controller grants a broker.
pub const STREAM_WAIT_MAX: Duration = Duration::from_secs(30);

/// How long the controller may take beyond the wait it was asked for.
pub const STREAM_GRACE: Duration = Duration::from_secs(10);

/// Bytes of events in one answer, unless one entry alone is larger. The rest comes with the next.
pub const STREAM_EVENT_BYTES_SOFT_MAX: usize = 8 << 20;

/// Between heartbeats of a broker that is not yet, or no longer, served by the controller: it wants its answer soon.
pub const EAGER_HEARTBEAT: Duration = Duration::from_millis(50);

/// Longest pause between attempts to register.
pub const REGISTRATION_PAUSE: Duration = Duration::from_millis(500);

/// How long one attempt to register may take.
pub const REGISTRATION_MAX: Duration = Duration::from_secs(10);

/// How long a clean stop waits for the controller to move leaderships away. Then the broker stops without it: what it
/// led is without a leader until its session ends.
pub const SHUTDOWN_MAX: Duration = Duration::from_millis(2_500);

/// How long a clean stop goes on while the controller cannot be reached at all (it may be stopping too).
pub const SHUTDOWN_UNREACHABLE_MAX: Duration = Duration::from_secs(1);

/// Shortest pause between two registrations that one process gives up by itself (R13). It doubles with each further one.
pub const RENEWAL_PAUSE_MIN: Duration = Duration::from_secs(10);

/// Longest such pause; after as long without one the next comes at once. Meanwhile followers get record bytes.
pub const RENEWAL_PAUSE_MAX: Duration = Duration::from_mins(10);

/// How long a folder that the cluster does not know is kept aside before it is deleted: the usual retention of records, and
/// time for a person to see that the controller was restored from an old copy.
pub const STRAYS_KEPT: Duration = Duration::from_hours(7 * 24);

/// How often folders that were set aside are looked at.
pub const STRAYS_LOOK: Duration = Duration::from_hours(1);

/// Topics in one admin request. Above it the request is refused.
pub const TOPICS_PER_REQUEST_MAX: usize = 10_000;

/// How long a request waits for a controller that has just started to become active.
pub const ACTIVATION_MAX: Duration = Duration::from_secs(5);

/// Open connections of a controller's listener. Above it new ones are closed.
pub const CONTROLLER_CONNECTIONS_MAX: usize = 4_000;

/// How long a broker waits for those with lower numbers before it takes over their partitions of the WAL metadata topic.
pub const WAL_TOPIC_PATIENCE: Duration = Duration::from_secs(30);

/// How long one request for the WAL metadata topic may take. It is repeated.
pub const WAL_TOPIC_REQUEST_MAX: Duration = Duration::from_secs(10);

/// Pause after a listener's error.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

const _: () = assert!(SHUTDOWN_MAX.as_millis() < STOP_LIMIT.as_millis());
const _: () = assert!(SHUTDOWN_UNREACHABLE_MAX.as_millis() <= SHUTDOWN_MAX.as_millis());
const _: () = assert!(STREAM_WAIT.as_millis() <= STREAM_WAIT_MAX.as_millis());
