//! The possible next steps, and their effects.

use super::{
    rules::{Fence, Rule},
    state::{Broken, Event, State, Token},
};

/// One atomic step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// The lock service grants the lock to the gateway of this index.
    Grant(usize),
    /// The lock service ends the session of the holder. The holder does not notice.
    Expire,
    Release(usize),
    /// The gateway dispatches; a hop may send a copy as well.
    Dispatch {
        gateway: usize,
        copies: u8,
    },
    /// The gateway is killed, cut off, or stops waiting. The outcome stays unknown.
    GiveUp(usize),
    /// The dispatch arrives at the guard, which compares and announces its token.
    Arrive(Token),
    Admit(Token),
    /// The dispatch has waited too long at the guard.
    Busy(Token),
    /// The guard sends an admitted dispatch to the upstream.
    Send(Token),
    /// The guard queues the write that nothing is at work.
    Rest,
    /// The next queued write reaches the disk.
    Write,
    /// The upstream's connection breaks.
    Lose(Token),
    /// The guard drops a dispatch that no gateway waits for. This happens only without [`Rule::Detach`].
    Drop(Token),
    /// The guard is killed, and starts again.
    Restart,
    EndQuarantine,
    EndDoubt(Token),
    Begin(Token),
    End(Token),
}

/// The answer that a gateway gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Done,
    Unknown,
    Duplicate,
    Stale,
    /// `busy`, `in-doubt`, `quarantine`: it may try again under the same tenure.
    NotNow,
}

pub(super) fn possible(model: &Fence, state: &State, steps: &mut Vec<Step>) {
    for (index, gateway) in state.gateways.iter().enumerate() {
        match gateway.tenure {
            None if state.holder.is_none() && state.next_e <= state.left.tenures => {
                steps.push(Step::Grant(index))
            }
            None => {}
            Some(_) if gateway.waits => steps.push(Step::GiveUp(index)),
            Some(last) => {
                if last.g < state.left.dispatches {
                    steps.extend(
                        (0..=state.left.copies).map(|copies| Step::Dispatch { gateway: index, copies }),
                    );
                }
                steps.push(Step::Release(index));
            }
        }
    }
    if state.holder.is_some() {
        steps.push(Step::Expire);
    }
    steps.extend(state.network.keys().map(|token| Step::Arrive(*token)));
    for token in state.guard.announced.keys() {
        let clear = !model.follows(Rule::Settle) || state.guard.is_clear_for(*token);
        steps.push(if clear { Step::Admit(*token) } else { Step::Busy(*token) });
    }
    if state.guard.told() && may_rest(model, state) {
        steps.push(Step::Rest);
    }
    if !state.guard.line.is_empty() {
        steps.push(Step::Write);
    }
    if state.guard.line.is_empty() || !model.follows(Rule::WriteFirst) {
        steps.extend(state.guard.unsent.iter().map(|token| Step::Send(*token)));
    }
    for token in &state.guard.in_flight {
        if state.left.losses > 0 && !state.guard.unsent.contains(token) {
            steps.push(Step::Lose(*token));
        }
        if !model.follows(Rule::Detach) && asker(state, *token).is_none() {
            steps.push(Step::Drop(*token));
        }
    }
    if state.left.restarts > 0 {
        steps.push(Step::Restart);
    }
    if state.guard.quarantine && state.upstream.is_idle() {
        steps.push(Step::EndQuarantine);
    }
    let over = |token: &&Token| !state.upstream.works_on(**token);
    steps.extend(state.guard.in_doubt.iter().filter(over).map(|token| Step::EndDoubt(*token)));
    steps.extend(state.upstream.received.iter().map(|token| Step::Begin(*token)));
    steps.extend(state.upstream.running.iter().map(|token| Step::End(*token)));
}

pub(super) fn take(model: &Fence, state: &mut State, step: Step) {
    match step {
        Step::Grant(gateway) => {
            state.gateways[gateway].tenure = Some(Token { e: state.next_e, g: 0 });
            state.holder = Some(state.next_e);
            state.next_e += 1;
        }
        Step::Expire => state.holder = None,
        Step::Release(gateway) => retire(state, gateway),
        Step::Dispatch { gateway, copies } => dispatch(state, gateway, copies),
        Step::GiveUp(gateway) => tell(model, state, gateway, Answer::Unknown),
        Step::Arrive(token) => arrive(model, state, token),
        Step::Admit(token) => admit(model, state, token),
        Step::Busy(token) => {
            state.guard.announced.remove(&token);
            state.event = (!state.guard.in_doubt.is_empty()).then_some(Event::InDoubt);
            answer(model, state, token, Answer::NotNow);
        }
        Step::Send(token) => {
            state.guard.unsent.remove(&token);
            state.upstream.received.insert(token);
        }
        Step::Rest => state.guard.line.push(false),
        Step::Write => state.guard.at_work = state.guard.line.remove(0),
        Step::Lose(token) => {
            state.left.losses -= 1;
            state.guard.in_flight.remove(&token);
            if model.follows(Rule::KeepDoubt) {
                state.guard.in_doubt.insert(token);
            }
            answer(model, state, token, Answer::Unknown);
        }
        Step::Drop(token) => drop(state.guard.in_flight.remove(&token)),
        Step::Restart => {
            state.left.restarts -= 1;
            state.guard.restart();
            state.guard.quarantine = model.follows(Rule::Quarantine) && state.guard.at_work;
            let idle = !state.guard.at_work && !state.upstream.begun.is_empty();
            state.event = idle.then_some(Event::AtRest);
        }
        Step::EndQuarantine => state.guard.quarantine = false,
        Step::EndDoubt(token) => drop(state.guard.in_doubt.remove(&token)),
        Step::Begin(token) => begin(state, token),
        Step::End(token) => {
            state.upstream.running.remove(&token);
            // A guard that was killed meanwhile does not learn of the end. Nor does a guard whose connection broke.
            if state.guard.in_flight.remove(&token) {
                answer(model, state, token, Answer::Done);
            }
        }
    }
}

