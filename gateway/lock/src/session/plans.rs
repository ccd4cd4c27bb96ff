//! The nodes by which gateways publish their plans: `{root}/plans/<fingerprint>.<part>.<parts>`, written once.
//!
//! Below each part stands an ephemeral node for each session that has published it. Its czxid says who was first. A part is a
//! container: the server removes it some time after the last of these has gone, and cannot while there is one; so nobody has
//! to tidy up, and nobody can take away what another one is about to name: naming it fails then, and it is written again.
//! Whoever names a plan writes `{root}/plans` in the same transaction, so that the others hear of it, and so that its version
//! tells whether anybody has come since.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::{
    link::{Failed, Fault, Kind, Link, Step},
    paths::{Paths, PlanPart},
    publication::Publication,
};

/// Bytes of a part: well below the megabyte that a server takes in one request.
const PART: usize = 512 * 1024;

/// What cannot be in parts is no plan.
const MOST_PARTS: usize = 64;

/// Paths of the parts of what is published, first to last.
fn parts(paths: &Paths, publication: &Publication) -> Vec<String> {
    let count = publication.bytes().len().div_ceil(PART).max(1);
    let part = |number| paths.plan_part(publication.fingerprint(), number, count);
    (0..count).map(part).collect()
}

/// Paths of the nodes by which `member` says that it has published this.
pub(super) fn namings(paths: &Paths, publication: &Publication, member: &str) -> Vec<String> {
    parts(paths, publication).into_iter().map(|part| format!("{part}/{member}")).collect()
}

/// Writes it, where it is not there.
pub(super) async fn write(link: &impl Link, paths: &Paths, publication: &Publication) -> Result<(), Fault> {
    let there = |made: Result<_, Fault>| match made {
        Ok(_) | Err(Fault::NodeExists) => Ok(()),
        Err(fault) => Err(fault),
    };
    there(link.create(&paths.plans(), b"", Kind::Persistent).await)?;
    let paths = parts(paths, publication);
    let bytes = publication.bytes();
    for (number, path) in paths.iter().enumerate() {
        let part = &bytes[(number * PART).min(bytes.len())..((number + 1) * PART).min(bytes.len())];
        there(link.create(path, part, Kind::Container).await)?;
    }
    Ok(())
}

/// The plans that are there, each with who has published it.
pub(super) async fn published(
    link: &impl Link,
    paths: &Paths,
) -> Result<BTreeMap<PlanPart, Vec<String>>, Fault> {
    let folder = paths.plans();
    let nodes = match link.children(&folder).await {
        Err(Fault::NoNode) => Vec::new(),
        nodes => nodes?,
    };
    let first = nodes.iter().filter_map(|node| PlanPart::parse(node)).filter(|part| part.number == 0);
    let first: Vec<PlanPart> = first.collect();
    let below = first.iter().map(|part| async move {
        match link.children(&format!("{folder}/{part}", folder = paths.plans())).await {
            // It went meanwhile: nobody has published it.
            Err(Fault::NoNode) => Ok(Vec::new()),
            members => members,
        }
    });
    let below = join_all(below).await;
    first.into_iter().zip(below).map(|(part, members)| Ok((part, members?))).collect()
}

/// Reads it. `Err(Ok(why))`: it is not what its name says.
pub(super) async fn read(
    link: &impl Link,
    paths: &Paths,
    plan: &PlanPart,
) -> Result<Publication, Result<String, Fault>> {
    if plan.count > MOST_PARTS {
        return Err(Ok(format!("it has {} parts", plan.count)));
    }
    let mut bytes = Vec::new();
    for number in 0..plan.count {
        let path = paths.plan_part(&plan.fingerprint, number, plan.count);
        match link.data(&path).await {
            Ok((part, _)) => bytes.extend(part),
            Err(Fault::NoNode) => return Err(Ok(format!("{path} is not there"))),
            Err(fault) => return Err(Err(fault)),
        }
    }
    let read = Publication::of(bytes);
    match read.fingerprint() == plan.fingerprint {
        true => Ok(read),
        false => Err(Ok("its parts are not what its fingerprint says".to_owned())),
    }
}

/// Names `next` in the place of `before`, if nobody has named anything since `version` was the one of `{root}/plans`.
///
/// # Errors
/// Step 0 refused: somebody has.
pub(super) async fn replace(
    link: &impl Link,
    paths: &Paths,
    version: i32,
    before: &[String],
    next: &[String],
) -> Result<(), Failed> {
    let plans = paths.plans();
    let mut steps = vec![Step::Check { path: &plans, version }, Step::Set { path: &plans, data: b"" }];
    steps.extend(before.iter().map(|path| Step::Delete { path, version: None }));
    steps.extend(next.iter().map(|path| Step::Create { path, data: b"", kind: Kind::Ephemeral }));
    link.commit(&steps).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_larger_than_a_node_may_be_stands_in_parts() {
        let paths = Paths::below("/f");
        let small = Publication::of(b"{}".to_vec());
        assert_eq!(parts(&paths, &small), [format!("/f/plans/{}.0.1", small.fingerprint())]);
        let large = Publication::of(vec![b' '; PART + 1]);
        let named = namings(&paths, &large, "gw-01");
        assert_eq!(named[1], format!("/f/plans/{}.1.2/gw-01", large.fingerprint()));
        let found = PlanPart::parse(&format!("{}.1.2", large.fingerprint())).expect("a part");
        assert_eq!((found.number, found.count, &*found.fingerprint), (1, 2, large.fingerprint()));
        for other in ["x", "a.0", "a.0.1.2", "a.x.1", ""] {
            assert_eq!(PlanPart::parse(other), None, "{other}");
        }
    }
}
