//! The explanation as text for people, one fact per line.

use std::fmt::{self, Display, Formatter};

use serde_json::Value;

use super::explanation::{HoldExplanation, LockExplanation, MatchedRouteConfig, RequestExplanation};

fn write_line(f: &mut Formatter<'_>, name: &str, value: impl Display) -> fmt::Result {
    writeln!(f, "  {name:<9} {value}")
}

impl Display for RequestExplanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.method, self.target)?;
        write_line(f, "route", self.route.as_deref().unwrap_or("none matches"))?;
        if let Some(upstream) = &self.upstream {
            let endpoints = upstream.endpoints.join(", ");
            write_line(f, "upstream", format_args!("{} at {endpoints}", upstream.name))?;
            write_line(f, "fencing", upstream.fencing)?;
            if let Some(delay) = &upstream.delay {
                write_line(f, "delay", format_args!("{delay} after a holder that left without a word"))?;
            }
        }
        match &self.lock {
            Some(lock) => lock.fmt(f)?,
            None if self.sent.is_some() => write_line(f, "lock", "none")?,
            None => {}
        }
        if let Some(once) = &self.once {
            write_line(
                f,
                "once",
                format_args!("`{}`, remembered by {} for {}", once.name, once.store, once.keep),
            )?;
            if !once.principal.is_empty() {
                write_line(f, "principal", &once.principal)?;
            }
            write_line(f, "reference", &once.reference)?;
            if let Some(path) = &once.path {
                write_line(f, "recorded", path)?;
            }
        }
        if let Some(reason) = self.observed {
            write_line(f, "observed", format_args!("{reason}: it passes without a token, and is reported"))?;
        }
        if let Some(sent) = &self.sent {
            write_line(f, "sent", format_args!("{} {}", sent.method, sent.target))?;
            for (name, value) in &sent.added {
                write_line(f, "  added", format_args!("{name}: {value}"))?;
            }
            for name in &sent.removed {
                write_line(f, "  removed", name)?;
            }
        }
        if let Some(refused) = &self.refused {
            let reason = refused.reason.unwrap_or("by the HTTP library");
            write_line(f, "refused", format_args!("{} {reason}: {}", refused.status, refused.detail))?;
            write_line(f, "outcome", refused.outcome)?;
        }
        if let Some(status) = self.answered {
            write_line(f, "answered", format_args!("{status} by the gateway itself; nothing is sent"))?;
        }
        self.policy.as_ref().map_or(Ok(()), |policy| policy.fmt(f))
    }
}

/// As many fields on a line as fit, each with its value in force. A field without a value is left out.
impl Display for MatchedRouteConfig {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        const WIDTH: usize = 100;
        let mut fields = Vec::new();
        collect_fields("", &serde_json::to_value(self).map_err(|_| fmt::Error)?, &mut fields);
        let mut name = "policy";
        let mut line = String::new();
        for field in fields {
            if !line.is_empty() && line.len() + field.len() > WIDTH {
                write_line(f, name, format_args!("{line},"))?;
                name = "";
                line.clear();
            }
            let separator = if line.is_empty() { "" } else { ", " };
            line = line + separator + &field;
        }
        write_line(f, name, line)
    }
}

/// Each single value below `value`, with the names of the fields that lead to it.
fn collect_fields(path: &str, value: &Value, fields: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Object(members) => {
            for (name, member) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                collect_fields(&path, member, fields);
            }
        }
        Value::String(text) => fields.push(format!("{path} {text}")),
        other => fields.push(format!("{path} {other}")),
    }
}

impl Display for LockExplanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for held in &self.keys {
            write_line(f, "key", &held.key)?;
            write_line(f, "lock", &held.path)?;
        }
        if let Some(layout) = self.layout {
            write_line(
                f,
                "layout",
                format_args!("{layout}: other programs stand in the same line, and are not fenced"),
            )?;
        }
        if let Some(permits) = self.permits {
            let held = format_args!(
                "{permits} at once, each with a key of its own upstream, such as `#0` behind the key"
            );
            write_line(f, "permits", held)?;
        }
        if !self.also.is_empty() {
            write_line(f, "also by", self.also.join(", "))?;
        }
        write_line(f, "mode", self.mode)?;
        write_line(f, "wait", format_args!("{}, then {}", self.wait, self.locked_status))?;
        write_line(f, "queue", self.queue)?;
        if let Some(share) = self.client_share {
            write_line(f, "client_share", share)?;
        }
        if let Some(client) = &self.share_client {
            write_line(f, "share_client", client)?;
        }
        match &self.hold {
            HoldExplanation::Strict => write_line(f, "hold", "strict")?,
            HoldExplanation::Cached { linger, max_local, max_hold, max_tenure } => write_line(
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
            write_line(f, "lease", says)?;
        }
        if self.forward.is_some() {
            write_line(
                f,
                "forward",
                "where another gateway keeps the key, it is sent on to that one and waits there",
            )?;
        }
        if let Some(within) = &self.upload_timeout {
            write_line(f, "bodies", format_args!("large ones go up under the lock, within {within}"))?;
        }
        write_line(f, "enforce", self.enforce)
    }
}
