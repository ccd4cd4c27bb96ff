//! Starts the thread that runs the sessions of a client.

use std::{io, rc::Rc, sync::Arc, thread};

use fencegate_zookeeper::{
    session::{instrumented::InstrumentedZk, servers::ZkServers, settings::SessionSettings},
    state::TokenHistory,
};
use futures_util::future::join_all;
use tokio::{sync::watch, task::LocalSet};
use tokio_util::sync::CancellationToken;

use crate::manager::session_worker::SessionWorker;

/// The sessions have a thread of their own, so that long computations in the program cannot delay their heartbeats.
pub(super) fn start_sessions(
    workers: Vec<(SessionWorker, SessionSettings)>,
    servers: &ZkServers,
    stop: CancellationToken,
    history: Arc<TokenHistory>,
) -> io::Result<watch::Receiver<()>> {
    let (alive, ended) = watch::channel(());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let servers = servers.clone();
    thread::Builder::new().name("locks".into()).spawn(move || {
        let _alive = alive;
        let all = workers.into_iter().map(|(worker, settings)| {
            let servers = InstrumentedZk::new(servers.clone(), &settings.metrics);
            worker.run(servers, Rc::new(settings), stop.clone())
        });
        LocalSet::new().block_on(&runtime, join_all(all));
        history.close();
    })?;
    Ok(ended)
}
