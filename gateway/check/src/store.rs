//! Checks whether a guard would find its store, and which process uses it.

use std::{path::Path, time::Duration};

use fencegate_config::store_config;
use fencegate_guard_postgres::postgres::{PostgresStore, UnusableDatabaseError};
use fencegate_guard_store::store::StoreIdentity;
use fencegate_policies::{
    diagnostics::DiagnosticCode,
    plan::{self, GuardStoreLocation},
};
use fencegate_process::{command_hint, display::error_chain};
use tokio::time::timeout;

use super::{files, findings::FindingCollector};

/// The time limit for the database.
const LONGEST: Duration = Duration::from_secs(5);

pub(super) async fn check(findings: &FindingCollector, store: &GuardStoreLocation) {
    match store {
        GuardStoreLocation::Stateless => findings.record("store", "none: a filter remembers nothing"),
        GuardStoreLocation::Redb(file) => {
            files::check_writable(findings, &["store", "redb"], parent_folder(file))
        }
        GuardStoreLocation::Postgres(from) => check_postgres_store(findings, from).await,
    }
}

/// The folder of a file.
fn parent_folder(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new("/"))
}

async fn check_postgres_store(findings: &FindingCollector, from: &plan::PostgresLocation) {
    let way = ["store", "postgres"];
    let place = match store_config::load_store_config(from) {
        Ok(place) => place,
        Err(bad) => return files::report_unusable(findings, &way, &error_chain(&bad)),
    };
    let (why, remedy) = match timeout(LONGEST, PostgresStore::inspect(&place)).await {
        Ok(Ok(identity)) => {
            let StoreIdentity { store, ensemble, .. } = identity;
            findings
                .record("store", format!("{place} has store {store}, for tokens of installation {ensemble}"));
            return;
        }
        Ok(Err(unusable)) => (error_chain(&unusable), remedy(&unusable)),
        Err(_) => (format!("{place} does not answer"), REACH.into()),
    };
    findings.report_problem(&way, DiagnosticCode::NoStore, why, &remedy);
}

const REACH: &str = "start the database, or correct the address in `url_file`";

fn remedy(unusable: &UnusableDatabaseError) -> String {
    match unusable {
        UnusableDatabaseError::Missing { .. } => {
            let init = command_hint::command_line(
                command_hint::CommandHintTarget::Guard,
                "guard --init --floor E --ensemble UUID",
            );
            format!("make the store once: `{init}`; `fencegate era show -c POLICY` prints both")
        }
        UnusableDatabaseError::Unfinished { from, .. } => {
            let migrate = command_hint::command_line(
                command_hint::CommandHintTarget::Guard,
                &format!("guard migrate --from redb:{from} --to postgres"),
            );
            format!("end what was begun: `{migrate}`")
        }
        UnusableDatabaseError::NotDurable { setting, .. } => {
            format!("write `{setting} = on` in its configuration")
        }
        UnusableDatabaseError::NotFollowed { .. } => {
            "write its standby into `synchronous_standby_names`, or one host only into `url_file`".into()
        }
        UnusableDatabaseError::Newer { .. } => "upgrade this guard".into(),
        _ => REACH.into(),
    }
}
