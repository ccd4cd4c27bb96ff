//! Plays the accident that fencing is for, on one machine, with a real ZooKeeper and real processes.
//!
//! Begin with [`story`]. [`fleet`] is who takes part, [`payer`] what a client does, [`audit`] what is claimed in the
//! end, [`report`] how it is told. [`child`], [`zookeeper`] and [`relay`] are of use to tests too.

mod audit;
pub mod child;
mod fleet;
mod interviews;
mod late;
mod options;
mod payer;
mod policy;
pub mod relay;
mod report;
mod story;
mod trouble;
pub mod zookeeper;

use std::{io, process::ExitCode};

use tokio::signal::unix::{Signal, SignalKind, signal};

use self::{
    fleet::Fleet,
    report::{Narrator, Summary},
};
pub use self::{
    options::{Format, Level, Options},
    trouble::Trouble,
};

/// Plays it. The exit code is 0 when every claim held; without a fence, when the accident could be shown.
///
/// # Errors
/// [`Trouble`] when there was nothing to show.
pub fn run(options: Options) -> Result<ExitCode, Trouble> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = runtime.block_on(play(options));
    // A start that was interrupted is not waited for: its children end with this process.
    runtime.shutdown_background();
    code
}

async fn play(options: Options) -> Result<ExitCode, Trouble> {
    let (level, narrator) = (options.level(), Narrator::of(options.format));
    let mut interrupts = Interrupts::registered()?;
    narrator.title(level);
    let (fleet, summary) = tokio::select! {
        played = start_and_play(level, &narrator) => played?,
        // What is dropped here ends its children and removes its folder. 130 is what a shell calls Ctrl-C.
        () = interrupts.next() => return Ok(ExitCode::from(130)),
    };

    narrator.sum_up(&summary);
    if !summary.holds() {
        narrator.show_logs(&fleet);
    }
    if !options.once {
        narrator.invite(&fleet);
        interrupts.next().await;
    }
    fleet.stop().await;
    Ok(if summary.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn start_and_play(level: Level, narrator: &Narrator) -> Result<(Fleet, Summary), Trouble> {
    let fleet = tokio::task::spawn_blocking(move || Fleet::start(level));
    let fleet = fleet.await.expect("starting neither panics nor is cancelled")?;
    narrator.introduce(&fleet);
    let summary = story::play(&fleet, level, narrator).await?;
    Ok((fleet, summary))
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
