//! The middleware for Java keeps the contract, and a service with it passes `fencegate verify`.
//!
//! The middleware is built with Debian's compiler and jars. It plays every vector of the contract, in a real server
//! and on a real PostgreSQL. Two instances of a sample on one database pass `fencegate verify`, also by number and
//! while they are killed. The code and the commands on its page are the ones that run here.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    sync::LazyLock,
};

use fencegate_testkit::postgres::{TestDatabase, fresh_database};

use super::{
    clients::persistent_folder,
    middleware::{
        SampleRequests, SampleService, assert_shown, assert_starts, files, in_time::assert_keeps_deadlines,
        run, tables, upstream,
    },
};

/// Debian's JARs: the servlet API for the filter, and the server for the tests and the sample.
const JARS: &str = "/usr/share/java";
const SERVLETS: &str = "tomcat10-servlet-api";
const TOMCAT: [&str; 9] = [
    "tomcat10-annotations-api",
    "tomcat10-api",
    "tomcat10-catalina",
    "tomcat10-coyote",
    "tomcat10-jaspic-api",
    "tomcat10-jni",
    "tomcat10-juli",
    "tomcat10-util",
    "tomcat10-util-scan",
];
const DRIVER: &str = "postgresql";

/// The folder of the classes, which are compiled once for each content of the sources.
static CLASSES: LazyLock<PathBuf> = LazyLock::new(|| {
    let sources = upstream().join("java");
    let mut content = DefaultHasher::new();
    for file in files(&sources) {
        (&file, fs::read(&file).expect("a source")).hash(&mut content);
    }
    let classes = persistent_folder("middleware-java").join(format!("{:016x}", content.finish()));
    // This folder is made last, so that classes are compiled again after an incomplete run.
    let made = classes.join("made");
    if !made.exists() {
        // Removes classes that were compiled from other sources.
        fs::remove_dir_all(persistent_folder("middleware-java")).expect("our own folder");
        // The filter is compiled against the interface alone.
        compile(&sources.join("src"), &classes.join("src"), &jar(SERVLETS));
        for folder in ["test", "sample"] {
            compile(&sources.join(folder), &classes.join(folder), &class_path(&classes, "src"));
        }
        fs::write(made, "").expect("our own folder");
    }
    classes
});

fn compile(sources: &Path, classes: &Path, class_path: &str) {
    let to = classes.display().to_string();
    let files: Vec<String> = files(sources).iter().map(|file| file.display().to_string()).collect();
    let options = ["javac", "-Xlint:all", "-Werror", "--release", "17", "-d", &to, "-cp", class_path];
    let words: Vec<&str> = options.into_iter().chain(files.iter().map(String::as_str)).collect();
    run(sources, &words);
}

fn jar(name: &str) -> String {
    format!("{JARS}/{name}.jar")
}

/// The class path with our own classes of one folder before the JARs.
fn class_path(classes: &Path, folder: &str) -> String {
    let own = ["src", folder].map(|folder| classes.join(folder).display().to_string());
    let jars = TOMCAT.into_iter().chain([SERVLETS, DRIVER]).map(jar);
    own.into_iter().chain(jars).collect::<Vec<_>>().join(":")
}

/// The command of a Java VM that starts fast, with the classes of one folder.
fn java(folder: &str) -> Vec<String> {
    let quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"];
    let path = class_path(&CLASSES, folder);
    let words = ["java"].into_iter().chain(quick).chain(["-Xmx256m", "-cp", &path]);
    words.map(str::to_owned).collect()
}

fn url(database: &TestDatabase) -> String {
    format!("jdbc:postgresql://{}/{}?user=service", database.address, database.name)
}

/// The middleware keeps the contract, and its claims use the watermarks of the recipe.
#[test]
fn contract_and_recipe_claims_hold() {
    let database = format!("-Ddatabase={}", url(&fresh_database()));
    let mut words = java("test");
    words.extend(["-Dcontract=..".to_owned(), database, "fencegate.fencing.AllTests".to_owned()]);
    run(&upstream().join("java"), &words.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn readme_starts_sample() {
    assert_shown("java", "java");
    // libpq and JDBC expect the user at different places of the URL, so the URL of the README is replaced.
    let database = fresh_database();
    let plain = format!("postgresql://{}/{}?user=service", database.address, database.name);
    assert_starts("java", &[], &[("postgresql://127.0.0.1/accounts?user=postgres", &plain)]);
}

#[test]
fn sample_service_passes_verify() {
    let database = fresh_database();
    database.run(&tables("postgresql", "token"));
    let sample = SampleService::start(|port| {
        let mut words = java("sample");
        words.extend(["fencegate.sample.Service".to_owned(), url(&database), port.to_string()]);
        words.push("token".to_owned());
        words
    });
    sample.assert_verified("token", SampleRequests::Credits);
}

/// A service with the middleware begins no request after its `Fencing-Not-After`.
#[test]
fn late_request_is_refused() {
    assert_keeps_deadlines(|mode, file, port| {
        let mut words = java("sample");
        let port = port.to_string();
        words.extend(["fencegate.sample.InTime", mode.word(), file, &port].map(str::to_owned));
        words
    });
}
