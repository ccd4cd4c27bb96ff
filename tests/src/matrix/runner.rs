//! Plays runs at the same time. A run that panics or hangs does not affect the others.

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

/// The time after which a run counts as hanging.
const HANGS: Duration = Duration::from_secs(180);

/// The time that most runs take at most. No run begins that would not end in time.
const USUAL: Duration = Duration::from_secs(45);

/// Plays runs in their order, `lanes` at a time, until `until`. `tell` gets each verdict as soon as its run is over.
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

/// Plays one run on the servers of the run before, and leaves them for the next one.
async fn run_one(run: CaseRun, ensemble: &mut Option<Ensemble>) -> RunVerdict {
    let servers = ensemble.take();
    let mut played = tokio::spawn(async move {
        // Start servers within the task: if they do not start, this run fails, and the lane goes on with the others.
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
            // Wait for the end of the task, which ends the processes of the run.
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
