//! All cases, by the numbers that `tests/faults/README.md` explains.

use std::time::Duration;

use super::{
    accidents::{
        AccidentFn, client_hangups, clocks, disks, guards, holders, hops, interference, networks, operations,
        quorum, services,
    },
    level::TestedFencingLevel::{self, Delay, Guard, None, Upstream},
    matrix_case::{MatrixCase, MinimumCoverage},
    setup::{
        CaseSetup, ClientProtocol, ForwardMode, GuardSetup, HopSetup, NetworkSetup, OperationStore, PLAIN,
    },
    workload::WorkloadKind,
};

/// The minimum of a case: two gateways hand keys over to each other all the time, and at least one execution is in
/// flight at the accident.
const LOAD: MinimumCoverage = MinimumCoverage { executions: 80, hand_overs: 15, stale: 0, hit: 1 };

/// The session timeout, two ticks, and the delays of a busy machine.
const SESSION_IS_OVER: Duration = Duration::from_secs(7);

/// In addition the waits of a guard, of level `delay`, or of a retired key.
const EXECUTION_IS_OVER: Duration = Duration::from_secs(12);

/// In addition the time in which ZooKeeper's servers find each other.
const QUORUM_IS_BACK: Duration = Duration::from_secs(14);

const CUT_TO_ZOOKEEPER: CaseSetup = CaseSetup { ways: NetworkSetup::CutToZooKeeper, ..PLAIN };
const NAMESPACES: CaseSetup = CaseSetup { ways: NetworkSetup::Namespaces, ..PLAIN };
const OWN_CLOCKS: CaseSetup = CaseSetup { clocks: true, ..PLAIN };
const SHARING: CaseSetup = CaseSetup { guards: GuardSetup::TwoSharing, ..PLAIN };
const ONCE: CaseSetup = CaseSetup { errand: WorkloadKind::PayOnce, ..PLAIN };
const ONCE_IN_ZOOKEEPER: CaseSetup = CaseSetup { once: OperationStore::InZooKeeper, ..ONCE };
const LEASING: CaseSetup = CaseSetup { errand: WorkloadKind::PayUnderLeases, ..PLAIN };
const FORWARDING: CaseSetup = CaseSetup { requests: ForwardMode::Forward, gateways: 3, ..PLAIN };

const RELAYED: CaseSetup = CaseSetup { hops: HopSetup::Relay, ..PLAIN };
const FILTERED: CaseSetup = CaseSetup { hops: HopSetup::Filter, ..PLAIN };
const OBSERVED: CaseSetup = CaseSetup { hops: HopSetup::ObservingFilter, ..PLAIN };

const COMPARED: &[TestedFencingLevel] = &[Guard, Upstream];
const GUARDED: &[TestedFencingLevel] = &[Guard];
const NOWHERE: &[TestedFencingLevel] = &[];

/// An accident of the plain installation. Where tokens are compared no invariant is broken, and at level `none`, the
/// control, one is.
const fn case(
    number: &'static str,
    name: &'static str,
    accident: AccidentFn,
    within: Duration,
) -> MatrixCase {
    MatrixCase {
        number,
        name,
        holds_at: COMPARED,
        breaks_at: &[None],
        apparatus: PLAIN,
        accident,
        least: LOAD,
        recovers_within: within,
    }
}

/// As [`case`], without a control: the accident ends no session, or concerns only a guard.
const fn case_without_control(
    number: &'static str,
    name: &'static str,
    accident: AccidentFn,
    within: Duration,
) -> MatrixCase {
    MatrixCase { breaks_at: NOWHERE, ..case(number, name, accident, within) }
}

