//! Clients that disconnect.

use std::{ops::Range, time::Duration};

use futures_util::future::BoxFuture;
use tokio::time::sleep;

use super::AccidentResult;
use crate::matrix::{environment::RunEnvironment, level::LONG};

/// Many clients request a key that is in use, and disconnect: before the head of their request is read, in the
/// queue, or while their request is in flight.
pub fn crowd_leaves(lab: &mut RunEnvironment) -> BoxFuture<'_, AccidentResult> {
    const CLIENTS: usize = 40;
    const STAY: Range<Duration> = Duration::from_millis(1)..Duration::from_millis(600);
    const WORK: Range<Duration> = Duration::from_millis(1)..Duration::from_millis(60);
    Box::pin(async move {
        let path = lab.wait_at_work(0, LONG).await.path().to_owned();
        let from = lab.mark_accident_everywhere();
        for n in 0..CLIENTS {
            let stay = lab.dice.within(&STAY);
            let work = lab.dice.within(&WORK);
            let other = lab.some_path();
            let path = if n % 2 == 0 { &path } else { &other };
            lab.clients.send_with_patience(stay, n % lab.stations.len(), path, work);
            sleep(lab.dice.within(&(Duration::ZERO..STAY.end / 20))).await;
        }
        sleep(STAY.end).await;
        Ok(from)
    })
}
