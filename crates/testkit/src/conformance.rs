//! The case lists of the ports Ledger, Slots, Queues and Transit. A backend runs all of them:
//!
//! ```text
//! tidegate_testkit::conformance_cases!(EmbeddedBackend::new());
//! tidegate_testkit::slot_cases!(EmbeddedBackend::new());
//! tidegate_testkit::queue_cases!(EmbeddedBackend::new());
//! tidegate_testkit::transit_cases!(EmbeddedBackend::new());
//! ```
//!
//! expand to one `#[tokio::test]` per case, each on a ledger of its own. The calling crate needs tokio with
//! `macros` and `rt-multi-thread` among its dev-dependencies.

pub mod acks;
pub mod admission;
pub mod advances;
pub mod batches;
pub mod bodies;
pub mod cancels;
pub mod claims;
pub mod dead_letters;
pub mod deferrals;
pub mod erasure;
pub mod exemptions;
pub mod exhaustion;
pub mod expiry;
pub mod extensions;
pub mod forgetting;
pub mod idempotency;
pub mod lanes;
pub mod leases;
pub mod lists;
pub mod lookups;
pub mod moves;
pub mod order;
pub mod pauses;
pub mod pickups;
pub mod pops;
pub mod purges;
mod queue_cases;
pub mod queue_rules;
mod queue_steps;
pub mod quotas;
pub mod records;
pub mod reopening;
pub mod requeues;
pub mod settlement;
pub mod slot_configs;
pub mod slot_messages;
pub mod slot_releases;
mod slot_steps;
pub mod slots;
mod steps;
pub mod transit;
pub mod transit_bounds;
mod transit_cases;
pub mod transit_ends;
mod transit_steps;
pub mod waiting;

pub use slot_steps::{Ask, ask, event, per_window, slot_config};
pub use steps::{Draft, queue, sms, user};

use crate::HANG;
use crate::{Backend, Harness, Setup};

/// Runs one case on a fresh ledger.
pub async fn run(backend: impl Backend, case: impl AsyncFnOnce(&Harness)) {
    let harness = Harness::open(backend, Setup::default()).await.expect("the ledger opens");
    tokio::time::timeout(HANG, case(&harness)).await.expect("the case ends in time");
}

