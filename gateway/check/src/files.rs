//! Checks the files that a policy names: whether they exist, whether their content is right, and when they expire.

use std::{
    fs,
    os::unix::fs::FileTypeExt,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fencegate_config::{bearer::ExpectedBearerToken, key_secret};
use fencegate_http::{
    buffered::{DefaultMemoryLimit, memory_allowance},
    listen::certificates::read_certificate_expiries,
};
use fencegate_policies::{
    diagnostics::{Diagnostic, DiagnosticCode},
    plan::{
        AdminListenerSettings, BindAddress, LeaseGrantSettings, ListenerLimits, ListenerTls, LogSettings,
        PrincipalCredential, buffer_limits,
    },
};
use fencegate_process::display::error_chain;
use fencegate_zookeeper::state::{self, HighestEpochRecord};
use rustix::fs::{Access, access, statvfs};

use super::findings::FindingCollector;

/// The time before its end at which a certificate is reported, so that it can be renewed.
const SOON: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// The certificates that a listener presents.
pub(super) fn check_listener(findings: &FindingCollector, way: &[&str], tls: Option<&ListenerTls>) {
    let Some(tls) = tls else { return };
    match read_certificate_expiries(tls) {
        Err(bad) => {
            let remedy = "put a certificate with its chain and its own key there, in PEM; the process does not start without";
            findings.report_problem(way, DiagnosticCode::ListenerTls, error_chain(&bad), remedy);
        }
        Ok(examined) => {
            for (number, (path, until)) in examined.iter().enumerate() {
                let number = number.to_string();
                let way = [way, &["certificates", &number, "certificate_file"]].concat();
                check_certificate_expiry(findings, &way, &path.display().to_string(), *until);
            }
        }
    }
}

/// Checks how much memory bodies may take on this machine or in this container. `way` is the path of the limits
/// in the file.
pub(super) fn check_memory(findings: &FindingCollector, way: &[&str], limits: &ListenerLimits) {
    let mib = |bytes: usize| bytes >> 20;
    let says = match limits.buffered {
        // A value that is too small is reported when the file is read, without a check of the machine.
        Some(bytes) => format!("{} MiB, as `limits.buffered` says", mib(bytes)),
        None => {
            let DefaultMemoryLimit { bytes, source: of } = memory_allowance();
            if buffer_limits::max_body(bytes) < limits.max_body {
                let message = format!(
                    "a body that `max_body` lets come never finds room: it may have {} bytes, and one body takes at most {} \
                     of the memory that the {of} allows",
                    limits.max_body,
                    buffer_limits::max_body(bytes)
                );
                let remedy = "lower `max_body`, or give the process more memory";
                findings.report_problem(
                    &[way, &["max_body"]].concat(),
                    DiagnosticCode::SmallMemory,
                    message,
                    remedy,
                );
            }
            format!("{} MiB, a part of what the {of} allows", mib(bytes))
        }
    };
    findings.record("memory for bodies", says);
}

pub(super) fn check_admin(findings: &FindingCollector, admin: &AdminListenerSettings) {
    check_listener(findings, &["admin", "tls"], admin.tls.as_ref());
    if let Some(file) = &admin.bearer
        && let Err(bad) = ExpectedBearerToken::open(file)
    {
        report_unusable(findings, &["admin", "auth", "bearer_file"], &error_chain(&bad));
    }
}

/// Checks the secret of the hashes of keys.
pub(super) fn check_key_hash_secret(findings: &FindingCollector, log: &LogSettings) {
    if let Err(bad) = key_secret::load(log) {
        report_unusable(findings, &["log", "key_secret_file"], &error_chain(&bad));
    }
}

/// Checks the credentials of clients that hold leases.
pub(super) fn check_lease_credentials(findings: &FindingCollector, leases: &LeaseGrantSettings) {
    for (number, principal) in leases.principals.iter().enumerate() {
        let PrincipalCredential::Bearer(file) = &principal.shows else { continue };
        if let Err(bad) = ExpectedBearerToken::open(file) {
            let way = ["leases", "principals", &number.to_string(), "bearer", "file"];
            report_unusable(findings, &way, &error_chain(&bad));
        }
    }
}

pub(super) fn report_unusable(findings: &FindingCollector, way: &[&str], why: &str) {
    let remedy = "the process does not start without it: see that it is there, and who may read it";
    findings.report_problem(way, DiagnosticCode::FileUnusable, why, remedy);
}

/// Reports a certificate that has expired, or will soon. `until`: its end, in seconds since 1970.
pub(super) fn check_certificate_expiry(
    findings: &FindingCollector,
    way: &[&str],
    which: &str,
    until: Option<u64>,
) {
    let Some(until) = until else { return };
    let left = (UNIX_EPOCH + Duration::from_secs(until)).duration_since(SystemTime::now());
    match left {
        Err(_) => {
            let fault =
                Diagnostic::new(DiagnosticCode::Expired, format!("the certificate {which} has expired"));
            findings.report(
                way,
                fault.with_remedy("put a new one in its place: it is taken over while the process runs"),
            );
        }
        Ok(left) if left < SOON => {
            let message = format!("the certificate {which} expires in {} days", left.as_secs() / 86_400);
            let remedy = "put a new one in its place: it is taken over while the process runs";
            findings.report_problem(way, DiagnosticCode::ExpiresSoon, message, remedy);
        }
        Ok(left) => {
            findings.record("certificates", format!("{which} is valid for {} days", left.as_secs() / 86_400))
        }
    }
}

/// The records that a gateway would find in its `state_dir`.
pub(super) fn check_state_dir(findings: &FindingCollector, folder: &Path) -> Vec<HighestEpochRecord> {
    check_writable(findings, &["state_dir"], folder);
    if !folder.is_dir() {
        return Vec::new();
    }
    match state::read_records(folder) {
        Ok(records) => {
            if records.is_empty() {
                findings.record("state", "nothing was written down yet");
            }
            for HighestEpochRecord { installation, era, highest } in &records {
                let what = format!("installation {installation} in era {era}, up to epoch {highest}");
                findings.record("state", what);
            }
            return records;
        }
        Err(error) => {
            let remedy =
                "put a copy back, or move the file away and begin the next era: `fencegate explain FG0519`";
            findings.report_problem(
                &["state_dir"],
                DiagnosticCode::StateUnusable,
                error_chain(&error),
                remedy,
            );
        }
    }
    Vec::new()
}

/// Checks the place of the public listener's unix socket. `way` is the path of its address in the file.
pub(super) fn check_unix_socket(findings: &FindingCollector, way: &[&str], bind: &BindAddress) {
    let BindAddress::Unix(file) = bind else { return };
    let path = file.path.display();
    let folder = file.path.parent().unwrap_or(Path::new("/"));
    let stands = fs::symlink_metadata(&file.path);
    if let Err(error) = access(folder, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
        let message =
            format!("the folder {} of the socket cannot be read and written: {error}", folder.display());
        let remedy = "make it, for the user that the process runs as: `RuntimeDirectory=` of systemd does";
        findings.report_problem(way, DiagnosticCode::SocketUnusable, message, remedy);
    } else if stands.as_ref().is_ok_and(|stands| !stands.file_type().is_socket()) {
        let message = format!("what stands at {path} is no socket");
        findings.report_problem(
            way,
            DiagnosticCode::SocketUnusable,
            message,
            "move it away, or name another path",
        );
    } else {
        let says =
            if stands.is_ok() { "is there, of a process that runs or was killed" } else { "can be made" };
        findings.record("socket", format!("{path} {says}"));
    }
}

/// Checks the room on the disk of a folder that can be written.
fn check_disk_space(findings: &FindingCollector, way: &[&str], folder: &Path) {
    let folder_name = folder.display();
    let Ok(disk) = statvfs(folder) else {
        return findings.record("folders", format!("{folder_name} can be written"));
    };
    let room = DiskRoom { free: disk.f_bavail * disk.f_frsize, size: disk.f_blocks * disk.f_frsize };
    findings.record("folders", format!("{folder_name} can be written, with {room}"));
    if room.is_nearly_full() {
        let message = format!("the disk of {folder_name} is nearly full: {room}");
        let remedy = "make room before the process starts: what it has to write there, it ends without";
        findings.report_problem(way, DiagnosticCode::NoRoom, message, remedy);
    }
}

/// The free bytes and the size of a file system.
struct DiskRoom {
    free: u64,
    size: u64,
}

impl DiskRoom {
    /// True if less than a tenth is free, which is the limit of the alert about the disk of a guard, or too
    /// little for a transaction log.
    fn is_nearly_full(&self) -> bool {
        const LEAST: u64 = 64 << 20;
        self.free < LEAST || self.free < self.size / 10
    }
}

impl std::fmt::Display for DiskRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} MiB of {} MiB free", self.free >> 20, self.size >> 20)
    }
}

