//! The models in `spin/`, each as it is and with one rule taken away at a time.

use crate::spin::{assert_holds, assert_reachable, assert_violates};

mod fence {
    use super::{assert_holds, assert_reachable, assert_violates};

    /// No execution overlaps, is stale or runs twice over three grants.
    #[test]
    fn safe_over_three_grants() {
        assert_holds("fence", "");
    }

    /// No execution overlaps, is stale or runs twice over several dispatches within a grant.
    #[test]
    fn safe_within_grants() {
        assert_holds("fence", "ES=2 GS=2");
    }

    /// No execution overlaps, is stale or runs twice behind a hop that copies requests.
    #[test]
    fn safe_behind_copying_hop() {
        // Copies do not affect the write that a key has come to rest, and it would double the number of states.
        assert_holds("fence", "ES=2 GS=2 HOP NEVER_REST");
    }

    /// A guard that is killed twice quarantines keys that may be at work, admits others at once, and nothing
    /// overlaps.
    #[test]
    fn twice_killed_guard_quarantines_running_keys() {
        assert_holds("fence", "ES=2 RESTARTS=2");
        // A dispatch is admitted at once, because nothing was in flight.
        assert_reachable("fence", "ES=2 RESTARTS=2", 9);
        assert_reachable("fence", "ES=2 RESTARTS=2", 10);
    }

    /// Readers and writers never overlap, also when outcomes are lost.
    #[test]
    fn readers_exclude_writers_despite_lost_outcomes() {
        // Without a restart that write is not read.
        assert_holds("fence", "SHARED RESTARTS=0 NEVER_REST");
    }

    /// Readers and writers never overlap, also when the guard is killed.
    #[test]
    fn readers_exclude_writers_despite_guard_kill() {
        assert_holds("fence", "SHARED ES=2");
    }

    /// No exclusive dispatch runs twice, also where a hop copies shared ones, for which that is not promised.
    #[test]
    fn copied_exclusive_dispatch_runs_once() {
        assert_holds("fence", "SHARED HOP ES=2 NEVER_REST");
        // Two exclusive dispatches of one grant differ by their counter, beside shared ones.
        assert_violates("fence", "SHARED HOP ES=2 GS=2 RESTARTS=0 NUMBER_ONLY", "twice");
        assert_violates("fence", "SHARED HOP ES=2 GS=2 LAX_RECOVERY", "twice");
        // This is not promised of shared ones.
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

    /// A lease that is checked before sending, and no guard, does not keep executions apart.
    #[test]
    fn executions_overlap_with_lease_check_only() {
        assert_violates("fence", "LEASE", "overlap");
    }

    /// Comparing and starting in two steps lets a stale request execute.
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

    /// A second check that demands a greater token refuses the newest request.
    #[test]
    fn second_check_for_greater_refuses_newest() {
        assert_violates("fence", "SECOND_CHECK_GREATER", "newest_refused");
    }

    /// An exchange that ends with its gateway frees a key that is still in use.
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

    /// A key that is recorded to be at rest in flight, in doubt or in quarantine overlaps after a restart.
    #[test]
    fn premature_rest_record_overlaps_after_restart() {
        for switches in ["REST_IN_FLIGHT", "REST_IN_DOUBT", "ES=2 RESTARTS=2 REST_IN_QUARANTINE"] {
            assert_violates("fence", switches, "overlap");
        }
    }

    /// A doubt that is not kept frees a key that is in use.
    #[test]
    fn executions_overlap_without_kept_doubt() {
        assert_violates("fence", "NO_DOUBT", "overlap");
    }

    /// A probe that answers no too early frees a key that is in use.
    #[test]
    fn early_negative_probe_overlaps() {
        assert_violates("fence", "EARLY_NO", "overlap");
    }

    /// A grant that goes on after an unknown outcome overlaps itself.
    #[test]
    fn grant_kept_after_unknown_outcome_overlaps() {
        assert_violates("fence", "ES=2 GS=2 KEEP_UNKNOWN", "overlap");
    }

    /// Recovered watermarks that admit their own grant let a copied request run again.
    #[test]
    fn lax_recovery_reruns_copy() {
        assert_violates("fence", "ES=2 GS=2 HOP LAX_RECOVERY", "twice");
    }

    /// A refusal through a hop proves nothing about the other copy: if it counts, an executed request is answered as
    /// refused.
    #[test]
    fn believed_hop_refusal_is_untrue() {
        assert_violates("fence", "ES=2 GS=2 HOP BELIEVE_HOP", "lied");
    }

    /// Comparing only the number of a token lets a copied request run again.
    #[test]
    fn number_only_comparison_reruns_copy() {
        assert_violates("fence", "ES=2 GS=2 HOP NUMBER_ONLY", "twice");
    }

    /// Without a watermark of its own for readers, a writer runs late.
    #[test]
    fn late_writer_runs_without_reader_watermark() {
        assert_violates("fence", "SHARED RESTARTS=0 ONE_MARK", "stale");
    }

    /// Without the second check of readers, a reader runs late.
    #[test]
    fn late_reader_runs_without_second_check() {
        assert_violates("fence", "SHARED RESTARTS=0 NO_SECOND_READ_CHECK", "stale");
    }
}

mod store {
    use super::{assert_holds, assert_reachable, assert_violates};

