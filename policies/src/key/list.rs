//! Makes the keys of a request for a template with a key for each item of a list.

use std::mem;

use super::{
    body::BodyValues,
    error::{ExtractKeyError, ExtractValueError, RESPELLED},
    expand::{apply_filter, check_ascii, check_printable, into_utf8},
    filter::TemplateValueFilter,
    query::{CommaPolicy, UrlencodedParameters, split_items},
    resource::ResourceKey,
    template::{KeyTemplate, TemplateValueSource, TemplateVariable},
    values::RequestValues,
};

const UNQUOTED: &str = "has an element with a quote or a semicolon in it, which servers read differently";
const QUOTED_COMMA: &str =
    "has an element with a comma or a backslash in quotes, which some servers split there";
const OPEN_QUOTE: &str = "has an element without its closing quote, or with more behind it";

/// The keys of one template for one request.
pub(crate) struct ExpandedKeys {
    pub(crate) keys: Vec<ResourceKey>,
    /// The number of items, if the list has more than any set of keys may have. Then `keys` is incomplete.
    pub(crate) beyond: Option<usize>,
}

impl KeyTemplate {
    /// Makes the keys of a request: a single key, or a key for each item of the template's list, ascending and each
    /// once.
    ///
    /// # Errors
    /// Returns an error if a value is missing or cannot be part of a key, or if the list is empty.
    pub(crate) fn expand_all(&self, values: &dyn RequestValues) -> Result<ExpandedKeys, ExtractKeyError> {
        let mut lists = self.lists();
        let KeyListItems { items, count, is_cut } = match (lists.next(), lists.next()) {
            (None, _) => return Ok(ExpandedKeys { keys: vec![self.expand(values)?], beyond: None }),
            (Some(list), None) => KeyListItems::from(list.list_values(values)?),
            (Some(_), Some(_)) => self.joined_items(values)?,
        };
        if let Some(list) = self.lists().next().filter(|_| items.is_empty()) {
            return Err(ExtractKeyError::EmptyList { variable: list.source.to_string() });
        }
        let mut keys =
            items.iter().map(|item| self.expand_with(values, item)).collect::<Result<Vec<_>, _>>()?;
        keys.sort_unstable();
        keys.dedup();
        Ok(ExpandedKeys { keys, beyond: is_cut.then_some(count) })
    }

    /// The items of a list from which several variables take a value each.
    ///
    /// # Errors
    /// Returns an error if an item lacks a value, or has one that cannot be part of a key.
    fn joined_items(&self, values: &dyn RequestValues) -> Result<KeyListItems, ExtractKeyError> {
        // Each variable is checked by itself first, so that the error names the variable at fault.
        for list in self.lists() {
            list.list_values(values)?;
        }
        let pointers = self.joined_pointers();
        let Some(rows) = values.body().and_then(BodyValues::json).and_then(|body| body.rows_at(&pointers))
        else {
            return Ok(KeyListItems::default());
        };
        let of_item = |row: &Vec<String>| {
            let value = |list: &TemplateVariable| {
                let at = pointers.iter().position(|pointer| list.pointer() == Some(*pointer));
                let text = at.and_then(|at| row.get(at)).ok_or(ExtractValueError::Missing);
                text.and_then(|text| list.item_value(text.clone())).map_err(|bad| list.error(bad))
            };
            self.lists().map(value).collect::<Result<Vec<_>, _>>()
        };
        let items = rows.values.iter().map(of_item).collect::<Result<Vec<_>, _>>()?;
        Ok(KeyListItems { items, count: rows.count, is_cut: rows.values.len() > ResourceKey::MOST_IN_SET })
    }

    /// The values of one variable in the keys, for the comparison with other sources. Another source may have some of
    /// these values, and no others, because the service could use the list from there. If the keys join several values
    /// of an item, no value is returned, because the service could combine values from another source in new ways.
    pub(super) fn comparable_values(
        &self,
        variable: &TemplateVariable,
        values: &dyn RequestValues,
    ) -> Result<Vec<String>, ExtractKeyError> {
        if !variable.source.is_list() {
            return Ok(vec![variable.value(values)?]);
        }
        let items = variable.list_values(values)?.values;
        if self.lists().nth(1).is_some() && self.joined_items(values)?.items.len() > 1 {
            return Ok(Vec::new());
        }
        Ok(items)
    }
}