/// One test per case, for a backend given as an expression that makes a fresh one.
#[macro_export]
macro_rules! conformance_cases {
    ($backend:expr) => {
        $crate::conformance_tests! { $backend;
            admission::an_admitted_message_is_pending,
            admission::a_batch_is_decided_item_by_item,
            admission::a_full_ledger_refuses_until_a_message_is_settled,
            admission::a_full_ledger_still_knows_its_duplicates,
            admission::urgent_messages_pass_a_full_ledger_up_to_a_bound_of_their_own,
            admission::ids_are_distinct_and_sort_by_admission,
            admission::parallel_admissions_are_all_in_the_books,
            quotas::a_charge_counts_and_is_answered,
            quotas::past_the_limit_the_wait_is_answered_and_nothing_changes,
            quotas::the_window_opens_again_when_it_has_elapsed,
            quotas::the_last_slot_goes_to_exactly_one_of_many,
            quotas::configuring_resets_the_count,
            quotas::a_user_without_a_quota_is_unknown,
            quotas::a_batch_is_charged_in_order,
            quotas::users_do_not_share_a_quota,
            quotas::a_clock_set_back_neither_adds_quota_nor_shuts_out,
            exemptions::urgent_messages_take_what_is_there_and_pass_without_it,
            exemptions::an_exempt_message_is_not_deferred,
            exemptions::of_a_batch_only_what_is_exempt_passes_a_full_window,
            exemptions::an_exemption_survives_a_reopen_and_ends_with_its_quota,
            deferrals::over_the_quota_it_is_due_when_the_next_window_begins,
            deferrals::within_the_quota_nothing_is_deferred,
            deferrals::deferred_messages_fill_window_after_window,
            deferrals::later_sends_see_what_was_deferred_into_their_window,
            deferrals::past_the_horizon_it_is_denied,
            deferrals::deferred_messages_survive_a_reopen_in_mid_window,
            deferrals::a_deferred_message_keeps_its_recipients_order,
            deferrals::a_deferred_message_is_never_earlier_than_it_asked,
            deferrals::a_deleted_quota_is_unknown,
            deferrals::a_quota_set_again_counts_what_was_deferred_before,
            deferrals::a_quota_changed_twice_counts_what_was_deferred_before,
            deferrals::a_deleted_quota_is_forgotten_with_its_last_window,
            deferrals::quotas_are_listed_by_user_id_page_by_page,
            idempotency::the_same_key_answers_the_first_message,
            idempotency::another_request_under_the_key_is_a_conflict,
            idempotency::a_duplicate_is_not_charged,
            idempotency::a_duplicate_is_found_before_the_quota_is_asked,
            idempotency::a_key_is_free_again_when_its_window_has_ended,
            idempotency::a_repeated_key_in_one_batch_is_a_duplicate,
            idempotency::of_parallel_requests_with_one_key_one_message_comes,
            idempotency::a_refused_admission_leaves_its_key_free,
            idempotency::a_key_outlives_its_message,
            idempotency::keys_survive_a_reopen,
            claims::a_claim_carries_what_was_admitted,
            claims::claims_follow_due_time_then_admission,
            claims::a_past_due_time_goes_before_a_later_one,
            claims::a_future_message_is_not_claimable_until_it_is_due,
            claims::a_claim_takes_no_more_than_it_asked_for,
            claims::a_leased_message_is_not_claimed_again,
            claims::queues_do_not_mix,
            claims::parallel_claims_never_share_a_message,
            lanes::higher_lanes_go_first,
            lanes::a_lower_lane_has_its_turn_after_ten_higher,
            lanes::a_queues_rule_says_how_many_higher_go_before_a_lower,
            lanes::two_lower_lanes_take_turns,
            lanes::a_lane_without_competition_builds_no_streak,
            lanes::a_chain_counts_as_the_highest_lane_waiting_in_it,
            lanes::a_message_not_yet_due_lends_its_lane_too,
            lanes::a_lent_lane_ends_with_its_lender,
            order::a_recipient_has_one_lease_at_a_time,
            order::a_recipient_is_served_in_admission_order_whatever_the_lanes,
            order::a_blocked_head_blocks_its_recipient_alone,
            order::a_retried_head_keeps_its_place,
            order::a_dead_head_lets_the_next_one_go,
            order::an_expired_head_lets_the_next_one_go,
            order::a_head_in_the_future_holds_its_chain,
            order::one_recipient_in_two_queues_is_two_chains,
            order::messages_without_a_recipient_wait_for_nobody,
            advances::a_chain_is_walked_one_settlement_at_a_time,
            advances::a_death_and_an_expiry_bring_the_next_one_too,
            advances::what_stays_pending_keeps_its_recipient_waiting,
            advances::a_lost_lease_brings_nothing_along,
            advances::a_next_message_that_no_claim_could_take_is_left_alone,
            advances::an_expired_message_is_no_next_one,
            advances::a_paused_queue_gives_no_next_message,
            advances::a_next_message_that_is_not_settled_comes_back_with_an_attempt_spent,
            advances::many_recipients_advance_in_one_call,
            leases::an_ended_lease_is_claimable_with_a_new_token_and_number,
            leases::a_lease_holds_until_its_last_millisecond,
            leases::a_late_settlement_is_lost_even_before_a_sweep,
            leases::an_old_token_cannot_settle_a_newer_lease,
            leases::a_late_worker_cannot_overwrite_a_delivery,
            leases::tokens_grow_with_every_lease,
            leases::a_sweep_returns_ended_leases,
            settlement::a_delivered_message_never_returns,
            settlement::a_second_settlement_is_lost,
            settlement::a_retry_is_due_after_its_delay_with_the_next_number,
            settlement::a_released_message_is_claimable_at_once_and_spent_no_attempt,
            settlement::a_held_message_waits_and_spends_no_attempt,
            settlement::a_message_that_never_was_cannot_be_settled,
            settlement::an_unclaimed_message_cannot_be_settled,
            settlement::a_batch_of_settlements_is_decided_item_by_item,
            records::a_delivered_record_tells_its_attempts,
            records::a_dead_record_keeps_its_reason,
            records::an_expired_record_says_so,
            records::an_unknown_id_has_no_record,
            records::an_ended_lease_leaves_a_gap_in_the_numbers,
            records::the_books_balance_through_every_settlement,
            records::depth_is_told_per_lane,
            records::refused_admissions_leave_no_trace,
            bodies::bodies_return_byte_for_byte,
            bodies::a_mebibyte_returns_byte_for_byte,
            bodies::bodies_survive_a_reopen,
            waiting::an_empty_wait_ends_by_itself,
            waiting::a_waiting_claim_wakes_when_a_message_comes,
            waiting::a_waiting_claim_wakes_when_a_message_falls_due,
            waiting::a_waiting_claim_wakes_when_its_recipient_is_free,
            waiting::a_waiting_claim_wakes_when_a_lease_ends,
            waiting::every_waiting_claim_is_served,
            reopening::pending_messages_keep_their_order,
            reopening::attempts_and_due_times_survive,
            reopening::quotas_survive_in_mid_window,
            reopening::counts_survive,
            reopening::settled_messages_stay_settled,
            reopening::leases_are_void_and_unspent,
            reopening::a_token_from_an_earlier_life_settles_nothing,
            reopening::new_ids_are_new,
        }
    };
}

