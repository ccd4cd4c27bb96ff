//! The models in `spin/`, each as it is and with one rule taken away at a time.

use crate::spin::{assert_holds, assert_reachable, assert_violates};

mod fence {
    use super::{assert_holds, assert_reachable, assert_violates};

    #[test]
    fn nothing_overlaps_is_stale_or_runs_twice_over_three_tenures() {
        assert_holds("fence", "");
    }

    #[test]
    fn nothing_overlaps_is_stale_or_runs_twice_within_tenures() {
        assert_holds("fence", "ES=2 GS=2");
    }

    #[test]
    fn a_hop_that_copies_requests_changes_nothing() {
        // Copies do not affect the write that a key has come to rest, and it would double the number of states.
        assert_holds("fence", "ES=2 GS=2 HOP NEVER_REST");
    }

    #[test]
    fn a_guard_that_is_killed_twice_quarantines_what_may_be_at_work_and_nothing_overlaps() {
        assert_holds("fence", "ES=2 RESTARTS=2");
        // A dispatch is admitted at once, because nothing was at work.
        assert_reachable("fence", "ES=2 RESTARTS=2", 9);
        assert_reachable("fence", "ES=2 RESTARTS=2", 10);
    }

    #[test]
    fn readers_and_writers_are_kept_apart_when_outcomes_are_lost() {
        // Without a restart nobody reads that write.
        assert_holds("fence", "SHARED RESTARTS=0 NEVER_REST");
    }

    #[test]
    fn readers_and_writers_are_kept_apart_when_the_guard_is_killed() {
        assert_holds("fence", "SHARED ES=2");
    }

    #[test]
    fn no_exclusive_dispatch_runs_twice_where_a_hop_copies_shared_ones_too() {
        assert_holds("fence", "SHARED HOP ES=2 NEVER_REST");
        // Two exclusive dispatches of one tenure are told apart by their counter, beside shared ones.
        assert_violates("fence", "SHARED HOP ES=2 GS=2 RESTARTS=0 NUMBER_ONLY", "twice");
        assert_violates("fence", "SHARED HOP ES=2 GS=2 LAX_RECOVERY", "twice");
        // This is not promised of shared ones.
        assert_reachable("fence", "SHARED HOP ES=2 RESTARTS=0 NEVER_REST", 11);
    }

    #[test]
    fn every_refusal_and_every_wait_does_happen() {
        for number in 1..=4 {
            assert_reachable("fence", "", number);
        }
        assert_reachable("fence", "ES=2 GS=2 HOP", 5);
        assert_reachable("fence", "ES=2 GS=2", 6);
        for number in 7..=8 {
            assert_reachable("fence", "SHARED RESTARTS=0", number);
        }
    }

    #[test]
    fn without_a_guard_executions_overlap() {
        assert_violates("fence", "NO_GUARD", "overlap");
    }

    #[test]
    fn a_lease_that_is_checked_before_sending_is_not_enough() {
        assert_violates("fence", "LEASE", "overlap");
    }

    #[test]
    fn comparing_and_starting_in_two_steps_lets_the_stale_execute() {
        assert_violates("fence", "TWO_STEPS", "stale");
    }

    #[test]
    fn without_settling_executions_overlap() {
        assert_violates("fence", "NO_SETTLE", "overlap");
    }

    #[test]
    fn without_a_second_check_the_stale_execute() {
        assert_violates("fence", "NO_SECOND_CHECK", "stale");
    }

    #[test]
    fn a_second_check_for_greater_turns_the_newest_away() {
        assert_violates("fence", "SECOND_CHECK_GREATER", "newest_refused");
    }

    #[test]
    fn an_exchange_that_ends_with_the_gateway_frees_a_key_that_is_in_use() {
        assert_violates("fence", "NO_DETACH", "overlap");
    }

    #[test]
    fn without_quarantine_a_restart_forgets_who_executes() {
        assert_violates("fence", "NO_QUARANTINE", "overlap");
    }

    #[test]
    fn what_is_sent_before_it_is_written_that_it_is_at_work_is_overlapped_after_a_restart() {
        assert_violates("fence", "SENT_UNWRITTEN", "overlap");
    }

    #[test]
    fn a_key_that_is_written_to_be_at_rest_before_all_is_over_is_in_use_after_a_restart() {
        for switches in ["REST_IN_FLIGHT", "REST_IN_DOUBT", "ES=2 RESTARTS=2 REST_IN_QUARANTINE"] {
            assert_violates("fence", switches, "overlap");
        }
    }

    #[test]
    fn a_doubt_that_is_not_kept_frees_a_key_that_is_in_use() {
        assert_violates("fence", "NO_DOUBT", "overlap");
    }

