//! The possible next steps, and their effects.

use super::{
    rules::{FenceModel, ModelProtocolRule},
    state::{BrokenInvariant, ModelEvent, ModelState, ModelToken},
};

/// One atomic step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ModelStep {
    /// The lock service grants the lock to the gateway of this index.
    Grant(usize),
    /// The lock service ends the session of the holder. The holder does not notice.
    Expire,
    Release(usize),
    /// The gateway dispatches, and a hop may send copies of the dispatch.
    Dispatch {
        gateway: usize,
        copies: u8,
    },
    /// The gateway is killed, cut off, or stops waiting. The outcome stays unknown.
    GiveUp(usize),
    /// The dispatch arrives at the guard, which compares and announces its token.
    Arrive(ModelToken),
    Admit(ModelToken),
    /// The dispatch has waited too long at the guard.
    Busy(ModelToken),
    /// The guard sends an admitted dispatch to the upstream.
    Send(ModelToken),
    /// The guard queues the write that the key is at rest.
    Rest,
    /// The next queued write reaches the disk.
    Write,
    /// The upstream's connection breaks.
    Lose(ModelToken),
    /// The guard drops a dispatch that no gateway waits for. This happens only without [`ModelProtocolRule::Detach`].
    Drop(ModelToken),
    /// The guard is killed, and starts again.
    Restart,
    EndQuarantine,
    EndDoubt(ModelToken),
    Begin(ModelToken),
    End(ModelToken),
}

/// The answer that a gateway gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ModelGuardAnswer {
    Done,
    Unknown,
    Duplicate,
    Stale,
    /// `busy`, `in-doubt` or `quarantine`: the gateway may try again under the same tenure.
    NotNow,
}

pub(super) fn collect_possible_steps(model: &FenceModel, state: &ModelState, steps: &mut Vec<ModelStep>) {
    for (index, gateway) in state.gateways.iter().enumerate() {
        match gateway.tenure {
            None if state.holder.is_none() && state.next_e <= state.left.tenures => {
                steps.push(ModelStep::Grant(index))
            }
            None => {}
            Some(_) if gateway.waits => steps.push(ModelStep::GiveUp(index)),
            Some(last) => {
                if last.g < state.left.dispatches {
                    steps.extend(
                        (0..=state.left.copies).map(|copies| ModelStep::Dispatch { gateway: index, copies }),
                    );
                }
                steps.push(ModelStep::Release(index));
            }
        }
    }
    if state.holder.is_some() {
        steps.push(ModelStep::Expire);
    }
    steps.extend(state.network.keys().map(|token| ModelStep::Arrive(*token)));
    for token in state.guard.announced.keys() {
        let clear = !model.follows(ModelProtocolRule::Settle) || state.guard.is_clear_for(*token);
        steps.push(if clear { ModelStep::Admit(*token) } else { ModelStep::Busy(*token) });
    }
    if state.guard.eventual_disk_value() && may_rest(model, state) {
        steps.push(ModelStep::Rest);
    }
    if !state.guard.line.is_empty() {
        steps.push(ModelStep::Write);
    }
    if state.guard.line.is_empty() || !model.follows(ModelProtocolRule::WriteFirst) {
        steps.extend(state.guard.unsent.iter().map(|token| ModelStep::Send(*token)));
    }
    for token in &state.guard.in_flight {
        if state.left.losses > 0 && !state.guard.unsent.contains(token) {
            steps.push(ModelStep::Lose(*token));
        }
        if !model.follows(ModelProtocolRule::Detach) && waiting_gateway(state, *token).is_none() {
            steps.push(ModelStep::Drop(*token));
        }
    }
    if state.left.restarts > 0 {
        steps.push(ModelStep::Restart);
    }
    if state.guard.quarantine && state.upstream.is_idle() {
        steps.push(ModelStep::EndQuarantine);
    }
    let over = |token: &&ModelToken| !state.upstream.is_running(**token);
    steps.extend(state.guard.in_doubt.iter().filter(over).map(|token| ModelStep::EndDoubt(*token)));
    steps.extend(state.upstream.received.iter().map(|token| ModelStep::Begin(*token)));
    steps.extend(state.upstream.running.iter().map(|token| ModelStep::End(*token)));
}

