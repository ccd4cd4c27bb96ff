//! A service with a guard inside: it admits each execution at the guard, and reports its end to the guard.

use std::{error::Error, fs, path::Path, sync::Arc, time::Duration};

use fencegate_guard::{
    Guard, GuardConfig,
    open::OpenedGuard,
    waiter::{AlwaysWaitingClient, ClientWaitLimit},
};
use fencegate_guard_store::{
    admission::PresentedDispatch,
    error::DispatchRefusedError,
    metrics::GuardMetrics,
    operation::StoredResponse,
    store::{RedbStore, StoreIdentity},
};
use fencegate_policies::{key::ResourceKey, plan::LockMode, token::FencingToken};
use fencegate_process::{
    clock::{MachineClock, SendPermission},
    randomness::{Guid, SystemRandomness},
    registry::MetricRegistry,
};

type ExampleResult<T> = Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExampleResult<()> {
    let folder = tempfile::tempdir()?;
    serve(folder.path()).await
}

async fn serve(folder: &Path) -> ExampleResult<()> {
    let store = folder.join("guard.redb");
    // A service creates its store once in its life. `fencegate era show` prints the installation and the floor
    // to pass here.
    drop(RedbStore::init(
        &store,
        &StoreIdentity::new("f1ee7000000000000000000000000000", &SystemRandomness),
        0,
    )?);
    // A real service sets this longer than its longest execution.
    let rules = GuardConfig { max_execution: Duration::from_millis(100), ..GuardConfig::default() };
    let clock = Arc::new(MachineClock);
    let families = MetricRegistry::new();
    let instance = Guid::new(&SystemRandomness).to_string();
    let metrics = GuardMetrics::register(&families);
    let OpenedGuard { guard, commit_thread: committing, .. } =
        Guard::open(Arc::new(RedbStore::open(&store)?), rules, clock, instance, metrics)?;
    let file = folder.join("balance");
    tokio::select! {
        served = send_requests(&guard, &file) => served?,
        () = guard.run_background() => {}
        failed = guard.wait_for_store_failure() => return Err(failed.into()),
    }
    // Without this call the next start assumes a crash, and the keys that were at work are in quarantine.
    guard.shut_down_cleanly().await?;
    committing.join().map_err(|_| "the thread of the store panicked")?;
    print!("{}", String::from_utf8(families.encode())?);
    Ok(())
}

/// Three requests as gateways send them, in the order of their arrival.
async fn send_requests(guard: &Arc<Guard>, file: &Path) -> ExampleResult<()> {
    // The store is new, so the guard waits: executions that another guard has admitted may still run.
    while let Some(closed) = guard.quarantine() {
        tokio::time::sleep(closed.until.since(guard.now())).await;
    }
    let old = "v1-00000000000000ab-00000007-00000001";
    let new = "v1-00000000000000ac-00000000-00000001";
    println!("{old}: {}", pay(guard, old, file).await?);
    println!("{new}: {}", pay(guard, new, file).await?);
    // The gateway of this token stood still for a minute, and has lost the lock without noticing.
    let late = "v1-00000000000000ab-00000007-00000002";
    match pay(guard, late, file).await {
        Err(DispatchRefusedError::Stale { newest }) => println!("{late}: refused, {newest} was here"),
        other => return Err(format!("an older token came through: {other:?}").into()),
    }
    Ok(())
}

/// One request, with the fields `Fencing-Token`, `Fencing-Key` and `Fencing-Mode`.
async fn pay(guard: &Arc<Guard>, token: &str, file: &Path) -> Result<u32, DispatchRefusedError> {
    let token = FencingToken::parse(token).map_err(|bad| DispatchRefusedError::TokenMalformed(bad.into()))?;
    let key = ResourceKey::parse("account/1").expect("a key");
    let claim = PresentedDispatch {
        keys: Arc::new([key]),
        token,
        mode: LockMode::Exclusive,
        era: None,
        parent: None,
    };
    // A server whose client may hang up during the wait implements `WaitingClient` for that client.
    let mut client = AlwaysWaitingClient;
    let mut patience = ClientWaitLimit::new(&mut client, guard.config.settle);
    let admitted = guard.admit(claim.clone(), None, &mut patience).await;
    let running = admitted.map_err(|refused| guard.record_refusal(refused, Some(&claim)))?;
    // The process may have stood still between admission and this line, so that the execution already counts as over.
    if !running.send_deadline().may_send_at(guard.now()) {
        running.cancel_unsent().await?;
        return Err(DispatchRefusedError::Busy);
    }
    let balance = fs::read_to_string(file).map_or(0, |text| text.parse().unwrap_or(0)) + 1;
    fs::write(file, balance.to_string()).expect("the folder can be written");
    // Without this call the execution would be in doubt, and the key closed for `max_execution`.
    running.complete(StoredResponse { status: 200, fields: Vec::new(), body: None }).await?;
    Ok(balance)
}

#[cfg(test)]
mod tests {
    /// The example admits the newest token and refuses an older one.
    #[test]
    fn example_admits_newest_refuses_older() {
        super::main().expect("as printed");
    }
}
