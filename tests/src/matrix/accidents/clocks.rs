//! Clocks that jump.

use std::time::{Duration, Instant};

use fencegate_testkit::wait::wait_until;
use futures_util::future::BoxFuture;

use super::AccidentResult;
use crate::matrix::{environment::RunEnvironment, level::LONG};

/// Sets the wall clock of the first gateway an hour ahead, then an hour behind, then right. The guard refuses
/// tickets with a wrong time.
pub fn step_wall_clock(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    const HOUR: i64 = 3600;
    Box::pin(async move {
        lab.wait_at_work(0, LONG).await;
        lab.mark_accident(0);
        for seconds in [HOUR, -HOUR] {
            let before = refused(lab).await;
            clock(lab).set_wall(seconds);
            if !lab.guards.is_empty() {
                let seen = async { while refused(lab).await <= before {} };
                wait_until("a ticket of another time to be refused", seen, || seconds).await;
            } else {
                lab.wait_all_serving(20).await;
            }
        }
        clock(lab).set_wall(0);
        Ok(Instant::now())
    })
}

async fn refused(lab: &RunEnvironment) -> f64 {
    let mut count = 0.0;
    for guard in &lab.guards {
        count += guard.decision_count("ticket-invalid").await + guard.decision_count("ticket-expired").await;
    }
    count
}

/// Makes the clock of the first gateway show that its machine has slept for a minute. Its sessions may be over, and
/// the gateway must notice that.
pub fn sleep_machine(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    Box::pin(async move {
        lab.wait_at_work(0, LONG).await;
        let from = lab.mark_accident(0);
        clock(lab).add_sleep(Duration::from_secs(60));
        let gateway = lab.stations[0].gateway();
        gateway.wait_line("that it has slept", |line| line.message().starts_with("process.paused")).await;
        gateway.wait_ready().await;
        Ok(from)
    })
}

fn clock(lab: &RunEnvironment) -> &crate::stepped_clock::SteppedClock {
    lab.stations[0].clock.as_ref().expect("a clock of its own")
}
