//! Curator's locks, which Java services use: `InterProcessMutex`, and `InterProcessMultiLock` for several keys at
//! once, from Debian's jars.

use std::{fs, net::SocketAddr, path::PathBuf, process::Command};

use fencegate_tests::curator::class_path;

use crate::{lock_clients::LockClients, result::BenchResult, run::BenchRun};

pub(crate) struct CuratorProgram {
    classes: PathBuf,
}

impl CuratorProgram {
    pub(crate) fn compile(run: &BenchRun) -> BenchResult<Self> {
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

    /// Locks per second of several processes together. `threads`: the number of threads of each process. Each lock
    /// is one of `keys` locks, and consists of `set` parts that are taken together.
    pub(crate) fn measure_lock_rate(
        &self,
        run: &BenchRun,
        zookeeper: SocketAddr,
        keys: u32,
        set: u32,
        threads: &[u32],
    ) -> BenchResult<f64> {
        let start = self.classes.join("start");
        let command = |threads: &u32| {
            let words = format!(
                "java -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp {}:{} Locks {zookeeper} /curator {keys} {threads} {} {} {set}",
                self.classes.display(),
                class_path(),
                start.display(),
                run.window.as_secs(),
            );
            words.split(' ').map(str::to_owned).collect()
        };
        LockClients::start(start.clone(), threads.iter().map(command))?.measure_rate(run.window)
    }
}
