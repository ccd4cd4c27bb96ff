//! Finds the routes that can lock one key, and do not agree about how long a holder waits after one that left without a word.

use std::time::Duration;

use super::{faults::Faults, fence::Fenced, scalar};
use crate::{
    diagnose::{Code, Diagnostic},
    key::{KeyTemplate, Meeting},
    plan::Fence,
};

/// Of a key that two routes lock, both leave a record of how long what they sent may go on, or none does. Else whoever comes
/// after the other one would begin too early. An unlike length is as bad: a tenure is handed on between routes.
pub(super) fn check(fences: &[(&str, &Fenced, Option<Duration>)], faults: &Faults) {
    let Some((.., usual)) = fences.first() else { return };
    if fences.iter().all(|(.., delay)| delay == usual) {
        return;
    }
    for (at, (route, fenced, delay)) in fences.iter().enumerate() {
        let mut above = fences[..at].iter().filter(|(.., known)| known != delay);
        let Some((other, _, known)) = above.find(|(_, above, _)| share(&above.fence, &fenced.fence)) else {
            continue;
        };
        let how = |delay: Option<Duration>| match delay {
            Some(delay) => format!("a delay of {}", scalar::written(delay)),
            None => "no delay".to_owned(),
        };
        let message = format!(
            "routes `{other}` and `{route}` can lock one key, with {} and with {}",
            how(*known),
            how(*delay)
        );
        let remedy = "write `fencing: delay` and the same `delay` on both upstreams, or keys that no values make equal";
        faults.push(Diagnostic::new(Code::UnlikeDelay, message).at(fenced.placed).remedy(remedy));
    }
}

fn share(one: &Fence, other: &Fence) -> bool {
    let meet = |one: &KeyTemplate, other: &KeyTemplate| one.glob().meets(&other.glob()) == Meeting::Same;
    one.keys.iter().any(|key| other.keys.iter().any(|theirs| meet(key, theirs)))
}
