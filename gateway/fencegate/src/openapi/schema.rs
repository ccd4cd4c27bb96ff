//! Reads from a schema the form of a parameter's values, and the members that every body has.

use fencegate_policies::key::{KeyTemplate, TemplateValueFilter};
use serde_json::{Map, Value};

use super::document::OpenApiDocument;

/// The form of a value from which a key can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeyValueFormat {
    Integer,
    Uuid,
    /// A text that matches this pattern as a whole. The pattern matches only ASCII.
    Pattern(String),
    /// Any text.
    Text,
}

impl KeyValueFormat {
    /// The form that a schema describes; `None` if the values are neither texts nor integers, or if the schema has no
    /// type.
    pub(super) fn from_schema(document: &OpenApiDocument, schema: &Value) -> Option<Self> {
        let parts = SchemaParts::collect(document, schema);
        let text = |name: &str| parts.first_field(name).and_then(Value::as_str);
        match parts.value_type()? {
            "integer" => Some(Self::Integer),
            "string" if text("format") == Some("uuid") => Some(Self::Uuid),
            "string" => {
                Some(text("pattern").and_then(strip_pattern_anchors).map_or(Self::Text, Self::Pattern))
            }
            _ => None,
        }
    }

    /// The filter for a variable, such as ` | int`; empty if the document does not restrict the characters of the
    /// values.
    pub(super) fn template_filter_suffix(&self) -> String {
        match self {
            Self::Integer => " | int".to_owned(),
            Self::Uuid => " | uuid".to_owned(),
            Self::Pattern(pattern) => format!(" | match('{pattern}')"),
            Self::Text => String::new(),
        }
    }
}

/// The pattern without its anchors, if it describes the whole value and means the same in a policy. A pattern of JSON
/// Schema is in the syntax of JavaScript, and matches anywhere in the value unless it is anchored.
fn strip_pattern_anchors(pattern: &str) -> Option<String> {
    let inner = pattern.strip_prefix('^')?.strip_suffix('$')?;
    // With a `|` at the top level, an anchor belongs to one alternative only. A `$` after a backslash is not an anchor.
    if inner.ends_with('\\') || inner.contains(['|', '\'']) || inner.is_empty() || takes_any_character(inner)
    {
        return None;
    }
    let template = KeyTemplate::parse(&format!("{{path.x | match('{inner}')}}")).ok()?;
    let mut filters = template.variables().flat_map(|variable| &variable.filters);
    filters.all(TemplateValueFilter::has_canonical_output).then(|| inner.to_owned())
}

/// True if the pattern contains a dot or a negated class, so that it does not restrict the characters of a value.
fn takes_any_character(pattern: &str) -> bool {
    let mut is_class = false;
    let mut chars = pattern.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\\' if chars.next().is_some_and(|class| "DSWP".contains(class)) => return true,
            '[' if !is_class => {
                if chars.peek() == Some(&'^') {
                    return true;
                }
                is_class = true;
            }
            ']' => is_class = false,
            '.' if !is_class => return true,
            _ => {}
        }
    }
    false
}

/// A value that every JSON body of an operation has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequiredMember {
    /// The JSON pointer as a key writes it: `/items/*/sku`.
    pub(super) pointer: String,
    /// The last name in the pointer.
    pub(super) name: String,
    pub(super) form: KeyValueFormat,
}

/// The values that every JSON body of an operation has.
#[derive(Debug, Default)]
pub(super) struct RequiredMembers {
    pub(super) members: Vec<RequiredMember>,
    /// True if the body has more members that could not be read.
    pub(super) is_partial: bool,
}

impl RequiredMembers {
    /// The most members of one body that are read. The resource of a request is hardly ever named after so many.
    const MOST: usize = 64;

    /// The deepest nesting of objects and lists that is read. A value below it hardly ever names the resource of a
    /// request.
    const DEEPEST: usize = 4;

    pub(super) fn from_schema(document: &OpenApiDocument, schema: &Value) -> Self {
        let mut found = Self::default();
        found.add_members(document, schema, "", Self::DEEPEST);
        found
    }

