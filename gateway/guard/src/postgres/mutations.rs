//! The changes that a guard makes in its store, for a dispatch or an operation of its own.

use std::{sync::Arc, time::Duration};

use fencegate_policies::{key::ResourceKey, operation::OperationId, token::Token};
use tokio::time::timeout;

use super::{
    backlog::Answered,
    connect::in_millis,
    instance::Postgres,
    item::{Answer, How, Item},
    look::{DispatchName, InFlight, Look},
    membership::Lost,
    right::{GivenBack, HeldRight, Reserve, RightId, Written},
    unavailable::Unavailable,
    wakes::changed,
};
use crate::{
    operation::{Entry, Writing},
    refused::Refused,
    register::{Claim, Ended},
};

impl Postgres {
    /// The first look: compares and raises. If nothing is in the way, it registers in the same transaction, with the
    /// entry of the operation.
    ///
    /// # Errors
    /// The dispatch must not be sent. A possible registration is ended in the background.
    ///
    /// # Cancellation
    /// Dropping the future has the same effect as an error.
    pub async fn admit(
        &self,
        claim: &Claim,
        name: DispatchName,
        operation: Option<(&HeldRight, &Entry)>,
    ) -> Result<Look, Unavailable> {
        self.look(How::Claim, claim, name, operation).await
    }

    /// A later look after a wait, under the same name.
    ///
    /// # Errors
    /// As [`Postgres::admit`].
    pub async fn settle(
        &self,
        claim: &Claim,
        name: DispatchName,
        operation: Option<(&HeldRight, &Entry)>,
    ) -> Result<Look, Unavailable> {
        self.look(How::Settle, claim, name, operation).await
    }

    /// Raises marks and registers the dispatch even if its token is stale.
    ///
    /// # Errors
    /// As [`Postgres::admit`].
    pub async fn let_pass(&self, claim: &Claim, name: DispatchName) -> Result<Look, Unavailable> {
        self.look(How::Pass, claim, name, None).await
    }

    async fn look(
        &self,
        how: How,
        claim: &Claim,
        name: DispatchName,
        operation: Option<(&HeldRight, &Entry)>,
    ) -> Result<Look, Unavailable> {
        let since = self.instance.clock.now();
        let bells: Vec<_> = claim.keys.iter().map(|key| self.instance.wakes.bell(key.as_str())).collect();
        let operation = operation.map(|(held, entry)| (held.right.clone(), Box::new(entry.clone())));
        let in_hand = self.instance.names.take(name.0);
        let question = Item::Look { how, claim: claim.clone(), name, in_hand: in_hand.clone(), operation };
        let answer = self.ask(question).await?;
        let now = self.instance.clock.now();
        let refused = match answer {
            Answer::Running => {
                let (keys, token, mode) = (claim.keys.clone(), claim.token, claim.mode);
                let dispatch = InFlight { name, keys, token, mode, _in_hand: in_hand };
                return Ok(Look::Running { dispatch, since });
            }
            Answer::Wait { key, left } => {
                let at = claim.keys.iter().position(|known| Some(known.as_str()) == key.as_deref());
                let bell = bells.into_iter().nth(at.unwrap_or_default());
                let bell = bell.ok_or_else(|| Unavailable::Refused("a claim without keys waits".into()))?;
                return Ok(Look::Wait {
                    told: changed(bell),
                    doubt: left.map(|left| in_millis(now, left).since(now)),
                });
            }
            Answer::NotHeld => return Ok(Look::NotHeld),
            Answer::Closed { left } => Refused::Quarantine { until: in_millis(now, left) },
            Answer::Future { epoch } => Refused::Future { highest: epoch },
            Answer::Floor { epoch } => Refused::Floor { floor: epoch },
            Answer::Recovered { epoch } => Refused::Recovered { epoch },
            Answer::Stale { token } => Refused::Stale { newest: token },
            Answer::Duplicate { token } => Refused::Duplicate { newest: token },
            other @ (Answer::Dead | Answer::Done | Answer::None) => return Err(self.unexpected(&other)),
        };
        Ok(Look::Refused(refused))
    }

    /// The dispatch is over. The database is told in the background, so a drop can call this.
    pub fn end(&self, dispatch: &InFlight, ended: Ended) {
        let dispatch = dispatch.clone();
        let end = Item::End { dispatch, ended, at_least: Duration::ZERO, operation: None };
        self.instance.backlog.tell(end);
    }

    /// The dispatch is over, with this outcome of its operation, which is durable when this returns. The same
    /// transaction gives the right back.
    ///
    /// # Errors
    /// It is not known to be written. The database is told again in the background.
    pub async fn finish(
        &self,
        dispatch: &InFlight,
        ended: Ended,
        held: HeldRight,
        writing: Writing,
    ) -> Result<Written, Unavailable> {
        let operation = Some((held.spent(), writing));
        let dispatch = dispatch.clone();
        self.written(Item::End { dispatch, ended, at_least: Duration::ZERO, operation }).await
    }

    /// Takes the right to decide over an operation, if it is free.
    ///
    /// # Errors
    /// The right was not taken, or is given back in the background.
    pub async fn reserve(&self, id: OperationId) -> Result<Reserve, Unavailable> {
        let bell = self.instance.wakes.bell(&id.to_string());
        let right = RightId::new(id, self.instance.guid(), &self.instance.names);
        match self.ask(Item::Reserve(right.clone())).await? {
            Answer::Done => {
                let back: Arc<dyn GivenBack> = self.instance.backlog.clone();
                Ok(Reserve::Yours(HeldRight::new(right, back)))
            }
            Answer::Wait { .. } => Ok(Reserve::Taken(changed(bell))),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Changes the entry of an operation, under its right.
    ///
    /// # Errors
    /// It is not known to be written. The database is told again in the background.
    pub async fn write(&self, held: &HeldRight, writing: Writing) -> Result<Written, Unavailable> {
        self.written(Item::Write(held.right.clone(), writing)).await
    }

    async fn written(&self, item: Item) -> Result<Written, Unavailable> {
        match self.ask(item).await? {
            Answer::Done => Ok(Written::Durably),
            Answer::NotHeld => Ok(Written::NotHeld),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Ends a doubt: no execution under this token goes on. False if there was no such doubt.
    ///
    /// # Errors
    /// It is not known to be written.
    pub async fn resolve(&self, keys: &[ResourceKey], token: Token) -> Result<bool, Unavailable> {
        let answer = self.ask(Item::Resolve { keys: keys.into(), token }).await?;
        Ok(answer == Answer::Done)
    }

    /// Asks, and waits no longer than a dispatch could still be sent: a client waits for it.
    async fn ask(&self, item: Item) -> Result<Answer, Unavailable> {
        if let Some(lost) = self.instance.is_lost() {
            return Err(Unavailable::Lost(lost));
        }
        match timeout(self.instance.terms.send_within, self.instance.backlog.ask(item)).await {
            Err(_) => Err(Unavailable::Late),
            Ok(Err(_gone)) => Err(Unavailable::Unreachable("this guard is leaving".into())),
            // Taken and returned in one step, so that the answer is not lost in between.
            Ok(Ok(answer)) => answer.map(Answered::heard),
        }
    }

    fn unexpected(&self, answer: &Answer) -> Unavailable {
        match answer {
            Answer::Dead => self.instance.lose(Lost::Dead),
            other => Unavailable::Refused(format!("it answered {other:?}")),
        }
    }
}
