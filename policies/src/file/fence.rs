//! Reads how a route takes its lock, or that it takes none.

use std::time::Duration;

use super::{
    block::Block,
    key::{self, Naming},
    scalar,
};
use crate::{
    diagnose::{Code, Diagnostic},
    plan::{Fence, Hold, Mode},
};

/// What `defaults` can set for every fence.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Terms {
    wait: Option<Duration>,
    queue: Option<usize>,
    hold: Option<Hold>,
    mode: Option<Mode>,
}

impl Terms {
    pub(super) fn read(block: &mut Block) -> Self {
        Self {
            wait: block.value("wait", scalar::duration),
            queue: block.value("queue", queue),
            hold: block.inner("hold", |block| block.word("mode", &[("strict", Hold::Strict)])).flatten(),
            mode: block.word("mode", &[("exclusive", Mode::Exclusive)]),
        }
    }
}

/// `Some(None)` for the word `none`; `None` where the field is absent or bad.
pub(super) fn fence(route: &mut Block, naming: &Naming, defaults: &Terms) -> Option<Option<Fence>> {
    // A route is not unfenced by forgetting a line.
    route.require("fence", "fence: none` or `fence: {key: ...}");
    if route.is_mapping("fence") {
        return route.inner("fence", |block| fenced(block, naming, defaults)).flatten().map(Some);
    }
    route.value("fence", |text| match text {
        "none" => Ok(None),
        _ => Err(Diagnostic::new(Code::UnknownValue, format!("`{text}` is not a fence"))
            .remedy("write `none`, or a mapping with a `key`")),
    })
}

fn fenced(block: &mut Block, naming: &Naming, defaults: &Terms) -> Option<Fence> {
    let key = key::key(block, naming);
    let terms = Terms::read(block);
    let locked_status = block.value("locked_status", locked_status).unwrap_or(423);
    let max_response = block.value("max_response", scalar::size).unwrap_or(1 << 20);
    Some(Fence {
        key: key?,
        mode: terms.mode.or(defaults.mode).unwrap_or(Mode::Exclusive),
        wait: terms.wait.or(defaults.wait).unwrap_or(Duration::from_secs(5)),
        queue: terms.queue.or(defaults.queue).unwrap_or(100),
        hold: terms.hold.or(defaults.hold).unwrap_or(Hold::Strict),
        locked_status,
        max_response,
    })
}

fn queue(text: &str) -> Result<usize, Diagnostic> {
    match scalar::count(text)? {
        0 => Err(Diagnostic::new(Code::EmptyQueue, "a queue without a place turns even a lone request away")
            .remedy("write at least `1`; with `wait: 0s` nobody waits")),
        places => Ok(places),
    }
}

/// The statuses that tell a client to come back later, and no proxy to try again by itself.
fn locked_status(text: &str) -> Result<u16, Diagnostic> {
    match text {
        "423" => Ok(423),
        "409" => Ok(409),
        "429" => Ok(429),
        "503" => Ok(503),
        _ => Err(Diagnostic::new(
            Code::LockedStatus,
            format!("`{text}` does not tell a client that a key is held"),
        )
        .remedy("there are `423`, `409`, `429`, `503`")),
    }
}
