//! Refuses a request if another of its sources has the name of a key's value with a different value.
//!
//! Services merge sources: Rails reads a query over a JSON body, echo a body over the path, PHP a form and a cookie
//! over the query. Such a service would use another resource than the locked one. Every name that some reader could
//! take for the same name counts as that name.
//!
//! Rails has two more names for values of a JSON body. A body that is no object becomes the parameter `_json`. The
//! members of an object also become members of a parameter with the name of the controller (`ParamsWrapper`), unless
//! the request has a parameter of that name.

use std::{borrow::Cow, cell::Cell, iter};

use super::{
    content_declaration::ContentDeclaration,
    error::{ExtractKeyError, ExtractValueError},
    expand::apply_filter,
    form::{self, MOST},
    form_values::{CHARSET_FIELD, has_part_like},
    members::{JsonMemberValue, ROOT, visit_members, visit_wrapped},
    multipart::{self, FormPart},
    pointer::{JsonPointer, PointerStep},
    query::{self, NormalizedParamName},
    search,
    sources::{ParameterLocation, SourceConflictPolicy},
    template::{KeyTemplate, TemplateValueSource, TemplateVariable},
    values::{HeaderLookup, RequestValues},
};

/// Bytes that are not UTF-8, so that no text is equal to them.
const NO_TEXT: &[u8] = b"\xff";

/// The byte order mark, U+FEFF, in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

const IN_PATH: &str = "stands in the path, too, with another value";
const IN_QUERY: &str = "stands in the query, too, with another value";
const IN_FORM: &str = "stands in a form in the body, too, with another value";
const IN_JSON: &str = "stands in the JSON body, too, with another value";
const IN_MEMBER: &str = "stands inside another member of the JSON body, too, with another value";
const IN_XML: &str = "may stand in the body, too, which is XML, where values are not compared";
const IN_COOKIE: &str = "stands in a cookie, too, with another value";
const MARKED: &str =
    "may stand in the body, too, which begins with a byte order mark that some servers leave out";
const BROKEN: &str = "may stand in the body, too, which servers read differently";
const ENCODED: &str = "may stand in the body, too, which is compressed";
const CHARSET: &str = "may stand in the body, too, which is in another character set than UTF-8";
const KIND: &str = "may stand in the body, too, which has no single `Content-Type`";
const MANY: &str = "may stand in another source, too, which has more than 10000 fields";

/// The sources of a request other than the query, which is in [`RequestValues::query`].
#[derive(Debug, Clone, Copy)]
pub struct RequestParameterSources<'a> {
    /// The variables of the route's path, with their decoded values.
    pub path: &'a [(&'a str, &'a str)],
    /// The values of the `Cookie` fields.
    pub cookies: &'a [&'a [u8]],
    /// The body; `None` if it is not buffered in full.
    pub content: Option<CompleteBody<'a>>,
}

/// A body that is buffered in full.
#[derive(Debug, Clone, Copy)]
pub struct CompleteBody<'a> {
    pub said: ContentDeclaration<'a>,
    pub bytes: &'a [u8],
}

/// Compares the values of `templates` with the other sources of a request. A missing value is not compared.
///
/// # Errors
/// Returns an error if a source that `conflicts` compares has, or may have, another value under the name of a compared
/// value.
pub(crate) fn compare_with_other_sources<'t>(
    templates: impl Iterator<Item = &'t KeyTemplate>,
    conflicts: &SourceConflictPolicy,
    values: &dyn RequestValues,
    sent: &RequestParameterSources<'_>,
) -> Result<(), ExtractKeyError> {
    if *conflicts == SourceConflictPolicy::Pass {
        return Ok(());
    }
    let of_template = |template: &'t KeyTemplate| {
        template
            .variables()
            .filter_map(move |variable| ComparedVariableValue::new(template, variable, values))
    };
    let wanted: Vec<ComparedVariableValue<'_>> = templates.flat_map(of_template).collect();
    compare(&wanted, conflicts, values, sent)
}

