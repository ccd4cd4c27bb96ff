//! Parts of a form (`multipart/form-data`), with one of them in another spelling.

use fencegate_policies::key::SourceValue;

use super::{
    parameters::{RespelledParameters, repeat_labels},
    texts::{other_value, spellings, swap_case},
};

/// A form as browsers write it: each part begins with `--`, the boundary and a line break.
pub(super) struct MultipartForm<'t> {
    text: &'t str,
    boundary: &'t str,
}

/// A part, without the boundaries around it.
#[derive(Clone, Copy)]
struct MultipartField<'t> {
    /// The position of the boundary before it.
    start: usize,
    /// The position of the boundary behind it.
    end: usize,
    head: &'t str,
    value: &'t str,
}

impl<'t> MultipartForm<'t> {
    /// Reads a form. `None` if the parameters of the media type do not begin with a boundary.
    pub(super) fn parse(parameters: &'t str, text: &'t str) -> Option<Self> {
        let boundary = parameters.trim().strip_prefix("boundary=")?.trim_matches('"');
        (!boundary.is_empty()).then_some(Self { text, boundary })
    }

    /// The first part with this name.
    fn part(&self, name: &str) -> Option<MultipartField<'t>> {
        let opening = format!("--{}\r\n", self.boundary);
        let closing = format!("\r\n--{}", self.boundary);
        let named = format!("name=\"{name}\"");
        self.text.match_indices(&opening).find_map(|(start, _)| {
            let block = start + opening.len();
            let length = self.text[block..].find(&closing)?;
            let (head, value) = self.text[block..block + length].split_once("\r\n\r\n")?;
            let has_name = head.split("; ").any(|word| word.lines().next() == Some(&named));
            has_name.then_some(MultipartField { start, end: block + length + "\r\n".len(), head, value })
        })
    }

    /// The text with the parts of `with` in the place of `part`.
    fn with_part_replaced(&self, part: MultipartField<'_>, with: &[(&str, &str)]) -> String {
        let boundary = self.boundary;
        let written = with.iter().map(|(head, value)| format!("--{boundary}\r\n{head}\r\n\r\n{value}\r\n"));
        format!("{}{}{}", &self.text[..part.start], written.collect::<String>(), &self.text[part.end..])
    }

    /// The spellings of a part of which a key is made.
    pub(super) fn respelled_parts(
        &self,
        name: &str,
        value: &SourceValue,
        is_list: bool,
    ) -> Vec<RespelledParameters> {
        let Some(part) = self.part(name) else { return Vec::new() };
        let raw = value.raw.as_deref().unwrap_or(part.value);
        let [twice, other_twice] = repeat_labels("part", is_list);
        let other = other_value(raw);
        let renamed =
            |to: &str| part.head.replacen(&format!("name=\"{name}\""), &format!("name=\"{to}\""), 1);
        let itself = (part.head, part.value);
        let mut found = vec![
            (format!("{twice} `{name}`"), self.with_part_replaced(part, &[itself, itself])),
            (
                format!("{other_twice} `{name}`"),
                self.with_part_replaced(part, &[itself, (part.head, &other)]),
            ),
        ];
        let names =
            [("other case of the name", swap_case(name)), ("brackets behind the name", format!("{name}[]"))];
        found.extend(names.map(|(spelling, to)| {
            (format!("{spelling} `{name}`"), self.with_part_replaced(part, &[(&renamed(&to), part.value)]))
        }));
        found.extend(spellings(raw).into_iter().map(|spelling| {
            (
                format!("{} of `{raw}`", spelling.name),
                self.with_part_replaced(part, &[(part.head, &spelling.text)]),
            )
        }));
        found
    }
}
