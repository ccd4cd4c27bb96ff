//! Sends an older write that takes long, and a newer one meanwhile.

use std::time::Duration;

use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use super::race::{check_no_late_effect, require_accepted, send_then_read, settle};
use crate::verify::{
    case_result::{CaseError, StepRecord},
    context::{RequestKind, RequestSpec, TestContext},
    effects::EffectChange,
    sent_request::RequestOutcome,
    token_headers::{TokenHeaders, epoch},
};

/// Long enough for a service to look at the head of a request.
const HEAD: Duration = Duration::from_millis(300);

/// The older write takes the slow path of the service. The newer one follows after a part of that time.
pub(super) async fn run_overtaken(
    scene: &TestContext<'_>,
    log: &mut Vec<StepRecord>,
) -> Result<(), CaseError> {
    for round in 1..=scene.service.rounds.div_ceil(4) {
        let keys = scene.fresh_keys();
        let prior = require_accepted(scene.write(&keys, epoch(8)).await, log)?;
        let before = scene.read_effects(&keys).await?;
        let aim = |ask, mint| RequestSpec {
            ask,
            keys: &keys,
            stamp: TokenHeaders::Whole(mint),
            at: 0,
            operation: None,
        };
        let older = scene.prepare(aim(RequestKind::Slow, epoch(16))).await;
        let newer = scene.prepare(aim(RequestKind::Write, epoch(32))).await;
        let newer = send_then_read(scene, newer, &keys, scene.pace * round);
        let (older, newer) = tokio::join!(older.send_now(), newer);
        let (newer, between) = newer?;
        log.extend([older.event(None), newer.event(None)]);
        let now = scene.read_effects(&keys).await?;
        check_no_late_effect(scene, &newer, between.as_ref(), now.as_ref())?;
        settle(scene, &keys, Some(prior), vec![older, newer], before.as_ref(), log).await?;
    }
    Ok(())
}

/// Sends the head and half of the body of the older write, then the newer write, then the rest.
pub(super) async fn run_held(scene: &TestContext<'_>, log: &mut Vec<StepRecord>) -> Result<(), CaseError> {
    let keys = scene.fresh_keys();
    let first = require_accepted(scene.write(&keys, epoch(8)).await, log)?;
    let before = scene.read_effects(&keys).await?;
    let aim = |mint| RequestSpec {
        ask: RequestKind::Write,
        keys: &keys,
        stamp: TokenHeaders::Whole(mint),
        at: 0,
        operation: None,
    };
    let (go, until) = oneshot::channel();
    let older = scene.prepare(aim(epoch(16))).await.send_held(until);
    let story = async {
        sleep(HEAD.max(scene.pace * 2)).await;
        let early = scene.read_effects(&keys).await?;
        let acted =
            scene.change(before.as_ref(), early.as_ref()).is_some_and(|it| it != EffectChange::Effects(0));
        let newer = scene.prepare(aim(epoch(32))).await.send_now();
        tokio::pin!(newer);
        // A service that holds the key while it reads would never answer the newer write. Then the older one is
        // completed first.
        let patience = Duration::from_secs(2).max(scene.pace * 10);
        let told = timeout(patience, &mut newer).await;
        go.send(()).ok();
        let newer = match told {
            Ok(newer) => newer,
            Err(_) => newer.await,
        };
        Ok::<_, CaseError>((acted, newer))
    };
    let (older, newer) = tokio::join!(older, story);
    let (acted, newer) = newer?;
    log.extend([newer.event(None), older.event(None)]);
    if acted || (older.ended < newer.began && matches!(older.came, RequestOutcome::Accepted(_))) {
        return CaseError::undecided("it acts before it has read the body, so nothing can come in between");
    }
    settle(scene, &keys, Some(first), vec![newer, older], before.as_ref(), log).await
}
