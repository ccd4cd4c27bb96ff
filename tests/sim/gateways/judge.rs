//! Watches every tenure of every gateway, and reports violations.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use fencegate_policies::{key::ResourceKey, permits::PermitIndex, token::ReadWriteWatermarks};
use tracing::{error, info};

use super::gateway::{DispatchPermission, FencingToken, HoldMode, LockMode, SimRequest};

/// The kinds of accidents in a storm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StormKind {
    /// The ensemble is honest: no session ends before its timeout.
    Honest,
    /// An operator closes sessions that are alive and deletes lock nodes, so that other clients get a lock that is
    /// still held. No client can prevent that, so the judge checks only that every request ends and no node is left.
    Wild,
}

/// Judges the locks of one simulation.
pub(super) struct LockJudge {
    storm: StormKind,
    open: RefCell<BTreeMap<u64, ActiveRequest>>,
    entered: Cell<u64>,
    /// The watermarks of each key, as a guard would store them.
    marks: RefCell<BTreeMap<ResourceKey, ReadWriteWatermarks>>,
    wrong: RefCell<Vec<String>>,
}

/// A request that holds its lock.
struct ActiveRequest {
    who: String,
    keys: Vec<ResourceKey>,
    mode: LockMode,
    keeping: HoldMode,
    permit: Option<PermitIndex>,
    permission: DispatchPermission,
}

impl ActiveRequest {
    /// True if both requests must not hold at the same time. Holders of permits exclude each other if they have the
    /// same permit or different numbers of permits, so there are never more holders than permits.
    fn excludes(&self, other: &Self) -> bool {
        match (self.permit, other.permit) {
            (Some(one), Some(two)) => one == two || self.keeping != other.keeping,
            _ => self.mode == LockMode::Exclusive || other.mode == LockMode::Exclusive,
        }
    }
}

impl LockJudge {
    pub(super) fn new(storm: StormKind) -> Self {
        Self {
            storm,
            open: RefCell::default(),
            entered: Cell::new(0),
            marks: RefCell::default(),
            wrong: RefCell::default(),
        }
    }

    /// Records that a request was granted its lock. Returns the number that [`LockJudge::leave`] needs.
    pub(super) fn enter(
        &self,
        who: &str,
        want: &SimRequest,
        permit: Option<PermitIndex>,
        permission: &DispatchPermission,
    ) -> u64 {
        let number = self.entered.replace(self.entered.get() + 1);
        info!("{who} has {:?} {:?} {:?} {permit:?}", want.keys, want.mode, want.keeping);
        let who = who.to_owned();
        let keys = want.keys.clone();
        let permission = permission.clone();
        let open = ActiveRequest { who, keys, mode: want.mode, keeping: want.keeping, permit, permission };
        self.open.borrow_mut().insert(number, open);
        self.check();
        number
    }

    /// Records that a request is sent upstream under its lock.
    pub(super) fn record_dispatch(
        &self,
        who: &str,
        want: &SimRequest,
        permit: Option<PermitIndex>,
        token: FencingToken,
    ) {
        info!("{who} sends {token} for {:?}", want.keys);
        self.check();
        if self.storm == StormKind::Wild {
            return;
        }
        for key in &want.keys {
            let mut marks = self.marks.borrow_mut();
            let known = permit.map_or_else(|| Some(key.clone()), |permit| key.for_permit(permit));
            let marks = marks.entry(known.expect("short")).or_default();
            let before = *marks;
            let admitted = match want.mode {
                LockMode::Exclusive => marks.admit_write(token),
                LockMode::Shared => marks.admit_read(token),
            };
            if admitted.is_err() {
                self.report(format!("{who} sends {token} for {key} {:?} after {before:?}", want.mode));
            }
        }
    }

    pub(super) fn leave(&self, number: u64) {
        if let Some(open) = self.open.borrow_mut().remove(&number) {
            info!("{} leaves {:?}", open.who, open.keys);
        }
    }

    /// Looks for two holders that exclude each other. It is called at every event and at short intervals.
    pub(super) fn check(&self) {
        if self.storm == StormKind::Wild {
            return;
        }
        let open = self.open.borrow();
        let holding: Vec<&ActiveRequest> = open.values().filter(|open| open.permission.holds()).collect();
        for (at, one) in holding.iter().enumerate() {
            for other in &holding[at + 1..] {
                if one.excludes(other) && one.keys.iter().any(|key| other.keys.contains(key)) {
                    self.report(format!("{} and {} hold {:?} together", one.who, other.who, one.keys));
                }
            }
        }
    }

    /// Records a violation.
    pub(super) fn report(&self, wrong: String) {
        error!("WRONG: {wrong}");
        self.wrong.borrow_mut().push(wrong);
    }

    pub(super) fn verdict(self) -> Vec<String> {
        self.wrong.into_inner()
    }
}