    #[test]
    fn a_probe_that_says_no_too_early_frees_a_key_that_is_in_use() {
        assert_violates("fence", "EARLY_NO", "overlap");
    }

    #[test]
    fn a_tenure_that_goes_on_after_an_unknown_outcome_overlaps_itself() {
        assert_violates("fence", "ES=2 GS=2 KEEP_UNKNOWN", "overlap");
    }

    #[test]
    fn recovered_marks_that_let_their_own_tenure_pass_run_a_copy_again() {
        assert_violates("fence", "ES=2 GS=2 HOP LAX_RECOVERY", "twice");
    }

    #[test]
    fn a_refusal_through_a_hop_says_nothing_about_the_other_copy() {
        assert_violates("fence", "ES=2 GS=2 HOP BELIEVE_HOP", "lied");
    }

    #[test]
    fn comparing_the_number_alone_lets_a_copy_run_again() {
        assert_violates("fence", "ES=2 GS=2 HOP NUMBER_ONLY", "twice");
    }

    #[test]
    fn without_a_mark_for_readers_a_writer_runs_late() {
        assert_violates("fence", "SHARED RESTARTS=0 ONE_MARK", "stale");
    }

    #[test]
    fn without_a_second_check_a_reader_runs_late() {
        assert_violates("fence", "SHARED RESTARTS=0 NO_SECOND_READ_CHECK", "stale");
    }
}

mod store {
    use super::{assert_holds, assert_reachable, assert_violates};

    #[test]
    fn two_guards_on_one_store_are_as_one() {
        assert_holds("store", "");
        // A guard that was declared dead goes on and sends.
        assert_reachable("store", "", 1);
    }

    #[test]
    fn guards_with_marks_of_their_own_run_a_copy_each() {
        assert_violates("store", "LOCAL_MARKS", "twice");
    }

    #[test]
    fn guards_with_registers_of_their_own_let_executions_overlap() {
        assert_violates("store", "LOCAL_REGISTER", "overlap");
    }

    #[test]
    fn the_rows_of_a_dead_guard_are_still_in_use() {
        assert_violates("store", "DEAD_ROWS_FREED", "overlap");
    }

    #[test]
    fn a_database_that_lost_what_it_acknowledged_lets_nothing_old_in_and_nothing_too_early() {
        assert_holds("store", "ROLLBACK");
        assert_violates("store", "ROLLBACK NOT_CLOSED", "overlap");
        assert_violates("store", "ROLLBACK NOTHING_KNOWN", "twice");
        assert_violates("store", "ROLLBACK NO_SEND_GATE", "overlap");
        assert_violates("store", "ROLLBACK NOT_HEARD", "twice");
    }

    #[test]
    fn without_a_send_gate_a_guard_sends_what_the_other_has_given_up() {
        assert_violates("store", "NO_SEND_GATE", "overlap");
    }
}

mod passed {
    use super::{assert_holds, assert_reachable, assert_violates};

    #[test]
    fn no_doubt_in_a_shared_store_ends_early_whoever_is_stopped() {
        assert_holds("passed", "");
        // The execution does end.
        assert_reachable("passed", "", 1);
    }

    #[test]
    fn a_guard_that_was_stopped_would_push_the_time_of_one_that_joined_meanwhile() {
        assert_violates("passed", "LARGER", "early");
    }

    #[test]
    fn who_joins_without_a_word_is_pushed_as_well() {
        assert_violates("passed", "SILENT", "early");
    }

    #[test]
    fn what_has_passed_without_being_written_counts() {
        assert_violates("passed", "NO_SLACK", "early");
    }
}

mod answer {
    use super::{assert_holds, assert_reachable, assert_violates};

    #[test]
    fn a_lost_answer_leaves_nothing_registered_and_sends_nothing_that_is_not() {
        assert_holds("answer", "");
        for losses in 1..=2 {
            assert_reachable("answer", "", losses);
        }
    }

    #[test]
    fn a_statement_that_comes_late_registers_what_nobody_ends() {
        assert_violates("answer", "NO_GENERATION", "left");
    }

    #[test]
    fn asked_again_by_another_name_the_first_one_stays() {
        assert_violates("answer", "NO_NAME", "left");
    }

    #[test]
    fn what_is_given_up_may_be_registered() {
        assert_violates("answer", "NO_TAKE_BACK", "left");
    }

    #[test]
    fn what_nobody_has_acknowledged_may_not_be_registered() {
        assert_violates("answer", "SENDS_UNTOLD", "unregistered");
    }
}

