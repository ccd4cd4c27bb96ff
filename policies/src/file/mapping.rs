//! Reads the fields of one mapping. A field that is never read is reported as unknown.

use std::any::type_name_of_val;

use super::{
    diagnostics::Diagnostics,
    field_recorder::{self, FieldValueKind},
    hints, shape_hints,
    yaml::{YamlMappingKey, YamlNode, YamlNodeValue, YamlScalar},
};
use crate::diagnostics::{Diagnostic, DiagnosticCode, SourceSpan};

/// One mapping of the file, while it is read.
pub(super) struct MappingReader<'n> {
    /// The name in messages: `the policy`, or the name of the mapping in backquotes.
    what: String,
    /// The place at which a missing field is reported.
    place: SourceSpan,
    entries: &'n [(YamlMappingKey, YamlNode)],
    asked: Vec<&'static str>,
    faults: &'n Diagnostics,
}

impl<'n> MappingReader<'n> {
    /// Reads one mapping. An absent mapping is read as an empty one. `None` if the value is no mapping.
    ///
    /// `read` must read every field that the mapping can have, also after a mistake. Every other field is reported as
    /// unknown, with a list of the fields that `read` has read.
    pub(super) fn read<T>(
        node: Option<&'n YamlNode>,
        what: impl Into<String>,
        place: SourceSpan,
        faults: &'n Diagnostics,
        read: impl FnOnce(&mut Self) -> T,
    ) -> Option<T> {
        let what = what.into();
        let entries: &[(YamlMappingKey, YamlNode)] = match node.map(|node| (&node.value, node.place)) {
            None | Some((YamlNodeValue::Nothing, _)) => &[],
            Some((YamlNodeValue::Mapping(entries), _)) => entries,
            Some((YamlNodeValue::Unset, _)) => return None,
            Some((other, place)) => {
                let fault =
                    Diagnostic::new(DiagnosticCode::WrongShape, format!("{what} is a mapping of fields"));
                let fields = Self::fields(place, faults, read);
                faults.push(fault.at(place).with_remedy(shape_hints::mapping_remedy(&what, other, &fields)));
                return None;
            }
        };
        let _within = field_recorder::within();
        let mut block = Self { what, place, entries, asked: Vec::new(), faults };
        let value = read(&mut block);
        block.report_unknown();
        Some(value)
    }

