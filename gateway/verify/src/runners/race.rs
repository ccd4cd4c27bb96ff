//! Sends requests at the same moment, many times, and checks the watermark afterwards.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;

use crate::{
    case::InstanceSpread,
    case_result::{CaseError, CaseStepRecord},
    context::{PreparedTestRequest, RequestTemplateKind, TestContext, TestKeys, TestRequestSpec},
    effects::{EffectReadingDiff, ObservedEffectValue},
    linearizable::check_linearizable,
    sent_request::{ServiceRequestOutcome, TestRequestRecord},
    token_headers::{SyntheticToken, SyntheticTokenHeaders, epoch},
};

/// The number of copies of one request.
const COPIES: u32 = 8;
/// The number of older writes beside one newer write.
const OLDER: u32 = 5;
const WRITERS: u64 = 64;
/// One in so many writers is stale from the start.
const STALE: u64 = 4;

impl InstanceSpread {
    fn instance(self, number: usize) -> usize {
        match self {
            Self::OneInstance => 0,
            Self::TwoInstances => number % 2,
        }
    }
}

pub(super) async fn run_concurrent(
    context: &TestContext<'_>,
    spread: InstanceSpread,
    log: &mut Vec<CaseStepRecord>,
) -> Result<(), CaseError> {
    for round in 0..context.service.rounds {
        let keys = context.fresh_keys();
        let prior = create_key_in_odd_round(context, &keys, round, log).await?;
        let before = context.read_effects(&keys).await?;
        let mut copies = Vec::new();
        for copy in 0..COPIES {
            let ready = prepare_request(
                context,
                RequestTemplateKind::Write,
                &keys,
                epoch(32),
                spread.instance(copy as usize),
            )
            .await;
            // The copies are sent at one moment, or spread over the time that one of them takes.
            copies.push(send_after(context.pace * (copy * (round % 3)) / COPIES, ready));
        }
        let shots = join_all(copies).await;
        log.push(summary(&format!("{COPIES} with one token at once"), &shots));
        check_race(context, &keys, prior, shots, before.as_ref(), log).await?;
    }
    Ok(())
}

/// One newer write beside older ones. In every second round the newer one begins, and the older ones follow one after
/// another until it is answered. In the other rounds the older ones begin together, so that one of them may take
/// long.
pub(super) async fn run_overtaken(
    context: &TestContext<'_>,
    spread: InstanceSpread,
    log: &mut Vec<CaseStepRecord>,
) -> Result<(), CaseError> {
    for round in 0..context.service.rounds {
        let keys = context.fresh_keys();
        let prior = create_key_in_odd_round(context, &keys, round / 2, log).await?;
        let before = context.read_effects(&keys).await?;
        let begins = round.is_multiple_of(2);
        let part = context.pace * (round + 1) / context.service.rounds;
        let mut older = Vec::new();
        let place = round as usize / 2;
        for number in 0..OLDER {
            let at = spread.instance(place + 1 + number as usize);
            let ready = prepare_request(
                context,
                RequestTemplateKind::Write,
                &keys,
                epoch(16 + u64::from(number)),
                at,
            )
            .await;
            let behind = (context.pace * number + part) / OLDER;
            older.push(send_after(if begins { behind } else { Duration::ZERO }, ready));
        }
        let newer =
            prepare_request(context, RequestTemplateKind::Write, &keys, epoch(32), spread.instance(place))
                .await;
        let newer = send_then_read(context, newer, &keys, if begins { Duration::ZERO } else { part });
        let (newer, older) = tokio::join!(newer, join_all(older));
        let (newer, between) = newer?;
        log.extend(older.iter().chain([&newer]).map(|shot| shot.event(None)));
        let now = context.read_effects(&keys).await?;
        check_no_late_effect(context, &newer, between.as_ref(), now.as_ref())?;
        let race = older.into_iter().chain([newer]).collect();
        check_race(context, &keys, prior, race, before.as_ref(), log).await?;
    }
    Ok(())
}