mod nested {
    use super::{assert_holds, assert_reachable, assert_violates};

    #[test]
    fn a_callback_runs_inside_its_dispatch_and_waits_for_nothing() {
        assert_holds("nested", "");
        for number in 3..=5 {
            assert_reachable("nested", "", number);
        }
    }

    #[test]
    fn nested_requests_for_other_keys_never_wait_in_a_circle() {
        assert_holds("nested", "CROSSING");
        for number in 1..=2 {
            assert_reachable("nested", "CROSSING", number);
        }
    }

    #[test]
    fn nested_requests_that_wait_deadlock() {
        assert_violates("nested", "CROSSING NESTED_WAIT", "deadlock");
    }

    #[test]
    fn readers_that_wait_to_write_deadlock() {
        assert_violates("nested", "CROSSING UPGRADE_WAIT", "deadlock");
    }

    #[test]
    fn a_callback_without_a_ticket_waits_for_its_own_caller() {
        assert_violates("nested", "NO_TICKET", "deadlock");
    }

    #[test]
    fn a_callback_that_comes_too_late_overlaps_the_next_dispatch() {
        assert_violates("nested", "LATE_CALLBACK", "overlap");
    }

    #[test]
    fn a_callback_that_outlives_its_caller_keeps_the_key() {
        assert_violates("nested", "OUTER_ENDS_CHAIN", "overlap");
    }
}

mod journal {
    use super::{assert_holds, assert_reachable, assert_violates};

    #[test]
    fn an_operation_runs_at_most_once() {
        assert_holds("journal", "");
        for number in 1..=5 {
            assert_reachable("journal", "", number);
        }
    }

    #[test]
    fn every_weaker_journal_runs_an_operation_twice() {
        for switch in [
            "NO_JOURNAL",
            "LOOKUP_ON_ARRIVAL_ONLY",
            "UNKNOWN_REEXECUTED",
            "FORWARD_BEFORE_COMMIT",
            "EARLY_NO",
            "FORGET_LOST",
        ] {
            assert_violates("journal", switch, "twice");
        }
    }
}

mod permits {
    use super::{assert_holds, assert_reachable, assert_violates};

    #[test]
    fn never_more_than_permits_are_at_work_and_no_holder_is_refused() {
        assert_holds("permits", "");
        assert_holds("permits", "TURNS=4 LOSSES=1 LIES=0");
        for number in 1..=5 {
            assert_reachable("permits", "", number);
        }
    }

    #[test]
    fn all_who_hold_go_by_one_number() {
        assert_holds("permits", "OTHER_NUMBER");
        assert_reachable("permits", "OTHER_NUMBER", 6);
        assert_violates("permits", "OTHER_NUMBER NO_DIFFER", "unlike");
    }

    #[test]
    fn a_holder_whose_session_is_lost_while_it_works_is_waited_for() {
        assert_violates("permits", "NO_GUARD", "crowd");
        assert_violates("permits", "NO_SETTLE", "crowd");
        assert_violates("permits", "NO_SECOND_CHECK", "stale");
    }

    #[test]
    fn tokens_are_of_the_node_of_the_permit_and_so_are_marks() {
        assert_violates("permits", "PLACE_TOKEN", "refused");
        assert_violates("permits", "ONE_MARK", "refused");
    }

    #[test]
    fn a_permit_is_taken_in_line_and_one_at_a_time() {
        assert_violates("permits", "NO_RANK", "passed");
        assert_violates("permits", "UNKNOWN_FORGOTTEN", "two");
    }
}

mod not_after {
    use super::{assert_holds, assert_reachable, assert_violates};

    #[test]
    fn with_a_filter_nothing_is_begun_late_and_nothing_overlaps_whatever_stands_still_on_the_way() {
        assert_holds("not_after", "");
        for number in [1, 2, 3, 5, 6] {
            assert_reachable("not_after", "", number);
        }
    }

    #[test]
    fn a_filter_with_another_clock_takes_the_error_off() {
        assert_holds("not_after", "OTHER_KERNEL");
        assert_violates("not_after", "OTHER_KERNEL NO_CLOCK_ERROR", "late");
    }

    #[test]
    fn without_a_filter_a_relay_delivers_the_old_request_beside_the_new_one() {
        assert_violates("not_after", "NO_FILTER", "overlap");
    }

    #[test]
    fn a_filter_that_does_not_begin_what_it_checks_lets_it_begin_late() {
        assert_violates("not_after", "TWO_STEPS", "late");
    }

