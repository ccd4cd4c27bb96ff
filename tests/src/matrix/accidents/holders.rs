//! Faults of a gateway that holds a key.

use fencegate_testkit::child::Signal;
use futures_util::future::BoxFuture;
use tokio::time::sleep;

use super::AccidentResult;
use crate::matrix::{environment::RunEnvironment, level::LONG};

/// Freezes the gateway for two session timeouts, with requests in flight and in its queue.
pub fn freeze(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        lab.wait_at_work(0, LONG).await;
        let from = lab.mark_accident(0);
        lab.stations[0].signal(Signal::STOP);
        lab.wait_sessions_end().await;
        lab.stations[0].signal(Signal::CONT);
        Ok(from)
    })
}

/// Freezes the gateway between the check of its lock validity and the write. Its late write has an older token than
/// the writes of other holders meanwhile.
pub fn pause_before_the_write(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        let pause = 2 * lab.apparatus.session + lab.apparatus.session / 2;
        let late = &mut lab.stations[0];
        late.stop().await;
        let launch = late.launch().failpoint("after_proof_check", &format!("1*sleep({})", pause.as_millis()));
        late.start(launch).await;
        late.gateway().wait_at_failpoint("after_proof_check").await;
        let from = lab.mark_accident(0);
        lab.stations[0].signal(Signal::STOP);
        lab.wait_sessions_end().await;
        lab.stations[0].signal(Signal::CONT);
        // Give the gateway time to send its late write.
        sleep(lab.apparatus.session / 2).await;
        Ok(from)
    })
}

/// Kills the gateway with requests in flight, and starts it again some time after its session is over.
pub fn kill(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        lab.wait_at_work(0, LONG).await;
        let from = lab.mark_accident(0);
        lab.stations[0].kill().await;
        lab.wait_sessions_end().await;
        let launch = lab.stations[0].launch();
        lab.stations[0].start(launch).await;
        Ok(from)
    })
}

/// Lets nothing pass between the gateway and ZooKeeper for two session timeouts.
pub fn cut_off(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    cut(lab, |lab| lab.stations[0].cut())
}

/// Loses ZooKeeper's answers to the gateway. Its requests still arrive.
pub fn lose_answers(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    cut(lab, |lab| lab.stations[0].links.iter().for_each(|link| link.lose_replies()))
}

/// Loses the gateway's requests to ZooKeeper.
pub fn lose_requests(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    cut(lab, |lab| lab.stations[0].links.iter().for_each(|link| link.lose_requests()))
}

fn cut(lab: &mut RunEnvironment, cuts: fn(&RunEnvironment)) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        lab.wait_at_work(0, LONG).await;
        let from = lab.mark_accident(0);
        cuts(lab);
        lab.wait_sessions_end().await;
        lab.stations[0].mend();
        Ok(from)
    })
}
