//! The explanation as text for people, one fact per line.

use std::fmt::{self, Display, Formatter};

use fencegate_policies::key::SourceValue;
use fencegate_process::display::sanitize;
use serde_json::Value;

use super::explanation::{
    LockExplanation, LockReuseExplanation, MatchedRouteConfig, RequestExplanation,
    RespelledRequestExplanation,
};

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
        for value in &self.sources {
            write_line(f, "source", SourceValueText(value))?;
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
        if let Some(policy) = &self.policy {
            policy.fmt(f)?;
        }
        if let Some(variants) = &self.variants {
            write_variants(f, variants)?;
            if self.lock.is_some() && variants.iter().any(|variant| variant.gives.is_outside_lock()) {
                write_line(f, "", OUTSIDE_LOCK)?;
            }
        }
        Ok(())
    }
}

/// The text of a value: `path.id | int: "042" is "42"`. Control characters are escaped.
struct SourceValueText<'v>(&'v SourceValue);

impl Display for SourceValueText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let SourceValue { source, filters, raw, canonical, error } = self.0;
        write!(f, "{}", sanitize(&source.to_string()))?;
        filters.iter().try_for_each(|filter| write!(f, " | {}", sanitize(filter)))?;
        raw.iter().try_for_each(|raw| write!(f, ": {raw:?}"))?;
        let mut changed = canonical.iter().filter(|canonical| Some(*canonical) != raw.as_ref());
        changed.try_for_each(|canonical| write!(f, " is {canonical:?}"))?;
        error.iter().try_for_each(|error| write!(f, ": {}", sanitize(error)))
    }
}

/// The widest cell of a table of spellings.
const WIDEST: usize = 64;

/// A table of the spellings, one per line.
fn write_variants(f: &mut Formatter<'_>, variants: &[RespelledRequestExplanation]) -> fmt::Result {
    let shorten = |text: &str| {
        let text = sanitize(text);
        match text.char_indices().nth(WIDEST) {
            Some((at, _)) => format!("{}…", &text[..at]),
            None => text,
        }
    };
    let head = ["spelling", "request", "gives", "route", ""].map(str::to_owned);
    let rows = variants.iter().map(|variant| {
        let RespelledRequestExplanation { spelling, written, gives, route, keys, refused, answered } =
            variant;
        let detail = match (refused, answered) {
            (Some(refused), _) => {
                format!("{} {}", refused.status, refused.reason.unwrap_or("by the HTTP library"))
            }
            (None, Some(status)) => status.to_string(),
            (None, None) => keys.join(", "),
        };
        let route = route.as_deref().unwrap_or("none");
        [shorten(spelling), shorten(written), gives.as_str().to_owned(), shorten(route), shorten(&detail)]
    });
    let rows: Vec<_> = [head].into_iter().chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths = [0, 1, 2, 3].map(width);
    let mut name = "variants";
    for [spelling, written, gives, route, detail] in &rows {
        let [first, second, third, fourth] = widths;
        let line = format!("{spelling:first$}  {written:second$}  {gives:third$}  {route:fourth$}  {detail}");
        write_line(f, name, line.trim_end())?;
        name = "";
    }
    Ok(())
}

/// The advice below a table in which a spelling has another key or none.
const OUTSIDE_LOCK: &str = "`another key` and `unfenced` are right only if the service takes the spelling for another resource; \
else write a filter in the key, such as `int`, `uuid` or `match('[a-z0-9-]{1,40}')`, or a route for the path";

/// As many fields on a line as fit, each with its value. A field without a value is left out.
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
            LockReuseExplanation::Strict => write_line(f, "hold", "strict")?,
            LockReuseExplanation::Cached { linger, max_local, max_hold, max_tenure } => write_line(
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