    fn add_members(&mut self, document: &OpenApiDocument, schema: &Value, path: &str, depth: usize) {
        let parts = SchemaParts::collect(document, schema);
        self.is_partial |= parts.is_partial;
        let Some(depth) = depth.checked_sub(1) else {
            self.is_partial = true;
            return;
        };
        for name in parts.required() {
            if !is_plain_name(name) {
                self.is_partial = true;
            } else if let Some(member) = parts.property(name) {
                self.add_value(document, member, &format!("{path}/{name}"), name, depth);
            }
        }
    }

    fn add_value(
        &mut self,
        document: &OpenApiDocument,
        schema: &Value,
        pointer: &str,
        name: &str,
        depth: usize,
    ) {
        if self.members.len() >= Self::MOST {
            self.is_partial = true;
            return;
        }
        if let Some(form) = KeyValueFormat::from_schema(document, schema) {
            let pointer = pointer.to_owned();
            let name = name.to_owned();
            self.members.push(RequiredMember { pointer, name, form });
            return;
        }
        let parts = SchemaParts::collect(document, schema);
        match (parts.value_type(), parts.first_field("items"), depth.checked_sub(1)) {
            (Some("object"), ..) => self.add_members(document, schema, pointer, depth),
            (Some("array"), Some(items), Some(depth)) => {
                self.add_value(document, items, &format!("{pointer}/*"), name, depth);
            }
            (Some("array"), Some(_), None) => self.is_partial = true,
            _ => {}
        }
    }
}

/// Whether a name can stand in the pointer of a key without escapes.
fn is_plain_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

/// A schema with all schemas of its `allOf`: a value matches all of them.
struct SchemaParts<'d> {
    parts: Vec<&'d Map<String, Value>>,
    /// True if a part could not be read, or if a value may match one of several alternatives.
    is_partial: bool,
}

impl<'d> SchemaParts<'d> {
    /// The most schemas that are combined. An `allOf` may contain itself.
    const MOST: usize = 32;

    fn collect(document: &'d OpenApiDocument, schema: &'d Value) -> Self {
        let mut found = Self { parts: Vec::new(), is_partial: false };
        let mut open = vec![schema];
        while let Some(schema) = open.pop() {
            let resolved = document.resolve(schema).ok().and_then(Value::as_object);
            let Some(part) = resolved.filter(|_| found.parts.len() < Self::MOST) else {
                found.is_partial = true;
                continue;
            };
            found.is_partial |= ["oneOf", "anyOf", "if"].iter().any(|word| part.contains_key(*word));
            open.extend(part.get("allOf").and_then(Value::as_array).into_iter().flatten());
            found.parts.push(part);
        }
        found
    }