/// Checks whether the folder can be written. Queries the system, and writes nothing.
pub(super) fn check_writable(findings: &FindingCollector, way: &[&str], folder: &Path) {
    match access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) if folder.is_dir() => check_disk_space(findings, way, folder),
        other => {
            let why = other.map_or_else(|error| error.to_string(), |()| "it is no folder".to_owned());
            let message = format!("nothing can be written to {}: {why}", folder.display());
            let remedy = "make the folder, and give it to the user that the process runs as";
            findings.report_problem(way, DiagnosticCode::FolderUnusable, message, remedy);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use fencegate_policies::{
        file::load,
        plan::{GatewayPlan, UnixSocketFile},
    };

    use super::*;

    const POLICY: &str = include_str!("../../../policies/examples/minimal.yaml");

    /// The codes of the problems, and the observed facts, without the room on the disk, which is that of the
    /// machine that runs the test.
    fn findings_of(look: impl FnOnce(&FindingCollector)) -> (Vec<DiagnosticCode>, Vec<String>) {
        let findings = FindingCollector::new(POLICY);
        look(&findings);
        let (facts, problems) = findings.into_sorted();
        let codes = problems.into_iter().map(|one| one.code).filter(|code| *code != DiagnosticCode::NoRoom);
        (codes.collect(), facts.into_iter().map(|one| one.says).collect())
    }

    fn minimal_plan() -> GatewayPlan {
        load(POLICY).plan.expect("a sound policy")
    }

    /// A certificate is reported once it has expired, and in its last two weeks.
    #[test]
    fn certificate_is_reported_before_its_end() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let day = 24 * 60 * 60;
        for (until, problem) in [
            (now - 1, Some(DiagnosticCode::Expired)),
            (now + 13 * day, Some(DiagnosticCode::ExpiresSoon)),
            (now + 15 * day, None),
        ] {
            let (problems, facts) =
                findings_of(|findings| check_certificate_expiry(findings, &["admin"], "a.pem", Some(until)));
            assert_eq!(problems, Vec::from_iter(problem));
            assert_eq!(facts.is_empty(), problem.is_some(), "{facts:?}");
        }
        let (problems, facts) =
            findings_of(|findings| check_certificate_expiry(findings, &["admin"], "a.pem", None));
        assert!(problems.is_empty() && facts.is_empty(), "its end is not known");
    }

    /// The memory for bodies is stated; a body that never finds room in it is a problem.
    #[test]
    fn body_without_room_is_reported() {
        let limits = minimal_plan().serving.listener.limits;
        let look =
            |limits: &ListenerLimits| findings_of(|findings| check_memory(findings, &["limits"], limits));
        let (problems, facts) = look(&ListenerLimits { buffered: Some(64 << 20), ..limits.clone() });
        assert_eq!((problems, facts), (vec![], vec!["64 MiB, as `limits.buffered` says".to_owned()]));
        let (problems, facts) = look(&ListenerLimits { buffered: None, max_body: usize::MAX, ..limits });
        assert_eq!((problems, facts.len()), (vec![DiagnosticCode::SmallMemory], 1));
    }

    /// A socket needs a folder that can be written, and no other file in its place.
    #[test]
    fn socket_needs_folder_and_free_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let look = |name: &str| {
            let bind = BindAddress::Unix(UnixSocketFile { path: folder.path().join(name), mode: 0o660 });
            findings_of(|findings| check_unix_socket(findings, &["listeners"], &bind))
        };
        let (problems, facts) = look("new.sock");
        assert!(problems.is_empty() && facts[0].ends_with("can be made"), "{facts:?}");
        let _listener = UnixListener::bind(folder.path().join("here.sock")).expect("a socket");
        let (problems, facts) = look("here.sock");
        assert!(problems.is_empty() && facts[0].contains("is there"), "{facts:?}");
        fs::write(folder.path().join("file.sock"), "").expect("a file");
        for unusable in ["file.sock", "missing/a.sock"] {
            assert_eq!(look(unusable), (vec![DiagnosticCode::SocketUnusable], vec![]), "{unusable}");
        }
    }

    /// A folder that is missing, or is a file, cannot be written.
    #[test]
    fn folder_must_be_writable() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "").expect("a file");
        let look = |path: &Path| findings_of(|findings| check_writable(findings, &["state_dir"], path));
        let (problems, facts) = look(folder.path());
        assert!(problems.is_empty() && !facts.is_empty(), "{facts:?}");
        for unusable in [&file, &folder.path().join("missing")] {
            assert_eq!(look(unusable), (vec![DiagnosticCode::FolderUnusable], vec![]));
        }
    }

    /// An empty state directory has no records, and one whose record cannot be read is a problem.
    #[test]
    fn state_of_new_gateway_is_empty() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut records = Vec::new();
        let (problems, facts) = findings_of(|findings| records = check_state_dir(findings, folder.path()));
        assert!(problems.is_empty() && records.is_empty());
        assert!(facts.contains(&"nothing was written down yet".to_owned()), "{facts:?}");
    }

    /// Secrets that a policy names and that do not exist are reported with the field that names them.
    #[test]
    fn missing_secrets_are_reported() {
        let text = format!("{POLICY}\nlog: {{keys: hash, key_secret_file: /nowhere/secret}}\n");
        let log = load(&text).plan.expect("a sound policy").serving.log;
        let (problems, _) = findings_of(|findings| check_key_hash_secret(findings, &log));
        assert_eq!(problems, [DiagnosticCode::FileUnusable]);
        let (problems, _) =
            findings_of(|findings| check_key_hash_secret(findings, &minimal_plan().serving.log));
        assert!(problems.is_empty());
    }

    /// A disk counts as nearly full by the part of it that is free, and before anything fails. A small disk with
    /// enough room does not.
    #[test]
    fn nearly_full_disk_is_told() {
        const GIB: u64 = 1 << 30;
        for (free, size, full) in [
            (0, GIB, true),
            (GIB, 100 * GIB, true),
            (63 << 20, 200 << 20, true),
            (20 * GIB, 100 * GIB, false),
            (150 << 20, 200 << 20, false),
        ] {
            assert_eq!(DiskRoom { free, size }.is_nearly_full(), full, "{free} of {size}");
        }
    }
}