/// Compares the members of a JSON body by which a route was chosen with the other sources of a request. If such a
/// member is missing or is no text, no other source may have its name: the service could read the member there, and
/// treat the request as one of another route.
///
/// # Errors
/// Returns an error if another source has, or may have, a different value under the name of a member.
pub(crate) fn compare_members_with_other_sources<'t>(
    members: impl Iterator<Item = (&'t JsonPointer, Option<String>)>,
    conflicts: &SourceConflictPolicy,
    values: &dyn RequestValues,
    sent: &RequestParameterSources<'_>,
) -> Result<(), ExtractKeyError> {
    let wanted = members.filter_map(|(pointer, text)| ComparedVariableValue::from_json_member(pointer, text));
    compare(&wanted.collect::<Vec<_>>(), conflicts, values, sent)
}

fn compare(
    wanted: &[ComparedVariableValue<'_>],
    conflicts: &SourceConflictPolicy,
    values: &dyn RequestValues,
    sent: &RequestParameterSources<'_>,
) -> Result<(), ExtractKeyError> {
    let compared = |other| KeyValuesToCompare {
        wanted: wanted.iter().filter(|wanted| conflicts.compares(wanted.own, other)).collect(),
        unwraps: other == ParameterLocation::Query
            && conflicts.compares(ParameterLocation::Json, ParameterLocation::Wrapped),
    };
    let path = compared(ParameterLocation::Path);
    sent.path
        .iter()
        .try_for_each(|(name, value)| path.check_field(name.as_bytes(), value.as_bytes(), IN_PATH))?;
    let query = values.query().unwrap_or_default();
    compared(ParameterLocation::Query).check_query(query)?;
    let cookies = compared(ParameterLocation::Cookie);
    cookies.check_cookies(sent.cookies)?;
    match sent.content.filter(|content| !content.bytes.is_empty()) {
        Some(content) => {
            // If a key was taken from the JSON body, the service reads the body as JSON as well, so it is not compared
            // as a form or XML.
            let reads_json = wanted.iter().any(|wanted| wanted.own == ParameterLocation::Json);
            let unless_json =
                |other| if reads_json { KeyValuesToCompare::default() } else { compared(other) };
            compared(ParameterLocation::Wrapped).check_nested_members(content.bytes)?;
            content.compare(
                &unless_json(ParameterLocation::Form),
                &compared(ParameterLocation::Json),
                &unless_json(ParameterLocation::Xml),
            )
        }
        None => Ok(()),
    }
}

/// A value that is compared: that of a variable in a key, or of a member by which a route was chosen.
struct ComparedVariableValue<'t> {
    variable: Cow<'t, TemplateVariable>,
    own: ParameterLocation,
    /// The normalized name under which another source may have the value.
    folded: NormalizedParamName,
    /// The name under which Rails has the value if the JSON body is a list.
    folded_root: Option<NormalizedParamName>,
    /// The values with which another source is compared, as they are in the keys. For a list these are the values of
    /// its items.
    values: Vec<String>,
}

impl<'t> ComparedVariableValue<'t> {
    fn new(
        template: &KeyTemplate,
        variable: &'t TemplateVariable,
        values: &dyn RequestValues,
    ) -> Option<Self> {
        let own = ParameterLocation::from_source(&variable.source)?;
        let mut folded_root = None;
        let folded = match &variable.source {
            TemplateValueSource::Path(name)
            | TemplateValueSource::Query(name)
            | TemplateValueSource::QueryList(name)
            | TemplateValueSource::Form(name)
            | TemplateValueSource::FormList(name) => NormalizedParamName::new(name.as_bytes()),
            TemplateValueSource::Body(pointer) => {
                folded_root = root_name(pointer);
                member_name(pointer)?
            }
            TemplateValueSource::Header(_)
            | TemplateValueSource::HeaderList(_)
            | TemplateValueSource::Host
            | TemplateValueSource::ClientName
            | TemplateValueSource::Jwt(_) => return None,
        };
        // An empty list is compared as well, because another source may have items for it.
        let known = template.comparable_values(variable, values).ok()?;
        let variable = Cow::Borrowed(variable);
        Some(Self { variable, own, folded: folded.without_indexes(), folded_root, values: known })
    }

