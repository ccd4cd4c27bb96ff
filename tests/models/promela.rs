//! The models in `spin/`, each as it is and with one rule taken away at a time.

use crate::spin::{assert_holds, assert_reachable, assert_violates};

mod fence {
    use super::{assert_holds, assert_reachable, assert_violates};

    /// Over three grants no two executions overlap, and no request executes late or twice.
    #[test]
    fn safe_over_three_grants() {
        assert_holds("fence", "");
    }

    /// With several dispatches in each grant no two executions overlap, and no request executes late or twice.
    #[test]
    fn safe_within_grants() {
        assert_holds("fence", "ES=2 GS=2");
    }

    /// Behind a hop that copies requests no two executions overlap, and no request executes late or twice.
    #[test]
    fn safe_behind_copying_hop() {
        // `NEVER_REST` leaves out the write that a key is at rest: copies do not affect it, and it doubles the
        // number of states.
        assert_holds("fence", "ES=2 GS=2 HOP NEVER_REST");
    }

    /// A guard that is killed twice quarantines keys that may be at work and admits others at once, and no two
    /// executions overlap.
    #[test]
    fn twice_killed_guard_quarantines_running_keys() {
        assert_holds("fence", "ES=2 RESTARTS=2");
        // Events: after a restart a dispatch is admitted at once because nothing was in flight (9), and a key is at
        // work again before the record that it is at rest is written (10).
        assert_reachable("fence", "ES=2 RESTARTS=2", 9);
        assert_reachable("fence", "ES=2 RESTARTS=2", 10);
    }

    /// Readers and writers never overlap, also when outcomes are lost.
    #[test]
    fn readers_exclude_writers_despite_lost_outcomes() {
        // `NEVER_REST`: the record that a key is at rest is read only after a restart, and there is none here.
        assert_holds("fence", "SHARED RESTARTS=0 NEVER_REST");
    }

    /// Readers and writers never overlap, also when the guard is killed.
    #[test]
    fn readers_exclude_writers_despite_guard_kill() {
        assert_holds("fence", "SHARED ES=2");
    }

    /// A hop that copies shared dispatches makes no exclusive dispatch run twice. Shared dispatches themselves may
    /// run twice.
    #[test]
    fn copied_exclusive_dispatch_runs_once() {
        assert_holds("fence", "SHARED HOP ES=2 NEVER_REST");
        // Two exclusive dispatches of one grant differ only by the second number of their tokens: without it a copy
        // runs again.
        assert_violates("fence", "SHARED HOP ES=2 GS=2 RESTARTS=0 NUMBER_ONLY", "twice");
        assert_violates("fence", "SHARED HOP ES=2 GS=2 LAX_RECOVERY", "twice");
        // A copied shared dispatch may run twice.
        assert_reachable("fence", "SHARED HOP ES=2 RESTARTS=0 NEVER_REST", 11);
    }

