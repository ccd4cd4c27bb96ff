//! Sends a backup of a running guard's store to an authenticated caller.
//!
//! A backup contains kept responses and all keys in plain text, so it reveals more than any other endpoint. A thread
//! of its own reads the store as of one moment. Until the read ends, later changes take extra space in the store's
//! file; so a receiver that does not read is disconnected.

use std::{
    io::{self, Write},
    time::{Duration, Instant},
};

use axum::{
    Extension, Router,
    body::{Body, Bytes},
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
    routing::post,
};
use fencegate_guard::{BackupError, Guard};
use fencegate_guard_store::store::backup::BackupHeader;
use fencegate_process::{display::FormattedDuration, failpoint};
use futures_util::stream::unfold;
use tokio::{
    runtime::Handle,
    sync::mpsc::{self, Sender},
    task::spawn_blocking,
    time::timeout,
};
use tracing::{info, warn};

use super::{
    auth::AdminPrincipal,
    error::{AdminErrorCode, AdminRefusal, AuditAction},
    outcomes::state::GuardAdminState,
};

pub(super) fn routes() -> Router<GuardAdminState> {
    Router::new().route("/api/v1/backup", post(backup))
}

/// The longest time until the receiver takes the next part.
const STALLED: Duration = Duration::from_secs(10);

/// The longest time from the moment of the backup to its end.
const LONGEST: Duration = Duration::from_secs(300);

/// The most parts that are queued for the receiver.
const AHEAD: usize = 2;

async fn backup(
    State(seen): State<GuardAdminState>,
    Extension(principal): Extension<AdminPrincipal>,
) -> Result<Response, AdminRefusal> {
    if !principal.is_authenticated() {
        let message = "it asks nobody who they are, and a backup has kept answers and every key in it; write \
                    `auth: {bearer_file: FILE}` into `admin` of the guard's file, or take it with `--offline` from a \
                    guard that is stopped";
        return Err(AdminRefusal::new(AdminErrorCode::Open, message));
    }
    let busy = || {
        AdminRefusal::new(AdminErrorCode::Away, "another backup is being made; try again when it has ended")
    };
    let only = seen.backups.clone().try_acquire_owned().map_err(|_| busy())?;
    let (to, mut parts) = mpsc::channel(AHEAD);
    let guard = seen.guard.clone();
    let runtime = Handle::current();
    spawn_blocking(move || {
        let receiver =
            BackupStreamWriter { to: to.clone(), runtime: runtime.clone(), until: Instant::now() + LONGEST };
        // If a part is missing, nothing follows: the response is cut off, and its receiver detects that.
        if let Err(fault) = write_backup(&guard, receiver) {
            runtime.block_on(async { timeout(STALLED, to.send(Err(fault))).await }).ok();
        }
        drop(only);
    });
    let first = parts
        .recv()
        .await
        .ok_or_else(|| AdminRefusal::new(AdminErrorCode::Away, "the backup ended unmade"))??;
    let rest = unfold((Some(first), parts), async |(first, mut parts)| {
        let part = match first {
            Some(first) => Ok(first),
            None => parts.recv().await?.map_err(|fault: AdminRefusal| io::Error::other(fault.message)),
        };
        Some((part, (None, parts)))
    });
    let did = AuditAction("backup of the store".into());
    let body = Body::from_stream(rest);
    Ok((Extension(did), [(CONTENT_TYPE, "application/octet-stream")], body).into_response())
}

fn write_backup(guard: &Guard, mut receiver: BackupStreamWriter) -> Result<(), AdminRefusal> {
    let began = Instant::now();
    match guard.back_up(&mut receiver) {
        Ok(header) => {
            let BackupHeader { marks, operations, highest, .. } = header;
            info!(keys = marks, operations, highest, took = %FormattedDuration(began.elapsed()), "guard.backed_up");
            Ok(())
        }
        Err(BackupError::Shared) => Err(AdminRefusal::new(
            AdminErrorCode::Elsewhere,
            "FG0613: the store is a PostgreSQL that guards share, and is backed up with its own tools; see `fencegate \
             explain FG0613`",
        )),
        Err(BackupError::Copy(why)) => {
            warn!(%why, "guard.not_backed_up");
            Err(AdminRefusal::new(AdminErrorCode::Away, why.to_string()))
        }
    }
}

/// The receiver of the backup, as a target for the reader of the store.
struct BackupStreamWriter {
    to: Sender<Result<Bytes, AdminRefusal>>,
    runtime: Handle,
    until: Instant,
}

impl Write for BackupStreamWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        failpoint::pass("guard_backs_up");
        let patience = STALLED.min(self.until.saturating_duration_since(Instant::now()));
        let part = Bytes::copy_from_slice(bytes);
        match self.runtime.block_on(async { timeout(patience, self.to.send(Ok(part))).await }) {
            Ok(Ok(())) => Ok(bytes.len()),
            Ok(Err(_gone)) => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the receiver has hung up")),
            Err(_elapsed) => Err(io::Error::new(io::ErrorKind::TimedOut, "the receiver is too slow")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
