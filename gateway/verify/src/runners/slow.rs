//! Sends an older write that takes long, and a newer one while it runs.

use std::time::Duration;

use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use super::race::{check_no_late_effect, check_race, require_accepted, send_then_read};
use crate::{
    case_result::{CaseError, CaseStepRecord},
    context::{RequestTemplateKind, TestContext, TestRequestSpec},
    effects::EffectReadingDiff,
    sent_request::ServiceRequestOutcome,
    token_headers::{SyntheticTokenHeaders, epoch},
};

/// A time that is long enough for a service to read the head of a request.
const HEAD: Duration = Duration::from_millis(300);

/// The older write takes the slow path of the service. The newer one follows after a part of that time.
pub(super) async fn run_overtaken(
    context: &TestContext<'_>,
    log: &mut Vec<CaseStepRecord>,
) -> Result<(), CaseError> {
    for round in 1..=context.service.rounds.div_ceil(4) {
        let keys = context.fresh_keys();
        let prior = require_accepted(context.write(&keys, epoch(8)).await, log)?;
        let before = context.read_effects(&keys).await?;
        let spec = |ask, token| TestRequestSpec {
            ask,
            keys: &keys,
            stamp: SyntheticTokenHeaders::Whole(token),
            at: 0,
            operation: None,
        };
        let older = context.prepare(spec(RequestTemplateKind::Slow, epoch(16))).await;
        let newer = context.prepare(spec(RequestTemplateKind::Write, epoch(32))).await;
        let newer = send_then_read(context, newer, &keys, context.pace * round);
        let (older, newer) = tokio::join!(older.send_now(), newer);
        let (newer, between) = newer?;
        log.extend([older.event(None), newer.event(None)]);
        let now = context.read_effects(&keys).await?;
        check_no_late_effect(context, &newer, between.as_ref(), now.as_ref())?;
        check_race(context, &keys, Some(prior), vec![older, newer], before.as_ref(), log).await?;
    }
    Ok(())
}

/// Sends the head and half of the body of the older write, then the newer write, then the rest.
pub(super) async fn run_held_body(
    context: &TestContext<'_>,
    log: &mut Vec<CaseStepRecord>,
) -> Result<(), CaseError> {
    let keys = context.fresh_keys();
    let first = require_accepted(context.write(&keys, epoch(8)).await, log)?;
    let before = context.read_effects(&keys).await?;
    let spec = |token| TestRequestSpec {
        ask: RequestTemplateKind::Write,
        keys: &keys,
        stamp: SyntheticTokenHeaders::Whole(token),
        at: 0,
        operation: None,
    };
    let (go, until) = oneshot::channel();
    let older = context.prepare(spec(epoch(16))).await.send_held(until);
    let story = async {
        sleep(HEAD.max(context.pace * 2)).await;
        let early = context.read_effects(&keys).await?;
        let acted = context
            .change(before.as_ref(), early.as_ref())
            .is_some_and(|it| it != EffectReadingDiff::Effects(0));
        let newer = context.prepare(spec(epoch(32))).await.send_now();
        tokio::pin!(newer);
        // A service that holds the key while it reads would never answer the newer write. So the older one is
        // completed after a time limit.
        let patience = Duration::from_secs(2).max(context.pace * 10);
        let answered = timeout(patience, &mut newer).await;
        go.send(()).ok();
        let newer = match answered {
            Ok(newer) => newer,
            Err(_) => newer.await,
        };
        Ok::<_, CaseError>((acted, newer))
    };
    let (older, newer) = tokio::join!(older, story);
    let (acted, newer) = newer?;
    log.extend([newer.event(None), older.event(None)]);
    if acted || (older.ended < newer.began && matches!(older.came, ServiceRequestOutcome::Accepted(_))) {
        return CaseError::undecided("it acts before it has read the body, so nothing can come in between");
    }
    check_race(context, &keys, Some(first), vec![newer, older], before.as_ref(), log).await
}