    #[test]
    fn every_refusal_and_wait_is_reachable() {
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
    fn executions_overlap_without_guard() {
        assert_violates("fence", "NO_GUARD", "overlap");
    }

    /// Without a guard, checking the lease before sending does not keep executions apart.
    #[test]
    fn executions_overlap_with_lease_check_only() {
        assert_violates("fence", "LEASE", "overlap");
    }

    /// If the token is compared in one step and the execution begins in another, a stale request executes.
    #[test]
    fn stale_executes_when_comparison_is_separate() {
        assert_violates("fence", "TWO_STEPS", "stale");
    }

    #[test]
    fn executions_overlap_without_settling() {
        assert_violates("fence", "NO_SETTLE", "overlap");
    }

    /// Without the second check before sending, a stale request executes.
    #[test]
    fn stale_executes_without_second_check() {
        assert_violates("fence", "NO_SECOND_CHECK", "stale");
    }

    /// If the second check demands a token greater than the watermark, it refuses the newest request.
    #[test]
    fn second_check_for_greater_refuses_newest() {
        assert_violates("fence", "SECOND_CHECK_GREATER", "newest_refused");
    }

    /// If the guard drops an exchange whose gateway has gone, its key becomes free while the execution still runs.
    #[test]
    fn executions_overlap_without_detach() {
        assert_violates("fence", "NO_DETACH", "overlap");
    }

    /// Without quarantine a restart forgets which executions may run, and they overlap with the next ones.
    #[test]
    fn executions_overlap_without_quarantine() {
        assert_violates("fence", "NO_QUARANTINE", "overlap");
    }

    /// A dispatch that is sent before its key is recorded to be at work overlaps after a restart.
    #[test]
    fn unrecorded_send_overlaps_after_restart() {
        assert_violates("fence", "SENT_UNWRITTEN", "overlap");
    }

    /// If a key is recorded to be at rest while a dispatch is in flight, in doubt or in quarantine, executions
    /// overlap after a restart.
    #[test]
    fn premature_rest_record_overlaps_after_restart() {
        for switches in ["REST_IN_FLIGHT", "REST_IN_DOUBT", "ES=2 RESTARTS=2 REST_IN_QUARANTINE"] {
            assert_violates("fence", switches, "overlap");
        }
    }

    /// If a dispatch whose end was not seen does not close its key, executions overlap.
    #[test]
    fn executions_overlap_without_kept_doubt() {
        assert_violates("fence", "NO_DOUBT", "overlap");
    }

    /// If a probe reports that nothing runs before a late request has begun, the key becomes free and executions
    /// overlap.
    #[test]
    fn early_negative_probe_overlaps() {
        assert_violates("fence", "EARLY_NO", "overlap");
    }

    /// If a gateway sends another dispatch under a grant that has an unknown outcome, two executions of this grant
    /// overlap.
    #[test]
    fn grant_kept_after_unknown_outcome_overlaps() {
        assert_violates("fence", "ES=2 GS=2 KEEP_UNKNOWN", "overlap");
    }

    /// If a watermark read from the disk admits its own grant, a copied request runs again.
    #[test]
    fn lax_recovery_reruns_copy() {
        assert_violates("fence", "ES=2 GS=2 HOP LAX_RECOVERY", "twice");
    }

    /// Behind a hop that copies, the refusal of one copy proves nothing about the other copy: a gateway that
    /// believes it reports an executed request as refused.
    #[test]
    fn believed_hop_refusal_is_untrue() {
        assert_violates("fence", "ES=2 GS=2 HOP BELIEVE_HOP", "lied");
    }

    /// If only the first number of a token is compared, a copied request runs again.
    #[test]
    fn number_only_comparison_reruns_copy() {
        assert_violates("fence", "ES=2 GS=2 HOP NUMBER_ONLY", "twice");
    }

    /// Without a separate watermark for readers, a stale writer executes.
    #[test]
    fn late_writer_runs_without_reader_watermark() {
        assert_violates("fence", "SHARED RESTARTS=0 ONE_MARK", "stale");
    }

    /// Without the second check of readers, a stale reader executes.
    #[test]
    fn late_reader_runs_without_second_check() {
        assert_violates("fence", "SHARED RESTARTS=0 NO_SECOND_READ_CHECK", "stale");
    }
}

mod store {
    use super::{assert_holds, assert_reachable, assert_violates};

    /// Two guards on one store keep the promises of a single guard, even if a guard that was declared dead goes on.
    #[test]
    fn two_guards_share_store_safely() {
        assert_holds("store", "");
        // Event 1: a guard that was declared dead goes on and sends.
        assert_reachable("store", "", 1);
    }

    /// If each guard has its own watermarks, both guards execute a copy of the same request.
    #[test]
    fn separate_watermarks_run_copies_twice() {
        assert_violates("store", "LOCAL_MARKS", "twice");
    }

    /// If each guard has its own register of dispatches in flight, executions overlap.
    #[test]
    fn executions_overlap_with_separate_registers() {
        assert_violates("store", "LOCAL_REGISTER", "overlap");
    }

    /// Freeing the rows of a dead guard lets executions overlap, because the executions that it began may still run.
    #[test]
    fn freeing_dead_guard_rows_overlaps() {
        assert_violates("store", "DEAD_ROWS_FREED", "overlap");
    }

    /// After a database has lost acknowledged rows, no stale request executes and no request is admitted too early.
    /// Each rule that this variant leaves out is needed.
    #[test]
    fn rollback_admits_no_stale_request() {
        assert_holds("store", "ROLLBACK");
        assert_violates("store", "ROLLBACK NOT_CLOSED", "overlap");
        assert_violates("store", "ROLLBACK NOTHING_KNOWN", "twice");
        assert_violates("store", "ROLLBACK NO_SEND_GATE", "overlap");
        assert_violates("store", "ROLLBACK NOT_HEARD", "twice");
    }

