//! Plays the accident that fencing is for, on one machine, with a real ZooKeeper and real processes.
//!
//! Begin with `scenario`, the story, played and told by `options`. `cluster` has its processes with their files
//! of `policy`, `clients` its clients. `status_queries` and `late_write` determine what has happened, and
//! `audit` compares claims with these facts at the end. `report` prints the story, and `side_by_side` plays it
//! at each level; `error` has the reasons for which it could not be played to its end.
//!
//! The processes are the binary itself and the sample service, started by `fencegate-testkit`. This crate does not depend
//! on the request path.

// `println!` panics when the reader is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod audit;
mod clients;
mod cluster;
mod error;
mod late_write;
mod options;
mod policy;
mod report;
mod scenario;
mod side_by_side;
mod status_queries;

use std::{io, process::ExitCode};

use tokio::signal::unix::{Signal, SignalKind, signal};

use self::{
    cluster::DemoCluster,
    report::{DemoReporter, DemoSummary},
};
pub use self::{
    error::DemoError,
    options::{DemoFenceLevel, DemoOptions, DemoReportFormat},
};

/// Plays the story. The exit code is 0 if every claim held; without a fence, if the accident was shown.
///
/// # Errors
/// Returns a [`DemoError`] if there was nothing to show.
pub fn run(options: DemoOptions) -> Result<ExitCode, DemoError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = runtime.block_on(play(options));
    // An interrupted start is not waited for: its children end with this process.
    runtime.shutdown_background();
    code
}

async fn play(options: DemoOptions) -> Result<ExitCode, DemoError> {
    let mut interrupts = ShutdownSignals::register()?;
    if options.compare {
        let narrator = DemoReporter::summary_only(options.format);
        let summaries = tokio::select! {
            played = side_by_side::run_all_levels(&narrator) => played?,
            () = interrupts.recv() => return Ok(ExitCode::from(130)),
        };
        narrator.show_comparison(&side_by_side::table(&summaries), &summaries);
        let held = summaries.iter().all(DemoSummary::all_claims_hold);
        return Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let level = options.level();
    let narrator = DemoReporter::new(options.format);
    narrator.print_title(level);
    let (cluster, summary) = tokio::select! {
        played = start_and_play(level, &narrator) => played?,
        // Dropping the rest ends the children and removes the folder. 130 is the exit code of a shell after Ctrl-C.
        () = interrupts.recv() => return Ok(ExitCode::from(130)),
    };

    narrator.print_summary(&summary);
    if !summary.all_claims_hold() {
        narrator.show_logs(&cluster);
    }
    if !options.once {
        narrator.show_next_steps(&cluster);
        interrupts.recv().await;
    }
    cluster.stop().await;
    Ok(if summary.all_claims_hold() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn start_and_play(
    level: DemoFenceLevel,
    narrator: &DemoReporter,
) -> Result<(DemoCluster, DemoSummary), DemoError> {
    let cluster = tokio::task::spawn_blocking(move || DemoCluster::start(level));
    let cluster = cluster.await.expect("starting neither panics nor is cancelled")?;
    narrator.print_processes(&cluster);
    let summary = scenario::play(&cluster, level, narrator).await?;
    Ok((cluster, summary))
}

/// Ctrl-C and SIGTERM. Registered before anything is started, so that no early signal is lost.
struct ShutdownSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl ShutdownSignals {
    fn register() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