    /// The comparison of a member of the body. `text`: its value, if that is a text, an integer or a boolean.
    fn from_json_member(pointer: &JsonPointer, text: Option<String>) -> Option<Self> {
        let source = TemplateValueSource::Body(pointer.clone());
        Some(Self {
            variable: Cow::Owned(TemplateVariable::without_filters(source)),
            own: ParameterLocation::Json,
            folded: member_name(pointer)?.without_indexes(),
            folded_root: root_name(pointer),
            values: text.into_iter().collect(),
        })
    }

    fn names(&self) -> impl Iterator<Item = &NormalizedParamName> {
        iter::once(&self.folded).chain(&self.folded_root)
    }

    /// The steps of the pointer, from the outermost object or list of a JSON body to the value.
    fn steps(&self) -> &[PointerStep] {
        self.variable.pointer().map_or(&[][..], JsonPointer::steps)
    }

    /// Whether `other`, after the filters, is one of the values in the keys. A service that reads `other` then uses a
    /// locked resource. Of a list, another source may have only a part.
    fn has_filtered_value(&self, other: &str) -> bool {
        let other = self.variable.filters.iter().try_fold(other.to_owned(), apply_filter);
        other.is_ok_and(|other| self.values.contains(&other))
    }

    fn error(&self, reason: &'static str) -> ExtractKeyError {
        self.variable.error(ExtractValueError::Invalid(reason))
    }
}

/// The name under which a query or a form has a member of the body: `a[id]` for `/a/id`.
fn member_name(pointer: &JsonPointer) -> Option<NormalizedParamName> {
    let (first, rest) = pointer.steps().split_first()?;
    let first = first.json_member_name().unwrap_or_default();
    Some(NormalizedParamName::new(format!("{first}{}", in_brackets(rest)).as_bytes()))
}

/// The name under which Rails has a value of a body that is a list; `None` if the pointer needs an object.
fn root_name(pointer: &JsonPointer) -> Option<NormalizedParamName> {
    let (first, rest) = pointer.steps().split_first()?;
    let is_of_list = *first == PointerStep::EveryItem || first.index().is_some();
    let name = || NormalizedParamName::new(format!("{ROOT}[]{}", in_brackets(rest)).as_bytes());
    is_of_list.then(|| name().without_indexes())
}

fn in_brackets(steps: &[PointerStep]) -> String {
    steps.iter().map(|step| format!("[{}]", step.json_member_name().unwrap_or_default())).collect()
}

/// The values with which one source is compared.
#[derive(Default)]
struct KeyValuesToCompare<'w, 't> {
    wanted: Vec<&'w ComparedVariableValue<'t>>,
    /// True if members of a JSON body may also have a name below another one in this source.
    unwraps: bool,
}

