//! Reads what is told of requests.

use super::block::Block;
use crate::plan::{Access, KeysShown, Log};

pub(super) fn log(block: &mut Block) -> Log {
    let read = |block: &mut Block| Log {
        access: block.word("access", &[("off", Access::Off), ("stdout", Access::Stdout)]).unwrap_or_default(),
        keys: block
            .word("keys", &[("plain", KeysShown::Plain), ("hash", KeysShown::Hash), ("off", KeysShown::Off)])
            .unwrap_or_default(),
    };
    block.inner("log", read).unwrap_or_default()
}
