//! A plan in force, and how the next one takes its place: no request sees half of each, and a resource whose key changes
//! its name is not worked on under both names at once.

use std::{collections::HashSet, sync::Arc};

use fencegate_policies::plan::{Plan, RouteId, UpstreamId};
use tokio::sync::watch;
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

use crate::upstream::fleet::Fleets;

/// One plan as all workers serve it.
#[derive(Debug)]
pub struct Edition {
    pub plan: Arc<Plan>,
    pub fleets: Arc<Fleets>,
    /// The fenced requests of each route, by its number.
    running: Vec<TaskTracker>,
    /// Fenced requests to these wait until what began under other keys is over.
    waiting: Vec<UpstreamId>,
    over: watch::Sender<bool>,
}

/// A fenced request from the moment at which its plan is known until nothing of it runs any more.
pub type Running = TaskTrackerToken;

impl Edition {
    pub fn first(plan: Arc<Plan>, fleets: Arc<Fleets>) -> Arc<Self> {
        Self::begun(plan, fleets, Vec::new())
    }

    /// The edition after `old`. `rekeyed`: routes of either plan whose requests take other locks than before.
    ///
    /// A request that runs under an old key and one that comes under the new key may be about one resource. So fenced
    /// requests to the upstreams of such routes wait until those that began before are over, all those of `old` that
    /// still wait for older ones included.
    pub fn after(old: &Arc<Self>, plan: Arc<Plan>, fleets: Arc<Fleets>, rekeyed: &[String]) -> Arc<Self> {
        // A plan may have ten thousand routes.
        let rekeyed: HashSet<&str> = rekeyed.iter().map(String::as_str).collect();
        let of = |plan: &Plan| {
            let routes = plan.routes.routes().iter().filter(|route| rekeyed.contains(&*route.name));
            routes.map(|route| plan.upstream(route.upstream).name.clone()).collect::<HashSet<_>>()
        };
        let names = &of(&old.plan) | &of(&plan);
        let waiting = (0..plan.upstreams.len()).map(UpstreamId);
        let waiting = waiting.filter(|id| names.contains(&plan.upstream(*id).name)).collect();
        Self::begun(plan, fleets, waiting)
    }

    fn begun(plan: Arc<Plan>, fleets: Arc<Fleets>, waiting: Vec<UpstreamId>) -> Arc<Self> {
        let running = plan.routes.routes().iter().map(|_| TaskTracker::new()).collect();
        let over = watch::Sender::new(waiting.is_empty());
        Arc::new(Self { plan, fleets, running, waiting, over })
    }

    /// To be kept for as long as anything of the request runs.
    pub fn runs(&self, route: RouteId) -> Running {
        self.running[route.0].token()
    }

    /// A fenced request to `upstream` may go on at once.
    pub fn is_open(&self, upstream: UpstreamId) -> bool {
        !self.waiting.contains(&upstream) || *self.over.borrow()
    }

    /// Returns when everything is over that began under other keys.
    pub async fn opened(&self) {
        // The sender is ours, so it does not go before us.
        self.over.subscribe().wait_for(|over| *over).await.ok();
    }

    /// Everything is over that began under other keys.
    pub fn open(&self) {
        self.over.send_replace(true);
    }

    /// To be called once no worker takes a request under this edition any more. Returns when those are over of whose
    /// routes the locks are `rekeyed`, and those that they have waited for.
    pub async fn ended(&self, rekeyed: &[String]) {
        self.opened().await;
        let routes = self.plan.routes.routes().iter().zip(&self.running);
        let rekeyed: HashSet<&str> = rekeyed.iter().map(String::as_str).collect();
        for (_, running) in routes.filter(|(route, _)| rekeyed.contains(&*route.name)) {
            running.close();
            running.wait().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use fencegate_policies::file::load;
    use futures_util::FutureExt;

    use super::*;
    use crate::admin::metrics::Metrics;

    fn policy(key: &str, other: &str) -> String {
        format!(
            r#"version: 1
listeners: {{public: {{address: 127.0.0.1:8080}}}}
zookeeper: {{servers: [zk1:2181]}}
upstreams:
  a: {{endpoints: ["http://a:80"], fencing: upstream}}
  b: {{endpoints: ["http://b:80"], fencing: upstream}}
routes:
  - {{name: pay, upstream: a, match: {{methods: [POST], path: "/pay/{{id}}"}}, fence: {{key: "{key}"}}}}
  - {{name: book, upstream: b, match: {{methods: [POST], path: "/book/{{id}}"}}, fence: {{key: "{other}"}}}}
"#
        )
    }

    fn made(key: &str) -> (Arc<Plan>, Arc<Fleets>) {
        let gateway = load(&policy(key, "book/{path.id}")).plan.expect("sound");
        let plan = Arc::new(gateway.serving.clone());
        let fleets = Fleets::to_look_at(&plan, Metrics::of_gateway(&gateway).endpoints());
        (plan, fleets)
    }

    #[tokio::test]
    async fn who_would_take_another_lock_waits_for_who_runs_under_the_old_one() {
        let (plan, fleets) = made("pay/{path.id}");
        let first = Edition::first(plan, fleets);
        assert!(first.is_open(UpstreamId(0)));
        let (pay, book) = (first.runs(RouteId(0)), first.runs(RouteId(1)));
        let (plan, fleets) = made("order/{path.id}");
        let rekeyed = ["pay".to_owned()];
        let second = Edition::after(&first, plan, fleets, &rekeyed);
        assert_eq!((second.is_open(UpstreamId(0)), second.is_open(UpstreamId(1))), (false, true));
        let mut opening = Box::pin(first.ended(&rekeyed));
        assert!(opening.as_mut().now_or_never().is_none(), "an old request still runs");
        drop(book);
        assert!(opening.as_mut().now_or_never().is_none(), "and it is not this one");
        drop(pay);
        opening.await;
        second.open();
        assert!(second.is_open(UpstreamId(0)));
    }

    #[tokio::test]
    async fn who_comes_after_a_second_change_waits_for_both() {
        let (plan, fleets) = made("a/{path.id}");
        let first = Edition::first(plan, fleets);
        let oldest = first.runs(RouteId(0));
        let rekeyed = ["pay".to_owned()];
        let (plan, fleets) = made("b/{path.id}");
        let second = Edition::after(&first, plan, fleets, &rekeyed);
        let (plan, fleets) = made("c/{path.id}");
        let third = Edition::after(&second, plan, fleets, &rekeyed);
        let mut opening = Box::pin(second.ended(&rekeyed));
        assert!(
            opening.as_mut().now_or_never().is_none(),
            "nobody runs under the second, but under the first"
        );
        drop(oldest);
        first.ended(&rekeyed).await;
        second.open();
        opening.await;
        assert!(!third.is_open(UpstreamId(0)));
    }
}