    /// The names of the fields that `read` reads.
    fn fields<T>(
        place: SourceSpan,
        faults: &'n Diagnostics,
        read: impl FnOnce(&mut Self) -> T,
    ) -> Vec<&'static str> {
        let known = faults.len();
        let mut block = Self { what: String::new(), place, entries: &[], asked: Vec::new(), faults };
        read(&mut block);
        // The mapping is empty, so `read` has reported missing fields. These reports are removed, because they are no
        // mistakes of the file.
        faults.truncate(known);
        block.asked
    }

    /// Reads a mapping within this one. An absent mapping is read as an empty one.
    pub(super) fn read_inner<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Self) -> T,
    ) -> Option<T> {
        let node = self.find(name);
        field_recorder::inner(name);
        let place = self.key_place(name);
        Self::read(node, format!("`{name}`"), place, self.faults, read)
    }

    /// The entries of a mapping whose names the user chooses.
    pub(super) fn entries(&mut self, name: &'static str) -> &'n [(YamlMappingKey, YamlNode)] {
        field_recorder::how(name, || FieldValueKind::Entries);
        match self.find(name).map(|node| &node.value) {
            None | Some(YamlNodeValue::Unset) => &[],
            Some(YamlNodeValue::Mapping(entries)) => entries,
            Some(other) => {
                let fault =
                    Diagnostic::new(DiagnosticCode::WrongShape, format!("`{name}` is a mapping of names"));
                self.report(name, fault.with_remedy(shape_hints::named_entries_remedy(other)));
                &[]
            }
        }
    }

    /// Reads a mapping from names that the user chooses to single values. `None` if one of them is invalid.
    pub(super) fn text_entries<T>(
        &mut self,
        name: &'static str,
        read: impl Fn(&str, &str) -> Result<T, Diagnostic>,
    ) -> Option<Vec<T>> {
        field_recorder::how(name, || FieldValueKind::Texts);
        let one = |(key, node): &(YamlMappingKey, YamlNode)| {
            let read = match &node.value {
                YamlNodeValue::Scalar(scalar) => read(&key.text, &scalar.text),
                YamlNodeValue::Unset => return None,
                _ => Err(suggest_mapping(name)),
            };
            read.map_err(|fault| self.faults.push(fault.at(key.place))).ok()
        };
        self.parse_entries(name, one, suggest_mapping)
    }

    /// Reads a mapping from names that the user chooses. `read` reads one entry, and returns `None` if it is invalid;
    /// then the result is `None`. `suggest`: the diagnostic for a value that is no mapping.
    fn parse_entries<T>(
        &mut self,
        name: &'static str,
        read: impl Fn(&'n (YamlMappingKey, YamlNode)) -> Option<T>,
        suggest: fn(&'static str) -> Diagnostic,
    ) -> Option<Vec<T>> {
        match self.find(name).map(|node| &node.value) {
            None => Some(Vec::new()),
            Some(YamlNodeValue::Mapping(entries)) => {
                let read: Vec<Option<T>> = entries.iter().map(read).collect();
                read.into_iter().collect()
            }
            Some(YamlNodeValue::Unset) => None,
            Some(_) => {
                self.report(name, suggest(name));
                None
            }
        }
    }

    /// Reads a mapping from names that the user chooses to single values or lists. `None` if one of them is invalid.
    pub(super) fn value_lists<T>(
        &mut self,
        name: &'static str,
        read: impl Fn(&str, &[&YamlScalar]) -> Result<T, Diagnostic>,
    ) -> Option<Vec<T>> {
        field_recorder::how(name, || FieldValueKind::TextLists);
        let one = |(key, node): &'n (YamlMappingKey, YamlNode)| {
            let items = match &node.value {
                YamlNodeValue::List(items) => items.as_slice(),
                _ => std::slice::from_ref(node),
            };
            let scalar = |item: &'n YamlNode| match &item.value {
                YamlNodeValue::Scalar(scalar) => Some(Ok(scalar)),
                YamlNodeValue::Unset => None,
                _ => Some(Err(expected_mapping_of_lists_error(name))),
            };
            let scalars: Result<Vec<&YamlScalar>, Diagnostic> =
                items.iter().map(scalar).collect::<Option<Vec<_>>>()?.into_iter().collect();
            let read = scalars.and_then(|scalars| read(&key.text, &scalars));
            read.map_err(|fault| self.faults.push(fault.at(key.place))).ok()
        };
        self.parse_entries(name, one, expected_mapping_of_lists_error)
    }

    /// The items of a list; `None` if the field is absent or no list.
    pub(super) fn list(&mut self, name: &'static str) -> Option<&'n [YamlNode]> {
        field_recorder::how(name, || FieldValueKind::List);
        self.items(name)
    }

    fn items(&mut self, name: &'static str) -> Option<&'n [YamlNode]> {
        match &self.find(name)?.value {
            YamlNodeValue::List(items) => Some(items),
            YamlNodeValue::Unset => None,
            other => {
                let fault = Diagnostic::new(DiagnosticCode::WrongShape, format!("`{name}` is a list"));
                self.report(name, fault.with_remedy(shape_hints::list_remedy(other)));
                None
            }
        }
    }

    /// Reads a list of single values. `None` if the list is absent or one of its values is invalid.
    pub(super) fn values<T>(
        &mut self,
        name: &'static str,
        parse: impl Fn(&str) -> Result<T, Diagnostic>,
    ) -> Option<Vec<T>> {
        field_recorder::how(name, || FieldValueKind::Values(type_name_of_val(&parse)));
        let items = self.items(name)?;
        let one = |node: &YamlNode| {
            let parsed = match &node.value {
                YamlNodeValue::Scalar(scalar) => parse(&scalar.text),
                YamlNodeValue::Unset => return None,
                _ => Err(Diagnostic::new(
                    DiagnosticCode::WrongShape,
                    format!("`{name}` is a list of single values"),
                )
                .with_remedy("write single values, with `, ` between them")),
            };
            let written = match &node.value {
                YamlNodeValue::Scalar(scalar) => &*scalar.text,
                _ => "",
            };
            let bad =
                |fault| self.faults.push(shape_hints::with_braces_remedy(written, fault).at(node.place));
            parsed.map_err(bad).ok()
        };
        // All items are read before an invalid one is returned as `None`, so that each mistake is reported.
        let values: Vec<Option<T>> = items.iter().map(one).collect();
        values.into_iter().collect()
    }

    pub(super) fn scalar(&mut self, name: &'static str) -> Option<&'n YamlScalar> {
        field_recorder::how(name, || FieldValueKind::Value("text"));
        self.single(name)
    }

    fn single(&mut self, name: &'static str) -> Option<&'n YamlScalar> {
        match &self.find(name)?.value {
            YamlNodeValue::Scalar(scalar) => Some(scalar),
            YamlNodeValue::Unset => None,
            other => {
                let fault =
                    Diagnostic::new(DiagnosticCode::WrongShape, format!("`{name}` is a single value"));
                self.report(name, fault.with_remedy(shape_hints::scalar_remedy(other)));
                None
            }
        }
    }

    /// Reads a single value. `None` if it is absent or invalid.
    pub(super) fn value<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, Diagnostic>,
    ) -> Option<T> {
        field_recorder::how(name, || FieldValueKind::Value(type_name_of_val(&parse)));
        self.parse_value(name, parse)
    }

    fn parse_value<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, Diagnostic>,
    ) -> Option<T> {
        let scalar = self.single(name)?;
        match parse(&scalar.text) {
            Ok(value) => Some(value),
            Err(fault) => {
                self.report(name, shape_hints::with_braces_remedy(&scalar.text, fault));
                None
            }
        }
    }

    /// Reads a value that is one of `words`.
    pub(super) fn keyword<T: Copy>(&mut self, name: &'static str, words: &[(&str, T)]) -> Option<T> {
        field_recorder::how(name, || {
            FieldValueKind::Word(words.iter().map(|(word, _)| (*word).to_owned()).collect())
        });
        self.parse_value(name, |text| {
            words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
                let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                let message = format!("`{text}` is not a value of `{name}`");
                Diagnostic::new(DiagnosticCode::UnknownValue, message).suggest(text, &known, str::to_owned)
            })
        })
    }

    /// Reports a required field that is absent. `example`: a line that the user could write.
    pub(super) fn require(&mut self, name: &'static str, example: &str) {
        field_recorder::required(name);
        if self.find(name).is_none() {
            let message = format!("{} has no `{name}`", self.what);
            let fault = Diagnostic::new(DiagnosticCode::MissingField, message);
            self.faults.push(fault.at(self.place).with_remedy(format!("add `{example}`")));
        }
    }

    pub(super) fn is_mapping(&mut self, name: &'static str) -> bool {
        matches!(self.find(name), Some(YamlNode { value: YamlNodeValue::Mapping(_), .. }))
    }

    pub(super) fn is_present(&mut self, name: &'static str) -> bool {
        self.find(name).is_some()
    }

    /// The place of the field's value, or of the mapping if the field is absent.
    pub(super) fn place_of(&mut self, name: &'static str) -> SourceSpan {
        self.find(name).map_or(self.place, |node| node.place)
    }

    /// Reports a mistake in the value of a field.
    pub(super) fn report(&mut self, name: &'static str, fault: Diagnostic) {
        let place = self.place_of(name);
        self.faults.push(fault.at(place));
    }

    /// Reports a mistake at a place outside of this mapping.
    pub(super) fn report_at(&self, place: SourceSpan, fault: Diagnostic) {
        self.faults.push(fault.at(place));
    }

    /// The name of this mapping in messages.
    pub(super) fn mapping_name(&self) -> &str {
        &self.what
    }

    pub(super) fn faults(&self) -> &'n Diagnostics {
        self.faults
    }

    fn find(&mut self, name: &'static str) -> Option<&'n YamlNode> {
        field_recorder::field(name);
        if !self.asked.contains(&name) {
            self.asked.push(name);
        }
        let (_, node) = self.entries.iter().find(|(key, _)| key.text == name)?;
        (!matches!(node.value, YamlNodeValue::Nothing)).then_some(node)
    }

    fn key_place(&self, name: &str) -> SourceSpan {
        self.entries.iter().find(|(key, _)| key.text == name).map_or(self.place, |(key, _)| key.place)
    }

    fn report_unknown(&self) {
        for (key, _) in self.entries {
            if !self.asked.contains(&key.text.as_str()) {
                let message = format!("{} has no field `{}`", self.what, key.text);
                let fault = Diagnostic::new(DiagnosticCode::UnknownField, message).at(key.place);
                self.faults.push(match hints::misplaced_remedy(&key.text, &self.what, &self.asked) {
                    Some(remedy) => fault.with_remedy(remedy),
                    None => fault.suggest(&key.text, &self.asked, str::to_owned),
                });
            }
        }
    }
}

fn expected_mapping_of_lists_error(name: &str) -> Diagnostic {
    let message = format!("`{name}` is a mapping of names to values, or to lists of values");
    Diagnostic::new(DiagnosticCode::WrongShape, message)
        .with_remedy(format!("write `{name}: {{/name: value}}`, or `{{/name: [value, value]}}`"))
}

fn suggest_mapping(name: &str) -> Diagnostic {
    let message = format!("`{name}` is a mapping of names to values");
    Diagnostic::new(DiagnosticCode::WrongShape, message)
        .with_remedy(format!("write `{name}: {{name: value}}`"))
}
