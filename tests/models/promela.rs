//! The models in `spin/`, each as it is and with one rule taken away at a time.

use crate::spin::{happens, holds, violates};

mod fence {
    use super::{happens, holds, violates};

    #[test]
    fn nothing_overlaps_is_stale_or_runs_twice_over_three_tenures() {
        holds("fence", "");
    }

    #[test]
    fn nothing_overlaps_is_stale_or_runs_twice_within_tenures() {
        holds("fence", "ES=2 GS=2");
    }

    #[test]
    fn a_hop_that_copies_requests_changes_nothing() {
        // Copies do not affect the write that a key has come to rest, and it would double the number of states.
        holds("fence", "ES=2 GS=2 HOP NEVER_REST");
    }

    #[test]
    fn a_guard_that_is_killed_twice_quarantines_what_may_be_at_work_and_nothing_overlaps() {
        holds("fence", "ES=2 RESTARTS=2");
        // A dispatch is admitted at once, because nothing was at work.
        happens("fence", "ES=2 RESTARTS=2", 9);
        happens("fence", "ES=2 RESTARTS=2", 10);
    }

    #[test]
    fn readers_and_writers_are_kept_apart_when_outcomes_are_lost() {
        // Without a restart nobody reads that write.
        holds("fence", "SHARED RESTARTS=0 NEVER_REST");
    }

    #[test]
    fn readers_and_writers_are_kept_apart_when_the_guard_is_killed() {
        holds("fence", "SHARED ES=2");
    }

    #[test]
    fn no_exclusive_dispatch_runs_twice_where_a_hop_copies_shared_ones_too() {
        holds("fence", "SHARED HOP ES=2 NEVER_REST");
        // Two exclusive dispatches of one tenure are told apart by their counter, beside shared ones.
        violates("fence", "SHARED HOP ES=2 GS=2 RESTARTS=0 NUMBER_ONLY", "twice");
        violates("fence", "SHARED HOP ES=2 GS=2 LAX_RECOVERY", "twice");
        // This is not promised of shared ones.
        happens("fence", "SHARED HOP ES=2 RESTARTS=0 NEVER_REST", 11);
    }

    #[test]
    fn every_refusal_and_every_wait_does_happen() {
        for number in 1..=4 {
            happens("fence", "", number);
        }
        happens("fence", "ES=2 GS=2 HOP", 5);
        happens("fence", "ES=2 GS=2", 6);
        for number in 7..=8 {
            happens("fence", "SHARED RESTARTS=0", number);
        }
    }

    #[test]
    fn without_a_guard_executions_overlap() {
        violates("fence", "NO_GUARD", "overlap");
    }

    #[test]
    fn a_lease_that_is_checked_before_sending_is_not_enough() {
        violates("fence", "LEASE", "overlap");
    }

    #[test]
    fn comparing_and_starting_in_two_steps_lets_the_stale_execute() {
        violates("fence", "TWO_STEPS", "stale");
    }

    #[test]
    fn without_settling_executions_overlap() {
        violates("fence", "NO_SETTLE", "overlap");
    }

    #[test]
    fn without_a_second_check_the_stale_execute() {
        violates("fence", "NO_SECOND_CHECK", "stale");
    }

    #[test]
    fn a_second_check_for_greater_turns_the_newest_away() {
        violates("fence", "SECOND_CHECK_GREATER", "newest_refused");
    }

    #[test]
    fn an_exchange_that_ends_with_the_gateway_frees_a_key_that_is_in_use() {
        violates("fence", "NO_DETACH", "overlap");
    }

    #[test]
    fn without_quarantine_a_restart_forgets_who_executes() {
        violates("fence", "NO_QUARANTINE", "overlap");
    }

    #[test]
    fn what_is_sent_before_it_is_written_that_it_is_at_work_is_overlapped_after_a_restart() {
        violates("fence", "SENT_UNWRITTEN", "overlap");
    }

    #[test]
    fn a_key_that_is_written_to_be_at_rest_before_all_is_over_is_in_use_after_a_restart() {
        for switches in ["REST_IN_FLIGHT", "REST_IN_DOUBT", "ES=2 RESTARTS=2 REST_IN_QUARANTINE"] {
            violates("fence", switches, "overlap");
        }
    }