pub(super) fn apply(model: &FenceModel, state: &mut ModelState, step: ModelStep) {
    match step {
        ModelStep::Grant(gateway) => {
            state.gateways[gateway].tenure = Some(ModelToken { e: state.next_e, g: 0 });
            state.holder = Some(state.next_e);
            state.next_e += 1;
        }
        ModelStep::Expire => state.holder = None,
        ModelStep::Release(gateway) => retire(state, gateway),
        ModelStep::Dispatch { gateway, copies } => dispatch(state, gateway, copies),
        ModelStep::GiveUp(gateway) => deliver_answer(model, state, gateway, ModelGuardAnswer::Unknown),
        ModelStep::Arrive(token) => arrive(model, state, token),
        ModelStep::Admit(token) => admit(model, state, token),
        ModelStep::Busy(token) => {
            state.guard.announced.remove(&token);
            state.event = (!state.guard.in_doubt.is_empty()).then_some(ModelEvent::InDoubt);
            answer(model, state, token, ModelGuardAnswer::NotNow);
        }
        ModelStep::Send(token) => {
            state.guard.unsent.remove(&token);
            state.upstream.received.insert(token);
        }
        ModelStep::Rest => state.guard.line.push(false),
        ModelStep::Write => state.guard.at_work = state.guard.line.remove(0),
        ModelStep::Lose(token) => {
            state.left.losses -= 1;
            state.guard.in_flight.remove(&token);
            if model.follows(ModelProtocolRule::KeepDoubt) {
                state.guard.in_doubt.insert(token);
            }
            answer(model, state, token, ModelGuardAnswer::Unknown);
        }
        ModelStep::Drop(token) => drop(state.guard.in_flight.remove(&token)),
        ModelStep::Restart => {
            state.left.restarts -= 1;
            state.guard.restart();
            state.guard.quarantine = model.follows(ModelProtocolRule::Quarantine) && state.guard.at_work;
            let idle = !state.guard.at_work && !state.upstream.begun.is_empty();
            state.event = idle.then_some(ModelEvent::AtRest);
        }
        ModelStep::EndQuarantine => state.guard.quarantine = false,
        ModelStep::EndDoubt(token) => drop(state.guard.in_doubt.remove(&token)),
        ModelStep::Begin(token) => begin_execution(state, token),
        ModelStep::End(token) => {
            state.upstream.running.remove(&token);
            // The guard does not learn of the end if it was killed or lost its connection meanwhile.
            if state.guard.in_flight.remove(&token) {
                answer(model, state, token, ModelGuardAnswer::Done);
            }
        }
    }
}

fn dispatch(state: &mut ModelState, gateway: usize, copies: u8) {
    let gateway = &mut state.gateways[gateway];
    let token = gateway.tenure.as_mut().expect("it has a tenure when it dispatches");
    token.g += 1;
    gateway.waits = true;
    state.network.insert(*token, 1 + copies);
    state.left.copies -= copies;
}

fn arrive(model: &FenceModel, state: &mut ModelState, token: ModelToken) {
    match state.network.get_mut(&token).expect("what arrives was on its way") {
        1 => drop(state.network.remove(&token)),
        copies => *copies -= 1,
    }
    let guard = &mut state.guard;
    if !model.follows(ModelProtocolRule::Guard) {
        state.upstream.received.insert(token);
        return;
    }
    // A recovered watermark has only a tenure, so every dispatch of that tenure may be old and is refused.
    let old_tenure =
        guard.recovered && model.follows(ModelProtocolRule::StrictRecovery) && token.e <= guard.newest.e;
    let refusal = if !guard.recovered && token.e == guard.newest.e && token <= guard.newest {
        Some((ModelEvent::Duplicate, ModelGuardAnswer::Duplicate))
    } else if guard.quarantine {
        Some((ModelEvent::Quarantined, ModelGuardAnswer::NotNow))
    } else if old_tenure || token <= guard.newest {
        Some((ModelEvent::Stale, ModelGuardAnswer::Stale))
    } else {
        None
    };
    if let Some((event, refusal)) = refusal {
        state.event = Some(event);
        return answer(model, state, token, refusal);
    }
    guard.newest = token;
    guard.recovered = false;
    let waits = !guard.is_clear_for(token);
    guard.announced.insert(token, waits);
}

