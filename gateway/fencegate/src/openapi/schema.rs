//! What a schema says of the values of a parameter, and which members every body has.

use fencegate_policies::key::{KeyTemplate, TemplateValueFilter};
use serde_json::{Map, Value};

use super::document::OpenApiDocument;

/// The form of a value that can stand in a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ValueForm {
    Integer,
    Uuid,
    /// Matches this pattern as a whole, which has only ASCII in it.
    Pattern(String),
    /// Any text.
    Text,
}

impl ValueForm {
    /// The form by a schema; `None` if its values are no texts and no integers, or it does not say.
    pub(super) fn from_schema(document: &OpenApiDocument, schema: &Value) -> Option<Self> {
        let parts = SchemaParts::collect(document, schema);
        let text = |name: &str| parts.first(name).and_then(Value::as_str);
        match parts.value_type()? {
            "integer" => Some(Self::Integer),
            "string" if text("format") == Some("uuid") => Some(Self::Uuid),
            "string" => Some(text("pattern").and_then(whole_pattern).map_or(Self::Text, Self::Pattern)),
            _ => None,
        }
    }

    /// The filter for a variable, with its bar; empty where the document does not say what the values are made of.
    pub(super) fn filter(&self) -> String {
        match self {
            Self::Integer => " | int".to_owned(),
            Self::Uuid => " | uuid".to_owned(),
            Self::Pattern(pattern) => format!(" | match('{pattern}')"),
            Self::Text => String::new(),
        }
    }
}

/// The pattern without its anchors, where it says what the whole value is made of and means the same here. A pattern of JSON
/// Schema is one of JavaScript, and matches anywhere in the value.
fn whole_pattern(pattern: &str) -> Option<String> {
    let inner = pattern.strip_prefix('^')?.strip_suffix('$')?;
    // A bar at the top would belong to one of the anchors. `\$` is no anchor.
    if inner.ends_with('\\') || inner.contains(['|', '\'']) || inner.is_empty() || takes_any_character(inner)
    {
        return None;
    }
    let template = KeyTemplate::parse(&format!("{{path.x | match('{inner}')}}")).ok()?;
    let mut filters = template.variables().flat_map(|variable| &variable.filters);
    filters.all(TemplateValueFilter::has_canonical_output).then(|| inner.to_owned())
}

/// True if a dot or a negated class stands in the pattern: it does not say what a value is made of.
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
    /// Its pointer as a key has it: `/items/*/sku`.
    pub(super) pointer: String,
    /// The last name of the pointer.
    pub(super) name: String,
    pub(super) form: ValueForm,
}

/// The values that every body has.
#[derive(Debug, Default)]
pub(super) struct RequiredMembers {
    pub(super) members: Vec<RequiredMember>,
    /// There are more, some of which could not be read.
    pub(super) is_partial: bool,
}

impl RequiredMembers {
    /// The most members of one body. More are no names of resources.
    const MOST: usize = 64;

    /// Objects and lists within each other. What stands deeper names no resource of the request.
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
        if let Some(form) = ValueForm::from_schema(document, schema) {
            let (pointer, name) = (pointer.to_owned(), name.to_owned());
            self.members.push(RequiredMember { pointer, name, form });
            return;
        }
        let parts = SchemaParts::collect(document, schema);
        match (parts.value_type(), parts.first("items"), depth.checked_sub(1)) {
            (Some("object"), ..) => self.add_members(document, schema, pointer, depth),
            (Some("array"), Some(items), Some(depth)) => {
                self.add_value(document, items, &format!("{pointer}/*"), name, depth);
            }
            (Some("array"), Some(_), None) => self.is_partial = true,
            _ => {}
        }
    }
}

/// A name that stands in a pointer of a key as it is.
fn is_plain_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

/// A schema, and those of its `allOf`, which a value matches as well.
struct SchemaParts<'d> {
    parts: Vec<&'d Map<String, Value>>,
    /// Some part could not be read, or a value may match one of several.
    is_partial: bool,
}

impl<'d> SchemaParts<'d> {
    /// The most schemas that are one. `allOf` may lead to itself.
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
    fn first(&self, name: &str) -> Option<&'d Value> {
        self.parts.iter().find_map(|part| part.get(name))
    }

    /// The type of all values but null.
    fn value_type(&self) -> Option<&'d str> {
        match self.first("type") {
            Some(Value::String(word)) => Some(word),
            Some(Value::Array(words)) => {
                let mut words = words.iter().filter_map(Value::as_str).filter(|word| *word != "null");
                words.next().filter(|_| words.next().is_none())
            }
            _ if self.first("properties").is_some() => Some("object"),
            _ if self.first("items").is_some() => Some("array"),
            _ => None,
        }
    }

    /// Each once.
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
        ValueForm::from_schema(&document, &schema).map(|form| form.filter())
    }

    /// Integers, UUIDs and patterns of the whole value have a filter. Nothing is made of a pattern that another language reads
    /// differently, or that leaves a part of the value open.
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
        let pointers =
            found.members.iter().map(|member| format!("{}{}", member.pointer, member.form.filter()));
        (pointers.collect(), found.is_partial)
    }

    /// Members are found where each body has them: in objects, in lists, and in all schemas that are one.
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

    /// What cannot be read is said to be missing, and a schema within itself ends.
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
