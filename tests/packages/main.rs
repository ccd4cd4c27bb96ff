//! The release as it is shipped: the static binary, the Debian package, the bill of materials.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
    time::Duration,
};

use fencegate::demo::child::Child;
use fencegate_tests::{client::Ask, policy::Policy, scratch, site::Site};
use serde_json::Value;
use tempfile::TempDir;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs a command that must succeed, and gives what it prints.
fn run(program: &str, arguments: &[&str]) -> String {
    let said = Command::new(program).args(arguments).current_dir(root()).output();
    let said = said.unwrap_or_else(|error| panic!("{program}: {error}"));
    let [out, err] = [said.stdout, said.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(said.status.success(), "{program} {arguments:?}: {}\n{out}\n{err}", said.status);
    out
}

/// The package, built once; the binary that it holds is built on the way.
static PACKAGE: LazyLock<PathBuf> = LazyLock::new(|| {
    // Written by who built before: `deploy/debian/build` takes what is there.
    let built = std::env::var_os("FENCEGATE_BUILT").is_some();
    let arguments: &[&str] = if built { &["--no-build"] } else { &[] };
    let said = run("deploy/debian/build", arguments);
    PathBuf::from(said.lines().last().expect("it prints the path of the package"))
});

/// What the package installs, in a folder of its own.
fn unpacked() -> TempDir {
    let home = TempDir::new_in(scratch::folder()).expect("a folder");
    run("dpkg-deb", &["-x", path(&PACKAGE), path(home.path())]);
    home
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn the_package_has_what_it_should_and_lintian_finds_nothing_wrong() {
    let home = unpacked();
    for file in [
        "usr/bin/fencegate",
        "etc/fencegate/policy.yaml",
        "etc/fencegate/guard.yaml",
        "usr/lib/systemd/system/fencegate@.service",
        "usr/lib/systemd/system/fencegate-guard.service",
        "usr/lib/systemd/system/fencegate-guard-backup.service",
        "usr/lib/systemd/system/fencegate-guard-backup.timer",
        "usr/share/man/man1/fencegate.1.gz",
        "usr/share/bash-completion/completions/fencegate",
        "usr/share/zsh/vendor-completions/_fencegate",
        "usr/share/fish/vendor_completions.d/fencegate.fish",
    ] {
        assert!(home.path().join(file).exists(), "no {file}");
    }
    let control = run("dpkg-deb", &["-I", path(&PACKAGE), "conffiles"]);
    assert_eq!(control.lines().count(), 2, "{control}");
    let said = run(
        "lintian",
        &["--fail-on", "error,warning", "--tag-display-limit", "0", "--allow-root", path(&PACKAGE)],
    );
    assert!(!said.contains("E: ") && !said.contains("W: "), "{said}");
}

/// A static libc takes randomness from there.
const DEVICES: [&str; 2] = ["random", "urandom"];

/// A folder with nothing but the binary, its policy, and what a container is given: names, and a place for randomness.
fn empty_root(policy: &Policy) -> TempDir {
    let (installed, home) = (unpacked(), TempDir::new_in(scratch::folder()).expect("a folder"));
    let root = home.path();
    fs::copy(installed.path().join("usr/bin/fencegate"), root.join("fencegate")).expect("the binary");
    fs::write(root.join("policy.yaml"), policy.to_string()).expect("our own folder");
    for folder in ["etc", "dev"] {
        fs::create_dir(root.join(folder)).expect("our own folder");
    }
    for device in DEVICES {
        fs::write(root.join(format!("dev/{device}")), "").expect("our own folder");
    }
    fs::write(root.join("etc/hosts"), "127.0.0.1 localhost upstream.test\n").expect("our own folder");
    home
}

#[tokio::test(flavor = "multi_thread")]
async fn the_binary_needs_nothing_but_itself() {
    let site = Site::fresh().await;
    let policy = site.policy("gw-1");
    let door = site.origin.door("gw-1");
    let policy =
        policy.with("/upstreams/ledger/endpoints", vec![format!("http://upstream.test:{}", door.port())]);
    let home = empty_root(&policy);
    // In namespaces of its own, so that nobody has to be root.
    let at = path(home.path());
    let mounts = DEVICES.map(|device| format!("mount --bind /dev/{device} '{at}/dev/{device}'"));
    let enter = format!("{} && exec chroot '{at}' \"$@\"", mounts.join(" && "));
    let entered =
        ["--map-root-user", "--mount", "sh", "-c", &enter, "sh", "/fencegate", "--log-format", "json"];
    let arguments = [&entered[..], &["run", "--init", "-c", "/policy.yaml"]].concat();
    let child = Child::spawn("unshare", arguments).expect("setpriv");
    let said = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap_or_default();
        let fields = &line["fields"];
        (fields["listener"] == "public").then(|| fields["address"].as_str().map(str::to_owned)).flatten()
    };
    let line = child.wait_line(|line| said(line).is_some(), Duration::from_secs(20));
    let line = line.unwrap_or_else(|_| panic!("it does not listen: {}", child.log()));
    let address = said(&line).and_then(|address| address.parse().ok()).expect("an address");
    child.wait_line(|line| line.contains("session.established"), Duration::from_secs(20)).expect("a session");
    // A session is in use when the plans of all gateways were looked at through it.
    let mut answer = Ask::post("/pay/7").to(address).await.expect("it answers");
    for _ in 0..100 {
        if answer.status != 503 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        answer = Ask::post("/pay/7").to(address).await.expect("it answers");
    }
    assert_eq!(answer.status, 200, "{answer:?}\n{}", child.log());
}

#[test]
fn the_bill_of_materials_names_every_crate_with_its_licence() {
    let said = run("deploy/sbom", &[]);
    let file =
        said.lines().find(|line| line.ends_with("/fencegate.cdx.json")).expect("it prints what it wrote");
    let bill: Value = serde_json::from_slice(&fs::read(root().join(file)).expect("written")).expect("JSON");
    assert_eq!(bill["bomFormat"], "CycloneDX");
    let parts = bill["components"].as_array().expect("components");
    assert!(parts.len() > 100, "{} parts", parts.len());
    let ours = |part: &Value| part["name"].as_str().is_some_and(|name| name.starts_with("fencegate"));
    let without: Vec<_> = parts.iter().filter(|part| part["licenses"].is_null() && !ours(part)).collect();
    assert!(without.is_empty(), "{without:#?}");
    for name in ["hyper", "rustls", "zookeeper-client", "redb"] {
        assert!(parts.iter().any(|part| part["name"] == name), "no {name}");
    }
}
