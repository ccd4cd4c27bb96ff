//! Reads a file into a plan, or says all that is wrong with it at once.

mod admin;
mod agree;
mod asked;
mod block;
mod bypass;
mod choice;
mod conditions;
mod doors;
mod environment;
mod fence;
mod forward;
mod gateway;
mod guard;
mod hold;
mod journal;
mod key;
mod kind;
mod large_bodies;
mod listener;
mod log;
mod misplaced;
mod once;
mod peer;
mod places;
mod probe;
mod reach;
mod route;
mod scalar;
mod served_tls;
mod shape;
mod sharing;
mod tickets;
mod tls;
mod upstream;
mod yaml;
mod zookeeper;

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};

use self::{block::Block, kind::refuse_the_other};
pub use self::{environment::Environment, kind::Kind, places::Places};
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
    /// Where spans are asked for, which not every build can send.
    pub traces: Option<Place>,
}

/// What has been found wrong so far. Reading goes on after a mistake, so that one run shows them all.
#[derive(Debug, Default)]
struct Faults {
    found: RefCell<Vec<Diagnostic>>,
    /// No fault here, but perhaps of the build that the file is for.
    traces: Cell<Option<Place>>,
}

impl Faults {
    fn push(&self, diagnostic: Diagnostic) {
        self.found.borrow_mut().push(diagnostic);
    }

    fn len(&self) -> usize {
        self.found.borrow().len()
    }

    /// All but the first `known`.
    fn forget(&self, known: usize) {
        self.found.borrow_mut().truncate(known);
    }
}

/// The plan that the policy of a gateway describes, where the environment has no variables. Never panics, whatever the
/// text.
pub fn load(text: &str) -> Loaded<Gateway> {
    load_in(text, &|_| None)
}

/// The plan that the file of a guard describes, where the environment has no variables. Never panics, whatever the text.
pub fn load_guard(text: &str) -> Loaded<Guard> {
    load_guard_in(text, &|_| None)
}

/// As [`load`], with the environment that `${NAME}` in the file asks for.
pub fn load_in(text: &str, environment: &Environment) -> Loaded<Gateway> {
    read(text, environment, Kind::Gateway, "the policy", gateway::policy)
}

/// As [`load_guard`], with the environment that `${NAME}` in the file asks for.
pub fn load_guard_in(text: &str, environment: &Environment) -> Loaded<Guard> {
    read(text, environment, Kind::Guard, "the guard's file", guard::guard)
}

/// Which of the two a file is for, as its fields say.
pub fn kind(text: &str) -> Kind {
    yaml::parse(text, &|_| None, &Faults::default()).map_or(Kind::Gateway, |root| kind::of(&root))
}

fn read<P>(
    text: &str,
    environment: &Environment,
    kind: Kind,
    what: &str,
    read: impl FnOnce(&mut Block) -> Option<P>,
) -> Loaded<P> {
    let faults = Faults::default();
    let start = Place { line: 1, column: 1, width: 1 };
    let plan = yaml::parse(text, environment, &faults)
        .filter(|root| refuse_the_other(root, kind, &faults))
        .and_then(|root| Block::read(Some(&root), what, start, &faults, read)?);
    let mut diagnostics = faults.found.into_inner();
    diagnostics.sort_by_key(|diagnostic| diagnostic.place);
    let sound = diagnostics.iter().all(|diagnostic| diagnostic.severity != Severity::Error);
    Loaded { plan: plan.filter(|_| sound), diagnostics, traces: faults.traces.get() }
}

fn version(block: &mut Block) {
    block.require("version", "version: 1");
    block.value("version", |version| match version {
        "1" => Ok(()),
        _ => Err(Diagnostic::new(Code::Version, format!("there is no version `{version}` of such files"))
            .remedy("write `version: 1`")),
    });
}
