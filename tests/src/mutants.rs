//! The list `tests/mutants.toml`: the code that mutation tests change, and the changes that no test can notice.

use std::{collections::BTreeMap, fs, path::PathBuf};

use serde::Deserialize;

/// The whole list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MutantList {
    pub code: Vec<MutationTarget>,
    #[serde(default)]
    pub survivor: Vec<SurvivingMutant>,
}

/// Files of one package. The package's own unit tests must notice every change of these files.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MutationTarget {
    pub package: String,
    /// The paths of the files, relative to the root of the repository.
    pub files: Vec<String>,
    /// Parts of test names. If the list is not empty, the simulations (`tests/sim`) may notice a change as well, and
    /// only tests with such a name are run, of the package and of the simulations.
    #[serde(default)]
    pub simulated: Vec<String>,
}

/// A change that no test can distinguish from the original.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SurvivingMutant {
    pub file: String,
    /// The change as cargo-mutants prints it, without line and column.
    pub change: String,
    pub why: String,
    /// The number of places of the function in which this change survives.
    #[serde(default = "once")]
    pub times: usize,
}

fn once() -> usize {
    1
}

/// The root of the repository.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

impl MutantList {
    /// Reads `tests/mutants.toml`.
    ///
    /// # Panics
    /// If the file cannot be read, or has another form.
    pub fn load() -> Self {
        let text = fs::read_to_string(root().join("tests/mutants.toml")).expect("the list");
        toml::from_str(&text).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Keeps only the files whose paths contain this word.
    #[must_use]
    pub fn only(mut self, word: &str) -> Self {
        self.code.iter_mut().for_each(|code| code.files.retain(|file| file.contains(word)));
        self.code.retain(|code| !code.files.is_empty());
        self
    }

    /// Returns the surviving changes that the list does not explain, as file and change, once for each place. An
    /// entry explains as many places as its `times`.
    pub fn unexplained(&self, survived: &[(String, String)]) -> Vec<String> {
        let mut left: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for one in &self.survivor {
            *left.entry((&one.file, &one.change)).or_default() += one.times;
        }
        let mut unexplained = Vec::new();
        for (file, change) in survived {
            match left.get_mut(&(file.as_str(), change.as_str())) {
                Some(times) if *times > 0 => *times -= 1,
                _ => unexplained.push(format!("{file}: {change}")),
            }
        }
        unexplained
    }
}

impl SurvivingMutant {
    /// The name of the changed function, without its type.
    pub fn function(&self) -> &str {
        let words = match self.change.rsplit_once(" in ") {
            Some((_, function)) => function,
            // A change of a whole function reads `replace FUNCTION -> TYPE with VALUE`.
            None => self.change.trim_start_matches("replace ").split(" -> ").next().unwrap_or_default(),
        };
        let words = words.split(" with ").next().unwrap_or_default();
        words.rsplit("::").next().unwrap_or_default()
    }
}

/// Splits a line of `missed.txt` into file and change: `a/b.rs:7:9: replace < with <= in holds`.
pub fn parse_line(line: &str) -> Option<(String, String)> {
    let (place, change) = line.split_once(": ")?;
    let file = place.split(':').next()?;
    Some((file.to_owned(), change.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survivor(change: &str) -> SurvivingMutant {
        SurvivingMutant { file: "a.rs".into(), change: change.into(), why: "x".into(), times: 1 }
    }

    #[test]
    fn mutation_names_its_function() {
        for (change, function) in [
            ("replace < with <= in Proof::holds", "holds"),
            ("replace FencingToken::number -> u64 with 0", "number"),
            ("replace Gate::end with ()", "end"),
            ("delete ! in <impl Drop for Gated<S>>::drop", "drop"),
            ("replace <impl Permission for Evidence>::holds -> bool with true", "holds"),
            (
                "replace match guard token <= read.token with true in KeyAdmissionState::beyond_readers",
                "beyond_readers",
            ),
        ] {
            assert_eq!(survivor(change).function(), function, "{change}");
        }
    }

    #[test]
    fn word_selects_matching_files() {
        let code = |files: [&str; 2]| {
            let files = files.map(str::to_owned).into();
            MutationTarget { package: "p".into(), files, simulated: Vec::new() }
        };
        let code = vec![code(["a/recipe/b.rs", "a/c.rs"]), code(["d.rs", "e.rs"])];
        let list = MutantList { code, survivor: vec![survivor("replace | with ^ in hex")] }.only("recipe/");
        let files: Vec<_> = list.code.iter().flat_map(|code| &code.files).collect();
        assert_eq!(files, ["a/recipe/b.rs"]);
        assert_eq!(list.survivor.len(), 1);
    }

    /// An entry of the list of accepted mutants covers at most `times` surviving mutants of its file. A further one is
    /// reported as unexplained.
    #[test]
    fn survivor_explains_given_count_only() {
        let line = "a.rs:7:9: replace | with ^ in hex";
        let survived: Vec<_> = [line, line].iter().filter_map(|line| parse_line(line)).collect();
        let list = MutantList { code: Vec::new(), survivor: vec![survivor("replace | with ^ in hex")] };
        assert_eq!(list.unexplained(&survived[..1]), Vec::<String>::new());
        assert_eq!(list.unexplained(&survived), ["a.rs: replace | with ^ in hex"]);
        assert_eq!(list.unexplained(&[("b.rs".into(), survived[0].1.clone())]).len(), 1);
    }
}
