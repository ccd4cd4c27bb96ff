//! Builds of the release that take minutes each: in two places, and for another kind of machine. `tests/run --builds`
//! runs them.

use std::{fs, path::PathBuf, process::Command};

use fencegate_testkit::scratch;
use fencegate_tests::site::TestSite;
use tempfile::TempDir;

use super::{
    BuiltPackages,
    programs::{path, root, run},
    served::assert_serves,
};

/// Clones the committed sources below `home`, builds them with a target folder and a crate cache there, and returns
/// the stripped binary.
fn build_clone(home: &TempDir, sources: &str, target: &str, crates: &str) -> Vec<u8> {
    let at = |folder: &str| home.path().join(folder);
    run("git", &["clone", "--quiet", "--shared", path(&root()), path(&at(sources))]);
    // Copy the downloaded crates, so that nothing is fetched again; cargo unpacks them in the new place.
    let ours = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let ours =
        ours.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").expect("a home")).join(".cargo"));
    fs::create_dir_all(at(crates).join("registry")).expect("our own folder");
    for part in ["registry/cache", "registry/index"] {
        run("cp", &["-r", path(&ours.join(part)), path(&at(crates).join("registry"))]);
    }
    let said = Command::new(at(sources).join("deploy/package/binary"))
        .env("CARGO_HOME", at(crates))
        .env("CARGO_TARGET_DIR", at(target))
        .output()
        .expect("it can be started");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let built = String::from_utf8(said.stdout).expect("a path");
    let stripped = at(target).join("stripped");
    run("strip", &["-o", path(&stripped), built.trim()]);
    fs::read(stripped).expect("made")
}

/// A commit gives the same binary wherever its sources are, and the binary contains none of these paths.
#[test]
fn build_is_reproducible_across_folders() {
    let [one, other] = [(); 2].map(|()| TempDir::new_in(scratch::folder()).expect("a folder"));
    let first = build_clone(&one, "sources", "target", "crates");
    let second =
        build_clone(&other, "somewhere/else/entirely", "somewhere/else/entirely/target", "deeper/still");
    for place in [&one, &other] {
        let named = path(place.path()).as_bytes();
        let found = first.windows(named.len()).chain(second.windows(named.len())).any(|bytes| bytes == named);
        assert!(!found, "it names {}", place.path().display());
    }
    assert!(first == second, "{} and {} bytes that differ", first.len(), second.len());
}

const ARM64: &str = "aarch64-unknown-linux-gnu";

/// The package for arm64, run by an emulator, serves a request that needs a lock.
#[tokio::test(flavor = "multi_thread")]
async fn arm64_package_serves_locked_request() {
    let packages = BuiltPackages::build(&["--target", ARM64]);
    assert_eq!(run("dpkg-deb", &["-f", path(&packages.deb), "Architecture"]).trim(), "arm64");
    assert_eq!(run("rpm", &["-qp", "--qf", "%{ARCH}", path(&packages.rpm)]), "aarch64");
    let installed = packages.unpack();
    let binary = installed.path().join("usr/bin/fencegate");
    let site = TestSite::fresh().await;
    let policy = installed.path().join("policy.yaml");
    fs::write(&policy, site.policy("gw-1").to_string()).expect("our own folder");
    assert_serves("qemu-aarch64", &[path(&binary)], path(&policy)).await;
}
