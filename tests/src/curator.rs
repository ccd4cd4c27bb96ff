//! The class path of Curator on Debian, for Java programs that take its locks.

/// The packages `libcurator-recipes-java`, `libzookeeper-java` and `libslf4j-java`, and what they need.
const JARS: [&str; 9] = [
    "curator-recipes",
    "curator-framework",
    "curator-client",
    "zookeeper",
    "zookeeper-jute",
    "guava",
    "slf4j-api",
    "slf4j-simple",
    "netty-all",
];

/// For `-cp`; what was compiled with it stands beside it.
pub fn class_path() -> String {
    JARS.map(|jar| format!("/usr/share/java/{jar}.jar")).join(":")
}
