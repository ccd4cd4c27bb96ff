//! All events of one simulation in their order: those that the judge records, and those that the gateways log.

use std::{
    fmt,
    io::{self, Write},
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::time::Instant;
use tracing::{Level, Subscriber};
use tracing_subscriber::fmt::{format::Writer, time::FormatTime};

#[derive(Debug, Clone, Default)]
pub(crate) struct EventLog(Arc<Mutex<Vec<u8>>>);

/// The simulated time since the log was opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SimLogTimestamp(Instant);

impl EventLog {
    /// A subscriber that collects everything that is logged on this thread.
    pub(crate) fn subscriber(&self, level: Level) -> impl Subscriber + Send + Sync + use<> {
        let chronicle = self.clone();
        tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .with_target(false)
            .with_timer(SimLogTimestamp(Instant::now()))
            .with_writer(move || chronicle.clone())
            .finish()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().expect("nobody panics while writing")
    }
}

impl Write for EventLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.bytes().write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl FormatTime for SimLogTimestamp {
    fn format_time(&self, to: &mut Writer<'_>) -> fmt::Result {
        write!(to, "{:>10.4}", self.0.elapsed().as_secs_f64())
    }
}
