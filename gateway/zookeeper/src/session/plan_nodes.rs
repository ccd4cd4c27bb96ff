//! The nodes by which gateways publish their plans: `{root}/plans/<fingerprint>.<part>.<parts>`, written once.
//!
//! Each session that publishes a plan creates an ephemeral node below each part: its announcement of the plan. The
//! czxid of that node decides which session was first. A part is a container: the server removes it some time after its
//! last child has gone, so no cleanup is needed. If a part is removed just before a session announces it, the
//! announcement fails, and the part is written again. The transaction of an announcement also writes `{root}/plans`.
//! That wakes the peers, and the version of that node shows whether any session has published in the meantime.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::{
    client::{MultiError, MultiOp, NodeCreateMode, ZkClient, ZkError},
    paths::{PlanPartName, ZkPaths},
    plan_publication::PublishedPlanBytes,
};

/// The most bytes of a part: well below the megabyte that a server accepts in one request.
const PART_BYTES: usize = 512 * 1024;

/// The most parts of a plan. A larger plan is not accepted.
const MAX_PARTS: usize = 64;

/// Paths of the parts of a plan, first to last.
fn part_paths(paths: &ZkPaths, publication: &PublishedPlanBytes) -> Vec<String> {
    let count = publication.bytes().len().div_ceil(PART_BYTES).max(1);
    let part = |number| paths.plan_part_path(publication.fingerprint(), number, count);
    (0..count).map(part).collect()
}

/// Paths of the nodes by which `member` announces this plan.
pub(super) fn announcement_paths(
    paths: &ZkPaths,
    publication: &PublishedPlanBytes,
    member: &str,
) -> Vec<String> {
    part_paths(paths, publication).into_iter().map(|part| format!("{part}/{member}")).collect()
}

/// Writes the parts that are missing.
pub(super) async fn write_plan_parts(
    link: &impl ZkClient,
    paths: &ZkPaths,
    publication: &PublishedPlanBytes,
) -> Result<(), ZkError> {
    let there = |made: Result<_, ZkError>| match made {
        Ok(_) | Err(ZkError::NodeExists) => Ok(()),
        Err(fault) => Err(fault),
    };
    there(link.create(&paths.plans_path(), b"", NodeCreateMode::Persistent).await)?;
    let paths = part_paths(paths, publication);
    let bytes = publication.bytes();
    for (number, path) in paths.iter().enumerate() {
        let part =
            &bytes[(number * PART_BYTES).min(bytes.len())..((number + 1) * PART_BYTES).min(bytes.len())];
        there(link.create(path, part, NodeCreateMode::Container).await)?;
    }
    Ok(())
}

/// All plans in ZooKeeper, each with the sessions that have published it.
pub(super) async fn list_published(
    link: &impl ZkClient,
    paths: &ZkPaths,
) -> Result<BTreeMap<PlanPartName, Vec<String>>, ZkError> {
    let folder = paths.plans_path();
    let nodes = match link.children(&folder).await {
        Err(ZkError::NoNode) => Vec::new(),
        nodes => nodes?,
    };
    let first = nodes.iter().filter_map(|node| PlanPartName::parse(node)).filter(|part| part.number == 0);
    let first: Vec<PlanPartName> = first.collect();
    let below = first.iter().map(|part| async move {
        match link.children(&format!("{folder}/{part}", folder = paths.plans_path())).await {
            // The part has gone meanwhile, so no session publishes it.
            Err(ZkError::NoNode) => Ok(Vec::new()),
            members => members,
        }
    });
    let below = join_all(below).await;
    first.into_iter().zip(below).map(|(part, members)| Ok((part, members?))).collect()
}

/// Reads a plan. `Err(Ok(why))`: the content of the plan does not match its name.
pub(super) async fn assemble_plan(
    link: &impl ZkClient,
    paths: &ZkPaths,
    plan: &PlanPartName,
) -> Result<PublishedPlanBytes, Result<String, ZkError>> {
    if plan.count > MAX_PARTS {
        return Err(Ok(format!("it has {} parts", plan.count)));
    }
    let mut bytes = Vec::new();
    for number in 0..plan.count {
        let path = paths.plan_part_path(&plan.fingerprint, number, plan.count);
        match link.data(&path).await {
            Ok((part, _)) => bytes.extend(part),
            Err(ZkError::NoNode) => return Err(Ok(format!("{path} is not there"))),
            Err(fault) => return Err(Err(fault)),
        }
    }
    let read = PublishedPlanBytes::from_bytes(bytes);
    match read.fingerprint() == plan.fingerprint {
        true => Ok(read),
        false => Err(Ok("its parts are not what its fingerprint says".to_owned())),
    }
}

/// Announces `next` in place of `before`. `version`: the version of `{root}/plans` that was read. If any session has
/// published after that read, the announcement is refused.
///
/// # Errors
/// Returns an error with step 0 if another session has published after `version` was read.
pub(super) async fn replace_plan(
    link: &impl ZkClient,
    paths: &ZkPaths,
    version: i32,
    before: &[String],
    next: &[String],
) -> Result<(), MultiError> {
    let plans = paths.plans_path();
    let mut steps = vec![MultiOp::Check { path: &plans, version }, MultiOp::Set { path: &plans, data: b"" }];
    steps.extend(before.iter().map(|path| MultiOp::Delete { path, version: None }));
    steps.extend(next.iter().map(|path| MultiOp::Create {
        path,
        data: b"",
        kind: NodeCreateMode::Ephemeral,
    }));
    link.commit(&steps).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plan that exceeds the size of a node is published in parts, whose names are parsed back.
    #[test]
    fn large_plan_is_split_into_parts() {
        let paths = ZkPaths::new("/f");
        let small = PublishedPlanBytes::from_bytes(b"{}".to_vec());
        assert_eq!(part_paths(&paths, &small), [format!("/f/plans/{}.0.1", small.fingerprint())]);
        let large = PublishedPlanBytes::from_bytes(vec![b' '; PART_BYTES + 1]);
        let named = announcement_paths(&paths, &large, "gw-01");
        assert_eq!(named[1], format!("/f/plans/{}.1.2/gw-01", large.fingerprint()));
        let found = PlanPartName::parse(&format!("{}.1.2", large.fingerprint())).expect("a part");
        assert_eq!((found.number, found.count, &*found.fingerprint), (1, 2, large.fingerprint()));
        for other in ["x", "a.0", "a.0.1.2", "a.x.1", ""] {
            assert_eq!(PlanPartName::parse(other), None, "{other}");
        }
    }
}