    #[test]
    fn a_doubt_that_is_not_kept_frees_a_key_that_is_in_use() {
        violates("fence", "NO_DOUBT", "overlap");
    }

    #[test]
    fn a_probe_that_says_no_too_early_frees_a_key_that_is_in_use() {
        violates("fence", "EARLY_NO", "overlap");
    }

    #[test]
    fn a_tenure_that_goes_on_after_an_unknown_outcome_overlaps_itself() {
        violates("fence", "ES=2 GS=2 KEEP_UNKNOWN", "overlap");
    }

    #[test]
    fn recovered_marks_that_let_their_own_tenure_pass_run_a_copy_again() {
        violates("fence", "ES=2 GS=2 HOP LAX_RECOVERY", "twice");
    }

    #[test]
    fn a_refusal_through_a_hop_says_nothing_about_the_other_copy() {
        violates("fence", "ES=2 GS=2 HOP BELIEVE_HOP", "lied");
    }

    #[test]
    fn comparing_the_number_alone_lets_a_copy_run_again() {
        violates("fence", "ES=2 GS=2 HOP NUMBER_ONLY", "twice");
    }

    #[test]
    fn without_a_mark_for_readers_a_writer_runs_late() {
        violates("fence", "SHARED RESTARTS=0 ONE_MARK", "stale");
    }

    #[test]
    fn without_a_second_check_a_reader_runs_late() {
        violates("fence", "SHARED RESTARTS=0 NO_SECOND_READ_CHECK", "stale");
    }
}

mod store {
    use super::{happens, holds, violates};

    #[test]
    fn two_guards_on_one_store_are_as_one() {
        holds("store", "");
        // A guard that was declared dead goes on and sends.
        happens("store", "", 1);
    }

    #[test]
    fn guards_with_marks_of_their_own_run_a_copy_each() {
        violates("store", "LOCAL_MARKS", "twice");
    }

    #[test]
    fn guards_with_registers_of_their_own_let_executions_overlap() {
        violates("store", "LOCAL_REGISTER", "overlap");
    }

    #[test]
    fn the_rows_of_a_dead_guard_are_still_in_use() {
        violates("store", "DEAD_ROWS_FREED", "overlap");
    }

    #[test]
    fn a_database_that_lost_what_it_acknowledged_lets_nothing_old_in_and_nothing_too_early() {
        holds("store", "ROLLBACK");
        violates("store", "ROLLBACK NOT_CLOSED", "overlap");
        violates("store", "ROLLBACK NOTHING_KNOWN", "twice");
        violates("store", "ROLLBACK NO_SEND_GATE", "overlap");
        violates("store", "ROLLBACK NOT_HEARD", "twice");
    }

    #[test]
    fn without_a_send_gate_a_guard_sends_what_the_other_has_given_up() {
        violates("store", "NO_SEND_GATE", "overlap");
    }
}

mod passed {
    use super::{happens, holds, violates};

    #[test]
    fn no_doubt_in_a_shared_store_ends_early_whoever_is_stopped() {
        holds("passed", "");
        // The execution does end.
        happens("passed", "", 1);
    }

    #[test]
    fn a_guard_that_was_stopped_would_push_the_time_of_one_that_joined_meanwhile() {
        violates("passed", "LARGER", "early");
    }

    #[test]
    fn who_joins_without_a_word_is_pushed_as_well() {
        violates("passed", "SILENT", "early");
    }

    #[test]
    fn what_has_passed_without_being_written_counts() {
        violates("passed", "NO_SLACK", "early");
    }
}

mod answer {
    use super::{happens, holds, violates};

    #[test]
    fn a_lost_answer_leaves_nothing_registered_and_sends_nothing_that_is_not() {
        holds("answer", "");
        for losses in 1..=2 {
            happens("answer", "", losses);
        }
    }

    #[test]
    fn a_statement_that_comes_late_registers_what_nobody_ends() {
        violates("answer", "NO_GENERATION", "left");
    }

    #[test]
    fn asked_again_by_another_name_the_first_one_stays() {
        violates("answer", "NO_NAME", "left");
    }

