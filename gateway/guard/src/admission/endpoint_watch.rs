//! Doubts and quarantines that end only with time in which the endpoints were seen to run.

use std::{collections::BTreeSet, time::Duration};

use fencegate_policies::{key::ResourceKey, token::Token};
use fencegate_process::clock::BootInstant;

use super::{
    claim::DispatchId,
    decide::AdmissionTable,
    key_state::KeyState,
    liveness::{EndpointWatch, LivenessAnswer, LivenessSpan, UnseenTime},
};
use crate::dispatch_target::DispatchTarget;

impl AdmissionTable {
    /// The endpoints are asked from now on. What is in doubt or in quarantine already, from an earlier process, is over
    /// only after they were seen running as well.
    pub fn watch(&mut self, watch: EndpointWatch, now: BootInstant) {
        let inherited: Vec<(BootInstant, DispatchId)> =
            std::mem::take(&mut self.doubts).into_iter().collect();
        if let Some(quarantine) = &mut self.quarantine {
            let everywhere = watch.endpoints.iter().map(|endpoint| DispatchTarget::for_endpoint(endpoint));
            quarantine.unseen = Some(UnseenTime::new(everywhere, quarantine.until.since(now), now));
        }
        self.watch = Some(watch);
        for (until, id) in inherited {
            self.require_liveness(id, until.since(now), now);
        }
    }

    /// The dispatch that is in doubt was sent to this place, and its last byte at `last`. If the endpoints are asked, it
    /// is over only when its endpoint was seen running for `longest` from now on.
    pub fn record_target(
        &mut self,
        id: DispatchId,
        place: Option<DispatchTarget>,
        longest: Duration,
        now: BootInstant,
    ) {
        let Some(open) = self.open.get_mut(&id) else { return };
        open.place = place;
        let Some(until) = open.until else { return };
        // The wait may begin later than now: `until` says when.
        let now = now.max(until - longest);
        if self.watch.is_some() {
            self.doubts.remove(&(until, id));
            self.require_liveness(id, longest, now);
        }
    }

    fn require_liveness(&mut self, id: DispatchId, left: Duration, now: BootInstant) {
        let Some(watch) = &self.watch else { return };
        let Some(open) = self.open.get(&id) else { return };
        // An endpoint that the policy no longer has is never asked. Whoever took it out says that nothing runs there.
        let place = open.place.clone().filter(|place| watch.endpoints.contains(&place.endpoint));
        let places = match place {
            Some(place) => vec![place],
            None => watch.endpoints.iter().map(|endpoint| DispatchTarget::for_endpoint(endpoint)).collect(),
        };
        let unseen = UnseenTime::new(places, left, now);
        let left = unseen.remaining();
        for key in open.keys.clone().iter() {
            if let Some(state) = self.keys.get_mut(key) {
                state.set_unseen_time(id, left);
            }
        }
        self.unseen.insert(id, unseen);
    }

    /// Where the dispatch of this token was sent, if it is in doubt and that is known.
    pub fn dispatch_target(&self, keys: &[ResourceKey], token: Token) -> Option<DispatchTarget> {
        let states = keys.iter().filter_map(|key| self.keys.get(key));
        let doubt = states.into_iter().flat_map(KeyState::all_doubts).find(|doubt| doubt.token == token)?;
        self.open.get(&doubt.id)?.place.clone()
    }

    /// The places that have to be asked now, each once. Empty if nothing is in doubt.
    pub fn targets_to_probe(&mut self) -> Vec<DispatchTarget> {
        let quarantine = self.quarantine.as_ref().and_then(|quarantine| quarantine.unseen.as_ref());
        let all: BTreeSet<&DispatchTarget> =
            self.unseen.values().chain(quarantine).flat_map(UnseenTime::places).collect();
        let asked: Vec<DispatchTarget> = all.into_iter().cloned().collect();
        self.answers.retain(|place| asked.contains(place));
        asked
    }

    /// The process at this place has answered a question that was asked on a new connection. True if the question before
    /// was not answered.
    pub fn record_alive(&mut self, place: &DispatchTarget, answer: LivenessAnswer, now: BootInstant) -> bool {
        let was_silent = self.answers.is_silent(place);
        let span = self.watch.as_ref().and_then(|watch| self.answers.record(place, answer, watch));
        if let Some(span) = span {
            self.apply_span(place, span, now);
        }
        was_silent
    }

    fn apply_span(&mut self, place: &DispatchTarget, span: LivenessSpan, now: BootInstant) {
        if let Some(unseen) = self.quarantine.as_mut().and_then(|quarantine| quarantine.unseen.as_mut()) {
            unseen.record(place, span);
        }
        let mut changed = Vec::new();
        for (id, unseen) in &mut self.unseen {
            if unseen.record(place, span) {
                changed.push((*id, unseen.remaining()));
            }
        }
        for (id, left) in changed {
            let keys = self.open.get(&id).map(|open| open.keys.clone()).unwrap_or_default();
            for key in keys.iter() {
                if let Some(state) = self.keys.get_mut(key) {
                    state.set_unseen_time(id, left);
                }
            }
            if left.is_zero() {
                self.unseen.remove(&id);
                self.remove_ended(id, now);
            }
        }
    }

    /// A question to this place was not answered. True if the question before was, or was the first.
    pub fn record_silent(&mut self, place: &DispatchTarget) -> bool {
        self.answers.record_missed(place)
    }

    /// How many executions are in doubt for which no time passes, because their endpoint does not answer.
    pub fn silent_count(&self) -> usize {
        self.unseen.values().filter(|unseen| self.is_stalled(unseen)).count()
    }

    pub(super) fn is_stalled(&self, unseen: &UnseenTime) -> bool {
        unseen.places().any(|place| self.answers.is_silent(place))
    }

    /// Nothing ran here for this time: everything that ends by the clock ends later.
    pub fn record_sleep(&mut self, by: Duration, now: BootInstant) {
        let before = now - by;
        let open: Vec<(BootInstant, DispatchId)> =
            self.doubts.iter().copied().filter(|(until, _)| before < *until).collect();
        for (until, id) in open {
            self.doubts.remove(&(until, id));
            self.doubts.insert((until + by, id));
            let Some(open) = self.open.get_mut(&id) else { continue };
            open.until = Some(until + by);
            for key in open.keys.clone().iter() {
                if let Some(state) = self.keys.get_mut(key) {
                    state.postpone(id, by);
                }
            }
        }
        if let Some(quarantine) = &mut self.quarantine
            && before < quarantine.until
        {
            quarantine.until = quarantine.until + by;
        }
    }
}