    /// Without a send gate a guard sends a dispatch that the other guard has already given up.
    #[test]
    fn executions_overlap_without_send_gate() {
        assert_violates("store", "NO_SEND_GATE", "overlap");
    }
}

mod passed {
    use super::{assert_holds, assert_reachable, assert_violates};

    /// No doubt in a shared store ends early, whichever guard is stopped.
    #[test]
    fn doubt_never_ends_early() {
        assert_holds("passed", "");
        // Event 1: the doubt ends after the execution has ended.
        assert_reachable("passed", "", 1);
    }

    /// If the store takes the larger of its time and the guard's time, a guard that was stopped advances the time
    /// beyond what has really passed, and a doubt ends early.
    #[test]
    fn larger_elapsed_time_ends_doubt_early() {
        assert_violates("passed", "LARGER", "early");
    }

    /// If a guard joins without recording it, another guard adds the time before the join to the store's time, and a
    /// doubt ends early.
    #[test]
    fn silent_join_ends_doubt_early() {
        assert_violates("passed", "SILENT", "early");
    }

    /// If a doubt does not add the time that has passed without being recorded, it ends early.
    #[test]
    fn ignored_unwritten_time_ends_doubt_early() {
        assert_violates("passed", "NO_SLACK", "early");
    }
}

mod answer {
    use super::{assert_holds, assert_reachable, assert_violates};

    /// After a lost answer nothing stays registered, and no dispatch is sent without being registered.
    #[test]
    fn lost_answer_leaves_no_registration() {
        assert_holds("answer", "");
        for losses in 1..=2 {
            assert_reachable("answer", "", losses);
        }
    }

    /// Without a generation number, a late statement registers a dispatch that no guard ends.
    #[test]
    fn late_statement_leaves_registration_without_generation() {
        assert_violates("answer", "NO_GENERATION", "left");
    }

    /// A statement that is repeated under another name leaves the registration of the first attempt.
    #[test]
    fn retry_with_other_name_leaves_registration() {
        assert_violates("answer", "NO_NAME", "left");
    }

    /// A statement that was given up may have been executed. If it is not taken back, its registration stays.
    #[test]
    fn abandoned_statement_leaves_registration() {
        assert_violates("answer", "NO_TAKE_BACK", "left");
    }

    /// A dispatch that is sent before its registration is acknowledged may be sent without being registered.
    #[test]
    fn unacknowledged_dispatch_is_sent_unregistered() {
        assert_violates("answer", "SENDS_UNTOLD", "unregistered");
    }
}

mod nested {
    use super::{assert_holds, assert_reachable, assert_violates};

    /// A callback runs within its dispatch, without waiting for the key.
    #[test]
    fn callback_runs_within_its_dispatch() {
        assert_holds("nested", "");
        for number in 3..=5 {
            assert_reachable("nested", "", number);
        }
    }

    /// Nested requests for other keys never wait for each other in a circle.
    #[test]
    fn nested_requests_never_deadlock() {
        assert_holds("nested", "CROSSING");
        for number in 1..=2 {
            assert_reachable("nested", "CROSSING", number);
        }
    }

    #[test]
    fn waiting_nested_requests_deadlock() {
        assert_violates("nested", "CROSSING NESTED_WAIT", "deadlock");
    }

    #[test]
    fn readers_waiting_to_write_deadlock() {
        assert_violates("nested", "CROSSING UPGRADE_WAIT", "deadlock");
    }

    /// A callback without a ticket waits for its own caller, which waits for the callback: a deadlock.
    #[test]
    fn callback_without_ticket_deadlocks() {
        assert_violates("nested", "NO_TICKET", "deadlock");
    }

    #[test]
    fn late_callback_overlaps_next_dispatch() {
        assert_violates("nested", "LATE_CALLBACK", "overlap");
    }

    /// If the end of the caller frees the key, a callback that outlives it overlaps with the next dispatch.
    #[test]
    fn callback_outliving_caller_must_keep_key() {
        assert_violates("nested", "OUTER_ENDS_CHAIN", "overlap");
    }
}

mod journal {
    use super::{assert_holds, assert_reachable, assert_violates};

