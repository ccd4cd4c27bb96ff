//! The files that the release script makes for a tag, from a clone that has the tag.

use std::{fs, path::PathBuf, process::Command};

use fencegate_testkit::scratch;
use fencegate_tests::process::binary;
use tempfile::TempDir;

use super::programs::{path, root, run};

/// A clone of the committed sources, with a change that marks the version as released.
struct SourceTreeClone(TempDir);

impl SourceTreeClone {
    fn fresh() -> Self {
        let home = TempDir::new_in(scratch::folder()).expect("a folder");
        let clone = Self(home);
        run("git", &["clone", "--quiet", "--shared", path(&root()), path(&clone.tree())]);
        clone
    }

    fn tree(&self) -> PathBuf {
        self.0.path().join("tree")
    }

    fn git(&self, arguments: &[&str]) {
        let who = ["-c", "user.name=tests", "-c", "user.email=tests@fencegate.invalid"];
        run("git", &[&["-C", path(&self.tree())], &who[..], arguments].concat());
    }

    /// Records a manual review of the crates with this checksum on a day (as `date` takes it), and tags the commit.
    fn record_review(&self, day: &str, sum: &str, tag: &str) {
        let day = run("date", &["+%F", "--date", day]);
        let text = format!("Looked through on {}, for the crates with the sum `{sum}`.\n", day.trim());
        fs::write(self.tree().join("deploy/ADVISORIES.md"), text).expect("our own tree");
        self.git(&["commit", "--quiet", "--all", "--allow-empty", "--message", "Look through the crates"]);
        self.git(&["tag", "--force", tag]);
    }

    /// Runs the release script. Returns its output, and whether it succeeded.
    fn run_release(&self, tag: &str, folder: &str) -> (bool, String) {
        let release = self.tree().join("deploy/release");
        let folder = self.0.path().join(folder);
        let built = std::env::var_os("FENCEGATE_BUILT").map_or_else(binary, PathBuf::from);
        let mut command = Command::new(release);
        // Git may use only local files here, so fetching the database of known vulnerabilities fails on every
        // machine.
        command.args([tag, path(&folder), "--binary", path(&built)]).env("GIT_ALLOW_PROTOCOL", "file");
        let said = command.output().expect("it can be started");
        (said.status.success(), String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned())
    }
}

/// A release of a tag has all published files. A release is refused without a tag, if the changelog does not mark
/// the version as released, or without a recent review of crates. The test uses the development binary unless
/// another one is given; a real release differs only in that.
#[test]
fn tagged_release_is_complete_and_guarded() {
    let clone = SourceTreeClone::fresh();
    let version = env!("CARGO_PKG_VERSION");
    let tag = format!("v{version}");
    let changes = clone.tree().join("deploy/CHANGELOG.md");
    let text = fs::read_to_string(&changes).expect("committed");
    let unreleased = format!("## {version}, not released yet");
    if text.contains(&unreleased) {
        clone.git(&["tag", &tag]);
        let (well, said) = clone.run_release(&tag, "published");
        assert!(!well && said.contains("not released yet"), "{said}");
        fs::write(&changes, text.replace(&unreleased, &format!("## {version}, 2026-12-01")))
            .expect("our own tree");
        clone.git(&["commit", "--quiet", "--all", "--message", "Release"]);
        clone.git(&["tag", "--force", &tag]);
    }
    for (tag, folder, reason) in [
        ("v99.0.0", "published", "no tag"),
        (&tag, "tree/published", "is in the tree"),
        (&tag, "", "is there already"),
    ] {
        let (well, said) = clone.run_release(tag, folder);
        assert!(!well && said.contains(reason), "{said}");
    }

    let sum = run(path(&clone.tree().join("deploy/advisories")), &["--sum"]);
    for (day, sum, reason) in
        [("31 days ago", sum.trim(), "older than 30 days"), ("today", "0123abcd", "of other crates")]
    {
        clone.record_review(day, sum, &tag);
        let (well, said) = clone.run_release(&tag, "published");
        assert!(!well && said.contains(reason) && said.contains("\nrustls v"), "{day}: {said}");
    }
    clone.record_review("29 days ago", sum.trim(), &tag);

    let (well, said) = clone.run_release(&tag, "published");
    assert!(well, "{said}");
    let published = clone.0.path().join("published");
    let mut files: Vec<String> = fs::read_dir(&published)
        .expect("made")
        .map(|entry| entry.expect("made").file_name().into_string().expect("text"))
        .collect();
    files.sort();
    let machine = std::env::consts::ARCH;
    let debian = if machine == "x86_64" { "amd64" } else { "arm64" };
    assert_eq!(
        files,
        [
            "NOTES.md".to_owned(),
            "SHA256SUMS".to_owned(),
            format!("fencegate-{version}-1.{machine}.rpm"),
            format!("fencegate-{version}-source.tar.gz"),
            format!("fencegate-{version}-{machine}-linux.tar.gz"),
            "fencegate-ledger.cdx.json".to_owned(),
            "fencegate.cdx.json".to_owned(),
            format!("fencegate_{version}-1_{debian}.deb"),
        ]
    );
    let at = path(&published).to_owned();
    let checked = run("sh", &["-c", "cd \"$1\" && sha256sum --strict --check SHA256SUMS", "sh", &at]);
    assert_eq!(checked.lines().filter(|line| line.ends_with(": OK")).count(), files.len() - 1, "{checked}");
    let notes = fs::read_to_string(published.join("NOTES.md")).expect("made");
    assert!(notes.starts_with(&format!("## {version}, ")) && notes.contains("\n- **"), "{notes}");
    assert_eq!(notes.matches("\n## ").count(), 0, "notes of more than one version");

    let bill = fs::read_to_string(published.join("fencegate.cdx.json")).expect("made");
    let ours = bill.matches("path+file:///fencegate").count();
    assert!(ours > 0 && ours == bill.matches("path+file://").count(), "it names folders of this machine");

    // The program and the quickstart in the unpacked archive run.
    let unpacked = clone.0.path().join("unpacked");
    fs::create_dir(&unpacked).expect("our own folder");
    let archive = published.join(format!("fencegate-{version}-{machine}-linux.tar.gz"));
    run("tar", &["-xzf", path(&archive), "-C", path(&unpacked)]);
    let program = unpacked.join(format!("fencegate-{version}/fencegate"));
    assert!(run(path(&program), &["--version"]).contains(version));
    assert!(unpacked.join(format!("fencegate-{version}/LICENSE")).exists());
    let told = run(path(&unpacked.join(format!("fencegate-{version}/deploy/quickstart"))), &["--once"]);
    assert!(told.contains("refused") && !told.contains("building"), "{told}");
    let listed = run("tar", &["-tzf", path(&published.join(format!("fencegate-{version}-source.tar.gz")))]);
    assert!(listed.lines().any(|file| file == format!("fencegate-{version}/Cargo.lock")), "{listed}");
}
