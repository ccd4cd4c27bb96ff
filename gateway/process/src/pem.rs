//! Reads files for TLS: of bounded size, secrets only if other users cannot read them, with a version that detects
//! changes.

use std::{
    fs::{File, Metadata},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use x509_cert::{Certificate, der::Decode};

/// Errors of reading a file. The texts quote no part of it.
#[derive(Debug, thiserror::Error)]
pub enum PemError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is no file, or larger than 16 MiB")]
    Shape { path: PathBuf },
    #[error("{path} is not PEM, or lacks the certificate or key that belongs there: {why}")]
    Content { path: PathBuf, why: String },
    #[error(
        "{path} has mode {mode:04o}: others can read this key; run `chmod 600 {path}`, and make a new one"
    )]
    Readable { path: PathBuf, mode: u32 },
}

/// A value that changes when a file changes: device and inode, size, times of modification and of change.
pub type FileVersion = [i128; 4];

const LARGEST: u64 = 16 << 20;

/// The byte order mark, U+FEFF, in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The certificates of a file, at least one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let bytes = read(path, FileSecrecy::Public)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match read.map_err(|error| content_error(path, &error))? {
        none if none.is_empty() => Err(content_error(path, &"it has no certificate")),
        certificates => Ok(certificates),
    }
}

pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, PemError> {
    let bytes = read(path, FileSecrecy::Secret)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| content_error(path, &error))
}

/// The trusted authorities of a file. Each certificate has to be usable as an authority.
pub fn roots(path: &Path) -> Result<RootCertStore, PemError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| content_error(path, &error))?;
    }
    Ok(roots)
}

/// The text of a file, for libraries that parse PEM themselves. Bytes that are not UTF-8 can only be in comments, and
/// are replaced.
pub fn read_text(path: &Path, secrecy: FileSecrecy) -> Result<String, PemError> {
    Ok(String::from_utf8_lossy(&read(path, secrecy)?).into_owned())
}

/// The end of validity of a certificate, in seconds since 1970. `None` if it cannot be parsed.
pub fn not_after(certificate: &[u8]) -> Option<u64> {
    let read = Certificate::from_der(certificate).ok()?;
    Some(read.tbs_certificate.validity.not_after.to_unix_duration().as_secs())
}

fn content_error(path: &Path, why: &impl ToString) -> PemError {
    PemError::Content { path: path.into(), why: why.to_string() }
}

/// Whether the content of a file is secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSecrecy {
    Public,
    /// Only owner and group may read it; containers get their secrets by a group.
    Secret,
}

fn read(path: &Path, secrecy: FileSecrecy) -> Result<Vec<u8>, PemError> {
    let failed = |source| PemError::Read { path: path.into(), source };
    let file = File::open(path).map_err(failed)?;
    // The check is on the open file and not on its name, so that the checked file is the one that is read.
    let seen = file.metadata().map_err(failed)?;
    let mode = seen.mode() & 0o7777;
    if secrecy == FileSecrecy::Secret && mode & 0o027 != 0 {
        return Err(PemError::Readable { path: path.into(), mode });
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
    if !seen.is_file() || bytes.len() as u64 > LARGEST {
        return Err(PemError::Shape { path: path.into() });
    }
    // Editors of Windows write this mark before the first line. With it that line is no PEM, so the mark is removed.
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(bytes)
}

/// The version of a file; `None` if there is no such file.
pub fn file_version(path: &Path) -> Option<FileVersion> {
    std::fs::metadata(path).ok().map(|seen| version_from_metadata(&seen))
}

fn version_from_metadata(seen: &Metadata) -> FileVersion {
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    let identity = (i128::from(seen.dev()) << 64) + i128::from(seen.ino());
    let modified = nanos(seen.mtime(), seen.mtime_nsec());
    let changed = nanos(seen.ctime(), seen.ctime_nsec());
    [identity, seen.size().into(), modified, changed]
}
