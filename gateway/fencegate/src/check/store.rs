//! Checks whether a guard would find its store, and who uses it.

use std::{path::Path, time::Duration};

use fencegate_guard::{
    postgres::{PostgresStore, UnusableDatabaseError},
    store::StoreIdentity,
};
use fencegate_policies::{
    diagnose::Code,
    plan::{self, StoreLocation},
};
use fencegate_process::{again, said::causes};
use tokio::time::timeout;

use super::{files, findings::FindingCollector};
use crate::database;

/// The time limit for the database.
const LONGEST: Duration = Duration::from_secs(5);

pub(super) async fn look(findings: &FindingCollector, store: &StoreLocation) {
    match store {
        StoreLocation::Stateless => findings.saw("store", "none: a filter remembers nothing"),
        StoreLocation::Redb(file) => files::writable(findings, &["store", "redb"], folder(file)),
        StoreLocation::Postgres(from) => shared(findings, from).await,
    }
}

/// The folder of a file.
fn folder(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new("/"))
}

async fn shared(findings: &FindingCollector, from: &plan::PostgresLocation) {
    let way = ["store", "postgres"];
    let place = match database::place(from) {
        Ok(place) => place,
        Err(bad) => return files::unusable(findings, &way, &causes(&bad)),
    };
    let (why, remedy) = match timeout(LONGEST, PostgresStore::inspect(&place)).await {
        Ok(Ok(identity)) => {
            let StoreIdentity { store, ensemble, .. } = identity;
            findings
                .saw("store", format!("{place} has store {store}, for tokens of installation {ensemble}"));
            return;
        }
        Ok(Err(unusable)) => (causes(&unusable), remedy(&unusable)),
        Err(_) => (format!("{place} does not answer"), REACH.into()),
    };
    findings.wrong(&way, Code::NoStore, why, &remedy);
}

const REACH: &str = "start the database, or correct the address in `url_file`";

fn remedy(unusable: &UnusableDatabaseError) -> String {
    match unusable {
        UnusableDatabaseError::Missing { .. } => {
            let init = again::command(again::CommandTarget::Guard, "guard --init --floor E --ensemble UUID");
            format!("make the store once: `{init}`; `fencegate era show -c POLICY` prints both")
        }
        UnusableDatabaseError::Unfinished { from, .. } => {
            let migrate = again::command(
                again::CommandTarget::Guard,
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
