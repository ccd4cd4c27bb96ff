//! Requests that real processes deliver late: nginx after its connection to the service was cut, a relay, and a host that
//! stood still. None of them begins beside the next holder, on the condition that a filter stands before the service where
//! a proxy or relay is behind the guard.
//!
//! nginx keeps a request while its connection is cut, and delivers it after the guard has admitted the next one. A
//! frozen host, and a relay behind the guard, deliver a request while a real `fencegate lock` holds its key. A filter
//! refuses the requests of nginx and of the relay, and the guard itself refuses the request of the frozen host.
//! Without a filter nginx and the relay break the promise; the tests require that.

use std::time::Duration;

use fencegate_testkit::{child::Signal, fault_proxy::FaultProxy, wait::wait_until};
use fencegate_tests::{
    charged::{CommandBehavior, GRACE, LockedCommand},
    client::{FencingOutcome, TestRequest},
    gateway::{Gateway, GatewayLaunch},
    guard::{GuardFixture, StampedRequest},
    guarded::GuardedSite,
    policy::TestPolicy,
};
use tokio::time::sleep;

use super::{
    before_service,
    not_after::{filter, wait_admitted, with_short_times},
    undelivered::LossyPath,
};

fn filter_setting(filtered: bool) -> &'static str {
    if filtered { "enforced" } else { "ignored" }
}

/// nginx has accepted the old request, and its kernel retransmits it until the network works again, although the guard has
/// given it up and no process has died. A filter refuses the late request. Without a filter it runs after the new one: the
/// filter is the condition of the promise.
#[tokio::test]
async fn filter_refuses_request_delayed_by_nginx() {
    for filtered in [true, false] {
        let fixture = GuardFixture::new().await;
        let service = fixture.origin.open_listener("service");
        let filter = filter(service).start().await;
        let Some(path) = LossyPath::to(if filtered { filter.public } else { service }).await else { return };
        let nginx = before_service::nginx(path.address, &[]);
        let guard =
            with_short_times(fixture.launch().await, nginx.address, filter_setting(filtered)).start().await;
        // nginx keeps this connection to the service, and writes the next request on it.
        assert_eq!(guard.send(&StampedRequest::new("a", 15).post("/before")).await.status, 200);
        path.drop_packets();
        let old = guard.begin(StampedRequest::new("a", 20).post("/old"));
        path.wait_undelivered(true).await;
        assert_eq!(old.answer().await.outcome(), Some(FencingOutcome::Unknown));
        guard.wait_series("fencegate_guard_in_doubt", &[], 0.0).await;
        path.pass_packets();
        wait_admitted(&guard, 30).await;
        if filtered {
            filter.wait_line("the late request", |line| line.message().starts_with("filter.expired")).await;
            assert_eq!(fixture.origin.count("/old"), 0, "{}", filter.log());
        } else {
            let old = fixture.origin.wait_for_request("/old", 1).await;
            let new = fixture.origin.wait_for_request("/new", 1).await;
            assert!(new.arrived < old.arrived, "the old request came before anything else was let in");
        }
    }
}

/// A command under the lock of `/pay/7`, which runs until it gets SIGTERM.
async fn start_job(policy: &TestPolicy) -> LockedCommand {
    let verb = [&["lock", "account/7", "--wait", "20s"], &GRACE[..]].concat();
    let job = LockedCommand::spawn(policy, &verb, CommandBehavior::Meek);
    job.wait_record().await;
    job
}

async fn assert_ends_on_sigterm(job: LockedCommand) {
    assert!(job.is_running(), "it holds the lock:\n{}", job.log());
    job.signal(Signal::TERM);
    assert_eq!(job.exit().await, 143, "{}", job.log());
}

/// Guard and gateway stand still together, and a job takes the lock meanwhile, of which the guard has no record. When the
/// guard continues, it dispatches no request of the earlier holder.
#[tokio::test]
async fn frozen_host_dispatches_nothing_beside_job() {
    let guarded = GuardedSite::fresh().await;
    let guard = guarded.guard().await;
    // The request may wait for longer than the machine takes to start the job.
    let policy = guarded.policy("gw-1", &[guard.public]).with("/routes/0/fence/wait", "60s");
    // One worker, so that the request goes out on the connection of the one before.
    let gateway = GatewayLaunch::new(&policy).with_workers(1).start().await;
    gateway.wait_ready().await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/1")).await.status, 200);
    let tree = guarded.site.tree().await;
    guard.signal(Signal::STOP);
    let old = gateway.begin(TestRequest::post("/pay/7"));
    tree.wait_locks("that of the request", |locks| locks.iter().any(|lock| lock.contains("%2F7"))).await;
    // The gateway sends the request at once, but no event reports it.
    sleep(Duration::from_millis(300)).await;
    gateway.signal(Signal::STOP);
    let job = start_job(&policy).await;
    guard.signal(Signal::CONT);
    let decided = async {
        while guard.decision_count("expired").await < 1.0 && guarded.site.origin.count("/pay/7") == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    wait_until("a decision", decided, || guard.log()).await;
    assert_eq!(guarded.site.origin.count("/pay/7"), 0, "it was begun while the job has the lock");
    assert_ends_on_sigterm(job).await;
    gateway.signal(Signal::CONT);
    let answer = old.answer().await;
    if answer.status == 503 {
        // The gateway took it up again before its ZooKeeper client had reconnected. A client repeats such a request.
        assert_eq!(answer.reason(), "lock-service", "{answer:?}\n{}", gateway.log());
        assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched), "{answer:?}");
        assert_eq!(guarded.site.origin.count("/pay/7"), 0);
        gateway.wait_ready().await;
        assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    } else {
        assert_eq!(answer.status, 200, "sent once more under a new token: {answer:?}\n{}", gateway.log());
    }
    assert_eq!(guarded.site.origin.count("/pay/7"), 1);
}

/// The guard has sent the request, and a relay behind the guard delivers it while a job has the lock. The guard cannot
/// observe what lies behind it, so without a filter the request and the job overlap: LOCK.md, *Jobs beside requests*.
#[tokio::test]
async fn filter_refuses_relayed_request_beside_job() {
    for filtered in [true, false] {
        let guarded = GuardedSite::fresh().await;
        let service = guarded.site.origin.open_listener("service");
        let filter = filter(service).start().await;
        let relay = FaultProxy::start(if filtered { filter.public } else { service });
        let guard =
            with_short_times(guarded.launch().await, relay.address, filter_setting(filtered)).start().await;
        let policy = guarded.policy("gw-1", &[guard.public]);
        let gateway = Gateway::start(&policy).await;
        relay.hold();
        let old = gateway.begin(TestRequest::post("/pay/7").body("old"));
        relay.wait_received(b"old").await;
        gateway.signal(Signal::KILL);
        assert!(old.result().await.is_err(), "nobody is left to answer");
        let job = start_job(&policy).await;
        let answers = relay.deliver().await;
        // Besides the request, the relay may have held probes with which the guard checks whether the service runs.
        assert!(!answers.is_empty(), "the relay held the request");
        let begun = guarded.site.origin.count("/pay/7");
        assert_eq!(begun, usize::from(!filtered), "filtered: {filtered}, {answers:?}");
        assert_ends_on_sigterm(job).await;
    }
}
