//! The explanation as text for people, one fact per line.

use std::{
    fmt::{self, Display, Formatter},
    time::Duration,
};

use super::explained::{Explanation, HoldExplanation, LockExplanation};

/// A duration as a policy would write it.
pub(super) fn duration(duration: Duration) -> String {
    match duration {
        Duration::ZERO => "0s".to_owned(),
        duration => humantime::format_duration(duration).to_string(),
    }
}

fn line(f: &mut Formatter<'_>, name: &str, value: impl Display) -> fmt::Result {
    writeln!(f, "  {name:<9} {value}")
}

impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.method, self.target)?;
        line(f, "route", self.route.as_deref().unwrap_or("none matches"))?;
        if let Some(upstream) = &self.upstream {
            let endpoints = upstream.endpoints.join(", ");
            line(f, "upstream", format_args!("{} at {endpoints}", upstream.name))?;
            line(f, "fencing", upstream.fencing)?;
            if let Some(delay) = &upstream.delay {
                line(f, "delay", format_args!("{delay} after a holder that left without a word"))?;
            }
        }
        match &self.lock {
            Some(lock) => lock.fmt(f)?,
            None if self.sent.is_some() => line(f, "lock", "none")?,
            None => {}
        }
        if let Some(once) = &self.once {
            line(f, "once", format_args!("`{}`, remembered by {} for {}", once.name, once.store, once.keep))?;
            if !once.principal.is_empty() {
                line(f, "principal", &once.principal)?;
            }
            line(f, "reference", &once.reference)?;
            if let Some(path) = &once.path {
                line(f, "recorded", path)?;
            }
        }
        if let Some(reason) = self.observed {
            line(f, "observed", format_args!("{reason}: it passes without a token, and is reported"))?;
        }
        if let Some(sent) = &self.sent {
            line(f, "sent", format_args!("{} {}", sent.method, sent.target))?;
            for (name, value) in &sent.added {
                line(f, "  added", format_args!("{name}: {value}"))?;
            }
            for name in &sent.removed {
                line(f, "  removed", name)?;
            }
        }
        if let Some(refused) = &self.refused {
            let reason = refused.reason.unwrap_or("by the HTTP library");
            line(f, "refused", format_args!("{} {reason}: {}", refused.status, refused.detail))?;
            line(f, "outcome", refused.outcome)?;
        }
        if let Some(status) = self.answered {
            line(f, "answered", format_args!("{status} by the gateway itself; nothing is sent"))?;
        }
        Ok(())
    }
}

impl Display for LockExplanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for held in &self.keys {
            line(f, "key", &held.key)?;
            line(f, "lock", &held.path)?;
        }
        if let Some(layout) = self.layout {
            line(
                f,
                "layout",
                format_args!("{layout}: other programs stand in the same line, and are not fenced"),
            )?;
        }
        if let Some(permits) = self.permits {
            let held = format_args!(
                "{permits} at once, each with a key of its own upstream, such as `#0` behind the key"
            );
            line(f, "permits", held)?;
        }
        if !self.also.is_empty() {
            line(f, "also by", self.also.join(", "))?;
        }
        line(f, "mode", self.mode)?;
        line(f, "wait", format_args!("{}, then {}", self.wait, self.locked_status))?;
        line(f, "queue", self.queue)?;
        if let Some(share) = self.client_share {
            line(f, "client_share", share)?;
        }
        match &self.hold {
            HoldExplanation::Strict => line(f, "hold", "strict")?,
            HoldExplanation::Cached { linger, max_local, max_hold, max_tenure } => line(
                f,
                "hold",
                format_args!(
                    "cached: linger {linger}, max_local {max_local}, max_hold {max_hold}, max_tenure {max_tenure}"
                ),
            )?,
        }
        if let Some(lease) = self.lease {
            let says = match lease {
                "required" => "required: without `Fencing-Lease` it is refused with 428",
                _ => "optional: with `Fencing-Lease` it runs under that lease, and takes no lock for itself",
            };
            line(f, "lease", says)?;
        }
        if self.forward.is_some() {
            line(
                f,
                "forward",
                "where another gateway keeps the key, it is sent on to that one and waits there",
            )?;
        }
        if let Some(within) = &self.upload_timeout {
            line(f, "bodies", format_args!("large ones go up under the lock, within {within}"))?;
        }
        line(f, "enforce", self.enforce)
    }
}
