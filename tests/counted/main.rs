//! The binary once more, with an allocator that counts: whoever connects to the socket that `COUNTED_AT` names is told how
//! often it has allocated.

use std::{alloc::System, env, io::Write as _, os::unix::net::UnixListener, process::ExitCode, thread};

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    if let Some(place) = env::var_os("COUNTED_AT") {
        let listener = UnixListener::bind(place).expect("a path where nothing is yet");
        thread::spawn(move || tell(&listener));
    }
    fencegate::cli::run()
}

/// Allocations, and those that were made larger or smaller.
fn tell(listener: &UnixListener) {
    for asking in listener.incoming() {
        let stats = ALLOCATOR.stats();
        let count = stats.allocations + stats.reallocations;
        // Fails when nobody listens any more.
        asking.and_then(|mut asking| writeln!(asking, "{count}")).ok();
    }
}
