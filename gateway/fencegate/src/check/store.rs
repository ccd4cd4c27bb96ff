//! Checks whether a guard would find its store, and who uses it.

use std::{path::Path, time::Duration};

use fencegate_guard::{
    postgres::{NotUsable, Postgres},
    store::Identity,
};
use fencegate_policies::{
    diagnose::Code,
    plan::{self, Store},
};
use fencegate_process::{again, said::causes};
use tokio::time::timeout;

use super::{files, findings::Findings};
use crate::database;

/// The time limit for the database.
const LONGEST: Duration = Duration::from_secs(5);

pub(super) async fn look(findings: &Findings, store: &Store) {
    match store {
        Store::Stateless => findings.saw("store", "none: a filter remembers nothing"),
        Store::Redb(file) => files::writable(findings, &["store", "redb"], folder(file)),
        Store::Postgres(from) => shared(findings, from).await,
    }
}

/// The folder of a file.
fn folder(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new("/"))
}

async fn shared(findings: &Findings, from: &plan::Postgres) {
    let way = ["store", "postgres"];
    let place = match database::place(from) {
        Ok(place) => place,
        Err(bad) => return files::unusable(findings, &way, &causes(&bad)),
    };
    let (why, remedy) = match timeout(LONGEST, Postgres::inspect(&place)).await {
        Ok(Ok(identity)) => {
            let Identity { store, ensemble, .. } = identity;
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

fn remedy(unusable: &NotUsable) -> String {
    match unusable {
        NotUsable::Missing { .. } => {
            let init = again::command(again::Of::Guard, "guard --init --floor E --ensemble UUID");
            format!("make the store once: `{init}`; `fencegate era show -c POLICY` prints both")
        }
        NotUsable::Unfinished { from, .. } => {
            let migrate =
                again::command(again::Of::Guard, &format!("guard migrate --from redb:{from} --to postgres"));
            format!("end what was begun: `{migrate}`")
        }
        NotUsable::NotDurable { setting, .. } => format!("write `{setting} = on` in its configuration"),
        NotUsable::NotFollowed { .. } => {
            "write its standby into `synchronous_standby_names`, or one host only into `url_file`".into()
        }
        NotUsable::Newer { .. } => "upgrade this guard".into(),
        _ => REACH.into(),
    }
}
