//! The release as it is shipped: the static binary, the Debian package and the RPM, the bill of materials.

mod builds;
mod machine;
mod programs;
mod release;
mod served;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use fencegate_testkit::scratch;
use serde_json::Value;
use tempfile::TempDir;

use self::{
    machine::TestMachine,
    programs::{path, root, run},
};

/// The Debian package and the RPM, built once. Their binary is built with them unless one is given.
struct BuiltPackages {
    deb: PathBuf,
    rpm: PathBuf,
}

impl BuiltPackages {
    fn build(arguments: &[&str]) -> Self {
        let said = run("deploy/package/build", arguments);
        let one = |kind: &str| {
            let line = said.lines().find(|line| line.ends_with(kind));
            root().join(line.unwrap_or_else(|| panic!("no {kind}: {said}")))
        };
        Self { deb: one(".deb"), rpm: one(".rpm") }
    }

    /// Unpacks the Debian package into a folder of its own.
    fn unpack(&self) -> TempDir {
        let home = TempDir::new_in(scratch::folder()).expect("a folder");
        run("dpkg-deb", &["-x", path(&self.deb), path(home.path())]);
        home
    }
}

static PACKAGES: LazyLock<BuiltPackages> = LazyLock::new(|| {
    // The path of a binary that was built before. Without it the package script builds one.
    let built = std::env::var("FENCEGATE_BUILT").ok();
    let arguments: Vec<&str> = built.iter().flat_map(|built| ["--binary", built]).collect();
    BuiltPackages::build(&arguments)
});

#[test]
fn lintian_accepts_debian_package() {
    let said = run(
        "lintian",
        &["--fail-on", "error,warning", "--tag-display-limit", "0", "--allow-root", path(&PACKAGES.deb)],
    );
    assert!(!said.contains("E: ") && !said.contains("W: "), "{said}");
}

/// The files that only the Debian package has, or has in another place than the RPM.
const ONLY_DEBIAN: [&str; 4] = [
    "/usr/share/doc/fencegate/changelog.Debian.gz",
    "/usr/share/doc/fencegate/copyright",
    "/usr/share/lintian/overrides/fencegate",
    "/usr/share/zsh/vendor-completions/_fencegate",
];
const ONLY_RPM: [&str; 2] =
    ["/usr/share/licenses/fencegate/LICENSE", "/usr/share/zsh/site-functions/_fencegate"];

/// Both packages install the same files and configuration, and run the same scripts.
#[test]
fn both_packages_have_same_contents() {
    let BuiltPackages { deb, rpm } = &*PACKAGES;
    // Compare the mode and the path of each file.
    let said = run("dpkg-deb", &["-c", path(deb)]);
    let files = said.lines().filter(|line| line.starts_with('-')).map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words[5].trim_start_matches('.').to_owned(), words[0].to_owned())
    });
    let mut debian: BTreeMap<String, String> = files.collect();
    let said = run("rpm", &["-qp", "--qf", "[%{FILEMODES:perms} %{FILENAMES}\n]", path(rpm)]);
    let files = said.lines().filter_map(|line| line.split_once(' '));
    let mut red_hat: BTreeMap<String, String> = files.map(|(may, file)| (file.into(), may.into())).collect();
    assert!(red_hat.len() > 30 && red_hat.contains_key("/usr/bin/fencegate"), "{red_hat:#?}");
    for (only, files) in [(&ONLY_DEBIAN[..], &mut debian), (&ONLY_RPM[..], &mut red_hat)] {
        for file in only {
            assert!(files.remove(*file).is_some(), "no {file}: {files:#?}");
        }
    }
    assert_eq!(debian, red_hat);

    let lines = |said: String| said.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let configured = lines(run("dpkg-deb", &["-I", path(deb), "conffiles"]));
    assert_eq!(configured, lines(run("rpm", &["-qp", "--configfiles", path(rpm)])));
    assert_eq!(configured.len(), 2, "{configured:?}");
    for (ours, theirs) in [("postinst", "POSTIN"), ("prerm", "PREUN"), ("postrm", "POSTUN")] {
        let script = run("dpkg-deb", &["-I", path(deb), ours]);
        assert_eq!(script.trim(), run("rpm", &["-qp", "--qf", &format!("%{{{theirs}}}"), path(rpm)]).trim());
        assert_eq!(
            script.trim(),
            fs::read_to_string(root().join("deploy/package/scripts").join(ours)).expect("there").trim()
        );
    }
}