pub const CASES: &[MatrixCase] = &[
    MatrixCase {
        holds_at: &[Guard, Upstream, Delay],
        ..case("1", "holder_frozen", holders::freeze, EXECUTION_IS_OVER)
    },
    MatrixCase {
        least: MinimumCoverage { stale: 1, hit: 0, ..LOAD },
        ..case("1b", "holder_paused_before_the_write", holders::pause_before_the_write, EXECUTION_IS_OVER)
    },
    MatrixCase {
        holds_at: &[Guard, Upstream, Delay],
        ..case("2", "holder_killed", holders::kill, EXECUTION_IS_OVER)
    },
    MatrixCase {
        holds_at: GUARDED,
        ..case_without_control("3", "guard_killed", guards::kill, EXECUTION_IS_OVER)
    },
    case_without_control("4", "leader_killed", quorum::leader_dies, QUORUM_IS_BACK),
    MatrixCase {
        apparatus: CUT_TO_ZOOKEEPER,
        ..case("5", "holder_cut_off", holders::cut_off, EXECUTION_IS_OVER)
    },
    // There is no control, because ZooKeeper still gets heartbeats of the gateway: the session may live on, so the
    // result at level `none` is open.
    MatrixCase {
        apparatus: CUT_TO_ZOOKEEPER,
        ..case_without_control("5", "holder_hears_nothing", holders::lose_answers, EXECUTION_IS_OVER)
    },
    MatrixCase {
        apparatus: CUT_TO_ZOOKEEPER,
        ..case("5", "holder_is_not_heard", holders::lose_requests, EXECUTION_IS_OVER)
    },
    // As `holder_cut_off`, without a proxy: packets are dropped.
    MatrixCase {
        apparatus: NAMESPACES,
        holds_at: &[Guard, Upstream, Delay],
        ..case("5", "holder_without_packets", networks::nothing_passes, EXECUTION_IS_OVER)
    },
    MatrixCase {
        apparatus: NAMESPACES,
        ..case("5", "packets_of_the_holder_lost", networks::nothing_leaves, EXECUTION_IS_OVER)
    },
    // No control, because the session may live on, as with `holder_hears_nothing`.
    MatrixCase {
        apparatus: NAMESPACES,
        ..case_without_control(
            "5",
            "packets_to_the_holder_lost",
            networks::nothing_arrives,
            EXECUTION_IS_OVER,
        )
    },
    MatrixCase {
        apparatus: NAMESPACES,
        ..case("5", "packets_to_zookeeper_lost", networks::nothing_reaches_zookeeper, EXECUTION_IS_OVER)
    },
    MatrixCase {
        apparatus: NAMESPACES,
        ..case("5", "holder_unplugged", networks::unplugged, EXECUTION_IS_OVER)
    },
    MatrixCase {
        apparatus: NAMESPACES,
        holds_at: GUARDED,
        least: MinimumCoverage { stale: 1, hit: 0, ..LOAD },
        ..case_without_control(
            "5",
            "requests_late_on_the_way",
            networks::requests_are_late,
            EXECUTION_IS_OVER,
        )
    },
    // No control: without a guard the gateway's kernel gives up before it would retransmit, so nothing arrives late.
    MatrixCase {
        apparatus: NAMESPACES,
        holds_at: &[Upstream],
        least: MinimumCoverage { hit: 0, ..LOAD },
        ..case_without_control(
            "5",
            "requests_given_up_on_the_way",
            networks::requests_are_late,
            EXECUTION_IS_OVER,
        )
    },
    case_without_control("7", "majority_away", quorum::majority_is_away, QUORUM_IS_BACK),
    MatrixCase {
        apparatus: CaseSetup { ways: NetworkSetup::CutToService, ..PLAIN },
        holds_at: &[Guard, Upstream, None],
        ..case_without_control("8", "gateway_cut_off_from_the_service", services::cut_off, EXECUTION_IS_OVER)
    },
    case_without_control("9", "servers_stutter", quorum::servers_stutter, QUORUM_IS_BACK),
    MatrixCase {
        apparatus: OWN_CLOCKS,
        ..case_without_control("10", "wall_clock_set", clocks::step_wall_clock, EXECUTION_IS_OVER)
    },
    MatrixCase {
        apparatus: OWN_CLOCKS,
        ..case_without_control("11", "machine_has_slept", clocks::sleep_machine, EXECUTION_IS_OVER)
    },
    MatrixCase {
        holds_at: &[Guard, Upstream, None],
        // Recovery takes long, because each key with a broken request stays closed for a while, one after the other.
        ..case_without_control("12", "service_breaks", services::break_connections, EXECUTION_IS_OVER)
    },
    MatrixCase {
        holds_at: &[Guard, Upstream, None],
        ..case_without_control("13", "clients_gone", client_hangups::crowd_leaves, EXECUTION_IS_OVER)
    },
    MatrixCase {
        holds_at: GUARDED,
        ..case_without_control("16", "disk_full", disks::fill_disk, EXECUTION_IS_OVER)
    },
    MatrixCase {
        holds_at: GUARDED,
        ..case_without_control("16", "disk_slow", disks::slow_disk, EXECUTION_IS_OVER)
    },
    MatrixCase {
        holds_at: GUARDED,
        ..case_without_control("16", "disk_failing", disks::fail_sync, EXECUTION_IS_OVER)
    },
    MatrixCase {
        holds_at: &[Guard, Upstream, None],
        ..case_without_control("17", "reloads", operations::reload_repeatedly, SESSION_IS_OVER)
    },
    MatrixCase {
        holds_at: &[Guard, Upstream, None],
        ..case_without_control("18", "rolling_restarts", operations::roll_gateways, SESSION_IS_OVER)
    },
    case("19", "node_deleted", interference::node_deleted, EXECUTION_IS_OVER),
    case_without_control("20", "zookeeper_wiped", quorum::wipe_zookeeper, QUORUM_IS_BACK),
    MatrixCase {
        apparatus: CUT_TO_ZOOKEEPER,
        holds_at: &[Guard, Upstream, None],
        ..case_without_control("24", "answers_eaten", interference::answers_eaten, SESSION_IS_OVER)
    },
    MatrixCase {
        holds_at: GUARDED,
        ..case_without_control("32", "guard_frozen", guards::freeze, EXECUTION_IS_OVER)
    },
    // Requests arrive late. A filter refuses them; without a filter only a service that compares tokens does.
    MatrixCase {
        apparatus: FILTERED,
        holds_at: &[Guard, Upstream, Delay, None],
        ..case_without_control("33", "relay_late_before_a_filter", hops::delivers_late, EXECUTION_IS_OVER)
    },
    MatrixCase {
        apparatus: RELAYED,
        holds_at: &[Upstream],
        breaks_at: &[Guard, Delay, None],
        ..case_without_control("33", "relay_late", hops::delivers_late, EXECUTION_IS_OVER)
    },
    MatrixCase {
        apparatus: FILTERED,
        holds_at: GUARDED,
        ..case_without_control(
            "33",
            "relay_of_a_killed_guard_late_before_a_filter",
            hops::delivers_for_a_guard_that_is_gone,
            EXECUTION_IS_OVER,
        )
    },
    MatrixCase {
        apparatus: RELAYED,
        holds_at: NOWHERE,
        breaks_at: GUARDED,
        ..case_without_control(
            "33",
            "relay_of_a_killed_guard_late",
            hops::delivers_for_a_guard_that_is_gone,
            EXECUTION_IS_OVER,
        )
    },
    MatrixCase {
        apparatus: FILTERED,
        holds_at: &[Guard, Upstream, Delay, None],
        ..case_without_control(
            "34",
            "instances_stand_still_behind_a_filter",
            hops::instances_stand_still,
            EXECUTION_IS_OVER,
        )
    },
    // Only level `guard` is a control: gateways without a guard wait here for longer than the accident takes.
    MatrixCase {
        apparatus: OBSERVED,
        holds_at: &[Upstream],
        breaks_at: GUARDED,
        ..case_without_control("34", "instances_stand_still", hops::instances_stand_still, EXECUTION_IS_OVER)
    },
    MatrixCase {
        apparatus: NAMESPACES,
        holds_at: &[Guard, Upstream, Delay],
        ..case(
            "35",
            "holder_killed_with_requests_on_the_way",
            networks::killed_with_requests_on_the_way,
            EXECUTION_IS_OVER,
        )
    },
    // Accidents from above, in other installations.
    MatrixCase {
        apparatus: SHARING,
        holds_at: GUARDED,
        ..case_without_control("3", "one_of_two_guards_killed", guards::kill, EXECUTION_IS_OVER)
    },
    MatrixCase {
        apparatus: SHARING,
        holds_at: GUARDED,
        ..case_without_control("2", "holder_killed_before_two_guards", holders::kill, EXECUTION_IS_OVER)
    },
    MatrixCase {
        apparatus: CaseSetup { errand: WorkloadKind::Swap, ..PLAIN },
        ..case("2", "holder_of_a_set_killed", holders::kill, EXECUTION_IS_OVER)
    },
    MatrixCase {
        apparatus: CaseSetup { errand: WorkloadKind::ReadAndPay, ..PLAIN },
        ..case("1", "holder_frozen_among_readers", holders::freeze, EXECUTION_IS_OVER)
    },
    MatrixCase {
        apparatus: LEASING,
        ..case("1", "holder_of_leases_frozen", holders::freeze, EXECUTION_IS_OVER)
    },
    MatrixCase {
        apparatus: LEASING,
        ..case("2", "holder_of_leases_killed", holders::kill, EXECUTION_IS_OVER)
    },
    MatrixCase {
        apparatus: FORWARDING,
        least: MinimumCoverage { hand_overs: 3, ..LOAD },
        holds_at: COMPARED,
        ..case_without_control("2", "holder_killed_that_is_sent_to", holders::kill, EXECUTION_IS_OVER)
    },
    MatrixCase {
        apparatus: ONCE,
        holds_at: GUARDED,
        ..case_without_control("2", "holder_of_an_operation_killed", holders::kill, EXECUTION_IS_OVER)
    },
    MatrixCase {
        apparatus: ONCE,
        holds_at: GUARDED,
        ..case_without_control("3", "guard_with_an_operation_killed", guards::kill, EXECUTION_IS_OVER)
    },
    MatrixCase {
        apparatus: ONCE_IN_ZOOKEEPER,
        holds_at: &[Upstream],
        ..case("2", "holder_of_an_operation_in_zookeeper_killed", holders::kill, EXECUTION_IS_OVER)
    },
    MatrixCase {
        apparatus: CaseSetup { speech: ClientProtocol::Tls, ..PLAIN },
        holds_at: GUARDED,
        ..case_without_control("2", "holder_killed_over_tls", holders::kill, EXECUTION_IS_OVER)
    },
    MatrixCase {
        apparatus: CaseSetup { speech: ClientProtocol::Http2, ..PLAIN },
        holds_at: GUARDED,
        ..case_without_control("2", "holder_killed_over_http2", holders::kill, EXECUTION_IS_OVER)
    },
    MatrixCase {
        apparatus: CaseSetup { session: Duration::from_secs(12), ..PLAIN },
        holds_at: GUARDED,
        ..case_without_control(
            "1",
            "holder_frozen_with_sessions_of_12_s",
            holders::freeze,
            Duration::from_secs(20),
        )
    },
];