impl<'t> KeyValuesToCompare<'_, 't> {
    fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// The values that some reader could find under `name`.
    fn values_named_like<'a>(
        &'a self,
        name: &'a [u8],
    ) -> impl Iterator<Item = &'a ComparedVariableValue<'t>> {
        let folded =
            (!NormalizedParamName::is_plain(name)).then(|| NormalizedParamName::new(name).without_indexes());
        self.wanted.iter().copied().filter(move |wanted| match &folded {
            Some(folded) => {
                let unwraps = self.unwraps && wanted.own == ParameterLocation::Json;
                wanted.names().any(|known| known.matches(folded) || unwraps && known.matches_wrapped(folded))
            }
            None => wanted.names().any(|known| known.matches_plain(name)),
        })
    }

    fn check_field(&self, name: &[u8], value: &[u8], reason: &'static str) -> Result<(), ExtractKeyError> {
        let value = |wanted: &&ComparedVariableValue<'_>| {
            !std::str::from_utf8(value).is_ok_and(|value| wanted.has_filtered_value(value))
        };
        self.values_named_like(name).find(value).map_or(Ok(()), |wanted| Err(wanted.error(reason)))
    }

    fn check_query(&self, query: &str) -> Result<(), ExtractKeyError> {
        // Servers read characters that are not escaped in several character sets, so such a value is equal to none.
        self.check_fields(query.as_bytes(), IN_QUERY, |value| {
            if value.is_ascii() { form::decode_leniently(value) } else { NO_TEXT.into() }
        })
    }

    fn check_form(&self, form: &[u8]) -> Result<(), ExtractKeyError> {
        self.check_fields(form, IN_FORM, form::decode_leniently)
    }

    fn check_fields(
        &self,
        text: &[u8],
        reason: &'static str,
        decode_value: impl Fn(&[u8]) -> Cow<'_, [u8]>,
    ) -> Result<(), ExtractKeyError> {
        if self.is_empty() {
            return Ok(());
        }
        for (count, (name, value)) in form::form_fields(text).enumerate() {
            if count == MOST {
                return self.reject(MANY);
            }
            self.check_field(&form::decode_leniently(name), &decode_value(value), reason)?;
        }
        Ok(())
    }

    /// Checks bytes that some reader may take for a form. An image has more separators than any form has fields, but
    /// few of the pieces between them look like names. So only names that are expensive to compare are counted.
    fn check_bare_fields(&self, bytes: &[u8]) -> Result<(), ExtractKeyError> {
        if self.is_empty() {
            return Ok(());
        }
        let mut left = MOST + bytes.len() / 32;
        for (name, value) in form::form_fields(bytes) {
            if !NormalizedParamName::is_plain(name) {
                if left == 0 {
                    return self.reject(MANY);
                }
                left -= 1;
            }
            self.check_field(&form::decode_leniently(name), &form::decode_leniently(value), IN_FORM)?;
        }
        Ok(())
    }

    /// Checks cookies with their names and values both as they are and decoded, because only some readers decode them.
    fn check_cookies(&self, lines: &[&[u8]]) -> Result<(), ExtractKeyError> {
        if self.is_empty() {
            return Ok(());
        }
        for (count, (name, value)) in lines.iter().flat_map(|line| form::cookies(line)).enumerate() {
            if count == MOST {
                return self.reject(MANY);
            }
            let named = form::decode_leniently(name);
            let read = form::decode_leniently(value);
            for name in [name, &named] {
                self.check_field(name, value, IN_COOKIE)?;
                self.check_field(name, &read, IN_COOKIE)?;
            }
        }
        Ok(())
    }

    fn check_multipart(&self, kind: &str, body: &[u8]) -> Result<(), ExtractKeyError> {
        let Some(parts) = multipart::parts(kind, body, MOST) else { return self.check_malformed(body) };
        if has_part_like(&parts, CHARSET_FIELD) {
            return self.reject(CHARSET);
        }
        for part in parts {
            match part {
                FormPart::Named { name, head: _, content } => self.check_part(&name, content)?,
                FormPart::Fallback { names, content } => {
                    names.iter().try_for_each(|name| self.check_part(name, content))?
                }
                FormPart::Unclear(head) => self.check_malformed(head)?,
            }
        }
        Ok(())
    }

    fn check_part(&self, name: &str, content: &[u8]) -> Result<(), ExtractKeyError> {
        self.check_field(name.as_bytes(), content, IN_FORM)?;
        self.check_field(&form::decode_leniently(name.as_bytes()), content, IN_FORM)
    }

    fn check_json(&self, body: &[u8]) -> Result<(), ExtractKeyError> {
        let mut compared = Ok(());
        let count = Cell::new(0);
        let is_named = |name: &str| {
            count.set(count.get() + 1);
            count.get() <= MOST && self.values_named_like(name.as_bytes()).next().is_some()
        };
        let read = visit_members(body, is_named, |name, member| {
            let given = match &member {
                JsonMemberValue::Null => return,
                JsonMemberValue::Text(text) => text.as_bytes(),
                JsonMemberValue::Other => NO_TEXT,
            };
            if compared.is_ok() {
                compared = self.check_field(name.as_bytes(), given, IN_JSON);
            }
        });
        compared?;
        if count.get() > MOST {
            return self.reject(MANY);
        }
        if read.is_ok() { Ok(()) } else { self.check_malformed(body) }
    }

    /// Checks the JSON body from which the values are taken: an object in it may have members of the same names.
    fn check_nested_members(&self, body: &[u8]) -> Result<(), ExtractKeyError> {
        if self.is_empty() {
            return Ok(());
        }
        let steps: Vec<_> = self.wanted.iter().map(|wanted| wanted.steps()).collect();
        let mut compared = Ok(());
        let read = visit_wrapped(body, &steps, &mut |at, member| {
            let wanted = self.wanted[at];
            let is_equal = match &member {
                JsonMemberValue::Null => true,
                JsonMemberValue::Text(text) => wanted.has_filtered_value(text),
                JsonMemberValue::Other => false,
            };
            if compared.is_ok() && !is_equal {
                compared = Err(wanted.error(IN_MEMBER));
            }
        });
        compared?;
        if read.is_ok() { Ok(()) } else { self.reject(BROKEN) }
    }

    /// Checks an XML body: no element and no attribute may have the name of a value, whatever their content.
    fn check_xml(&self, body: &[u8]) -> Result<(), ExtractKeyError> {
        let is_spelt =
            body.contains(&0) || contains_ignoring_case(body, b"<!doctype") || !declares_ascii_charset(body);
        let named = |wanted: &&&ComparedVariableValue<'_>| {
            let name = wanted.folded.innermost_member();
            is_spelt || name.is_empty() || !name.is_ascii() || search::contains_xml_name(body, &name)
        };
        self.wanted.iter().find(named).map_or(Ok(()), |wanted| Err(wanted.error(IN_XML)))
    }

    /// Checks a body that readers could split in different ways. It is refused if it contains the name of a value, or
    /// could contain it in another spelling.
    fn check_malformed(&self, body: &[u8]) -> Result<(), ExtractKeyError> {
        let is_spelt = body.contains(&0)
            || [&b"\\"[..], b"=?", b"name*"].into_iter().any(|sign| contains_ignoring_case(body, sign));
        let named = |wanted: &&&ComparedVariableValue<'_>| {
            let kernel = wanted.folded.longest_word();
            is_spelt || !kernel.is_ascii() || search::contains_word(body, kernel)
        };
        self.wanted.iter().find(named).map_or(Ok(()), |wanted| Err(wanted.error(BROKEN)))
    }

    fn reject(&self, reason: &'static str) -> Result<(), ExtractKeyError> {
        self.wanted.first().map_or(Ok(()), |wanted| Err(wanted.error(reason)))
    }
}

