//! Refuses a request in which a value of a key stands in another source under the same name and with another value.
//!
//! Services merge sources: Rails reads a query over a JSON body, echo a body over the path, PHP a form and a cookie over the query.
//! Such a service would work on another resource than the one that is locked. What one reader could take for the
//! same name counts as that name.

use super::{
    declared::Said,
    expand::apply,
    form::{self, MOST},
    members::{Member, members},
    multipart,
    no_key::{BadKey, BadValue},
    query::Folded,
    sources::{Conflicts, RequestSource},
    template::{KeyTemplate, Source, Variable},
    values::{Field, Values},
};

const IN_PATH: &str = "stands in the path, too, with another value";
const IN_QUERY: &str = "stands in the query, too, with another value";
const IN_FORM: &str = "stands in a form in the body, too, with another value";
const IN_JSON: &str = "stands in the JSON body, too, with another value";
const IN_COOKIE: &str = "stands in a cookie, too, with another value";
const BROKEN: &str = "may stand in the body, too, which servers read differently";
const ENCODED: &str = "may stand in the body, too, which is compressed";
const CHARSET: &str = "may stand in the body, too, which is in another character set than UTF-8";
const MANY: &str = "may stand in another source, too, which has more than 10000 fields";

/// The sources of a request beside the query, which [`Values::query`] has.
#[derive(Debug, Clone, Copy)]
pub struct Sent<'a> {
    /// The variables of the route's path, with their decoded values.
    pub path: &'a [(&'a str, &'a str)],
    /// The lines of `Cookie`.
    pub cookies: &'a [&'a [u8]],
    /// `None` where the body is not here in full.
    pub content: Option<Content<'a>>,
}

/// A body that is here in full.
#[derive(Debug, Clone, Copy)]
pub struct Content<'a> {
    pub said: Said<'a>,
    pub bytes: &'a [u8],
}

/// Compares the values of `templates` with the other sources of a request. A value that is missing is not compared.
///
/// # Errors
/// A value stands in a source that `conflicts` compares, under the same name and with another value; or it may stand there.
pub(crate) fn compare<'t>(
    templates: impl Iterator<Item = &'t KeyTemplate>,
    conflicts: &Conflicts,
    values: &dyn Values,
    sent: &Sent<'_>,
) -> Result<(), BadKey> {
    if *conflicts == Conflicts::Pass {
        return Ok(());
    }
    let wanted: Vec<Wanted<'_>> = templates
        .flat_map(KeyTemplate::variables)
        .filter_map(|variable| Wanted::of(variable, values))
        .collect();
    let compared = |other| Compared {
        wanted: wanted.iter().filter(|wanted| conflicts.compares(wanted.own, other)).collect(),
    };
    let path = compared(RequestSource::Path);
    sent.path.iter().try_for_each(|(name, value)| path.field(name.as_bytes(), value.as_bytes(), IN_PATH))?;
    let query = values.query().unwrap_or_default();
    compared(RequestSource::Query).fields(query.as_bytes(), IN_QUERY)?;
    let cookies = compared(RequestSource::Cookie);
    sent.cookies.iter().try_for_each(|line| cookies.cookies(line))?;
    match sent.content.filter(|content| !content.bytes.is_empty()) {
        Some(content) => {
            // A body out of which a key is taken is JSON for the service as well.
            let reads_json = wanted.iter().any(|wanted| wanted.own == RequestSource::Json);
            let form = compared(RequestSource::Form);
            content
                .compare(&if reads_json { Compared::default() } else { form }, &compared(RequestSource::Json))
        }
        None => Ok(()),
    }
}

/// A value of a key, and the name under which it may stand elsewhere.
struct Wanted<'t> {
    variable: &'t Variable,
    own: RequestSource,
    folded: Folded,
    /// The name, or the first one of several within each other.
    name: &'t str,
    /// As it stands in the key.
    value: String,
}

impl<'t> Wanted<'t> {
    fn of(variable: &'t Variable, values: &dyn Values) -> Option<Self> {
        let own = RequestSource::of(&variable.source)?;
        let (name, folded) = match &variable.source {
            Source::Path(name) | Source::Query(name) => {
                (name.split('[').next().unwrap_or_default(), Folded::of(name.as_bytes()))
            }
            Source::Body(pointer) => {
                let (first, rest) = pointer.names().split_first()?;
                let rest: String = rest.iter().map(|name| format!("[{name}]")).collect();
                (&**first, Folded::of(format!("{first}{rest}").as_bytes()))
            }
            Source::Header(_) | Source::Host => return None,
        };
        let value = variable.value(values).ok()?;
        Some(Self { variable, own, folded: folded.without_indexes(), name, value })
    }

    fn is(&self, other: &str) -> bool {
        let other = self.variable.filters.iter().try_fold(other.to_owned(), apply);
        other.is_ok_and(|other| other == self.value)
    }

    fn bad(&self, why: &'static str) -> BadKey {
        self.variable.bad(BadValue::Invalid(why))
    }
}

/// The values that one source is compared with.
#[derive(Default)]
struct Compared<'w, 't> {
    wanted: Vec<&'w Wanted<'t>>,
}