/// The values of a list, for one variable.
#[derive(Debug)]
struct ListValues {
    /// The filtered values, ascending and each once.
    values: Vec<String>,
    /// The number of items, including repeated ones.
    count: usize,
    /// True if the list has more values than any set of keys may have, so that `values` is incomplete.
    is_cut: bool,
}

/// The items of a list, for all variables that take a value from it.
#[derive(Debug, Default)]
struct KeyListItems {
    /// For each item, the filtered values of the variables, from left to right.
    items: Vec<Vec<String>>,
    /// The number of items, as in [`ListValues`].
    count: usize,
    is_cut: bool,
}

impl From<ListValues> for KeyListItems {
    fn from(list: ListValues) -> Self {
        let items = list.values.into_iter().map(|value| vec![value]).collect();
        Self { items, count: list.count, is_cut: list.is_cut }
    }
}

impl TemplateVariable {
    /// The values of a list; none if the request has no list.
    ///
    /// # Errors
    /// Returns an error if an item has no value, or one that cannot be part of a key.
    fn list_values(&self, values: &dyn RequestValues) -> Result<ListValues, ExtractKeyError> {
        let commas = self.filters.iter().find_map(TemplateValueFilter::commas).unwrap_or_default();
        let list = self.source.list_values(values, commas);
        list.and_then(|list| list.filtered(self)).map_err(|bad| self.error(bad))
    }

    /// The items of a list before the filters; none if the request has no list. The items of a JSON body are sorted,
    /// each once.
    ///
    /// # Errors
    /// Returns an error if an item has no value that can be read.
    pub(super) fn raw_items(&self, values: &dyn RequestValues) -> Result<Vec<String>, ExtractValueError> {
        let commas = self.filters.iter().find_map(TemplateValueFilter::commas).unwrap_or_default();
        let list = self.source.list_values(values, commas)?;
        list.values.into_iter().map(check_printable).collect()
    }

    /// Applies the filters to the value of one item.
    fn item_value(&self, text: String) -> Result<String, ExtractValueError> {
        let value = self.filters.iter().try_fold(check_printable(text)?, apply_filter)?;
        if value.is_empty() { Err(ExtractValueError::Missing) } else { Ok(value) }
    }
}

impl TemplateValueSource {
    fn list_values(
        &self,
        values: &dyn RequestValues,
        commas: CommaPolicy,
    ) -> Result<ListValues, ExtractValueError> {
        let texts = match self {
            Self::QueryList(name) => {
                let query = UrlencodedParameters::Query(values.query().unwrap_or_default());
                split_items(query.values(name)?, commas)?
            }
            Self::FormList(name) => match values.body().and_then(BodyValues::form) {
                Some(form) => split_items(form.values(name)?, commas)?,
                None => Vec::new(),
            },
            Self::HeaderList(name) => {
                let lines = values.header_lines(name).map_err(|_| ExtractValueError::Invalid(RESPELLED))?;
                let mut elements = Vec::new();
                for line in lines {
                    parse_elements(&check_ascii(into_utf8(line)?)?, &mut elements)?;
                }
                elements
            }
            Self::Body(pointer) => {
                let Some(list) =
                    values.body().and_then(BodyValues::json).and_then(|body| body.list_at(pointer))
                else {
                    return Ok(ListValues { values: Vec::new(), count: 0, is_cut: false });
                };
                if let Some(reason) = list.unfit_item_reason() {
                    return Err(ExtractValueError::Invalid(reason));
                }
                return Ok(ListValues {
                    values: list.values.iter().cloned().collect(),
                    count: list.count,
                    is_cut: list.values.len() > ResourceKey::MOST_IN_SET,
                });
            }
            Self::Path(_)
            | Self::Query(_)
            | Self::Form(_)
            | Self::Header(_)
            | Self::Host
            | Self::ClientName
            | Self::Jwt(_) => {
                return Err(ExtractValueError::Missing);
            }
        };
        Ok(ListValues { count: texts.len(), values: texts, is_cut: false })
    }
}