/// Sends the newer write after a pause, and reads the effects as soon as it is answered.
pub(super) async fn send_then_read(
    context: &TestContext<'_>,
    newer: PreparedTestRequest,
    keys: &TestKeys,
    pause: Duration,
) -> Result<(TestRequestRecord, Option<ObservedEffectValue>), CaseError> {
    let shot = send_after(pause, newer).await;
    let seen = context.read_effects(keys).await?;
    Ok((shot, seen))
}

/// Fails if there was an effect after the answer to the newer write. All other writes are older, so that effect
/// is the effect of an older one.
pub(super) fn check_no_late_effect(
    context: &TestContext<'_>,
    newer: &TestRequestRecord,
    between: Option<&ObservedEffectValue>,
    now: Option<&ObservedEffectValue>,
) -> Result<(), CaseError> {
    let change = context.change(between, now).filter(|change| *change != EffectReadingDiff::Effects(0));
    match change {
        Some(change) if matches!(newer.came, ServiceRequestOutcome::Accepted(_)) => {
            CaseError::failed(format!(
                "`{}` had been answered {}, and after that there was {change} of what is older",
                newer.sent, newer.came
            ))
        }
        _ => Ok(()),
    }
}

pub(super) async fn run_writers(
    context: &TestContext<'_>,
    log: &mut Vec<CaseStepRecord>,
) -> Result<(), CaseError> {
    let keys = context.fresh_keys();
    let first = context.write(&keys, epoch(1000)).await;
    let prior = require_accepted(first, log)?;
    let before = context.read_effects(&keys).await?;
    let mut all = Vec::new();
    for writer in 0..WRITERS {
        // The writers send in an order that differs from the order of their tokens.
        let number = writer * 37 % WRITERS;
        let token = if number.is_multiple_of(STALE) { epoch(16 + number) } else { epoch(1000 + 16 * number) };
        let at = usize::try_from(writer).expect("a few");
        all.push(prepare_request(context, RequestTemplateKind::Write, &keys, token, at).await.send_now());
    }
    let shots = join_all(all).await;
    log.push(summary(&format!("{WRITERS} at once"), &shots));
    check_race(context, &keys, Some(prior), shots, before.as_ref(), log).await
}

pub(super) async fn run_crossed_key_pairs(
    context: &TestContext<'_>,
    log: &mut Vec<CaseStepRecord>,
) -> Result<(), CaseError> {
    let forth = context.fresh_keys();
    let back = context.keys_for_write(forth.other.clone(), forth.key.clone());
    for round in 0..context.service.rounds.div_ceil(4) {
        let mut all = Vec::new();
        for writer in 0..u64::from(COPIES) * 2 {
            let keys = if writer.is_multiple_of(2) { &forth } else { &back };
            let token = epoch(1000 * (u64::from(round) + 1) + writer);
            all.push(
                prepare_request(
                    context,
                    RequestTemplateKind::Write,
                    keys,
                    token,
                    usize::try_from(writer / 2).expect("few"),
                )
                .await
                .send_now(),
            );
        }
        let shots = join_all(all).await;
        log.push(summary("16 at once, half of them in the other order", &shots));
        if let Some(shot) = shots.iter().find(|shot| {
            !matches!(shot.came, ServiceRequestOutcome::Accepted(_) | ServiceRequestOutcome::Stale)
        }) {
            return CaseError::failed(format!(
                "`{}` was answered {}: two of them were in each other's way",
                shot.sent, shot.came
            ));
        }
        if shots.iter().all(|shot| shot.came == ServiceRequestOutcome::Stale) {
            return CaseError::undecided("all of them were refused".to_owned());
        }
    }
    Ok(())
}

async fn prepare_request(
    context: &TestContext<'_>,
    ask: RequestTemplateKind,
    keys: &TestKeys,
    token: SyntheticToken,
    at: usize,
) -> PreparedTestRequest {
    context
        .prepare(TestRequestSpec {
            ask,
            keys,
            stamp: SyntheticTokenHeaders::Whole(token),
            at,
            operation: None,
        })
        .await
}

pub(super) async fn send_after(pause: Duration, ready: PreparedTestRequest) -> TestRequestRecord {
    sleep(pause).await;
    ready.send_now().await
}

