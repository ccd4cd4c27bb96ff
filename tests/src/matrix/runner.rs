//! Plays runs beside each other, each for itself: one that panics or hangs affects no other.

use std::{
    any::Any,
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tokio::{sync::mpsc, time::timeout};

use super::{
    matrix_case::CaseRun,
    verdict::{RunVerdict, Verdict},
};
use crate::ensemble::Ensemble;

/// Longer than any run that does not hang.
const HANGS: Duration = Duration::from_secs(180);

/// What most runs take at most. None begins that would not end in time.
const USUAL: Duration = Duration::from_secs(45);

/// So many at a time, in order, and none that would end later. `tell` gets each ruling as soon as its run is over.
pub async fn run_all(runs: Vec<CaseRun>, lanes: usize, until: Instant, mut tell: impl FnMut(RunVerdict)) {
    let waiting = Arc::new(Mutex::new(VecDeque::from(runs)));
    let (told, mut rulings) = mpsc::unbounded_channel();
    for _ in 0..lanes {
        tokio::spawn(run_lane(Arc::clone(&waiting), until, told.clone()));
    }
    drop(told);
    while let Some(ruling) = rulings.recv().await {
        tell(ruling);
    }
}

async fn run_lane(
    waiting: Arc<Mutex<VecDeque<CaseRun>>>,
    until: Instant,
    told: mpsc::UnboundedSender<RunVerdict>,
) {
    let mut ensemble = None;
    loop {
        let next = waiting.lock().expect("no thread panics here").pop_front();
        let Some(run) = next else { return };
        let ruling = if Instant::now() + USUAL > until {
            run.empty_verdict(Verdict::Skipped, "no time was left".to_owned())
        } else {
            run_one(run, &mut ensemble).await
        };
        if told.send(ruling).is_err() {
            return;
        }
    }
}

/// Takes the servers that the run before has left, and leaves them for the next one.
async fn run_one(run: CaseRun, ensemble: &mut Option<Ensemble>) -> RunVerdict {
    let servers = ensemble.take();
    let mut played = tokio::spawn(async move {
        // What keeps servers from starting fails this run, and not the lane with all runs that are left.
        let servers = match servers {
            Some(servers) => servers,
            None => Ensemble::start().await,
        };
        run.run(servers).await
    });
    match timeout(HANGS, &mut played).await {
        Ok(Ok((ruling, servers))) => {
            *ensemble = Some(servers);
            ruling
        }
        Ok(Err(died)) => {
            let why =
                died.try_into_panic().map_or_else(|error| error.to_string(), |panic| panic_message(&*panic));
            run.empty_verdict(Verdict::Fail, why)
        }
        Err(_) => {
            played.abort();
            // Its processes end with it.
            drop(played.await);
            run.empty_verdict(Verdict::Fail, format!("not over after {HANGS:?}"))
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
    let text = text.unwrap_or_else(|| "a panic without a word".to_owned());
    text.chars().take(2000).collect()
}
