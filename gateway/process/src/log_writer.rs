//! Writers of log lines for threads that must not wait for the reader of the output.
//!
//! A pipe that nobody reads fills up after 64 KiB, and the next write to it blocks. A thread that serves requests, sends
//! heartbeats or ends a command must not stop there. So each line goes through a bounded queue to a thread that only writes.
//! A line that finds the queue full is dropped and counted.

use std::{
    io::{self, BufWriter, Write, stderr, stdout},
    sync::{Mutex, OnceLock, PoisonError, mpsc},
    thread,
    time::Duration,
};

pub use tracing_appender::non_blocking::{ErrorCounter, NonBlocking};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};

/// The most lines that wait for the reader of an output.
const QUEUED_LINES: usize = 8192;

/// The longest time that the end of a queue waits for its lines to be written.
const FLUSH: Duration = Duration::from_millis(1500);

/// Writes the queued lines when it is dropped, for [`FLUSH`] at most.
#[derive(Debug)]
pub struct LogFlushGuard(Option<WorkerGuard>);

impl Drop for LogFlushGuard {
    fn drop(&mut self) {
        let Some(guard) = self.0.take() else { return };
        let (flushed, is_flushed) = mpsc::channel();
        // The library prints to stdout if the queue is full, and stdout may have no reader either. So another thread
        // waits there, and the process does not wait for that thread longer than [`FLUSH`].
        let flushing = thread::Builder::new().name("log-flush".into()).spawn(move || {
            drop(guard);
            flushed.send(()).ok();
        });
        if flushing.is_ok() {
            is_flushed.recv_timeout(FLUSH).ok();
        }
    }
}

/// The queue of the process log, until [`flush_stderr`].
static STDERR: Mutex<Option<(NonBlocking, LogFlushGuard)>> = Mutex::new(None);

/// The lines of the process log that were dropped.
static STDERR_DROPPED: OnceLock<ErrorCounter> = OnceLock::new();

/// A writer of the process log, for a process that holds locks or serves requests. Call this once, at the start.
///
/// # Panics
/// Panics if no thread can be started for the writer.
pub fn stderr_queue_writer() -> NonBlocking {
    let (writer, guard) = spawn_queue(stderr(), "log");
    STDERR_DROPPED.get_or_init(|| writer.error_counter());
    STDERR.lock().unwrap_or_else(PoisonError::into_inner).replace((writer.clone(), guard));
    writer
}

/// Writes a message to stderr: behind the queued log lines if there is a queue, else at once.
///
/// # Errors
/// Returns an error if the message was written at once, and stderr is closed or its disk is full.
pub fn write_stderr(message: &[u8]) -> io::Result<()> {
    let queue =
        STDERR.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(queue, _)| queue.clone());
    match queue {
        Some(mut queue) => queue.write_all(message),
        None => stderr().write_all(message),
    }
}

/// Writes the queued lines of the process log, for 1.5 s at most. Lines that are logged afterwards are lost, so
/// call this just before the process ends.
pub fn flush_stderr() {
    let queue = STDERR.lock().unwrap_or_else(PoisonError::into_inner).take();
    drop(queue);
}

/// The number of lines of the process log that were dropped.
pub fn dropped_lines() -> u64 {
    STDERR_DROPPED.get().map_or(0, dropped_count)
}

/// A writer of lines on stdout. When the guard is dropped, the queued lines are written, for 1.5 s at most.
///
/// # Panics
/// Panics if no thread can be started for the writer.
pub fn stdout_queue_writer() -> (NonBlocking, LogFlushGuard) {
    spawn_queue(BufWriter::new(stdout()), "access-log")
}

/// The number of lines of a writer that were dropped.
pub fn dropped_count(counter: &ErrorCounter) -> u64 {
    counter.dropped_lines() as u64
}

fn spawn_queue(output: impl Write + Send + 'static, thread: &str) -> (NonBlocking, LogFlushGuard) {
    let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(QUEUED_LINES);
    let (writer, guard) = builder.thread_name(thread).finish(output);
    (writer, LogFlushGuard(Some(guard)))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    /// An output whose reader takes nothing until the channel allows it.
    struct StalledWriter(Receiver<()>);

    impl Write for StalledWriter {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.recv().ok();
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A stalled reader blocks no writer; the lines that are lost are counted.
    #[test]
    fn stalled_reader_drops_and_counts_lines() {
        let (reads, stalled) = channel();
        let (mut writer, guard) = spawn_queue(StalledWriter(stalled), "test");
        for _ in 0..QUEUED_LINES + 100 {
            writer.write_all(b"line\n").expect("never refused");
        }
        let lost = dropped_count(&writer.error_counter());
        // The thread that writes holds one line, which may or may not count as lost.
        assert!((99..=100).contains(&lost), "{lost}");
        drop(reads);
        drop(guard);
    }
}