/// Whether `body` contains `text`, in upper or lower case. `text` is not empty.
fn contains_ignoring_case(body: &[u8], text: &[u8]) -> bool {
    body.windows(text.len()).any(|part| part.eq_ignore_ascii_case(text))
}

/// Character sets in which each ASCII character is its ASCII byte, and no other character has such a byte.
const LIKE_ASCII: [&str; 5] = ["utf-8", "utf8", "us-ascii", "iso-8859-1", "windows-1252"];

/// Whether the declaration of an XML document names no other character set than those of [`LIKE_ASCII`].
fn declares_ascii_charset(body: &[u8]) -> bool {
    let end = body.windows(2).position(|part| part == b"?>").unwrap_or(0);
    let declared = String::from_utf8_lossy(&body[..end]).to_ascii_lowercase();
    declared.split("encoding").skip(1).all(|behind| {
        let quoted = behind.trim_start().strip_prefix('=').unwrap_or_default();
        quoted.split(['"', '\'']).nth(1).is_some_and(|charset| LIKE_ASCII.contains(&charset))
    })
}

/// The formats in which a service may read the body.
struct PossibleBodyFormats {
    form: bool,
    multipart: bool,
    json: bool,
    xml: bool,
    /// True if the request has no content type.
    unsaid: bool,
}

