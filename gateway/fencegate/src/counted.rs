//! The gateway's binary with an allocator that counts. Each client that connects to the socket named by `COUNTED_AT`
//! gets the number of allocations so far.

use std::{alloc::System, env, io::Write as _, os::unix::net::UnixListener, process::ExitCode, thread};

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    if let Some(place) = env::var_os("COUNTED_AT") {
        let listener = UnixListener::bind(place).expect("a path where nothing is yet");
        thread::spawn(move || serve_allocation_count(&listener));
    }
    fencegate::cli::run()
}

/// Sends the number of allocations and reallocations to each client that connects.
fn serve_allocation_count(listener: &UnixListener) {
    for asking in listener.incoming() {
        let stats = ALLOCATOR.stats();
        let count = stats.allocations + stats.reallocations;
        // An error means that the client has closed the connection.
        asking.and_then(|mut asking| writeln!(asking, "{count}")).ok();
    }
}
