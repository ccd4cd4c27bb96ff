//! Other spellings of the values of a JSON body of which a key is made.

use fencegate_policies::key::{SourceValue, TemplateValueSource};

use super::{
    json::{JsonNode, JsonStep},
    texts::{other_value, spellings, swap_case},
    variant::RequestVariant,
};
use crate::explain::sample::SampleRequest;

pub(super) fn body_variants(sample: &SampleRequest, sources: &[SourceValue]) -> Vec<RequestVariant> {
    let Some(body) = std::str::from_utf8(&sample.body).ok().and_then(JsonNode::parse) else {
        return Vec::new();
    };
    let edits = sources.iter().flat_map(|value| {
        let TemplateValueSource::Body(pointer) = &value.source else { return Vec::new() };
        let steps: Vec<JsonStep> = pointer.names().collect();
        BodyEdits { body: &body, name: pointer.to_string(), steps }.respelled_bodies().unwrap_or_default()
    });
    edits.map(|(spelling, body)| RequestVariant::with_body(sample, spelling, body.to_string())).collect()
}

/// The value to which a pointer leads; the value of the first item if the pointer leads through a list.
struct BodyEdits<'b> {
    body: &'b JsonNode,
    /// The text of the pointer.
    name: String,
    steps: Vec<JsonStep<'b>>,
}

/// The name of a spelling, and the body with it.
type RespelledBody = (String, JsonNode);

impl BodyEdits<'_> {
    /// All spellings of the value. `None` if the pointer leads to neither a text nor a number.
    fn respelled_bodies(&self) -> Option<Vec<RespelledBody>> {
        let Self { body, name, steps } = self;
        let value = self.body.clone().at_mut(steps)?.clone();
        let text = value.text()?;
        let other = self.other_value(&value, &text);
        let mut found = self.respell_value(&value, &text);
        if let Some((Some(member), object)) = steps.split_last() {
            let with_member = |added: &str, value: &JsonNode| {
                self.edit(object, |object| match object {
                    JsonNode::Object(members) => members.push((added.to_owned(), value.clone())),
                    JsonNode::List(_) | JsonNode::Scalar(_) => {}
                })
            };
            found.extend([
                (format!("`{name}` twice"), with_member(member, &value)),
                (format!("`{name}` twice, with another value"), with_member(member, &other)),
                (
                    format!("`{name}` also in other case, with another value"),
                    with_member(&swap_case(member), &other),
                ),
            ]);
            let renamed = self.edit(object, |object| {
                if let JsonNode::Object(members) = object {
                    members
                        .iter_mut()
                        .filter(|(name, _)| name == member)
                        .for_each(|(name, _)| *name = swap_case(name));
                }
            });
            found.push((format!("other case of the name `{name}`"), renamed));
        }
        if let [Some(member)] = &**steps {
            let below = JsonNode::Object(vec![((*member).to_owned(), other.clone())]);
            let wrapped = self.edit(&[], |body| {
                if let JsonNode::Object(members) = body {
                    members.push(("wrapper".to_owned(), below.clone()));
                }
            });
            found.push((format!("`{name}` also below another member, with another value"), wrapped));
        }
        if let Some(last) = steps.iter().rposition(Option::is_none) {
            let list = &steps[..last];
            let item = &steps[last + 1..];
            found.push((format!("item twice in `{name}`"), self.with_item(list, item, None)));
            found.push((format!("list longer by one, `{name}`"), self.with_item(list, item, Some(&other))));
        }
        found.retain(|(_, edited)| edited != *body);
        Some(found)
    }

    fn other_value(&self, value: &JsonNode, text: &str) -> JsonNode {
        match value.is_string() {
            true => JsonNode::from_text(&other_value(text)),
            false => JsonNode::Scalar(format!("{text}1")),
        }
    }

    fn respell_value(&self, value: &JsonNode, text: &str) -> Vec<RespelledBody> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let values: Vec<(String, JsonNode)> = match value.is_string() {
            true => {
                let spelled = spellings(text).into_iter();
                let mut values: Vec<_> = spelled
                    .map(|spelling| (spelling.name.to_owned(), JsonNode::from_text(&spelling.text)))
                    .collect();
                // A number in JSON has no leading zero, so a text with one has no number in its place.
                if is_number && (text == "0" || !text.starts_with('0')) {
                    values.push(("number in the place".to_owned(), JsonNode::Scalar(text.to_owned())));
                }
                values
            }
            false => vec![
                ("string in the place".to_owned(), JsonNode::from_text(text)),
                ("fraction".to_owned(), JsonNode::Scalar(format!("{text}.0"))),
                ("exponent".to_owned(), JsonNode::Scalar(format!("{text}e0"))),
            ],
        };
        let in_place = |(spelling, value): (String, JsonNode)| {
            let edited = self.edit(&self.steps, |place| *place = value);
            (format!("{spelling} of `{}`", self.name), edited)
        };
        values.into_iter().map(in_place).collect()
    }

    /// The body with one more item: the last one again, with another value in it if there is one.
    fn with_item(&self, list: &[JsonStep], item: &[JsonStep], other: Option<&JsonNode>) -> JsonNode {
        self.edit(list, |list| {
            if let JsonNode::List(items) = list
                && let Some(mut added) = items.last().cloned()
            {
                if let (Some(other), Some(value)) = (other, added.at_mut(item)) {
                    *value = other.clone();
                }
                items.push(added);
            }
        })
    }

    fn edit(&self, steps: &[JsonStep], change: impl FnOnce(&mut JsonNode)) -> JsonNode {
        let mut body = self.body.clone();
        if let Some(place) = body.at_mut(steps) {
            change(place);
        }
        body
    }
}