impl ListValues {
    fn filtered(mut self, variable: &TemplateVariable) -> Result<Self, ExtractValueError> {
        let texts = mem::take(&mut self.values).into_iter();
        let mut values = texts.map(|text| variable.item_value(text)).collect::<Result<Vec<_>, _>>()?;
        values.sort_unstable();
        values.dedup();
        Ok(Self { values, ..self })
    }
}

/// Splits one line of a header list into its elements (RFC 9110, section 5.6.1). Empty elements are ignored. An element
/// that a reader which only splits at commas would read in another way is refused.
fn parse_elements(line: &str, elements: &mut Vec<String>) -> Result<(), ExtractValueError> {
    let blank = [' ', '\t'];
    let mut rest = line.trim_matches(blank);
    while !rest.is_empty() {
        let (element, behind) = match rest.strip_prefix('"') {
            Some(open) => {
                let (text, behind) = open.split_once('"').ok_or(ExtractValueError::Invalid(OPEN_QUOTE))?;
                if text.contains([',', '\\']) {
                    return Err(ExtractValueError::Invalid(QUOTED_COMMA));
                }
                let behind = behind.trim_start_matches(blank);
                if !behind.is_empty() && !behind.starts_with(',') {
                    return Err(ExtractValueError::Invalid(OPEN_QUOTE));
                }
                if text.is_empty() {
                    return Err(ExtractValueError::Missing);
                }
                (text, behind)
            }
            None => {
                let (text, behind) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
                let text = text.trim_end_matches(blank);
                if text.contains(['"', ';']) {
                    return Err(ExtractValueError::Invalid(UNQUOTED));
                }
                (text, behind)
            }
        };
        if !element.is_empty() {
            elements.push(element.to_owned());
        }
        rest = behind.strip_prefix(',').unwrap_or(behind).trim_start_matches(blank);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(line: &str) -> Result<Vec<String>, &'static str> {
        let mut elements = Vec::new();
        match parse_elements(line, &mut elements) {
            Ok(()) => Ok(elements),
            Err(ExtractValueError::Invalid(reason)) => Err(reason),
            Err(ExtractValueError::Missing) => Err("missing"),
            Err(ExtractValueError::NoClientName | ExtractValueError::NoToken) => Err("no identity"),
        }
    }

    /// A header list is split at commas, and quotes around an element are removed.
    #[test]
    fn list_is_split_and_unquoted() {
        for (line, wanted) in [
            ("", &[][..]),
            (" , ,", &[]),
            ("S1", &["S1"]),
            ("S1,S2 ,\tS3", &["S1", "S2", "S3"]),
            ("S1,,S2,", &["S1", "S2"]),
            ("\"S1\", S 2 , \"a;b\"", &["S1", "S 2", "a;b"]),
            ("\" x\"", &[" x"]),
            ("caf\u{e9}/1:2", &["caf\u{e9}/1:2"]),
        ] {
            let wanted: Vec<_> = wanted.iter().map(ToString::to_string).collect();
            assert_eq!(elements(line), Ok(wanted), "{line}");
        }
    }

    /// An element that readers would split in different ways is refused.
    #[test]
    fn ambiguous_element_is_refused() {
        for (line, reason) in [
            ("S1;q=1", UNQUOTED),
            ("S\"1\"", UNQUOTED),
            ("\"S1,S2\"", QUOTED_COMMA),
            ("\"S\\1\"", QUOTED_COMMA),
            ("\"S1", OPEN_QUOTE),
            ("\"S1\"x", OPEN_QUOTE),
            ("\"S1\";q=1", OPEN_QUOTE),
            ("S1, \"\"", "missing"),
        ] {
            assert_eq!(elements(line), Err(reason), "{line}");
        }
    }
}