    #[test]
    fn what_is_given_up_may_be_registered() {
        violates("answer", "NO_TAKE_BACK", "left");
    }

    #[test]
    fn what_nobody_has_acknowledged_may_not_be_registered() {
        violates("answer", "SENDS_UNTOLD", "unregistered");
    }
}

mod nested {
    use super::{happens, holds, violates};

    #[test]
    fn a_callback_runs_inside_its_dispatch_and_waits_for_nothing() {
        holds("nested", "");
        for number in 3..=5 {
            happens("nested", "", number);
        }
    }

    #[test]
    fn nested_requests_for_other_keys_never_wait_in_a_circle() {
        holds("nested", "CROSSING");
        for number in 1..=2 {
            happens("nested", "CROSSING", number);
        }
    }

    #[test]
    fn nested_requests_that_wait_deadlock() {
        violates("nested", "CROSSING NESTED_WAIT", "deadlock");
    }

    #[test]
    fn readers_that_wait_to_write_deadlock() {
        violates("nested", "CROSSING UPGRADE_WAIT", "deadlock");
    }

    #[test]
    fn a_callback_without_a_ticket_waits_for_its_own_caller() {
        violates("nested", "NO_TICKET", "deadlock");
    }

    #[test]
    fn a_callback_that_comes_too_late_overlaps_the_next_dispatch() {
        violates("nested", "LATE_CALLBACK", "overlap");
    }

    #[test]
    fn a_callback_that_outlives_its_caller_keeps_the_key() {
        violates("nested", "OUTER_ENDS_CHAIN", "overlap");
    }
}

mod journal {
    use super::{happens, holds, violates};

    #[test]
    fn an_operation_runs_at_most_once() {
        holds("journal", "");
        for number in 1..=5 {
            happens("journal", "", number);
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
            violates("journal", switch, "twice");
        }
    }
}

mod permits {
    use super::{happens, holds, violates};

    #[test]
    fn never_more_than_permits_are_at_work_and_no_holder_is_refused() {
        holds("permits", "");
        holds("permits", "TURNS=4 LOSSES=1 LIES=0");
        for number in 1..=5 {
            happens("permits", "", number);
        }
    }

    #[test]
    fn all_who_hold_go_by_one_number() {
        holds("permits", "OTHER_NUMBER");
        happens("permits", "OTHER_NUMBER", 6);
        violates("permits", "OTHER_NUMBER NO_DIFFER", "unlike");
    }

    #[test]
    fn a_holder_whose_session_is_lost_while_it_works_is_waited_for() {
        violates("permits", "NO_GUARD", "crowd");
        violates("permits", "NO_SETTLE", "crowd");
        violates("permits", "NO_SECOND_CHECK", "stale");
    }

    #[test]
    fn tokens_are_of_the_node_of_the_permit_and_so_are_marks() {
        violates("permits", "PLACE_TOKEN", "refused");
        violates("permits", "ONE_MARK", "refused");
    }

    #[test]
    fn a_permit_is_taken_in_line_and_one_at_a_time() {
        violates("permits", "NO_RANK", "passed");
        violates("permits", "UNKNOWN_FORGOTTEN", "two");
    }
}

mod not_after {
    use super::{happens, holds, violates};

    #[test]
    fn with_a_filter_nothing_is_begun_late_and_nothing_overlaps_whatever_stands_still_on_the_way() {
        holds("not_after", "");
        for number in [1, 2, 3, 5, 6] {
            happens("not_after", "", number);
        }
    }

    #[test]
    fn a_filter_with_another_clock_takes_the_error_off() {
        holds("not_after", "OTHER_KERNEL");
        violates("not_after", "OTHER_KERNEL NO_CLOCK_ERROR", "late");
    }

    #[test]
    fn without_a_filter_a_relay_delivers_the_old_request_beside_the_new_one() {
        violates("not_after", "NO_FILTER", "overlap");
    }

    #[test]
    fn a_filter_that_does_not_begin_what_it_checks_lets_it_begin_late() {
        violates("not_after", "TWO_STEPS", "late");
    }

    #[test]
    fn every_wait_that_is_too_short_lets_executions_overlap() {
        for switch in ["FROM_LAST_BYTE", "COUNT_SLEEP", "QUARANTINE_FROM_RESTART"] {
            violates("not_after", switch, "overlap");
        }
    }

