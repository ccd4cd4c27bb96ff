//! Plays the accident that fencing is for, on one machine, with a real ZooKeeper and real processes.
//!
//! Begin with [`scenario`]. [`cluster`] is who takes part, [`payer`] what a client does, [`audit`] what is claimed in
//! the end, [`report`] how it is told, [`side_by_side`] what becomes of it at each level. [`child`], [`zookeeper`] and [`relay`] are of use to tests too.

mod audit;
pub mod child;
mod cluster;
mod interviews;
mod late;
mod not_played;
mod options;
mod payer;
mod policy;
pub mod relay;
mod report;
mod scenario;
mod side_by_side;
pub mod zookeeper;

use std::{io, process::ExitCode};

use tokio::signal::unix::{Signal, SignalKind, signal};

use self::{
    cluster::Cluster,
    report::{Narrator, Summary},
};
pub use self::{
    not_played::NotPlayed,
    options::{DemoOptions, Level, ReportFormat},
};

/// Plays it. The exit code is 0 when every claim held; without a fence, when the accident could be shown.
///
/// # Errors
/// [`NotPlayed`] when there was nothing to show.
pub fn run(options: DemoOptions) -> Result<ExitCode, NotPlayed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = runtime.block_on(play(options));
    // A start that was interrupted is not waited for: its children end with this process.
    runtime.shutdown_background();
    code
}

async fn play(options: DemoOptions) -> Result<ExitCode, NotPlayed> {
    let mut interrupts = Interrupts::registered()?;
    if options.compare {
        let narrator = Narrator::briefly(options.format);
        let summaries = tokio::select! {
            played = side_by_side::compare(&narrator) => played?,
            () = interrupts.next() => return Ok(ExitCode::from(130)),
        };
        narrator.compared(&side_by_side::table(&summaries), &summaries);
        let held = summaries.iter().all(Summary::holds);
        return Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let (level, narrator) = (options.level(), Narrator::of(options.format));
    narrator.title(level);
    let (cluster, summary) = tokio::select! {
        played = start_and_play(level, &narrator) => played?,
        // What is dropped here ends its children and removes its folder. 130 is what a shell calls Ctrl-C.
        () = interrupts.next() => return Ok(ExitCode::from(130)),
    };

    narrator.sum_up(&summary);
    if !summary.holds() {
        narrator.show_logs(&cluster);
    }
    if !options.once {
        narrator.invite(&cluster);
        interrupts.next().await;
    }
    cluster.stop().await;
    Ok(if summary.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn start_and_play(level: Level, narrator: &Narrator) -> Result<(Cluster, Summary), NotPlayed> {
    let cluster = tokio::task::spawn_blocking(move || Cluster::start(level));
    let cluster = cluster.await.expect("starting neither panics nor is cancelled")?;
    narrator.introduce(&cluster);
    let summary = scenario::play(&cluster, level, narrator).await?;
    Ok((cluster, summary))
}

/// Ctrl-C and SIGTERM. Registered before anything is started, so that an early one is not lost.
struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    fn registered() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
