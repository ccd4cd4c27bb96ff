//! Faults of ZooKeeper's servers.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use tokio::time::sleep;

use super::AccidentResult;
use crate::{
    ensemble::SERVERS,
    gateway::PolicyFile,
    guarded::run_operator,
    matrix::{environment::RunEnvironment, level::LONG},
};

/// Kills the leader, and starts it again later.
pub fn leader_dies(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        lab.wait_at_work(0, LONG).await;
        let leader = lab.ensemble.leader().await;
        let from = lab.mark_accident_everywhere();
        lab.ensemble.kill(leader);
        sleep(2 * lab.apparatus.session).await;
        lab.ensemble.launch(leader);
        lab.ensemble.wait_serving().await;
        Ok(from)
    })
}

/// Freezes two of three servers for 20 s, in which no key is granted or handed over.
pub fn majority_is_away(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        lab.wait_at_work(0, LONG).await;
        let away = [lab.ensemble.leader().await, lab.ensemble.follower().await];
        lab.mark_accident_everywhere();
        away.into_iter().for_each(|server| lab.ensemble.freeze(server));
        sleep(Duration::from_secs(20)).await;
        away.into_iter().for_each(|server| lab.ensemble.thaw(server));
        let back = Instant::now();
        lab.ensemble.wait_serving().await;
        Ok(back)
    })
}

/// Freezes one server after the other for a moment, many times, like a slow disk.
pub fn servers_stutter(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    const TIMES: usize = 12;
    const STILL: Range<Duration> = Duration::from_millis(100)..Duration::from_millis(900);
    const BETWEEN: Range<Duration> = Duration::from_millis(100)..Duration::from_millis(500);
    Box::pin(async move {
        lab.wait_at_work(0, LONG).await;
        lab.mark_accident_everywhere();
        for _ in 0..TIMES {
            let server = lab.dice.index(SERVERS);
            lab.ensemble.freeze(server);
            sleep(lab.dice.within(&STILL)).await;
            lab.ensemble.thaw(server);
            sleep(lab.dice.within(&BETWEEN)).await;
        }
        let over = Instant::now();
        lab.ensemble.wait_serving().await;
        Ok(over)
    })
}

/// Removes all data of ZooKeeper. No key is granted until an operator creates the installation again, with a base
/// above all earlier tokens.
pub fn wipe_zookeeper(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        lab.wait_at_work(0, LONG).await;
        lab.mark_accident_everywhere();
        lab.ensemble.wipe().await;
        for station in &lab.stations {
            station.gateway().wait_series_at_least("fencegate_zk_rolled_back", &[], 1.0).await;
        }
        let highest = {
            let log = lab.guarded.site.origin.log();
            let numbers = log.records.iter().filter_map(|record| Some(record.token()?.number()));
            numbers.max().unwrap_or_default().to_string()
        };
        let file = PolicyFile::new(&lab.stations[0].policy);
        let name = lab.guarded.ensemble.clone();
        run_operator(&["era", "init", "-c", &file, "--at-least", &highest, "--installation", &name]).await;
        Ok(Instant::now())
    })
}
