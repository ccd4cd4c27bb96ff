//! The daily work of operators: reloads and restarts under load.

use std::time::Instant;

use fencegate_testkit::child::Signal;
use futures_util::future::BoxFuture;
use serde_json::json;

use super::AccidentResult;
use crate::{
    gateway::GatewayLaunch,
    matrix::{environment::RunEnvironment, level::LONG},
};

/// Gives each gateway another policy, an invalid one, and its first one again, several times.
pub fn reload_repeatedly(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    const TIMES: usize = 4;
    Box::pin(async move {
        let from = Instant::now();
        lab.wait_at_work(0, LONG).await;
        lab.mark_accident_everywhere();
        for _ in 0..TIMES {
            for station in &lab.stations {
                let strict = station.policy.clone().with("/defaults/hold", json!({"mode": "strict"}));
                let invalid = station.policy.clone().with("/routes/0/fence/key", "account/{nothing}");
                for (policy, valid) in [(&strict, true), (&invalid, false), (&station.policy, true)] {
                    station.gateway().rewrite(policy);
                    let (code, said) = station.gateway().reload(&[]).await;
                    assert_eq!(code == Some(0), valid, "{said}");
                }
            }
            lab.wait_all_serving(10).await;
        }
        Ok(from)
    })
}

/// Replaces one gateway after the other on its own port, and stops the old one in order.
pub fn roll_gateways(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    const TIMES: usize = 3;
    Box::pin(async move {
        let from = Instant::now();
        lab.wait_at_work(0, LONG).await;
        lab.mark_accident_everywhere();
        for round in 0..TIMES {
            for station in &mut lab.stations {
                let policy = station.policy.clone().with("/name", format!("{}-{round}", station.name));
                let next = GatewayLaunch::new(&policy).with_shared_address().start().await;
                next.wait_ready().await;
                let before = station.running.replace(next).expect("a gateway that runs");
                before.signal(Signal::TERM);
                let status = before.exit().await;
                assert!(status.success(), "{status}:\n{}", before.log());
            }
            lab.wait_all_serving(10).await;
        }
        Ok(from)
    })
}