    /// Two guards on one store keep the promises of a single guard, also if one that was declared dead goes on.
    #[test]
    fn two_guards_share_store_safely() {
        assert_holds("store", "");
        // A guard that was declared dead goes on and sends.
        assert_reachable("store", "", 1);
    }

    /// Guards with watermarks of their own each run a copy of one request.
    #[test]
    fn separate_watermarks_run_copies_twice() {
        assert_violates("store", "LOCAL_MARKS", "twice");
    }

    /// Guards with registers of their own let executions overlap.
    #[test]
    fn executions_overlap_with_separate_registers() {
        assert_violates("store", "LOCAL_REGISTER", "overlap");
    }

    /// Freeing the rows of a dead guard lets executions overlap, because its keys are still in use.
    #[test]
    fn freeing_dead_guard_rows_overlaps() {
        assert_violates("store", "DEAD_ROWS_FREED", "overlap");
    }

    /// A database that lost acknowledged rows admits no old request, and none too early. Each rule is needed.
    #[test]
    fn rollback_admits_no_stale_request() {
        assert_holds("store", "ROLLBACK");
        assert_violates("store", "ROLLBACK NOT_CLOSED", "overlap");
        assert_violates("store", "ROLLBACK NOTHING_KNOWN", "twice");
        assert_violates("store", "ROLLBACK NO_SEND_GATE", "overlap");
        assert_violates("store", "ROLLBACK NOT_HEARD", "twice");
    }

    /// Without a send gate a guard sends a dispatch that the other guard has given up.
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
        // The execution does end.
        assert_reachable("passed", "", 1);
    }

    /// With the larger time, a guard that was stopped would push the time of a guard that joined meanwhile.
    #[test]
    fn larger_elapsed_time_ends_doubt_early() {
        assert_violates("passed", "LARGER", "early");
    }

    /// A guard that joins without recording it gets its time pushed as well.
    #[test]
    fn silent_join_ends_doubt_early() {
        assert_violates("passed", "SILENT", "early");
    }

    /// Time that has passed without being recorded counts: without that slack a doubt ends early.
    #[test]
    fn ignored_unwritten_time_ends_doubt_early() {
        assert_violates("passed", "NO_SLACK", "early");
    }
}

mod answer {
    use super::{assert_holds, assert_reachable, assert_violates};

    /// A lost answer leaves nothing registered, and nothing is sent that is not registered.
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

    /// A statement that is repeated under another name leaves the registration of the first one.
    #[test]
    fn retry_with_other_name_leaves_registration() {
        assert_violates("answer", "NO_NAME", "left");
    }

    /// A statement that is given up may be registered. If it is not taken back, the registration stays.
    #[test]
    fn abandoned_statement_leaves_registration() {
        assert_violates("answer", "NO_TAKE_BACK", "left");
    }

    /// A dispatch that is sent before the acknowledgement may be sent without being registered.
    #[test]
    fn unacknowledged_dispatch_is_sent_unregistered() {
        assert_violates("answer", "SENDS_UNTOLD", "unregistered");
    }
}

mod nested {
    use super::{assert_holds, assert_reachable, assert_violates};

    /// A callback runs inside its dispatch, and waits for nothing.
    #[test]
    fn callback_runs_within_its_dispatch() {
        assert_holds("nested", "");
        for number in 3..=5 {
            assert_reachable("nested", "", number);
        }
    }

    /// Nested requests for other keys never wait in a circle.
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

    /// A callback without a ticket waits for its own caller, and so both wait for ever.
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

    /// Never more requests than permits are at work, and no holder is refused.
    #[test]
    fn permits_are_never_exceeded() {
        assert_holds("permits", "");
        assert_holds("permits", "TURNS=4 LOSSES=1 LIES=0");
        for number in 1..=5 {
            assert_reachable("permits", "", number);
        }
    }

    /// All holders of a key have the same number of permits.
    #[test]
    fn all_holders_agree_on_permit_count() {
        assert_holds("permits", "OTHER_NUMBER");
        assert_reachable("permits", "OTHER_NUMBER", 6);
        assert_violates("permits", "OTHER_NUMBER NO_DIFFER", "unlike");
    }

    /// Without guard, settling or second check, a holder whose session is lost while it works is not waited for.
    #[test]
    fn permits_are_exceeded_without_guard_rules() {
        assert_violates("permits", "NO_GUARD", "crowd");
        assert_violates("permits", "NO_SETTLE", "crowd");
        assert_violates("permits", "NO_SECOND_CHECK", "stale");
    }