    #[test]
    fn every_wait_that_is_too_short_lets_executions_overlap() {
        for switch in ["FROM_LAST_BYTE", "COUNT_SLEEP", "QUARANTINE_FROM_RESTART"] {
            assert_violates("not_after", switch, "overlap");
        }
    }

    #[test]
    fn an_answer_that_a_hop_makes_ends_no_execution() {
        assert_violates("not_after", "BELIEVE_HOP", "overlap");
    }

    #[test]
    fn an_instance_that_stands_still_takes_longer_than_an_execution_may() {
        assert_violates("not_after", "INSTANCE_STOPS", "overlap");
        assert_holds("not_after", "INSTANCE_STOPS SEEN_TO_RUN");
    }

    #[test]
    fn a_hop_that_copies_has_both_executed_and_neither_begun_late() {
        assert_holds("not_after", "COPY");
        assert_reachable("not_after", "COPY", 4);
        assert_violates("not_after", "COPY BELIEVE_EXPIRED", "lied");
    }

    #[test]
    fn where_nothing_stands_between_a_killed_guard_has_to_reset_its_connections() {
        assert_holds("not_after", "NOTHING_BETWEEN");
        assert_violates("not_after", "NOTHING_BETWEEN NO_RESET", "overlap");
    }
}

mod lease {
    use super::{assert_holds, assert_reachable, assert_violates};

    #[test]
    fn the_lock_of_a_lease_is_not_free_while_its_client_may_still_work() {
        assert_holds("lease", "");
        for number in 1..=4 {
            assert_reachable("lease", "", number);
        }
    }

    #[test]
    fn every_promise_that_is_too_long_lets_a_client_work_beside_the_next_one() {
        for switch in ["FROM_ANSWER", "BREAK_AT_ONCE", "PROOF_FROM_ANSWER", "TTL_FORGOTTEN"] {
            assert_violates("lease", switch, "overlap");
        }
    }
}

mod delay {
    use super::{assert_holds, assert_reachable, assert_violates};

    #[test]
    fn nothing_overlaps_when_executions_end_within_the_delay() {
        assert_holds("delay", "");
        for number in 1..=3 {
            assert_reachable("delay", "", number);
        }
    }

    #[test]
    fn every_way_to_cut_the_delay_short_lets_executions_overlap() {
        for switch in ["NO_DELAY", "GIVE_UP_CLEAN", "CLEAN_AFTER_UNKNOWN", "READ_EARLY", "RETRIED_GRANT"] {
            assert_violates("delay", switch, "overlap");
        }
    }
}

mod era {
    use super::{assert_holds, assert_reachable, assert_violates};

    #[test]
    fn tokens_grow_across_a_rollback_that_every_gateway_can_see() {
        assert_holds("era", "");
        for number in 1..=3 {
            assert_reachable("era", "", number);
        }
    }

    #[test]
    fn without_its_rules_tokens_go_back() {
        for switch in ["TWO_BASES", "SILENT_INIT", "NO_ROLLBACK_CHECK"] {
            assert_violates("era", switch, "regress");
        }
    }

    #[test]
    fn a_gateway_that_was_away_cannot_see_a_rollback() {
        assert_violates("era", "AWAY", "regress");
    }
}

mod forward_auth {
    use super::{assert_holds, assert_reachable, assert_violates};

    #[test]
    fn nothing_overlaps_behind_a_proxy_that_keeps_to_its_configuration() {
        assert_holds("forward_auth", "");
        for number in [1, 2, 3, 4, 5, 7] {
            assert_reachable("forward_auth", "", number);
        }
    }

    #[test]
    fn without_its_rules_a_request_of_the_proxy_runs_beside_the_next_one() {
        for switch in ["TTL_SHORT", "END_ON_OWN", "HEAD_ENDS", "ANY_LEASE", "FAIL_OPEN", "FORGETS_RELOAD"] {
            assert_violates("forward_auth", switch, "overlap");
        }
        assert_violates("forward_auth", "COUNT_LATE", "stale");
        assert_violates("forward_auth", "RETRIES", "twice");
    }

    #[test]
    fn a_proxy_that_stands_still_and_repeats_is_refused_where_tokens_are_compared() {
        assert_holds("forward_auth", "RS=2 STILL COMPARES");
        assert_holds("forward_auth", "RS=2 STILL COMPARES RETRIES");
        assert_reachable("forward_auth", "RS=2 STILL COMPARES", 6);
        assert_violates("forward_auth", "RS=2 STILL COMPARES RETRIES EQUAL_PASSES", "twice");
    }

    #[test]
    fn a_proxy_that_stands_still_sends_late_where_nobody_compares() {
        assert_violates("forward_auth", "RS=2 STILL", "stale");
    }
}