/// In every second round the service has the key before the race; in the others its row must be made during the race.
async fn create_key_in_odd_round(
    context: &TestContext<'_>,
    keys: &TestKeys,
    round: u32,
    log: &mut Vec<CaseStepRecord>,
) -> Result<Option<TestRequestRecord>, CaseError> {
    if round.is_multiple_of(2) {
        return Ok(None);
    }
    let shot = context.write(keys, epoch(8)).await;
    require_accepted(shot, log).map(Some)
}

pub(super) fn require_accepted(
    shot: TestRequestRecord,
    log: &mut Vec<CaseStepRecord>,
) -> Result<TestRequestRecord, CaseError> {
    log.push(shot.event(None));
    match shot.came {
        ServiceRequestOutcome::Accepted(_) => Ok(shot),
        _ => CaseError::undecided(format!(
            "what had to come before it was not done: `{}` got {}",
            shot.sent, shot.came
        )),
    }
}

/// Checks all answers, then the effects, then the watermark. `before` was read after `prior` and before the race.
pub(super) async fn check_race(
    context: &TestContext<'_>,
    keys: &TestKeys,
    prior: Option<TestRequestRecord>,
    race: Vec<TestRequestRecord>,
    before: Option<&ObservedEffectValue>,
    log: &mut Vec<CaseStepRecord>,
) -> Result<(), CaseError> {
    let now = context.read_effects(keys).await?;
    let counted_effects = check_effect_count(context, &race, before, now.as_ref());
    let shots: Vec<TestRequestRecord> = prior.into_iter().chain(race).collect();
    let judged = check_linearizable(&shots, context.service.fields.form);
    if matches!(judged, Err(CaseError::Failed(_))) {
        return judged;
    }
    counted_effects?;
    let done = shots.iter().filter(|shot| matches!(shot.came, ServiceRequestOutcome::Accepted(_)));
    let Some(newest) = done.filter_map(|shot| shot.mint).max() else { return judged };
    let probe = epoch(newest.epoch - 1);
    let shot = context.write(keys, probe).await;
    log.push(shot.event(None));
    if matches!(shot.came, ServiceRequestOutcome::Accepted(_)) {
        return CaseError::failed(format!(
            "when all was over, `{}` was let in: the watermark is not that of the newest that was done, of epoch {}",
            shot.sent, newest.epoch
        ));
    }
    judged
}

/// Checks that each accepted request had one effect, and that refused ones had none.
fn check_effect_count(
    context: &TestContext<'_>,
    shots: &[TestRequestRecord],
    before: Option<&ObservedEffectValue>,
    now: Option<&ObservedEffectValue>,
) -> Result<(), CaseError> {
    let accepted =
        shots.iter().filter(|shot| matches!(shot.came, ServiceRequestOutcome::Accepted(_))).count() as i128;
    let most = shots.iter().filter(|shot| shot.came.may_have_been_done()).count() as i128;
    match context.change(before, now) {
        Some(EffectReadingDiff::Effects(effects)) if effects < accepted => CaseError::failed(format!(
            "{accepted} were answered 2xx, and there was {}: what was paid is lost",
            EffectReadingDiff::Effects(effects)
        )),
        Some(EffectReadingDiff::Effects(effects)) if effects > most => CaseError::failed(format!(
            "{accepted} were answered 2xx, and there was {}: something that was refused was done",
            EffectReadingDiff::Effects(effects)
        )),
        Some(EffectReadingDiff::Inconsistent(how)) => {
            CaseError::failed(format!("{accepted} were answered 2xx, and what there is changed {how}"))
        }
        _ => Ok(()),
    }
}

fn summary(what: &str, shots: &[TestRequestRecord]) -> CaseStepRecord {
    let count =
        |wanted: fn(&ServiceRequestOutcome) -> bool| shots.iter().filter(|shot| wanted(&shot.came)).count();
    let done = count(|came| matches!(came, ServiceRequestOutcome::Accepted(_)));
    let stale = count(|came| *came == ServiceRequestOutcome::Stale);
    let other = shots.len() - done - stale;
    let came = format!("{done} let in, {stale} stale, {other} neither");
    CaseStepRecord { sent: what.to_owned(), came, effect: None }
}
