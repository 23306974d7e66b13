//! What every driver must do, written once. Each claim runs on the Uring driver (a thread and a scratch folder of this machine)
//! and on the Simulated one (a machine of a simulated world).
//!
//! A claim is an async function over a `Ground`; `claims!` makes a test of it for each driver.
#![expect(clippy::unwrap_used, reason = "a test fails where something is not as it must be")]

#[path = "conformance/ground.rs"]
mod ground;

#[path = "conformance/files.rs"]
mod files;
#[path = "conformance/messages.rs"]
mod messages;
#[path = "conformance/streams.rs"]
mod streams;
#[path = "conformance/tasks.rs"]
mod tasks;

/// Makes two tests of each claim.
macro_rules! claims {
    ($module:ident: $($claim:ident)*) => {
        mod uring {
            $(#[test]
            fn $claim() {
                super::ground::on_uring(super::$module::$claim);
            })*
        }
        mod simulated {
            $(#[test]
            fn $claim() {
                super::ground::on_simulated(super::$module::$claim);
            })*
        }
    };
}

mod on_files {
    use super::{files, ground};
    claims!(files:
        a_file_reads_back_what_was_written
        a_read_is_clamped_to_the_end_of_the_file
        a_read_of_any_position_and_length_is_exact
        truncation_cuts_and_extends_with_zeros
        allocation_leaves_the_size
        the_tail_in_place_is_rewritten_while_it_grows
        writes_apart_may_be_in_flight_together
        a_dropped_write_holds_its_memory_and_its_blocks
        a_write_over_blocks_in_flight_is_refused
        a_dropped_read_gives_its_memory_back
        open_without_create_wants_an_existing_file
        a_closed_file_can_be_opened_again
        names_are_listed_renamed_and_removed
        a_replaced_file_is_whole
        a_folder_is_locked_once
    );
}

mod on_streams {
    use super::{ground, streams};
    claims!(streams:
        an_echo_returns_every_byte
        many_connections_echo_at_once
        a_name_is_resolved
        two_listeners_share_an_address
        a_half_closed_stream_still_receives
        parts_are_sent_in_order_and_whole
        a_dropped_stream_is_closed_for_its_peer
        a_connect_to_nobody_is_refused
        a_dropped_receive_ends_and_frees_its_stream
        a_dropped_accept_loses_no_connection
        a_receive_can_time_out
        a_second_send_is_refused_while_one_is_in_flight
    );
}

mod on_tasks {
    use super::{ground, tasks};
    claims!(tasks:
        tasks_run_in_the_order_they_were_spawned
        background_tasks_get_their_share
        a_dropped_task_is_cancelled
        a_detached_task_runs_on
        sleeps_end_in_order_of_their_deadlines
        a_dropped_sleep_leaves_no_timer
        a_timeout_cancels_and_a_ready_future_wins
        time_goes_on_beside_a_busy_task
        blocking_calls_return_their_result
        random_bytes_differ
        tasks_are_dropped_when_their_shard_ends
    );
}

mod on_messages {
    use super::{ground, messages};
    claims!(messages:
        a_full_mailbox_refuses_and_makes_senders_wait
        a_dropped_send_passes_its_turn_on
        a_mailbox_ends_after_its_last_sender
        a_closed_mailbox_gives_values_back
        many_values_come_in_order_at_once
        a_oneshot_gives_its_value_or_none
        a_signal_is_latched
        shards_talk_by_mailbox_and_oneshot
    );
}

mod only_uring {
    use super::{ground, messages};

    #[test]
    fn plain_threads_wake_a_shard() {
        ground::on_uring(messages::plain_threads_wake_a_shard);
    }
}
