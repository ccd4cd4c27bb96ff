//! Files that TLS is spoken with, on both sides: bounded, not readable by strangers where secret, and looked at again.

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

/// What is wrong with a file. Quotes nothing of it.
#[derive(Debug, thiserror::Error)]
pub enum BadPem {
    #[error("read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is no file, or larger than 16 MiB")]
    Shape { path: PathBuf },
    #[error("{path} is not PEM, or has nothing of what belongs there: {why}")]
    Content { path: PathBuf, why: String },
    #[error(
        "{path} has mode {mode:04o}: others can read this key; run `chmod 600 {path}`, and make a new one"
    )]
    Readable { path: PathBuf, mode: u32 },
}

/// Tells one state of a file from another: device and inode, size, times of modification and of change.
pub type Stamp = [i128; 4];

const LARGEST: u64 = 16 << 20;

/// At least one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, BadPem> {
    let bytes = read(path, Secrecy::Public)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match read.map_err(|why| unfit(path, &why))? {
        none if none.is_empty() => Err(unfit(path, &"it has no certificate")),
        certificates => Ok(certificates),
    }
}

pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, BadPem> {
    let bytes = read(path, Secrecy::Secret)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|why| unfit(path, &why))
}

/// Whom to believe: each certificate of the file has to be one that can be.
pub fn roots(path: &Path) -> Result<RootCertStore, BadPem> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|why| unfit(path, &why))?;
    }
    Ok(roots)
}

/// What stands in a file, for who reads PEM by itself. A byte that is no text stands in a comment.
pub fn text(path: &Path, secrecy: Secrecy) -> Result<String, BadPem> {
    Ok(String::from_utf8_lossy(&read(path, secrecy)?).into_owned())
}

/// Seconds since 1970 after which a certificate is not valid any more. `None` for what is no certificate.
pub fn not_after(certificate: &[u8]) -> Option<u64> {
    let read = Certificate::from_der(certificate).ok()?;
    Some(read.tbs_certificate.validity.not_after.to_unix_duration().as_secs())
}

fn unfit(path: &Path, why: &impl ToString) -> BadPem {
    BadPem::Content { path: path.into(), why: why.to_string() }
}

/// Whether others may know what is in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrecy {
    Public,
    /// The group may read it: that is how a container is given a secret.
    Secret,
}

fn read(path: &Path, secrecy: Secrecy) -> Result<Vec<u8>, BadPem> {
    let failed = |source| BadPem::Read { path: path.into(), source };
    let file = File::open(path).map_err(failed)?;
    // Of the open file, not of the name: what is checked is what is read.
    let seen = file.metadata().map_err(failed)?;
    let mode = seen.mode() & 0o7777;
    if secrecy == Secrecy::Secret && mode & 0o027 != 0 {
        return Err(BadPem::Readable { path: path.into(), mode });
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
    if !seen.is_file() || bytes.len() as u64 > LARGEST {
        return Err(BadPem::Shape { path: path.into() });
    }
    Ok(bytes)
}

/// `None` while there is no such file.
pub fn stamp_of(path: &Path) -> Option<Stamp> {
    std::fs::metadata(path).ok().map(|seen| stamp(&seen))
}

fn stamp(seen: &Metadata) -> Stamp {
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    let identity = (i128::from(seen.dev()) << 64) + i128::from(seen.ino());
    let (modified, changed) =
        (nanos(seen.mtime(), seen.mtime_nsec()), nanos(seen.ctime(), seen.ctime_nsec()));
    [identity, seen.size().into(), modified, changed]
}