    #[test]
    fn operation_runs_at_most_once() {
        assert_holds("journal", "");
        for number in 1..=5 {
            assert_reachable("journal", "", number);
        }
    }

    /// With any one rule of the journal removed, an operation runs twice.
    #[test]
    fn every_weaker_journal_runs_operation_twice() {
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

    /// Never are more requests at work than there are permits, and no holder of a permit is refused.
    #[test]
    fn permits_are_never_exceeded() {
        assert_holds("permits", "");
        assert_holds("permits", "TURNS=4 LOSSES=1 LIES=0");
        for number in 1..=5 {
            assert_reachable("permits", "", number);
        }
    }

    /// Holders that hold one key at the same time have the same number of permits.
    #[test]
    fn all_holders_agree_on_permit_count() {
        assert_holds("permits", "OTHER_NUMBER");
        assert_reachable("permits", "OTHER_NUMBER", 6);
        assert_violates("permits", "OTHER_NUMBER NO_DIFFER", "unlike");
    }

    /// Without the guard, settling or the second check, a request whose holder lost its session still runs, and too
    /// many requests are at work or a stale one executes.
    #[test]
    fn permits_are_exceeded_without_guard_rules() {
        assert_violates("permits", "NO_GUARD", "crowd");
        assert_violates("permits", "NO_SETTLE", "crowd");
        assert_violates("permits", "NO_SECOND_CHECK", "stale");
    }

    /// If tokens or watermarks belong to the key and not to the node of the permit, a holder is refused.
    #[test]
    fn tokens_and_watermarks_belong_to_permit() {
        assert_violates("permits", "PLACE_TOKEN", "refused");
        assert_violates("permits", "ONE_MARK", "refused");
    }

    /// Without the rule of the queue's order a request overtakes another one. Without the rule for unknown outcomes
    /// a request takes two permits.
    #[test]
    fn permit_rules_are_needed() {
        assert_violates("permits", "NO_RANK", "passed");
        assert_violates("permits", "UNKNOWN_FORGOTTEN", "two");
    }
}

mod not_after {
    use super::{assert_holds, assert_reachable, assert_violates};

    /// With a filter no execution begins late and no two overlap, whichever process between guard and execution is
    /// paused.
    #[test]
    fn filter_prevents_late_start_and_overlap() {
        assert_holds("not_after", "");
        for number in [1, 2, 3, 5, 6] {
            assert_reachable("not_after", "", number);
        }
    }

    /// A filter with another clock has to subtract the clock error, or executions begin late.
    #[test]
    fn filter_on_other_clock_subtracts_error() {
        assert_holds("not_after", "OTHER_KERNEL");
        assert_violates("not_after", "OTHER_KERNEL NO_CLOCK_ERROR", "late");
    }

    /// Without a filter a relay that was paused delivers the old request beside the new one.
    #[test]
    fn relayed_request_overlaps_without_filter() {
        assert_violates("not_after", "NO_FILTER", "overlap");
    }

    /// If a filter checks the time in one step and the execution begins in another, a request begins late.
    #[test]
    fn two_step_filter_starts_request_late() {
        assert_violates("not_after", "TWO_STEPS", "late");
    }

    /// Each variant that waits too short a time lets executions overlap.
    #[test]
    fn every_shorter_wait_lets_executions_overlap() {
        for switch in ["FROM_LAST_BYTE", "COUNT_SLEEP", "QUARANTINE_FROM_RESTART"] {
            assert_violates("not_after", switch, "overlap");
        }
    }

    /// An answer that a hop gives itself ends no execution: if it counts as the end, executions overlap.
    #[test]
    fn answer_from_hop_ends_no_execution() {
        assert_violates("not_after", "BELIEVE_HOP", "overlap");
    }

    /// A paused instance takes longer than an execution may take, so executions overlap. They do not if only time
    /// counts in which the instance was seen to run.
    #[test]
    fn stopped_instance_overlaps_unless_observed() {
        assert_violates("not_after", "INSTANCE_STOPS", "overlap");
        assert_holds("not_after", "INSTANCE_STOPS SEEN_TO_RUN");
    }

    /// A hop that copies a request may have both copies executed, but neither copy begins late.
    #[test]
    fn copying_hop_starts_no_copy_late() {
        assert_holds("not_after", "COPY");
        assert_reachable("not_after", "COPY", 4);
        assert_violates("not_after", "COPY BELIEVE_EXPIRED", "lied");
    }

