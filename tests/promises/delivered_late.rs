//! Who acts for somebody else, played with real processes: what nginx delivers after the way to the service was cut, and what
//! a host that stood still brings while a command has the lock.

use std::time::Duration;

use fencegate::demo::child::Signal;
use fencegate_tests::{
    charged::{CommandBehavior, GRACE, LockedCommand},
    client::{FencingOutcome, TestRequest},
    delaying_relay::DelayingRelay,
    gateway::{Gateway, GatewayLaunch},
    guard::{GuardFixture, StampedRequest},
    guarded::GuardedSite,
    policy::TestPolicy,
    wait::wait_until,
};
use tokio::time::sleep;

use super::{
    before_service,
    not_after::{filter, let_in, short},
    undelivered::LossyPath,
};

fn heeded(filtered: bool) -> &'static str {
    if filtered { "enforced" } else { "ignored" }
}

/// nginx has taken the old request, and its kernel sends it until the way is back, although the guard has given it up and
/// nobody has died. Without a filter it runs after the new one: that is the condition of the promise.
#[tokio::test]
async fn what_nginx_kept_while_its_way_was_cut_is_not_begun_behind_a_filter() {
    for filtered in [true, false] {
        let beside = GuardFixture::new().await;
        let service = beside.origin.door("service");
        let filter = filter(service).start().await;
        let Some(way) = LossyPath::to(if filtered { filter.public } else { service }).await else { return };
        let nginx = before_service::nginx(way.address, &[]);
        let guard = short(beside.launch().await, nginx.address, heeded(filtered)).start().await;
        // On this connection nginx writes the next request as well.
        assert_eq!(guard.send(&StampedRequest::new("a", 15).post("/before")).await.status, 200);
        way.breaks();
        let old = guard.begin(StampedRequest::new("a", 20).post("/old"));
        way.has(true).await;
        assert_eq!(old.answer().await.outcome(), Some(FencingOutcome::Unknown));
        guard.wait_series("fencegate_guard_in_doubt", &[], 0.0).await;
        way.heals();
        let_in(&guard, 30).await;
        if filtered {
            filter.wait_line("the late request", |line| line.message().starts_with("filter.expired")).await;
            assert_eq!(beside.origin.count("/old"), 0, "{}", filter.log());
        } else {
            let (old, new) = (beside.origin.request("/old", 1).await, beside.origin.request("/new", 1).await);
            assert!(new.arrived < old.arrived, "the old request came before anything else was let in");
        }
    }
}

/// A command under the lock of `/pay/7`, which runs until it is asked to end.
async fn job(policy: &TestPolicy) -> LockedCommand {
    let verb = [&["lock", "account/7", "--wait", "20s"], &GRACE[..]].concat();
    let job = LockedCommand::spawn(policy, &verb, CommandBehavior::Meek);
    job.wait_record().await;
    job
}

async fn is_over(job: LockedCommand) {
    assert!(job.is_running(), "it holds the lock:\n{}", job.log());
    job.signal(Signal::TERM);
    assert_eq!(job.exit().await, 143, "{}", job.log());
}

/// Guard and gateway stand still together. A guard has heard nothing of the job that has the lock meanwhile.
#[tokio::test]
async fn a_host_that_stood_still_begins_nothing_while_a_job_has_the_lock() {
    let guarded = GuardedSite::fresh().await;
    let guard = guarded.guard().await;
    let policy = guarded.policy("gw-1", &[guard.public]);
    // One worker, so that the request goes out on the connection of the one before.
    let gateway = GatewayLaunch::new(&policy).with_workers(1).start().await;
    gateway.wait_ready().await;
    assert_eq!(gateway.send(&TestRequest::post("/pay/1")).await.status, 200);
    let tree = guarded.site.tree().await;
    guard.signal(Signal::STOP);
    let old = gateway.begin(TestRequest::post("/pay/7"));
    tree.wait_locks("that of the request", |locks| locks.iter().any(|lock| lock.contains("%2F7"))).await;
    // What the gateway sends it sends at once, and nothing tells of it.
    sleep(Duration::from_millis(300)).await;
    gateway.signal(Signal::STOP);
    let job = job(&policy).await;
    guard.signal(Signal::CONT);
    let decided = async {
        while guard.decision_count("expired").await < 1.0 && guarded.site.origin.count("/pay/7") == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    wait_until("a decision", decided, || guard.log()).await;
    assert_eq!(guarded.site.origin.count("/pay/7"), 0, "it was begun while the job has the lock");
    is_over(job).await;
    gateway.signal(Signal::CONT);
    assert_eq!(old.answer().await.status, 200, "sent once more under a new token");
    assert_eq!(guarded.site.origin.count("/pay/7"), 1);
}

/// The guard has sent the request, and a relay behind it delivers it while a job has the lock. The guard does not see what
/// lies behind it, so that without a filter the two meet: LOCK.md, *Jobs beside requests*.
#[tokio::test]
async fn a_relay_behind_the_guard_brings_nothing_to_a_job_behind_a_filter() {
    for filtered in [true, false] {
        let guarded = GuardedSite::fresh().await;
        let service = guarded.site.origin.door("service");
        let filter = filter(service).start().await;
        let relay = DelayingRelay::start(if filtered { filter.public } else { service }).await;
        let guard = short(guarded.launch().await, relay.address, heeded(filtered)).start().await;
        let policy = guarded.policy("gw-1", &[guard.public]);
        let gateway = Gateway::start(&policy).await;
        relay.hold();
        let old = gateway.begin(TestRequest::post("/pay/7").body("old"));
        relay.wait_received(b"old").await;
        gateway.signal(Signal::KILL);
        assert!(old.result().await.is_err(), "nobody is left to answer");
        let job = job(&policy).await;
        let answers = relay.deliver().await;
        assert_eq!(answers.len(), 1, "{answers:?}");
        let begun = guarded.site.origin.count("/pay/7");
        assert_eq!(begun, usize::from(!filtered), "filtered: {filtered}, {answers:?}");
        is_over(job).await;
    }
}
