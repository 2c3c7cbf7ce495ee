/// The cases of the Transit port, in the same way.
#[macro_export]
macro_rules! transit_cases {
    ($backend:expr) => {
        $crate::conformance_tests! { $backend;
            transit::a_dispatched_message_is_leased,
            transit::a_dispatch_follows_lanes_due_times_and_admission,
            transit::dispatches_and_claims_share_the_turns_of_the_lanes,
            transit::a_begun_attempt_has_a_new_token_and_a_lease_of_its_own,
            transit::the_token_of_the_way_is_worth_nothing_once_begun,
            transit::of_parallel_beginnings_one_counts,
            transit::a_batch_of_beginnings_is_decided_item_by_item,
            transit::only_a_current_lease_in_transit_begins,
            transit::a_way_that_took_too_long_begins_nothing,
            transit::what_is_lost_on_the_way_spends_nothing,
            transit::what_is_lost_on_the_way_is_popped_unspent,
            transit::a_begun_attempt_whose_lease_ends_is_spent,
            transit::a_restart_forgets_ways_and_attempts_alike,
            transit::queues_are_dispatched_apart_and_paused_ones_not_at_all,
            transit_ends::a_dispatched_message_may_be_handed_back,
            transit_ends::a_dispatched_message_is_settled_like_any_other,
            transit_ends::a_way_may_be_made_longer_and_is_still_a_way,
            transit_ends::a_message_on_its_way_is_under_way,
            transit_ends::a_message_on_its_way_expires_when_that_is_over,
            transit_ends::a_message_on_its_first_way_awaits_no_ack,
            transit_ends::an_ack_ends_a_way_that_is_not_the_first,
            transit_ends::a_slot_is_used_once_its_message_is_on_its_way_to_a_bus,
            transit_bounds::no_more_are_in_transit_than_may_be,
            transit_bounds::ways_that_are_over_do_not_count,
            transit_bounds::an_extended_way_counts_until_its_new_end,
            transit_bounds::every_queue_has_a_bound_of_its_own,
            transit_bounds::attempts_do_not_count_as_in_transit,
            transit_bounds::a_claim_that_takes_a_lost_one_is_not_in_transit,
            transit_bounds::parallel_dispatches_share_no_message_and_one_bound,
            transit_bounds::an_empty_wait_of_a_dispatch_ends_by_itself,
            transit_bounds::a_waiting_dispatch_wakes_when_a_message_comes,
            transit_bounds::a_waiting_dispatch_wakes_when_a_message_falls_due,
            transit_bounds::a_waiting_dispatch_wakes_when_an_attempt_begins,
            transit_bounds::a_waiting_dispatch_wakes_when_one_in_transit_is_settled,
            transit_bounds::a_waiting_dispatch_wakes_when_a_way_is_over,
            transit_bounds::a_dispatch_that_was_given_up_holds_nothing,
        }
    };
}
