//! A container to install packages in. It has the programs of this machine, its own namespaces and a writable layer,
//! so this machine is not changed.

use std::{fs, os::unix::fs::symlink, path::Path};

use fencegate_testkit::scratch;
use tempfile::TempDir;

use super::programs::{path, run};

/// The files of the container, and the files that packages have added to `/usr`.
pub(super) struct TestMachine(TempDir);

impl TestMachine {
    pub(super) fn new() -> Self {
        let home = TempDir::new_in(scratch::folder()).expect("a folder");
        for folder in
            ["upper", "work", "root/usr", "root/etc/systemd/system", "root/dev", "root/proc", "root/run"]
        {
            fs::create_dir_all(home.path().join(folder)).expect("our own folder");
        }
        for folder in ["root/tmp", "root/var/lib/dpkg/info", "root/var/lib/dpkg/updates", "root/var/lib/rpm"]
        {
            fs::create_dir_all(home.path().join(folder)).expect("our own folder");
        }
        for folder in ["bin", "sbin", "lib", "lib64"] {
            symlink(format!("usr/{folder}"), home.path().join("root").join(folder)).expect("our own folder");
        }
        let machine = Self(home);
        machine.write_file("var/lib/dpkg/status", "");
        machine.write_file("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
        machine.write_file("etc/group", "root:x:0:\n");
        machine
    }

    fn root(&self) -> std::path::PathBuf {
        self.0.path().join("root")
    }

    /// Copies a file into `/tmp` of the container, under the same name.
    pub(super) fn install_file(&self, file: &Path) {
        let name = file.file_name().expect("a file");
        fs::copy(file, self.root().join("tmp").join(name)).expect("our own folder");
    }

    /// Copies files and folders of this machine that are not below `/usr` to the same paths in the container.
    pub(super) fn mount_settings(&self, all: &[&str]) {
        for one in all {
            let to = self.root().join(one.trim_start_matches('/'));
            fs::create_dir_all(to.parent().expect("a folder")).expect("our own folder");
            run("cp", &["-a", one, path(&to)]);
        }
    }

    pub(super) fn write_file(&self, file: &str, text: &str) {
        let file = self.root().join(file);
        fs::create_dir_all(file.parent().expect("a folder")).expect("our own folder");
        fs::write(file, text).expect("our own folder");
    }

    /// The text of a file outside of `/usr`, if it exists.
    pub(super) fn read_file(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.root().join(file)).ok()
    }

    /// True if the file exists. A symbolic link counts, even if its target is missing.
    pub(super) fn has(&self, file: &str) -> bool {
        let file = match file.strip_prefix("usr/") {
            Some(file) => self.0.path().join("upper").join(file),
            None => self.root().join(file),
        };
        // The overlay marks a removed file by a character device, so the type has to be checked.
        fs::symlink_metadata(file).is_ok_and(|found| found.is_file() || found.is_symlink())
    }

    /// Runs a shell command in the container, as its root, and returns the output. The container has its own network
    /// and network settings.
    pub(super) fn run_line(&self, line: &str) -> String {
        let at = path(self.0.path());
        let enter = format!(
            "set -e
             mount -t overlay overlay -o lowerdir=/usr,upperdir='{at}/upper',workdir='{at}/work',userxattr '{at}/root/usr'
             mount --rbind /dev '{at}/root/dev'
             mount -t proc proc '{at}/root/proc'
             exec env -i PATH=/usr/sbin:/usr/bin SYSTEMD_OFFLINE=1 chroot '{at}/root' sh -ec \"$1\" 2>&1"
        );
        let own = ["--map-root-user", "--mount", "--net", "--pid", "--fork", "sh", "-c", &enter, "sh", line];
        run("unshare", &own)
    }
}
