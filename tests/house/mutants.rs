//! Checks the list of mutations that no test can notice: each entry must name existing code and have a reason.

use std::{collections::BTreeSet, fs, path::Path};

use fencegate_tests::mutants::{MutantList, SurvivingMutant};
use syn::visit::{self, Visit};

/// One sentence for each mistake in the list.
pub(crate) fn complaints(root: &Path, list: &MutantList) -> Vec<String> {
    let mut told = Vec::new();
    let files: Vec<&String> = list.code.iter().flat_map(|code| &code.files).collect();
    for file in &files {
        if !root.join(file).exists() {
            told.push(format!("{file} is not there"));
        }
    }
    let place = |one: &SurvivingMutant| (one.file.clone(), one.change.clone());
    for pair in list.survivor.windows(2) {
        if place(&pair[0]) >= place(&pair[1]) {
            told.push(format!("`{}` of {} stands before or beside itself", pair[1].change, pair[1].file));
        }
    }
    for one in &list.survivor {
        let file = &one.file;
        let change = &one.change;
        if !files.contains(&file) {
            told.push(format!("{file}: nothing of it is changed"));
            continue;
        }
        if !functions(&root.join(file)).contains(one.function()) {
            told.push(format!("{file}: `{change}` is of a function that is not there"));
        }
        if one.why.split_whitespace().count() < 4 || one.times == 0 {
            told.push(format!("{file}: `{change}` is not explained"));
        }
    }
    told
}

/// The names of all functions in a file, methods included.
fn functions(file: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(file).expect("a source file");
    let mut named = FunctionNames::default();
    named.visit_file(&syn::parse_file(&text).expect("a source file"));
    named.0
}

#[derive(Default)]
struct FunctionNames(BTreeSet<String>);

impl<'ast> Visit<'ast> for FunctionNames {
    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.0.insert(signature.ident.to_string());
        visit::visit_signature(self, signature);
    }
}

/// An entry that occurs twice, has no reason or names code that does not exist is reported.
#[test]
fn outdated_list_is_reported() {
    let root = fencegate_tests::mutants::root();
    let survivor = |file: &str, change: &str| SurvivingMutant {
        file: file.into(),
        change: change.into(),
        why: "for a good reason indeed".into(),
        times: 1,
    };
    let token = "policies/src/token.rs";
    let code = || {
        let files = vec![token.into()];
        vec![fencegate_tests::mutants::MutationTarget { package: "p".into(), files, simulated: Vec::new() }]
    };
    let list = |survivor| MutantList { code: code(), survivor };
    let good = || survivor(token, "replace | with ^ in hex");
    assert_eq!(complaints(&root, &list(vec![good()])), Vec::<String>::new());
    for (bad, many) in [
        (vec![good(), good()], 1),
        (vec![survivor(token, "replace | with ^ in nothing")], 1),
        (vec![survivor("policies/src/no_file.rs", "replace | with ^ in hex")], 1),
        (vec![SurvivingMutant { why: String::new(), ..good() }], 1),
        (vec![SurvivingMutant { times: 0, ..good() }], 1),
        (
            vec![
                survivor(token, "replace FencingToken::parse with ()"),
                survivor(token, "delete ! in parse"),
            ],
            1,
        ),
    ] {
        assert_eq!(complaints(&root, &list(bad.clone())).len(), many, "{bad:?}");
    }
    let gone = MutantList { code: code(), survivor: Vec::new() };
    assert_eq!(complaints(Path::new("/nowhere"), &gone).len(), 1);
}
