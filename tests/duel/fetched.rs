//! Packages for clients that Debian does not have. `pip`, `npm` and `javac` put them into the build folder once.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use fencegate_tests::curator::class_path;

/// Makes a folder below the build folder, unless an earlier run has made it with the same `content`.
fn build_once(name: &str, content: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    // The file `made` is written last, so a folder that was left half made is made again.
    let made = folder.join("made");
    if fs::read_to_string(&made).is_ok_and(|there| there == content) {
        return folder;
    }
    fs::create_dir_all(&folder).expect("the target folder can be written");
    make(&folder);
    fs::write(made, content).expect("our own folder");
    folder
}

/// The path of a Python interpreter that has these PyPI packages.
pub(crate) fn python(packages: &[&str]) -> String {
    let folder = build_once("duel-pypi", &packages.join("\n"), |folder| {
        let at = folder.display().to_string();
        run("python3", &["-m", "venv", &at]);
        run(&format!("{at}/bin/python"), &[&["-m", "pip", "install", "--quiet"][..], packages].concat());
    });
    folder.join("bin/python").display().to_string()
}

/// A folder in which Node finds these npm packages.
pub(crate) fn node(packages: &[&str]) -> PathBuf {
    build_once("duel-npm", &packages.join("\n"), |folder| {
        let at = folder.display().to_string();
        run(
            "npm",
            &[&["install", "--silent", "--no-audit", "--no-fund", "--prefix", &at][..], packages].concat(),
        );
    })
}

/// A folder with the classes of one Java source that uses Curator.
pub(crate) fn classes(name: &str, source: &str) -> PathBuf {
    build_once("duel-java", source, |folder| {
        let file = folder.join(name).display().to_string();
        fs::write(&file, source).expect("our own folder");
        run("javac", &["-Xlint:all", "-d", &folder.display().to_string(), "-cp", &class_path(), &file]);
    })
}

fn run(program: &str, words: &[&str]) {
    let output =
        Command::new("timeout").arg("300").arg(program).args(words).output().expect("`timeout` is there");
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}