    /// The value of a field, in the first schema that has it.
    fn first_field(&self, name: &str) -> Option<&'d Value> {
        self.parts.iter().find_map(|part| part.get(name))
    }

    /// The type of the values, without null.
    fn value_type(&self) -> Option<&'d str> {
        match self.first_field("type") {
            Some(Value::String(word)) => Some(word),
            Some(Value::Array(words)) => {
                let mut words = words.iter().filter_map(Value::as_str).filter(|word| *word != "null");
                words.next().filter(|_| words.next().is_none())
            }
            _ if self.first_field("properties").is_some() => Some("object"),
            _ if self.first_field("items").is_some() => Some("array"),
            _ => None,
        }
    }

    /// The names of the required members, each once.
    fn required(&self) -> Vec<&'d str> {
        let lists = self.parts.iter().filter_map(|part| part.get("required")?.as_array());
        let mut names: Vec<&str> = lists.flatten().filter_map(Value::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn property(&self, name: &str) -> Option<&'d Value> {
        self.parts.iter().find_map(|part| part.get("properties")?.get(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(schemas: &str) -> OpenApiDocument {
        let text = format!("openapi: 3.1.0\npaths: {{/a: {{}}}}\ncomponents: {{schemas: {schemas}}}\n");
        OpenApiDocument::parse(&text).expect("a document")
    }

    fn form(schema: &str) -> Option<String> {
        let document = document(&format!("{{x: {schema}}}"));
        let schema = serde_json::json!({"$ref": "#/components/schemas/x"});
        KeyValueFormat::from_schema(&document, &schema).map(|form| form.template_filter_suffix())
    }

    /// Integers, UUIDs and patterns of the whole value become filters. A pattern does not, if another language reads it
    /// differently or if it leaves a part of the value open.
    #[test]
    fn filters_follow_type_format_and_pattern() {
        for (schema, filter) in [
            ("{type: integer, format: int64}", " | int"),
            ("{type: [integer, 'null']}", " | int"),
            ("{type: string, format: uuid}", " | uuid"),
            ("{allOf: [{type: string}, {format: uuid}]}", " | uuid"),
            ("{type: string, pattern: '^[A-Z0-9]{1,20}$'}", " | match('[A-Z0-9]{1,20}')"),
            ("{type: string, pattern: '^[a-z.]+\\.[0-9]+$'}", " | match('[a-z.]+\\.[0-9]+')"),
            ("{type: string, pattern: '^.*$'}", ""),
            ("{type: string, pattern: '^.{1,36}$'}", ""),
            ("{type: string, pattern: '^[\\S\\s]+$'}", ""),
            ("{type: string, pattern: '^[^/]+$'}", ""),
            ("{type: string, pattern: '[A-Z]+'}", ""),
            ("{type: string, pattern: '^a|b$'}", ""),
            ("{type: string, pattern: '^(?!x)[a-z]+$'}", ""),
            ("{type: string, pattern: '^$'}", ""),
            ("{type: string, pattern: '^a\\$'}", ""),
            ("{type: string}", ""),
        ] {
            assert_eq!(form(schema).as_deref(), Some(filter), "{schema}");
        }
        for schema in
            ["{type: number}", "{type: boolean}", "{type: [string, integer]}", "{}", "{$ref: 'x.yaml'}"]
        {
            assert_eq!(form(schema), None, "{schema}");
        }
    }

    fn members(schemas: &str) -> (Vec<String>, bool) {
        let document = document(schemas);
        let schema = serde_json::json!({"$ref": "#/components/schemas/x"});
        let found = RequiredMembers::from_schema(&document, &schema);
        let pointers = found
            .members
            .iter()
            .map(|member| format!("{}{}", member.pointer, member.form.template_filter_suffix()));
        (pointers.collect(), found.is_partial)
    }

    /// Required members are found in objects, in lists, and in all schemas of an `allOf`.
    #[test]
    fn required_members_are_found() {
        let (found, is_partial) = members(
            "{x: {allOf: [{$ref: '#/components/schemas/base'}, {required: [items, amount], properties: \
             {items: {type: array, items: {type: object, required: [sku], properties: {sku: {type: string}, n: {type: integer}}}}, \
             amount: {type: number}, note: {type: string}}}]}, \
             base: {type: object, required: [account_id, missing], properties: {account_id: {type: integer}}}}",
        );
        assert_eq!(found, ["/account_id | int", "/items/*/sku"]);
        assert!(!is_partial);
    }

    /// Members that cannot be read are reported as missing, and a schema that contains itself does not run forever.
    #[test]
    fn unread_members_are_noted() {
        for schemas in [
            "{x: {oneOf: [{required: [a], properties: {a: {type: string}}}]}}",
            "{x: {$ref: 'other.yaml'}}",
            "{x: {allOf: [{$ref: '#/components/schemas/x'}]}}",
            "{x: {required: ['a b'], properties: {'a b': {type: string}}}}",
            "{x: {required: [a], properties: {a: {type: object, required: [a], properties: {a: {$ref: '#/components/schemas/x'}}}}}}",
        ] {
            let (found, is_partial) = members(schemas);
            assert!(found.is_empty() && is_partial, "{schemas}: {found:?}");
        }
    }
}