fn admit(model: &FenceModel, state: &mut ModelState, token: ModelToken) {
    let waited = state.guard.announced.remove(&token).expect("what is admitted was announced");
    if model.follows(ModelProtocolRule::SecondCheck) && state.guard.newest != token {
        state.event = Some(ModelEvent::Stale);
        return answer(model, state, token, ModelGuardAnswer::Stale);
    }
    state.event = waited.then_some(ModelEvent::Waited);
    let guard = &mut state.guard;
    if !guard.eventual_disk_value() {
        guard.line.push(true);
    }
    guard.in_flight.insert(token);
    guard.unsent.insert(token);
}

/// Whether the guard may submit the record that the key is at rest.
fn may_rest(model: &FenceModel, state: &ModelState) -> bool {
    let guard = &state.guard;
    (guard.in_flight.is_empty() || !model.follows(ModelProtocolRule::RestAfterEnd))
        && (guard.in_doubt.is_empty() || !model.follows(ModelProtocolRule::RestAfterDoubt))
        && (!guard.quarantine || !model.follows(ModelProtocolRule::RestAfterQuarantine))
}

fn begin_execution(state: &mut ModelState, token: ModelToken) {
    let newest = state.upstream.begun.last().copied();
    state.event = newest.is_some_and(|newest| newest.e < token.e).then_some(ModelEvent::HandedOver);
    let lied = state.denied.contains(&token).then_some(BrokenInvariant::Lied);
    state.broken = state.upstream.judge(token).or(lied);
    state.upstream.received.remove(&token);
    state.upstream.begun.insert(token);
    state.upstream.running.insert(token);
}

/// The index of the gateway that waits for the answer to this dispatch.
fn waiting_gateway(state: &ModelState, token: ModelToken) -> Option<usize> {
    state.gateways.iter().position(|gateway| gateway.waits && gateway.tenure == Some(token))
}

/// Gives the guard's answer to the gateway that waits for it. Only the first answer counts: after it no gateway
/// waits.
fn answer(model: &FenceModel, state: &mut ModelState, token: ModelToken, answer: ModelGuardAnswer) {
    if let Some(gateway) = waiting_gateway(state, token) {
        deliver_answer(model, state, gateway, answer);
    }
}

fn deliver_answer(model: &FenceModel, state: &mut ModelState, gateway: usize, answer: ModelGuardAnswer) {
    state.gateways[gateway].waits = false;
    let token = state.gateways[gateway].tenure.expect("who waits has a tenure");
    let refused = matches!(answer, ModelGuardAnswer::Stale | ModelGuardAnswer::NotNow);
    // Behind a hop the refusal may concern one copy while another copy executes, so the outcome counts as unknown.
    let believed = model.bounds.copies == 0 || !model.follows(ModelProtocolRule::DisbelieveHop);
    if refused && believed {
        state.denied.insert(token);
        if state.upstream.begun.contains(&token) {
            state.broken = Some(BrokenInvariant::Lied);
        }
    }
    let goes_on = match answer {
        ModelGuardAnswer::Done => true,
        ModelGuardAnswer::NotNow => believed,
        ModelGuardAnswer::Stale => false,
        ModelGuardAnswer::Unknown | ModelGuardAnswer::Duplicate => !model.follows(ModelProtocolRule::Retire),
    };
    if !goes_on {
        retire(state, gateway);
    }
}

fn retire(state: &mut ModelState, gateway: usize) {
    let tenure = state.gateways[gateway].tenure.take();
    if state.holder == tenure.map(|token| token.e) {
        state.holder = None;
    }
}
