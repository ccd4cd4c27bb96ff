//! The class path of Curator on Debian, for Java programs that take its locks.

/// The jars of the packages `libcurator-recipes-java`, `libzookeeper-java` and `libslf4j-java`, and of those that
/// they need.
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

/// The argument of `-cp`, without the classes of the program itself.
pub fn class_path() -> String {
    JARS.map(|jar| format!("/usr/share/java/{jar}.jar")).join(":")
}
