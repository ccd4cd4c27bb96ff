//! The stories of `deploy/upstream/vectors.json`: which claims pass, one after the other, in an empty database.

use std::fs;

use fencegate_tests::prometheus::deploy;
use serde::Deserialize;

/// The value that a recipe compares: the whole token, or its number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CompareForm {
    #[default]
    Token,
    Number,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AccessMode {
    Exclusive,
    Shared,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TransactionEnd {
    #[default]
    Commit,
    Rollback,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecipeStory {
    pub(super) name: String,
    #[serde(default)]
    compare: CompareForm,
    pub(super) steps: Vec<StoryStep>,
}

/// A transaction that claims keys, and its end if the claim passes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoryStep {
    pub(super) mode: AccessMode,
    pub(super) keys: Vec<String>,
    token: Option<String>,
    number: Option<String>,
    #[serde(default)]
    pub(super) end: TransactionEnd,
    pub(super) passes: bool,
}

#[derive(Debug, Deserialize)]
struct StoryVectors {
    claims: Vec<RecipeStory>,
}

impl CompareForm {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Number => "number",
        }
    }
}

impl AccessMode {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
        }
    }

    /// The section of a recipe for this mode.
    pub(super) fn verb(self) -> &'static str {
        match self {
            Self::Exclusive => "write",
            Self::Shared => "read",
        }
    }
}

impl RecipeStory {
    pub(super) fn all(form: CompareForm) -> Vec<Self> {
        let text = fs::read_to_string(deploy().join("upstream/vectors.json")).expect("shipped");
        let vectors: StoryVectors = serde_json::from_str(&text).expect("as its README says");
        let stories: Vec<_> = vectors.claims.into_iter().filter(|story| story.compare == form).collect();
        assert!(stories.len() > 4, "{form:?}: {}", stories.len());
        stories
    }
}

impl StoryStep {
    pub(super) fn mark(&self, form: CompareForm) -> &str {
        let mark = match form {
            CompareForm::Token => &self.token,
            CompareForm::Number => &self.number,
        };
        mark.as_ref().expect("a story has marks of its form")
    }
}
