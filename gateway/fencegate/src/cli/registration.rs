//! Looks up in ZooKeeper a gateway that does not answer: a frozen process answers nobody, and its locks end with its
//! session.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fencegate_policies::plan::{GatewayPlan, ZooKeeperSettings};
use fencegate_process::{
    display::{FormattedDuration, error_chain},
    host_name::host_name,
};
use fencegate_zookeeper::session::{
    client::{ZkClient, ZkConnector, ZkError},
    member::gateway_name,
    paths::ZkPaths,
    servers::ZkServers,
};
use tokio::time::{sleep, timeout};

use super::out::print_error;

/// The place in ZooKeeper at which a gateway is registered.
#[derive(Debug, Clone)]
pub(super) struct GatewayHeartbeatLookup {
    zookeeper: ZooKeeperSettings,
    name: String,
}

/// The wait for an answer after which ZooKeeper is queried.
const PATIENCE: Duration = Duration::from_secs(2);

/// The time limit for the query of ZooKeeper.
const LOOK: Duration = Duration::from_secs(5);

impl GatewayHeartbeatLookup {
    pub(super) fn new(gateway: &GatewayPlan) -> Self {
        Self {
            zookeeper: gateway.zookeeper.clone(),
            name: gateway.serving.name.clone().unwrap_or_else(host_name),
        }
    }

    /// Waits for [`PATIENCE`], and then reports on stderr the state of the gateway in ZooKeeper.
    pub(super) async fn report_slow_answer(&self, admin: &str) {
        sleep(PATIENCE).await;
        let looked = timeout(LOOK, self.last_heartbeat()).await;
        let says = match looked {
            Err(_late) => format!("ZooKeeper does not answer within {LOOK:?} either"),
            Ok(Err(why)) => format!("ZooKeeper does not answer either: {why}"),
            Ok(Ok(age)) => describe_heartbeat(&self.name, age, self.zookeeper.session_timeout),
        };
        print_error(format_args!("{admin} does not answer yet; {says}"));
    }

    /// The age of the gateway's newest heartbeat, by the clocks of ZooKeeper and of this machine; `None` if the gateway
    /// is not registered.
    async fn last_heartbeat(&self) -> Result<Option<Duration>, String> {
        let servers = ZkServers::from_policy(&self.zookeeper).map_err(|bad| error_chain(&bad))?;
        let link = servers.connect().await.map_err(|fault| fault.to_string())?;
        let folder = ZkPaths::new(&self.zookeeper.root).members_path();
        let found = async {
            let mut newest = None;
            for node in link.children(&folder).await? {
                if gateway_name(&node) != self.name {
                    continue;
                }
                match link.data(&format!("{folder}/{node}")).await {
                    Ok((_, stat)) => newest = newest.max(Some(stat.modified)),
                    Err(ZkError::NoNode) => {}
                    Err(fault) => return Err(fault),
                }
            }
            Ok(newest)
        };
        let newest = found.await;
        link.close().await;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let age = |modified| now.saturating_sub(Duration::from_millis(modified));
        newest.map(|newest| newest.map(age)).map_err(|fault| fault.to_string())
    }
}

fn describe_heartbeat(name: &str, age: Option<Duration>, session_timeout: Duration) -> String {
    let Some(age) = age else {
        return format!(
            "`{name}` is not registered in ZooKeeper: it does not run, or its session is over and its keys are free"
        );
    };
    let age_text = FormattedDuration(age);
    if age < session_timeout / 3 {
        return format!(
            "`{name}` sends heartbeats to ZooKeeper, the last {age_text} ago: it runs, and its admin listener does not answer"
        );
    }
    let rest = FormattedDuration(session_timeout.saturating_sub(age));
    format!(
        "the last heartbeat of `{name}` is {age_text} old: it stands still, or is cut off. Without another one its session ends in \
         {rest}, and its keys are free then"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The report distinguishes a frozen gateway, one that is gone, and one whose listener alone does not answer.
    #[test]
    fn silence_is_described_by_heartbeat() {
        for (age, said) in [
            (None, "is not registered"),
            (Some(SECOND), "the last 1s ago: it runs"),
            (
                Some(7 * SECOND),
                "is 7s old: it stands still, or is cut off. Without another one its session ends in 5s",
            ),
            (Some(15 * SECOND), "its session ends in 0s"),
        ] {
            let text = describe_heartbeat("gw-1", age, 12 * SECOND);
            assert!(text.contains("`gw-1`") && text.contains(said), "{text}");
        }
    }
}
