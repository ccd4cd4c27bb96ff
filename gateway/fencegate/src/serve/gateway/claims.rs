//! What a gateway takes for itself before anybody hears of it: its signals, its addresses, its folder.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
};

use fencegate_lock::state::Memory;
use fencegate_policies::plan::Gateway;
use fencegate_process::randomness::SystemRandomness;
use socket2::Socket;
use tokio::runtime::Runtime;

use super::options::Options;
use crate::{
    metrics::Metrics,
    serve::process::{Guarded, Signals, Trouble, bind_admin, guarded, host_name, reserve},
    siblings::Ours,
};

/// What is taken, and given back only with the process.
pub(super) struct Claims {
    /// On it the main thread waits, for signals and for whoever asks for another plan.
    pub(super) waiting: Runtime,
    pub(super) signals: Signals,
    pub(super) reception: Reception,
    /// How far tokens have come, as the folder says where there is one.
    pub(super) memory: Arc<Memory>,
    /// The gateway's.
    pub(super) name: Arc<str>,
    /// Keeps the address for other gateways until the workers listen there.
    pub(super) kept: Option<Socket>,
    /// What this process is to other gateways, where they reach it.
    pub(super) ours: Option<Ours>,
}

/// Where operators come in.
pub(super) struct Reception {
    pub(super) door: Guarded,
    pub(super) listener: TcpListener,
}

impl Claims {
    /// # Errors
    /// Something of it belongs to another process, or cannot be read.
    pub(super) fn made(gateway: &Gateway, options: &Options, metrics: &Metrics) -> Result<Self, Trouble> {
        let waiting = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let signals = Signals::heard_on(&waiting)?;
        let admin = &gateway.serving.admin;
        let door = guarded(admin, metrics)?;
        let reception = Reception { door, listener: bind_admin(admin.address, options.beside)? };
        let memory = remembered(gateway, metrics)?;
        let name: Arc<str> = gateway.serving.name.clone().unwrap_or_else(host_name).into();
        let kept = gateway.peer.as_ref().map(|peer| reserve(peer, options.beside)).transpose()?;
        let (kept, bound) = kept.unzip();
        let ours = ours(gateway, &name, bound, metrics)?;
        Ok(Self { waiting, signals, reception, memory, name, kept, ours })
    }
}

fn remembered(gateway: &Gateway, metrics: &Metrics) -> Result<Arc<Memory>, Trouble> {
    let Some(folder) = &gateway.state_dir else { return Ok(Arc::default()) };
    let counted = metrics.session(0);
    Ok(Memory::open(folder, &SystemRandomness, move || counted.state_failed())?)
}

fn ours(
    gateway: &Gateway,
    name: &Arc<str>,
    bound: Option<SocketAddr>,
    metrics: &Metrics,
) -> Result<Option<Ours>, Trouble> {
    let (Some(peer), Some(bound)) = (&gateway.peer, bound) else { return Ok(None) };
    Ok(Some(Ours::of(peer, name.clone(), bound, metrics.clients(), &SystemRandomness)?))
}