    /// Tokens and watermarks belong to the node of the permit: otherwise a holder is refused.
    #[test]
    fn tokens_and_watermarks_belong_to_permit() {
        assert_violates("permits", "PLACE_TOKEN", "refused");
        assert_violates("permits", "ONE_MARK", "refused");
    }

    /// A permit is taken in the order of the queue and once by each request. Without these rules both are violated.
    #[test]
    fn permit_rules_are_needed() {
        assert_violates("permits", "NO_RANK", "passed");
        assert_violates("permits", "UNKNOWN_FORGOTTEN", "two");
    }
}

mod not_after {
    use super::{assert_holds, assert_reachable, assert_violates};

    /// With a filter no execution begins late and none overlaps, whatever stands still on the way.
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

    /// Without a filter a relay delivers the old request beside the new one.
    #[test]
    fn relayed_request_overlaps_without_filter() {
        assert_violates("not_after", "NO_FILTER", "overlap");
    }

    /// A filter that checks and begins in two steps lets a request begin late.
    #[test]
    fn two_step_filter_starts_request_late() {
        assert_violates("not_after", "TWO_STEPS", "late");
    }

    /// Every wait that is too short lets executions overlap.
    #[test]
    fn every_shorter_wait_lets_executions_overlap() {
        for switch in ["FROM_LAST_BYTE", "COUNT_SLEEP", "QUARANTINE_FROM_RESTART"] {
            assert_violates("not_after", switch, "overlap");
        }
    }

    /// An answer that a hop makes ends no execution: if it counts, executions overlap.
    #[test]
    fn answer_from_hop_ends_no_execution() {
        assert_violates("not_after", "BELIEVE_HOP", "overlap");
    }

    /// An instance that stands still takes longer than an execution may. Nothing overlaps if it was seen to run.
    #[test]
    fn stopped_instance_overlaps_unless_observed() {
        assert_violates("not_after", "INSTANCE_STOPS", "overlap");
        assert_holds("not_after", "INSTANCE_STOPS SEEN_TO_RUN");
    }

    /// A hop that copies may have both copies executed, and neither begins late.
    #[test]
    fn copying_hop_starts_no_copy_late() {
        assert_holds("not_after", "COPY");
        assert_reachable("not_after", "COPY", 4);
        assert_violates("not_after", "COPY BELIEVE_EXPIRED", "lied");
    }

    /// Where nothing stands between guard and upstream, the connections of a killed guard have to be reset.
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

    /// Every validity that is too long lets a client work beside the next holder of the lease.
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

    /// Without any one of its rules tokens go back.
    #[test]
    fn tokens_regress_without_rules() {
        for switch in ["TWO_BASES", "SILENT_INIT", "NO_ROLLBACK_CHECK"] {
            assert_violates("era", switch, "regress");
        }
    }

    /// A gateway that was away cannot see a rollback, and tokens may go back.
    #[test]
    fn absent_gateway_misses_rollback() {
        assert_violates("era", "AWAY", "regress");
    }
}

mod forward_auth {
    use super::{assert_holds, assert_reachable, assert_violates};

    /// Nothing overlaps behind a proxy that keeps to its configuration.
    #[test]
    fn correctly_configured_proxy_is_safe() {
        assert_holds("forward_auth", "");
        for number in [1, 2, 3, 4, 5, 7] {
            assert_reachable("forward_auth", "", number);
        }
    }

    /// Without any one of its rules a request of the proxy overlaps with the next one, is stale, or runs twice.
    #[test]
    fn weaker_proxy_rules_break_safety() {
        for switch in ["TTL_SHORT", "END_ON_OWN", "HEAD_ENDS", "ANY_LEASE", "FAIL_OPEN", "FORGETS_RELOAD"] {
            assert_violates("forward_auth", switch, "overlap");
        }
        assert_violates("forward_auth", "COUNT_LATE", "stale");
        assert_violates("forward_auth", "RETRIES", "twice");
    }

    /// A proxy that stands still and repeats is refused where tokens are compared.
    #[test]
    fn comparison_refuses_stopped_retrying_proxy() {
        assert_holds("forward_auth", "RS=2 STILL COMPARES");
        assert_holds("forward_auth", "RS=2 STILL COMPARES RETRIES");
        assert_reachable("forward_auth", "RS=2 STILL COMPARES", 6);
        assert_violates("forward_auth", "RS=2 STILL COMPARES RETRIES EQUAL_PASSES", "twice");
    }

    /// A proxy that stands still sends a stale request, which executes where no service compares tokens.
    #[test]
    fn stopped_proxy_sends_stale_without_comparison() {
        assert_violates("forward_auth", "RS=2 STILL", "stale");
    }
}