    /// Without a filter or hop between guard and upstream, the connections of a killed guard have to be reset.
    #[test]
    fn direct_connection_needs_reset_after_kill() {
        assert_holds("not_after", "NOTHING_BETWEEN");
        assert_violates("not_after", "NOTHING_BETWEEN NO_RESET", "overlap");
    }
}

mod lease {
    use super::{assert_holds, assert_reachable, assert_violates};

    /// The lock of a lease is not free while its client may still work.
    #[test]
    fn lock_outlives_client_work() {
        assert_holds("lease", "");
        for number in 1..=4 {
            assert_reachable("lease", "", number);
        }
    }

    /// Each variant that promises too long a validity lets a client work beside the next holder of the lease.
    #[test]
    fn every_longer_promise_overlaps_next_client() {
        for switch in ["FROM_ANSWER", "BREAK_AT_ONCE", "PROOF_FROM_ANSWER", "TTL_FORGOTTEN"] {
            assert_violates("lease", switch, "overlap");
        }
    }
}

mod delay {
    use super::{assert_holds, assert_reachable, assert_violates};

    /// Executions that end within the delay never overlap, whatever accidents happen.
    #[test]
    fn executions_within_delay_never_overlap() {
        assert_holds("delay", "");
        for number in 1..=3 {
            assert_reachable("delay", "", number);
        }
    }

    /// With any one rule of the delay removed, executions overlap.
    #[test]
    fn every_shortened_delay_lets_executions_overlap() {
        for switch in ["NO_DELAY", "GIVE_UP_CLEAN", "CLEAN_AFTER_UNKNOWN", "READ_EARLY", "RETRIED_GRANT"] {
            assert_violates("delay", switch, "overlap");
        }
    }
}

mod era {
    use super::{assert_holds, assert_reachable, assert_violates};

    /// Tokens grow across a rollback that every gateway can see.
    #[test]
    fn tokens_grow_across_visible_rollback() {
        assert_holds("era", "");
        for number in 1..=3 {
            assert_reachable("era", "", number);
        }
    }

    /// If any one of the rules for the base of tokens is left out, tokens go back.
    #[test]
    fn tokens_regress_without_rules() {
        for switch in ["TWO_BASES", "SILENT_INIT", "NO_ROLLBACK_CHECK"] {
            assert_violates("era", switch, "regress");
        }
    }

    /// A gateway that was absent cannot detect a rollback, and tokens may go back.
    #[test]
    fn absent_gateway_misses_rollback() {
        assert_violates("era", "AWAY", "regress");
    }
}

mod forward_auth {
    use super::{assert_holds, assert_reachable, assert_violates};

    /// Behind a proxy that is configured as documented no executions overlap.
    #[test]
    fn correctly_configured_proxy_is_safe() {
        assert_holds("forward_auth", "");
        for number in [1, 2, 3, 4, 5, 7] {
            assert_reachable("forward_auth", "", number);
        }
    }

    /// Without any one of the rules for the proxy, a request overlaps with the next one, executes late, or runs
    /// twice.
    #[test]
    fn weaker_proxy_rules_break_safety() {
        for switch in ["TTL_SHORT", "END_ON_OWN", "HEAD_ENDS", "ANY_LEASE", "FAIL_OPEN", "FORGETS_RELOAD"] {
            assert_violates("forward_auth", switch, "overlap");
        }
        assert_violates("forward_auth", "COUNT_LATE", "stale");
        assert_violates("forward_auth", "RETRIES", "twice");
    }

    /// Where the service compares tokens, it refuses the late and repeated requests of a proxy that was paused.
    #[test]
    fn comparison_refuses_stopped_retrying_proxy() {
        assert_holds("forward_auth", "RS=2 STILL COMPARES");
        assert_holds("forward_auth", "RS=2 STILL COMPARES RETRIES");
        assert_reachable("forward_auth", "RS=2 STILL COMPARES", 6);
        assert_violates("forward_auth", "RS=2 STILL COMPARES RETRIES EQUAL_PASSES", "twice");
    }

    /// A proxy that was paused sends a stale request, which executes where no service compares tokens.
    #[test]
    fn stopped_proxy_sends_stale_without_comparison() {
        assert_violates("forward_auth", "RS=2 STILL", "stale");
    }
}