fn dispatch(state: &mut State, gateway: usize, copies: u8) {
    let gateway = &mut state.gateways[gateway];
    let token = gateway.tenure.as_mut().expect("it has a tenure when it dispatches");
    token.g += 1;
    gateway.waits = true;
    state.network.insert(*token, 1 + copies);
    state.left.copies -= copies;
}

fn arrive(model: &Fence, state: &mut State, token: Token) {
    match state.network.get_mut(&token).expect("what arrives was on its way") {
        1 => drop(state.network.remove(&token)),
        copies => *copies -= 1,
    }
    let guard = &mut state.guard;
    if !model.follows(Rule::Guard) {
        state.upstream.received.insert(token);
        return;
    }
    // Only the tenure of a recovered mark is known. So no dispatch of that tenure is known to be new.
    let old_tenure = guard.recovered && model.follows(Rule::StrictRecovery) && token.e <= guard.newest.e;
    let refusal = if !guard.recovered && token.e == guard.newest.e && token <= guard.newest {
        Some((Event::Duplicate, Answer::Duplicate))
    } else if guard.quarantine {
        Some((Event::Quarantined, Answer::NotNow))
    } else if old_tenure || token <= guard.newest {
        Some((Event::Stale, Answer::Stale))
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

fn admit(model: &Fence, state: &mut State, token: Token) {
    let waited = state.guard.announced.remove(&token).expect("what is admitted was announced");
    if model.follows(Rule::SecondCheck) && state.guard.newest != token {
        state.event = Some(Event::Stale);
        return answer(model, state, token, Answer::Stale);
    }
    state.event = waited.then_some(Event::Waited);
    let guard = &mut state.guard;
    if !guard.told() {
        guard.line.push(true);
    }
    guard.in_flight.insert(token);
    guard.unsent.insert(token);
}

/// Whether the guard may hand in that nothing is at work.
fn may_rest(model: &Fence, state: &State) -> bool {
    let guard = &state.guard;
    (guard.in_flight.is_empty() || !model.follows(Rule::RestAfterEnd))
        && (guard.in_doubt.is_empty() || !model.follows(Rule::RestAfterDoubt))
        && (!guard.quarantine || !model.follows(Rule::RestAfterQuarantine))
}

fn begin(state: &mut State, token: Token) {
    let newest = state.upstream.begun.last().copied();
    state.event = newest.is_some_and(|newest| newest.e < token.e).then_some(Event::HandedOver);
    let lied = state.denied.contains(&token).then_some(Broken::Lied);
    state.broken = state.upstream.judge(token).or(lied);
    state.upstream.received.remove(&token);
    state.upstream.begun.insert(token);
    state.upstream.running.insert(token);
}

/// The gateway that waits for the answer to this dispatch.
fn asker(state: &State, token: Token) -> Option<usize> {
    state.gateways.iter().position(|gateway| gateway.waits && gateway.tenure == Some(token))
}

/// The first answer counts. Later answers find no waiting gateway.
fn answer(model: &Fence, state: &mut State, token: Token, answer: Answer) {
    if let Some(gateway) = asker(state, token) {
        tell(model, state, gateway, answer);
    }
}

fn tell(model: &Fence, state: &mut State, gateway: usize, answer: Answer) {
    state.gateways[gateway].waits = false;
    let token = state.gateways[gateway].tenure.expect("who waits has a tenure");
    let refused = matches!(answer, Answer::Stale | Answer::NotNow);
    // Behind a hop, the refusal may be that of one copy while another one executes.
    let believed = model.bounds.copies == 0 || !model.follows(Rule::DisbelieveHop);
    if refused && believed {
        state.denied.insert(token);
        if state.upstream.begun.contains(&token) {
            state.broken = Some(Broken::Lied);
        }
    }
    let goes_on = match answer {
        Answer::Done => true,
        Answer::NotNow => believed,
        Answer::Stale => false,
        Answer::Unknown | Answer::Duplicate => !model.follows(Rule::Retire),
    };
    if !goes_on {
        retire(state, gateway);
    }
}

fn retire(state: &mut State, gateway: usize) {
    let tenure = state.gateways[gateway].tenure.take();
    if state.holder == tenure.map(|token| token.e) {
        state.holder = None;
    }
}
