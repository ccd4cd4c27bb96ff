//! Lists operations with an unknown outcome for an operator, and resolves them, directly in ZooKeeper.

use std::time::Duration;

use fencegate_process::{again, clock::wall_clock};

use super::record::{Record, State};

use crate::recipe::saying;
use crate::session::{
    link::{Failed, Fault, Link, Seen, Step},
    paths::Paths,
};

/// An operation that was admitted and has no recorded outcome.
#[derive(Debug, Clone)]
pub struct Unresolved {
    pub reference: String,
    pub record: Record,
    /// The lock that it was sent under is still held: it may be running now.
    pub may_run: bool,
    path: String,
    version: i32,
}

/// Why operations could not be listed or resolved.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("read {path}")]
    Read { path: String, source: Fault },
    #[error(
        "no operation is unknown under the reference `{0}`; `{list}` shows those that are",
        list = again::command(again::Of::Gateway, "once list")
    )]
    NotFound(String),
    #[error("`{0}` means more than one operation; give more of it")]
    Several(String),
    #[error("the lock of operation {0} is still held, so it may be running now; wait, or add `--force`")]
    MayRun(String),
    #[error(
        "operation {reference} may still be begun for another {left} s; ask the service again then, or add `--force`"
    )]
    MayBegin { reference: String, left: u64 },
    #[error("write down what came of operation {reference}")]
    Write { reference: String, source: Failed },
}

/// All of them. `base`: of the era, to know locks by their tokens.
pub async fn all(link: &impl Link, paths: &Paths, base: u64) -> Result<Vec<Unresolved>, Trouble> {
    let mut open = Vec::new();
    for shard in children(link, &paths.operations()).await? {
        let shard = format!("{}/{shard}", paths.operations());
        for name in children(link, &shard).await? {
            open.extend(read(link, paths, base, (&shard, &name)).await?);
        }
    }
    open.sort_by_key(|open| open.record.admitted);
    Ok(open)
}

/// `None` if the outcome is known, or the record is gone or unreadable.
async fn read(
    link: &impl Link,
    paths: &Paths,
    base: u64,
    (shard, name): (&str, &str),
) -> Result<Option<Unresolved>, Trouble> {
    let path = format!("{shard}/{name}");
    let (data, seen) = match link.data(&path).await {
        Ok(read) => read,
        Err(Fault::NoNode) => return Ok(None),
        Err(source) => return Err(Trouble::Read { path, source }),
    };
    let Some(record) = Record::parse(&data).ok().filter(|record| record.state == State::Admitted) else {
        return Ok(None);
    };
    let may_run = is_held(link, paths, base, &record)
        .await
        .map_err(|source| Trouble::Read { path: paths.locks(), source })?;
    let reference = name.get(..REFERENCE).unwrap_or(name).to_owned();
    Ok(Some(Unresolved { reference, record, may_run, path, version: seen.version }))
}

/// Digits of an [`fencegate_policies::operation::OperationId::reference`].
const REFERENCE: usize = 16;
/// Its first digits name the shard, as in [`Paths::operation_shard`].
const SHARD: usize = 2;

/// The unknown operation with this reference. Only records with a matching name are read.
pub async fn one(link: &impl Link, paths: &Paths, base: u64, reference: &str) -> Result<Unresolved, Trouble> {
    let not_found = || Trouble::NotFound(reference.to_owned());
    let digits = reference.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !digits || reference.len() != REFERENCE {
        return Err(not_found());
    }
    let shard = format!("{}/{}", paths.operations(), &reference[..SHARD]);
    let mut found = Vec::new();
    for name in children(link, &shard).await?.iter().filter(|name| name.starts_with(reference)) {
        found.extend(read(link, paths, base, (&shard, name)).await?);
    }
    match (found.pop(), found.is_empty()) {
        (Some(open), true) => Ok(open),
        (Some(_), false) => Err(Trouble::Several(reference.to_owned())),
        (None, _) => Err(not_found()),
    }
}

impl Unresolved {
    /// Whether the operation may be resolved. `within`: how long after its admission a dispatch may be begun, reckoned
    /// by the wall clock, with a second more for the whole seconds of the record. An answer of the service that it was
    /// not done is about the past; within that time the request may arrive after the answer.
    ///
    /// # Errors
    /// It may be running; or it is to be resolved as not done, and may be begun yet.
    pub fn may_be_resolved(&self, done: bool, within: Duration) -> Result<(), Trouble> {
        let reference = self.reference.clone();
        if self.may_run {
            return Err(Trouble::MayRun(reference));
        }
        let until = self.record.admitted.saturating_add(within.as_secs()).saturating_add(1);
        let left = until.saturating_sub(wall_clock());
        if !done && left > 0 {
            return Err(Trouble::MayBegin { reference, left });
        }
        Ok(())
    }

    /// Writes down what an operator says: `done`, or never executed.
    pub async fn resolve(&self, link: &impl Link, done: bool) -> Result<(), Trouble> {
        let at = wall_clock();
        let state = if done { State::Done { at, status: None } } else { State::Aborted { at } };
        let data = self.record.now(state).bytes();
        let steps = [
            Step::Check { path: &self.path, version: self.version },
            Step::Set { path: &self.path, data: &data },
        ];
        let written = link.commit(&steps).await;
        written.map(drop).map_err(|source| Trouble::Write { reference: self.reference.clone(), source })
    }
}

async fn children(link: &impl Link, path: &str) -> Result<Vec<String>, Trouble> {
    match link.children(path).await {
        Ok(children) => Ok(children),
        Err(Fault::NoNode) => Ok(Vec::new()),
        Err(source) => Err(Trouble::Read { path: path.to_owned(), source }),
    }
}

/// Whether the lock node from which the token was made still exists.
pub(super) async fn is_held(
    link: &impl Link,
    paths: &Paths,
    base: u64,
    record: &Record,
) -> Result<bool, Fault> {
    let Some(key) = record.keys.first() else { return Ok(false) };
    let parent = record.lock.clone().unwrap_or_else(|| paths.lock(key));
    let nodes = match link.children(&parent).await {
        Err(Fault::NoNode) => return Ok(false),
        nodes => nodes?,
    };
    let makes_the_token = |seen: Seen| {
        let epoch = u64::try_from(seen.czxid).ok().and_then(|czxid| czxid.checked_add(base));
        epoch == Some(record.token.number())
    };
    for name in nodes {
        let (says, seen) = match link.data(&format!("{parent}/{name}")).await {
            Err(Fault::NoNode) => continue,
            read => read?,
        };
        if makes_the_token(seen) {
            return Ok(true);
        }
        // This node only stands in line for an exclusive node; tokens are made from the czxid of that one.
        if let Some(path) = saying::stands_for(&says)
            && link.seen(path).await?.is_some_and(makes_the_token)
        {
            return Ok(true);
        }
    }
    Ok(false)
}
