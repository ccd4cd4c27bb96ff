//! The signals that this process passes on to its command.

use std::{fs, io};

use rustix::process::Signal;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

/// The signals by which operators, terminals and init systems control a process.
const PASSED: [Signal; 7] =
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::WINCH];

/// Signals, one after the other.
pub(super) struct SignalReceiver(mpsc::UnboundedReceiver<Signal>);

impl SignalReceiver {
    /// Receives these signals from now on, so that they no longer end this process. A signal that was ignored
    /// when this process was started, as by `nohup`, stays ignored, also by the command.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub(super) fn listen_for_signals() -> io::Result<Self> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let ignored = ignored_mask();
        for one in PASSED.into_iter().filter(|one| !is_signal_in_mask(*one, ignored)) {
            let mut came = signal(SignalKind::from_raw(one.as_raw()))?;
            let sender = sender.clone();
            tokio::spawn(async move { while came.recv().await.is_some() && sender.send(one).is_ok() {} });
        }
        Ok(Self(receiver))
    }

    /// The next signal.
    ///
    /// # Cancellation
    /// Dropping the future loses no signal.
    pub(super) async fn next(&mut self) -> Signal {
        match self.0.recv().await {
            Some(signal) => signal,
            // No sender is left, because all of these signals are ignored.
            None => std::future::pending().await,
        }
    }
}

/// True for a signal that requests the end of a process.
pub(super) fn is_termination(signal: Signal) -> bool {
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT].contains(&signal)
}

/// True for a signal that a terminal sends to its whole foreground.
pub(super) fn is_terminal_signal(signal: Signal) -> bool {
    [Signal::INT, Signal::QUIT, Signal::WINCH].contains(&signal)
}

/// The name of the signal.
pub(super) fn signal_name(signal: Signal) -> &'static str {
    let names = ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH"];
    let known = PASSED.into_iter().zip(names).find(|(one, _)| *one == signal);
    known.map_or("a signal", |(_, name)| name)
}

/// The ignored signals, with a bit for each, as proc_pid_status(5) has them.
fn ignored_mask() -> u64 {
    parse_mask(&fs::read_to_string("/proc/self/status").unwrap_or_default())
}

fn parse_mask(status: &str) -> u64 {
    let digits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    digits.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or_default()
}

fn is_signal_in_mask(signal: Signal, mask: u64) -> bool {
    mask >> (signal.as_raw() - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The signals that are ignored are read from the mask in `/proc/self/status`.
    #[test]
    fn ignored_signals_come_from_mask() {
        let mask = parse_mask("Name:\tx\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\n");
        let ignored = PASSED.into_iter().filter(|one| is_signal_in_mask(*one, mask)).collect::<Vec<_>>();
        assert_eq!(ignored, [Signal::HUP]);
    }

    /// Signals of a terminal are distinguished from signals that request the end.
    #[test]
    fn terminal_signals_are_no_terminations() {
        assert!(is_termination(Signal::TERM) && !is_terminal_signal(Signal::TERM));
        assert!(is_terminal_signal(Signal::WINCH) && !is_termination(Signal::WINCH));
        assert_eq!(signal_name(Signal::INT), "SIGINT");
    }
}
