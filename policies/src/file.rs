//! Reads a file into a plan, or says all that is wrong with it at once.

mod agree;
mod asked;
mod block;
mod choice;
mod fence;
mod gateway;
mod guard;
mod hold;
mod journal;
mod key;
mod kind;
mod large_bodies;
mod listener;
mod log;
mod once;
mod probe;
mod reach;
mod route;
mod scalar;
mod served_tls;
mod sharing;
mod tickets;
mod tls;
mod upstream;
mod yaml;
mod zookeeper;

#[cfg(test)]
mod tests;

use std::cell::RefCell;

pub use self::kind::Kind;
use self::{block::Block, kind::refuse_the_other};
use crate::{
    diagnose::{Code, Diagnostic, Place, Severity},
    plan::{Gateway, Guard},
};

/// What came out of a file.
#[derive(Debug, Clone)]
pub struct Loaded<P> {
    /// `Some` if and only if no diagnostic is an error.
    pub plan: Option<P>,
    /// By place.
    pub diagnostics: Vec<Diagnostic>,
}

/// What has been found wrong so far. Reading goes on after a mistake, so that one run shows them all.
#[derive(Debug, Default)]
struct Faults(RefCell<Vec<Diagnostic>>);

impl Faults {
    fn push(&self, diagnostic: Diagnostic) {
        self.0.borrow_mut().push(diagnostic);
    }
}

/// The plan that the policy of a gateway describes. Never panics, whatever the text.
pub fn load(text: &str) -> Loaded<Gateway> {
    read(text, Kind::Gateway, "the policy", gateway::policy)
}

/// The plan that the file of a guard describes. Never panics, whatever the text.
pub fn load_guard(text: &str) -> Loaded<Guard> {
    read(text, Kind::Guard, "the guard's file", guard::guard)
}

/// Which of the two a file is for, as its fields say.
pub fn kind(text: &str) -> Kind {
    yaml::parse(text, &Faults::default()).map_or(Kind::Gateway, |root| kind::of(&root))
}

fn read<P>(text: &str, kind: Kind, what: &str, read: impl FnOnce(&mut Block) -> Option<P>) -> Loaded<P> {
    let faults = Faults::default();
    let start = Place { line: 1, column: 1, width: 1 };
    let plan = yaml::parse(text, &faults)
        .filter(|root| refuse_the_other(root, kind, &faults))
        .and_then(|root| Block::read(Some(&root), what, start, &faults, read)?);
    let mut diagnostics = faults.0.into_inner();
    diagnostics.sort_by_key(|diagnostic| diagnostic.place);
    let sound = diagnostics.iter().all(|diagnostic| diagnostic.severity != Severity::Error);
    Loaded { plan: plan.filter(|_| sound), diagnostics }
}

fn version(block: &mut Block) {
    block.require("version", "version: 1");
    block.value("version", |version| match version {
        "1" => Ok(()),
        _ => Err(Diagnostic::new(Code::Version, format!("there is no version `{version}` of such files"))
            .remedy("write `version: 1`")),
    });
}