impl Compared<'_, '_> {
    fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    fn field(&self, name: &[u8], value: &[u8], why: &'static str) -> Result<(), BadKey> {
        if self.is_empty() {
            return Ok(());
        }
        let folded = Folded::of(name).without_indexes();
        let value = std::str::from_utf8(value).ok();
        let unlike = |wanted: &&&Wanted<'_>| {
            wanted.folded.is_like(&folded) && !value.is_some_and(|value| wanted.is(value))
        };
        self.wanted.iter().find(unlike).map_or(Ok(()), |wanted| Err(wanted.bad(why)))
    }

    /// A query or a form.
    fn fields(&self, text: &[u8], why: &'static str) -> Result<(), BadKey> {
        if self.is_empty() {
            return Ok(());
        }
        for (count, (name, value)) in form::fields(text).enumerate() {
            if count == MOST {
                return self.refuse(MANY);
            }
            self.field(&name, &value, why)?;
        }
        Ok(())
    }

    /// Some readers decode a name or a value, and others do not.
    fn cookies(&self, line: &[u8]) -> Result<(), BadKey> {
        for (name, value) in form::cookies(line) {
            let (named, read) = (form::decoded(name), form::decoded(value));
            for name in [name, &named] {
                self.field(name, value, IN_COOKIE)?;
                self.field(name, &read, IN_COOKIE)?;
            }
        }
        Ok(())
    }

    fn multipart(&self, kind: &str, body: &[u8]) -> Result<(), BadKey> {
        let Some(parts) = multipart::parts(kind, body, MOST) else { return self.broken(body) };
        for (name, value) in parts {
            self.field(name.as_bytes(), value, IN_FORM)?;
            self.field(&form::decoded(name.as_bytes()), value, IN_FORM)?;
        }
        Ok(())
    }

    fn json(&self, body: &[u8]) -> Result<(), BadKey> {
        let mut compared = Ok(());
        let is_like = |name: &str| {
            let folded = Folded::of(name.as_bytes()).without_indexes();
            self.wanted.iter().any(|wanted| wanted.folded.is_like(&folded))
        };
        let read = members(body, is_like, |name, member| {
            let given = match &member {
                Member::Null => return,
                Member::Text(text) => text.as_bytes(),
                // No text is it: these bytes are not UTF-8.
                Member::Other => b"\xff",
            };
            if compared.is_ok() {
                compared = self.field(name.as_bytes(), given, IN_JSON);
            }
        });
        compared?;
        if read.is_ok() { Ok(()) } else { self.broken(body) }
    }

    /// A body that two readers could take for two bodies is refused if it names a value, or may do so in another spelling.
    fn broken(&self, body: &[u8]) -> Result<(), BadKey> {
        let has = |text: &[u8]| {
            !text.is_empty() && body.windows(text.len()).any(|part| part.eq_ignore_ascii_case(text))
        };
        let is_spelt = body.contains(&0) || [&b"\\"[..], b"=?", b"name*"].into_iter().any(has);
        let named =
            |wanted: &&&Wanted<'_>| is_spelt || has(wanted.name.as_bytes()) || !wanted.name.is_ascii();
        self.wanted.iter().find(named).map_or(Ok(()), |wanted| Err(wanted.bad(BROKEN)))
    }

    fn refuse(&self, why: &'static str) -> Result<(), BadKey> {
        self.wanted.first().map_or(Ok(()), |wanted| Err(wanted.bad(why)))
    }
}

/// As what a service may read a body.
struct Readings {
    form: bool,
    multipart: bool,
    json: bool,
}

impl Content<'_> {
    fn compare(&self, form: &Compared<'_, '_>, json: &Compared<'_, '_>) -> Result<(), BadKey> {
        if form.is_empty() && json.is_empty() {
            return Ok(());
        }
        let kind = match self.said.kind {
            Field::One(kind) => String::from_utf8_lossy(kind),
            Field::Absent | Field::Several | Field::Respelled => "".into(),
        };
        let said = kind.to_ascii_lowercase();
        let readings = self.readings(&said);
        self.is_plain(&said).or_else(|why| {
            if readings.form || readings.multipart {
                form.refuse(why)?;
            }
            if readings.json { json.refuse(why) } else { Ok(()) }
        })?;
        if readings.form {
            form.fields(self.bytes, IN_FORM)?;
        }
        if readings.multipart && !form.is_empty() {
            form.multipart(&kind, self.bytes)?;
        }
        if readings.json && !json.is_empty() { json.json(self.bytes) } else { Ok(()) }
    }

    /// `said`: the content type in lower case, empty where nobody knows it.
    fn readings(&self, said: &str) -> Readings {
        let is_text = || self.bytes.iter().all(|byte| matches!(byte, b'\t' | b'\r' | b'\n' | b' '..=b'~'));
        let unsaid = said.trim().is_empty();
        let begins = |text: &[u8]| {
            let bytes = self.bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(self.bytes);
            bytes.trim_ascii_start().starts_with(text)
        };
        Readings {
            form: said.contains("x-www-form-urlencoded") || unsaid && is_text(),
            multipart: said.contains("multipart/") || unsaid && begins(b"--"),
            // Some services read every body as JSON, whatever is said of it.
            json: said.contains("json") || begins(b"{"),
        }
    }

    /// The error says why the bytes are not what the service reads.
    fn is_plain(&self, said: &str) -> Result<(), &'static str> {
        const LIKE_ASCII: [&str; 5] = ["utf-8", "utf8", "us-ascii", "iso-8859-1", "windows-1252"];
        match self.said.coding {
            Field::Absent => {}
            Field::One(coding) if coding.trim_ascii().eq_ignore_ascii_case(b"identity") => {}
            Field::One(_) | Field::Several | Field::Respelled => return Err(ENCODED),
        }
        let mut charsets = said.split("charset").skip(1);
        let is_like_ascii = |behind: &str| {
            let value = behind.trim_start().strip_prefix('=').unwrap_or_default();
            let end = value.find([';', ',']).unwrap_or(value.len());
            LIKE_ASCII.contains(&value[..end].trim().trim_matches('"'))
        };
        if charsets.all(is_like_ascii) { Ok(()) } else { Err(CHARSET) }
    }
}

#[cfg(test)]
mod tests;
