//! Faults of a guard.

use std::time::Instant;

use fencegate_testkit::child::Signal;
use futures_util::future::BoxFuture;
use tokio::time::sleep;

use super::AccidentResult;
use crate::matrix::{
    environment::RunEnvironment,
    level::{LONG, MAX_EXECUTION},
};

/// Kills a guard while the service works on a request of it, and starts it again at once.
pub fn kill(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        lab.wait_at_work(0, LONG).await;
        let from = lab.mark_accident_everywhere();
        let launch = lab.kill_guard(0).await;
        lab.start_guard(0, &launch).await;
        Ok(from)
    })
}

/// Freezes a guard for longer than any execution that it has admitted may take.
pub fn freeze(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        lab.wait_at_work(0, LONG).await;
        lab.mark_accident_everywhere();
        lab.guards[0].signal(Signal::STOP);
        sleep(MAX_EXECUTION + lab.apparatus.session).await;
        lab.guards[0].signal(Signal::CONT);
        Ok(Instant::now())
    })
}
