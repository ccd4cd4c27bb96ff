//! Faults of the service, and of the connections to it.

use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tokio::time::sleep;

use super::AccidentResult;
use crate::{
    matrix::{environment::RunEnvironment, level::LONG},
    origin::AccountFault,
};

/// Longer than any client waits for the service, and shorter than the time until a holder hands the key over.
const HANGS: Duration = Duration::from_millis(4500);

/// Makes the service hang once, and break connections before, in and after its responses.
pub fn break_connections(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    const KINDS: [AccountFault; 4] =
        [AccountFault::ResetBefore, AccountFault::ResetAfter, AccountFault::InHead, AccountFault::InBody];
    const TIMES: usize = 8;
    Box::pin(async move {
        let origin = &lab.guarded.site.origin;
        origin.queue_faults([AccountFault::Hangs(HANGS)]);
        origin.queue_faults((0..TIMES).map(|_| *lab.dice.one_of(&KINDS)));
        while origin.faults_left() > 0 {
            // Each request consumes one fault, and no event reports when.
            sleep(Duration::from_millis(20)).await;
        }
        let over = Instant::now();
        lab.hit += 1 + TIMES;
        Ok(over)
    })
}

/// Lets nothing pass between the first gateway and the service or its guard, without a notice to either side, and
/// then breaks the connections.
pub fn cut_off(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        lab.wait_at_work(0, LONG).await;
        lab.mark_accident(0);
        let way = lab.stations[0].way.as_ref().expect("a way that can be cut");
        way.set_silent(true);
        sleep(3 * lab.apparatus.session).await;
        way.set_silent(false);
        Ok(Instant::now())
    })
}
