//! Looks at ZooKeeper as a gateway would find it: through a session of its own, which is closed again.

use std::{collections::BTreeMap, time::Duration};

use fencegate_lock::{
    meta::Meta,
    session::{
        era::{self, MetaUnreadable},
        link::{Connect, Fault, Link},
        member::{Member, gateway_of},
        paths::Paths,
        zookeeper::{Servers, Session, Writer},
    },
    state::Memory,
};
use fencegate_policies::{
    diagnose::{Code, Diagnostic, Severity},
    plan::{Acl, Gateway, ZooKeeper},
};
use fencegate_process::{
    again::{self, Of},
    said::{Brief, causes},
};
use futures_util::future::join_all;
use tokio::time::timeout;

use super::findings::Findings;

/// For a session, and once more for all questions.
const PATIENCE: Duration = Duration::from_secs(8);

/// What has been found in ZooKeeper.
pub(super) struct Installation {
    pub(super) meta: Meta,
    /// What each gateway says of itself, by its name.
    pub(super) members: BTreeMap<String, Member>,
}

/// `None` where no installation was found.
pub(super) async fn look(findings: &Findings, gateway: &Gateway, memory: &Memory) -> Option<Installation> {
    let zookeeper = &gateway.zookeeper;
    let servers = zookeeper.servers.join(", ");
    let connected = timeout(PATIENCE, Servers::of(zookeeper).connect()).await;
    let link = match connected.unwrap_or_else(|_| Err(Fault::Refused("no answer in time".into()))) {
        Ok(link) => link,
        Err(fault) => {
            let message = format!("no session with ZooKeeper at {servers}: {fault}");
            let remedy = "start the ensemble, or correct `servers`; `nc` to each of them shows which answers";
            findings.wrong(&["zookeeper", "servers"], Code::NoEnsemble, message, remedy);
            return None;
        }
    };
    session(findings, zookeeper, &servers, link.timeout());
    each(findings, zookeeper).await;
    let asked = timeout(PATIENCE, ask(findings, gateway, memory, &link)).await;
    link.close().await;
    asked.unwrap_or_else(|_| {
        let message = format!("ZooKeeper at {servers} gave a session, and then no answers");
        findings.wrong(
            &["zookeeper", "servers"],
            Code::NoEnsemble,
            message,
            "look at its log: it may have no quorum",
        );
        None
    })
}

fn session(findings: &Findings, zookeeper: &ZooKeeper, servers: &str, granted: Duration) {
    let asked = zookeeper.session_timeout;
    let margin = zookeeper.margin(granted);
    findings.saw(
        "zookeeper",
        format!(
            "{servers} grants a session of {} for the {} asked for; in its last {} nothing is sent",
            Brief(granted),
            Brief(asked),
            Brief(margin)
        ),
    );
    if granted == asked {
        return;
    }
    let message =
        format!("ZooKeeper grants a session of {}, not the {} asked for", Brief(granted), Brief(asked));
    let least = ZooKeeper::least_margin(granted, zookeeper.tick);
    let short = margin < least || margin + ZooKeeper::heartbeat(granted) * 2 > granted;
    let mut diagnostic = Diagnostic::new(Code::SessionNegotiated, message);
    if short {
        // A gateway does not start under it.
        diagnostic.severity = Severity::Error;
    }
    let remedy = "ask for what it grants, or change its minSessionTimeout, maxSessionTimeout and tickTime";
    findings.found(&["zookeeper", "session_timeout"], diagnostic.remedy(remedy));
}

/// A session goes from server to server, and each may keep it for another time.
async fn each(findings: &Findings, zookeeper: &ZooKeeper) {
    if zookeeper.servers.len() < 2 {
        return;
    }
    let asked = zookeeper.servers.iter().map(async |server| {
        let connected = timeout(EACH, Servers::of(zookeeper).only(server).connect()).await;
        let link = connected.ok()?.ok()?;
        let granted = link.timeout();
        link.close().await;
        Some((server, granted))
    });
    let granted: Vec<_> = join_all(asked).await.into_iter().flatten().collect();
    let told = granted.iter().map(|(server, granted)| format!("{server} {granted:?}"));
    let told = told.collect::<Vec<_>>().join(", ");
    let (count, all) = (granted.len(), zookeeper.servers.len());
    findings.saw("zookeeper", format!("{count} of {all} servers give a session: {told}"));
    let mut times = granted.iter().map(|(_, granted)| granted);
    let first = times.next();
    if times.any(|other| Some(other) != first) {
        let message = format!("the servers keep a session for unlike times: {told}");
        let remedy = "give all servers one tickTime, minSessionTimeout and maxSessionTimeout, and restart them one by one";
        findings.wrong(&["zookeeper", "servers"], Code::UnlikeServers, message, remedy);
    }
}

