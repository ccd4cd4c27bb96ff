//! A guard as it is released, before a service, and the load of new tenures.

use std::{fs, net::SocketAddr, time::Duration};

use fencegate::demo::child::{Child, Signal};
use serde_json::{Value, json};

use crate::{
    gateway::{becomes_ready, listening},
    outcome::Outcome,
    run::Run,
    wrk::Load,
};

pub(super) const WARM_UP: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(20);

/// A new tenure each, straight to the guard.
pub(super) const NEW: Load = Load { method: "TENURES", prefix: "/new/", keys: 1000, threads: 2, clients: 64 };

/// As it is released, before the service; its store is on the disk.
pub(crate) struct Guard {
    child: Child,
    pub(crate) public: SocketAddr,
}

impl Guard {
    /// `store`: a file of its own unless given.
    pub(crate) fn start(
        run: &Run,
        name: &str,
        service: SocketAddr,
        ensemble: &str,
        store: Option<Value>,
    ) -> Outcome<Self> {
        let file = run.folder().join(format!("{name}.yaml"));
        let own = run.folder().join(format!("{name}.redb"));
        let store = store.unwrap_or_else(|| json!({"redb": own.display().to_string()}));
        let policy = json!({
            "version": 1,
            "listener": {"address": "127.0.0.1:0"},
            "admin": {"address": "127.0.0.1:0"},
            "upstream": {"endpoint": format!("http://{service}"), "response_timeout": "1s"},
            "store": store,
            "max_execution": "2s",
            "send_within": "1s",
        });
        fs::write(&file, policy.to_string())?;
        let words = ["guard", "--init", "--floor", "1", "--ensemble", ensemble, "--log-format=json", "-c"];
        let file = file.display().to_string();
        let child = Child::spawn(run.gateway(), words.into_iter().chain([file.as_str()]))?;
        let (public, admin) = (listening(&child, "guard")?, listening(&child, "admin")?);
        becomes_ready(admin, &child)?;
        Ok(Self { child, public })
    }

    pub(crate) fn stop(self) -> Outcome<()> {
        self.child.signal(Signal::TERM)?;
        match self.child.wait(PATIENCE) {
            Some(status) if status.success() => Ok(()),
            ended => Err(format!("the guard ended with {ended:?} and said:\n{}", self.child.log()).into()),
        }
    }
}