/// The cases of the Slots port, in the same way.
#[macro_export]
macro_rules! slot_cases {
    ($backend:expr) => {
        $crate::conformance_tests! { $backend;
            slots::an_event_is_assigned_at_or_after_its_request,
            slots::a_request_for_the_past_is_placed_there,
            slots::the_same_event_gets_the_same_slot_whatever_it_asks,
            slots::the_first_window_counts_in_proportion,
            slots::the_earliest_windows_fill_first,
            slots::parallel_reservations_never_fill_a_window_past_its_limit,
            slots::of_parallel_requests_for_one_event_one_takes_a_place,
            slots::past_the_headroom_there_is_no_room,
            slots::an_unknown_config_has_no_slots,
            slots::configurations_do_not_share_windows,
            slots::a_batch_of_reservations_is_decided_in_order,
            slots::a_forecast_says_what_a_reservation_then_gets,
            slots::a_ledger_full_of_slots_refuses_until_one_is_given_back,
            slots::a_slot_is_forgotten_when_its_time_is_over,
            slot_configs::versions_are_kept_and_the_newest_is_active,
            slot_configs::a_larger_maximum_opens_full_windows,
            slot_configs::a_smaller_maximum_leaves_windows_full,
            slot_configs::another_window_size_is_refused_while_slots_lie_ahead,
            slot_configs::slots_given_back_do_not_hold_the_window_size,
            slot_configs::windows_of_another_size_count_the_slots_that_lie_in_them,
            slot_configs::blackouts_have_no_capacity,
            slot_configs::outside_business_hours_there_is_no_capacity,
            slot_configs::an_event_finds_room_beyond_many_full_stretches_of_open_time,
            slot_releases::a_slot_given_back_is_taken_by_the_next_event,
            slot_releases::an_unknown_event_gives_nothing_back,
            slot_releases::an_event_that_gave_its_slot_back_may_ask_again,
            slot_releases::a_slot_given_back_deletes_its_waiting_message,
            slot_releases::a_message_taken_back_lets_the_next_of_its_recipient_go,
            slot_releases::a_slot_is_used_once_its_message_is_on_its_way,
            slot_releases::a_slot_is_used_once_its_message_is_dead,
            slot_messages::a_slots_message_is_due_at_its_scheduled_time,
            slot_messages::an_event_admits_its_message_once,
            slot_messages::without_a_slot_there_is_no_message,
            slot_messages::without_room_for_the_message_there_is_no_slot,
            slot_messages::messages_of_slots_keep_their_recipients_order,
            slot_messages::slots_survive_a_reopen,
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($backend:expr; $($group:ident :: $case:ident),+ $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            $crate::conformance::run($backend, $crate::conformance::$group::$case).await;
        }
    )+};
}
