//! A consumer that only commits offsets, and reads back what its group holds.
//!
//! Checked at once: a group holds the last commit that was acknowledged, whatever happened to its coordinator
//! (DESIGN 13.1). A commit that got no answer may still arrive, also after a later one.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use sakia_io::sim::Random;
use sakia_io::{now, sleep};
use tracing::debug;

use crate::history::{History, Place};
use crate::kafka::{Kafka, Trouble};

/// Commits rising offsets until the run is over, then reads the last one back.
pub async fn run(kafka: Rc<Kafka>, history: Rc<History>, group: String, place: Place, mut random: Random) {
    let mut acknowledged = -1;
    let mut unanswered = BTreeSet::new();
    for offset in 0.. {
        loop {
            match kafka.commit(&group, &place, offset).await {
                Ok(()) => break,
                Err(trouble) => {
                    debug!(group, offset, ?trouble, "commits again");
                    if matches!(trouble, Trouble::Unanswered(_)) {
                        unanswered.insert(offset);
                    }
                }
            }
            sleep(Duration::from_millis(40)).await;
        }
        acknowledged = offset.max(acknowledged);
        let is_over = history.is_over.get();
        if is_over || random.chance(1, 4) {
            let held = loop {
                match kafka.committed(&group, &place).await {
                    Ok(held) => break held,
                    Err(trouble) => debug!(group, ?trouble, "asks again"),
                }
                sleep(Duration::from_millis(40)).await;
            };
            assert!(
                held == acknowledged || unanswered.contains(&held),
                "{group} committed {acknowledged} and holds {held} at {:?}",
                now().as_duration()
            );
        }
        if is_over {
            break;
        }
        sleep(random.duration(&(Duration::from_millis(5)..Duration::from_millis(100)))).await;
    }
}