    #[test]
    fn an_answer_that_a_hop_makes_ends_no_execution() {
        violates("not_after", "BELIEVE_HOP", "overlap");
    }

    #[test]
    fn an_instance_that_stands_still_takes_longer_than_an_execution_may() {
        violates("not_after", "INSTANCE_STOPS", "overlap");
        holds("not_after", "INSTANCE_STOPS SEEN_TO_RUN");
    }

    #[test]
    fn a_hop_that_copies_has_both_executed_and_neither_begun_late() {
        holds("not_after", "COPY");
        happens("not_after", "COPY", 4);
        violates("not_after", "COPY BELIEVE_EXPIRED", "lied");
    }

    #[test]
    fn where_nothing_stands_between_a_killed_guard_has_to_reset_its_connections() {
        holds("not_after", "NOTHING_BETWEEN");
        violates("not_after", "NOTHING_BETWEEN NO_RESET", "overlap");
    }
}

mod lease {
    use super::{happens, holds, violates};

    #[test]
    fn the_lock_of_a_lease_is_not_free_while_its_client_may_still_work() {
        holds("lease", "");
        for number in 1..=4 {
            happens("lease", "", number);
        }
    }

    #[test]
    fn every_promise_that_is_too_long_lets_a_client_work_beside_the_next_one() {
        for switch in ["FROM_ANSWER", "BREAK_AT_ONCE", "PROOF_FROM_ANSWER", "TTL_FORGOTTEN"] {
            violates("lease", switch, "overlap");
        }
    }
}

mod delay {
    use super::{happens, holds, violates};

    #[test]
    fn nothing_overlaps_when_executions_end_within_the_delay() {
        holds("delay", "");
        for number in 1..=3 {
            happens("delay", "", number);
        }
    }

    #[test]
    fn every_way_to_cut_the_delay_short_lets_executions_overlap() {
        for switch in ["NO_DELAY", "GIVE_UP_CLEAN", "CLEAN_AFTER_UNKNOWN", "READ_EARLY", "RETRIED_GRANT"] {
            violates("delay", switch, "overlap");
        }
    }
}

mod era {
    use super::{happens, holds, violates};

    #[test]
    fn tokens_grow_across_a_rollback_that_every_gateway_can_see() {
        holds("era", "");
        for number in 1..=3 {
            happens("era", "", number);
        }
    }

    #[test]
    fn without_its_rules_tokens_go_back() {
        for switch in ["TWO_BASES", "SILENT_INIT", "NO_ROLLBACK_CHECK"] {
            violates("era", switch, "regress");
        }
    }

    #[test]
    fn a_gateway_that_was_away_cannot_see_a_rollback() {
        violates("era", "AWAY", "regress");
    }
}

mod forward_auth {
    use super::{happens, holds, violates};

    #[test]
    fn nothing_overlaps_behind_a_proxy_that_keeps_to_its_configuration() {
        holds("forward_auth", "");
        for number in [1, 2, 3, 4, 5, 7] {
            happens("forward_auth", "", number);
        }
    }

    #[test]
    fn without_its_rules_a_request_of_the_proxy_runs_beside_the_next_one() {
        for switch in ["TTL_SHORT", "END_ON_OWN", "HEAD_ENDS", "ANY_LEASE", "FAIL_OPEN", "FORGETS_RELOAD"] {
            violates("forward_auth", switch, "overlap");
        }
        violates("forward_auth", "COUNT_LATE", "stale");
        violates("forward_auth", "RETRIES", "twice");
    }

    #[test]
    fn a_proxy_that_stands_still_and_repeats_is_refused_where_tokens_are_compared() {
        holds("forward_auth", "RS=2 STILL COMPARES");
        holds("forward_auth", "RS=2 STILL COMPARES RETRIES");
        happens("forward_auth", "RS=2 STILL COMPARES", 6);
        violates("forward_auth", "RS=2 STILL COMPARES RETRIES EQUAL_PASSES", "twice");
    }

    #[test]
    fn a_proxy_that_stands_still_sends_late_where_nobody_compares() {
        violates("forward_auth", "RS=2 STILL", "stale");
    }
}