impl CompleteBody<'_> {
    fn compare(
        &self,
        form: &KeyValuesToCompare<'_, '_>,
        json: &KeyValuesToCompare<'_, '_>,
        xml: &KeyValuesToCompare<'_, '_>,
    ) -> Result<(), ExtractKeyError> {
        if form.is_empty() && json.is_empty() && xml.is_empty() {
            return Ok(());
        }
        let kind = match self.said.kind {
            HeaderLookup::One(kind) => String::from_utf8_lossy(kind),
            HeaderLookup::Absent => "".into(),
            // Some readers take the first content type, others the last or none, so no format is certain.
            HeaderLookup::Several | HeaderLookup::Respelled => {
                return [form, json, xml].into_iter().try_for_each(|compared| compared.reject(KIND));
            }
        };
        let content_type = kind.to_ascii_lowercase();
        let readings = self.possible_formats(&content_type);
        self.check_readable(&content_type).or_else(|reason| {
            if readings.form || readings.multipart {
                form.reject(reason)?;
            }
            if readings.json {
                json.reject(reason)?;
            }
            if readings.xml { xml.reject(reason) } else { Ok(()) }
        })?;
        // Some readers leave the byte order mark out, and so find another first name, or a body where others find none.
        if self.bytes.starts_with(BYTE_ORDER_MARK) {
            if readings.form && !readings.unsaid {
                form.reject(MARKED)?;
            }
            if readings.json {
                json.reject(MARKED)?;
            }
        }
        if readings.form && !form.is_empty() {
            if readings.unsaid {
                form.check_bare_fields(self.bytes)?
            } else {
                form.check_form(self.bytes)?;
                if search::contains_word(self.bytes, "charset")
                    && query::has_name_like(self.bytes, CHARSET_FIELD, MOST)
                {
                    form.reject(CHARSET)?;
                }
            }
        }
        if readings.multipart && !form.is_empty() {
            form.check_multipart(&kind, self.bytes)?;
        }
        if readings.json && !json.is_empty() {
            json.check_json(self.bytes)?;
        }
        if readings.xml && !xml.is_empty() { xml.check_xml(self.bytes) } else { Ok(()) }
    }

    /// The formats in which a service may read the body. `content_type`: in lower case; empty if there is none.
    fn possible_formats(&self, content_type: &str) -> PossibleBodyFormats {
        let undeclared = content_type.trim().is_empty();
        let begins = |text: &[u8]| {
            let bytes = self.bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(self.bytes);
            bytes.trim_ascii_start().starts_with(text)
        };
        // `xml` within a longer word does not count: types with `openxmlformats` are ZIP archives.
        let says_xml = || {
            content_type
                .match_indices("xml")
                .any(|(at, _)| !content_type[..at].ends_with(|before: char| before.is_alphanumeric()))
        };
        PossibleBodyFormats {
            form: content_type.contains("x-www-form-urlencoded") || undeclared,
            multipart: content_type.contains("multipart/") || undeclared && begins(b"--"),
            // Some services read every body as JSON, whatever its content type is.
            json: content_type.contains("json") || begins(b"{"),
            xml: says_xml() || undeclared && begins(b"<"),
            unsaid: undeclared,
        }
    }

    /// Checks that the service reads the same bytes. The error is the reason for which it may read others.
    fn check_readable(&self, content_type: &str) -> Result<(), &'static str> {
        match self.said.coding {
            HeaderLookup::Absent => {}
            HeaderLookup::One(coding) if coding.trim_ascii().eq_ignore_ascii_case(b"identity") => {}
            HeaderLookup::One(_) | HeaderLookup::Several | HeaderLookup::Respelled => return Err(ENCODED),
        }
        let mut charsets = content_type.split("charset").skip(1);
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
