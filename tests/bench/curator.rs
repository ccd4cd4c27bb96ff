//! The lock that Java services use: Curator's `InterProcessMutex`, from Debian's jars.

use std::{
    fs,
    io::ErrorKind,
    net::SocketAddr,
    path::PathBuf,
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fencegate::demo::child::Child;

use crate::{outcome::Outcome, run::Run};

/// For virtual machines that are up, to compile what is hot.
const WARM_UP: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_mins(1);

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

pub(crate) struct Curator {
    classes: PathBuf,
}

impl Curator {
    pub(crate) fn compile(run: &Run) -> Outcome<Self> {
        let classes = run.folder().join("curator");
        fs::create_dir_all(&classes)?;
        let source = classes.join("Locks.java");
        fs::write(&source, include_str!("Locks.java"))?;
        let mut javac = Command::new("javac");
        javac.arg("-d").arg(&classes).args(["-cp", &class_path()]).arg(source);
        let output = javac.output()?;
        if !output.status.success() {
            return Err(format!("javac: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(Self { classes })
    }

    /// Locks per second of several processes together, each with this many threads.
    pub(crate) fn locks(&self, run: &Run, zookeeper: SocketAddr, keys: u32, threads: &[u32]) -> Outcome<f64> {
        let start = self.classes.join("start");
        fs::remove_file(&start)
            .or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
        let command = |threads: u32| {
            format!(
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp {}:{} Locks {zookeeper} /curator {keys} {threads} {} {}",
                self.classes.display(),
                class_path(),
                start.display(),
                run.window.as_secs(),
            )
        };
        let machines: Vec<Child> = threads
            .iter()
            .map(|&threads| Child::spawn("java", command(threads).split(' ')))
            .collect::<Result<_, _>>()?;
        for machine in &machines {
            machine.wait_line(|line| line == "UP", PATIENCE)?;
        }
        let told = SystemTime::now().duration_since(UNIX_EPOCH)? + WARM_UP;
        let whole = start.with_extension("new");
        fs::write(&whole, told.as_millis().to_string())?;
        // Nobody reads half of it.
        fs::rename(whole, start)?;
        let mut locks = 0.0;
        for machine in &machines {
            let said =
                machine.wait_line(|line| line.starts_with("RESULT "), WARM_UP + run.window + PATIENCE)?;
            locks += said.trim_start_matches("RESULT ").parse::<f64>()?;
        }
        // They close their sessions; a lock of this turn is no part of the next.
        for machine in &machines {
            machine.wait(Duration::from_secs(10)).ok_or("a virtual machine does not end")?;
        }
        Ok(locks / run.window.as_secs_f64())
    }
}

fn class_path() -> String {
    JARS.map(|jar| format!("/usr/share/java/{jar}.jar")).join(":")
}