/// A kind of package, with its commands to install and to remove it.
struct PackageKind {
    package: &'static Path,
    install: &'static str,
    upgrade: &'static str,
    remove: &'static str,
    /// The file that keeps a changed policy after the removal, if there is one.
    left: Option<&'static str>,
}

#[test]
fn debian_package_installs_upgrades_and_removes() {
    check_install_upgrade_remove(&PackageKind {
        package: &PACKAGES.deb,
        install: "dpkg -i --force-depends /tmp/*.deb",
        upgrade: "dpkg -i --force-depends --force-confold /tmp/*.deb",
        remove: "dpkg -r fencegate && dpkg -P fencegate",
        left: None,
    });
}

#[test]
fn rpm_installs_upgrades_and_removes() {
    check_install_upgrade_remove(&PackageKind {
        package: &PACKAGES.rpm,
        install: "rpm -i --nodeps /tmp/*.rpm",
        upgrade: "rpm -U --nodeps --replacepkgs /tmp/*.rpm",
        remove: "rpm -e --nodeps fencegate",
        left: Some("etc/fencegate/policy.yaml.rpmsave"),
    });
}

fn check_install_upgrade_remove(kind: &PackageKind) {
    let machine = TestMachine::new();
    let policy = "etc/fencegate/policy.yaml";
    machine.install_file(kind.package);
    let said = machine.run_line(&format!("{} && sysctl -n net.ipv4.tcp_migrate_req", kind.install));
    assert_eq!(said.lines().last(), Some("1"), "the setting is not in force: {said}");
    let users = machine.read_file("etc/passwd").expect("there");
    assert!(["fencegate:", "fencegate-guard:"].iter().all(|user| users.contains(user)), "{users}");
    // The installed program has to accept each file that the package installs.
    for file in ["policy.yaml", "guard.yaml"] {
        machine.run_line(&format!("fencegate check /etc/fencegate/{file}"));
    }

    let enabled = "etc/systemd/system/multi-user.target.wants/fencegate@a.service";
    machine.run_line("systemctl enable fencegate@a fencegate-guard");
    machine.write_file(policy, "mine\n");
    machine.write_file("var/lib/fencegate-guard/guard.redb", "remembered\n");
    machine.run_line(kind.upgrade);
    assert_eq!(machine.read_file(policy).as_deref(), Some("mine\n"), "an upgrade changed it");
    assert!(machine.has(enabled) && machine.has("usr/bin/fencegate"));

    machine.run_line(kind.remove);
    assert!(!machine.has(enabled) && !machine.has("usr/bin/fencegate") && !machine.has(policy));
    assert!(!machine.has("usr/lib/systemd/system/fencegate@.service"));
    assert_eq!(kind.left.and_then(|left| machine.read_file(left)).as_deref(), kind.left.map(|_| "mine\n"));
    assert!(machine.has("var/lib/fencegate-guard/guard.redb"), "a guard has forgotten");
}

/// Where the package is installed, the quickstart runs at once and builds nothing. Building would fail: the
/// container has no cargo.
#[test]
fn installed_package_runs_quickstart_at_once() {
    let machine = TestMachine::new();
    machine.install_file(&PACKAGES.deb);
    // The choice of the Java version and its settings are below `/etc`, which the container does not have.
    let java = fs::read_dir("/etc").expect("there").flatten().map(|entry| entry.path());
    let java = java
        .filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"java-")));
    let java: Vec<PathBuf> = java.collect();
    let settings =
        java.iter().map(|java| path(java)).chain(["/etc/alternatives", "/etc/ssl/certs/ca-certificates.crt"]);
    machine.mount_settings(&settings.collect::<Vec<_>>());
    for file in ["Cargo.toml", "deploy/quickstart", "deploy/packages.sh"] {
        machine.write_file(&format!("src/{file}"), &fs::read_to_string(root().join(file)).expect("there"));
    }
    let told = machine.run_line(
        "dpkg -i --force-depends /tmp/*.deb && ip link set lo up && bash /src/deploy/quickstart --once",
    );
    assert!(told.contains("refused") && !told.contains("building"), "{told}");
}

#[test]
fn sbom_names_every_crate_with_licence() {
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