/// For a session with one server.
const EACH: Duration = Duration::from_secs(4);

async fn ask(
    findings: &Findings,
    gateway: &Gateway,
    memory: &Memory,
    link: &Session,
) -> Option<Installation> {
    let paths = Paths::below(&gateway.zookeeper.root);
    let root = paths.root();
    let nodes = [root.to_owned(), paths.members(), paths.locks()];
    let mut open = Vec::new();
    for node in nodes {
        match link.writers(&node).await {
            Ok(writers) => open.extend(who_writes(findings, &node, &writers).then_some(node)),
            Err(Fault::NoNode) => {}
            Err(fault) => findings.saw("root", format!("who may write {node} cannot be told: {fault}")),
        }
    }
    if !open.is_empty() && gateway.zookeeper.acl == Acl::Open {
        findings
            .saw("root", format!("everybody may write {}, which `acl: open` says is meant", open.join(", ")));
    } else if !open.is_empty() {
        let message =
            format!("whoever reaches ZooKeeper may write {}, and take every lock away", open.join(", "));
        let remedy = "let only the gateways' hosts in: `setAcl -R <root> ip:10.0.0.0/8:cdrwa`; or, where a firewall does that, write `acl: open`";
        findings.wrong(&["zookeeper", "root"], Code::RootOpen, message, remedy);
    }
    let meta = match era::read(link, &paths).await {
        Ok(era) => era.meta,
        Err(unreadable) => {
            let init = again::command(Of::Gateway, "era init");
            let (said, remedy) = match &unreadable {
                MetaUnreadable::Missing { path } => {
                    (format!("{path} does not exist"), format!("make it once: `{init}`"))
                }
                other => (causes(other), "see whether `root` and `servers` are the right ones".to_owned()),
            };
            findings.wrong(&["zookeeper", "root"], Code::NoInstallation, said, &remedy);
            return None;
        }
    };
    findings.saw("root", format!("{root} has installation {}, era {}", meta.uuid, meta.era));
    if let Err(went_back) = memory.fits(&meta) {
        let bump = again::command(Of::Gateway, "era bump");
        let remedy = format!("follow *Restoring ZooKeeper* in the runbook: `{bump}` makes larger tokens");
        findings.wrong(&["zookeeper", "root"], Code::OtherEnsemble, causes(&went_back), &remedy);
    }
    let members = match members(link, &paths).await {
        Ok(members) => {
            others(findings, gateway, &members);
            members
        }
        Err(fault) => {
            findings.saw("members", format!("not to be told: {fault}"));
            BTreeMap::new()
        }
    };
    Some(Installation { meta, members })
}

/// Whether everybody may.
fn who_writes(findings: &Findings, node: &str, writers: &[Writer]) -> bool {
    let named = writers.iter().map(|Writer { who, may }| format!("{who} ({may})"));
    let named = named.collect::<Vec<_>>().join(", ");
    findings.saw("root", format!("{node} may be written by {named}"));
    writers.iter().any(Writer::is_everybody)
}

/// By the name of the gateway. A node that goes meanwhile is one of a gateway that has gone.
async fn members(link: &Session, paths: &Paths) -> Result<BTreeMap<String, Member>, Fault> {
    let mut members = BTreeMap::new();
    for node in link.children(&paths.members()).await? {
        let Ok((data, _)) = link.data(&format!("{}/{node}", paths.members())).await else { continue };
        if let Ok(member) = serde_json::from_slice::<Member>(&data) {
            members.insert(gateway_of(&node).to_owned(), member);
        }
    }
    Ok(members)
}

fn others(findings: &Findings, gateway: &Gateway, members: &BTreeMap<String, Member>) {
    let ours = format!("{:016x}", gateway.fingerprint);
    let unlike: Vec<&str> =
        members.iter().filter(|(_, member)| member.plan != ours).map(|(name, _)| name.as_str()).collect();
    findings.saw(
        "members",
        format!("{} gateways, {} of them with other locks than this file", members.len(), unlike.len()),
    );
    if !unlike.is_empty() {
        let message = format!(
            "{} would lock other keys than this file: while both run, one resource has two locks",
            unlike.join(", ")
        );
        let remedy =
            "give all gateways of one root the same routes and keys, or change them with all of them stopped";
        findings.wrong(&["routes"], Code::PlansDiffer, message, remedy);
    }
}
