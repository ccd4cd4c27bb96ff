//! What a guard asks of its store with a dispatch or an operation in hand.

use std::sync::Arc;

use fencegate_policies::{key::ResourceKey, operation::OperationId, token::Token};
use tokio::time::timeout;

use super::{
    connect::in_millis,
    held::{GivenBack, Held, Reserve, Right, Writing, Written},
    instance::Postgres,
    item::{Answer, How, Item},
    line::Answered,
    look::{DispatchName, InFlight, Look},
    standing::Lost,
    trouble::Trouble,
    wakes::changed,
};
use crate::{
    operation::Entry,
    refused::Refused,
    register::{Claim, Ended},
};

impl Postgres {
    /// The first look: compares, raises, and where nothing is in the way registers, with the entry of its operation in
    /// one transaction.
    ///
    /// # Errors
    /// Nothing may be sent. What may have been registered is ended in the background.
    ///
    /// # Cancellation
    /// Dropped, it is as after an error.
    pub async fn admit(
        &self,
        claim: &Claim,
        name: DispatchName,
        operation: Option<(&Held, &Entry)>,
    ) -> Result<Look, Trouble> {
        self.look(How::Claim, claim, name, operation).await
    }

    /// Once more, after a wait; under the same name.
    ///
    /// # Errors
    /// As [`Postgres::admit`].
    pub async fn settle(
        &self,
        claim: &Claim,
        name: DispatchName,
        operation: Option<(&Held, &Entry)>,
    ) -> Result<Look, Trouble> {
        self.look(How::Settle, claim, name, operation).await
    }

    /// Raises and registers whatever the marks say.
    ///
    /// # Errors
    /// As [`Postgres::admit`].
    pub async fn let_pass(&self, claim: &Claim, name: DispatchName) -> Result<Look, Trouble> {
        self.look(How::Pass, claim, name, None).await
    }

    async fn look(
        &self,
        how: How,
        claim: &Claim,
        name: DispatchName,
        operation: Option<(&Held, &Entry)>,
    ) -> Result<Look, Trouble> {
        let since = self.instance.clock.now();
        let bells: Vec<_> = claim.keys.iter().map(|key| self.instance.wakes.bell(key.as_str())).collect();
        let operation = operation.map(|(held, entry)| (held.right, Box::new(entry.clone())));
        let answer = self.ask(Item::Look { how, claim: claim.clone(), name, operation }).await?;
        let now = self.instance.clock.now();
        let refused = match answer {
            Answer::Running => {
                let dispatch =
                    InFlight { name, keys: claim.keys.clone(), token: claim.token, mode: claim.mode };
                return Ok(Look::Running { dispatch, since });
            }
            Answer::Wait { key, left } => {
                let at = claim.keys.iter().position(|known| Some(known.as_str()) == key.as_deref());
                let bell = bells.into_iter().nth(at.unwrap_or_default());
                let bell = bell.ok_or_else(|| Trouble::Refused("a claim without keys waits".into()))?;
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

    /// The dispatch is over. Said in the background, until it is said: nobody waits, and a drop can say it.
    pub fn end(&self, dispatch: &InFlight, ended: Ended) {
        self.instance.line.tell(Item::End { dispatch: dispatch.clone(), ended, operation: None });
    }

    /// The same with what became of its operation, which is durable when this returns. The right to decide is given back
    /// in the same transaction.
    ///
    /// # Errors
    /// It is not known to be written. It is said on in the background.
    pub async fn finish(
        &self,
        dispatch: &InFlight,
        ended: Ended,
        held: Held,
        writing: Writing,
    ) -> Result<Written, Trouble> {
        let operation = Some((held.spent(), writing));
        self.written(Item::End { dispatch: dispatch.clone(), ended, operation }).await
    }

    /// Takes the right to decide over an operation, where nobody has it.
    ///
    /// # Errors
    /// Nothing was taken, or it is given back in the background.
    pub async fn reserve(&self, id: OperationId) -> Result<Reserve, Trouble> {
        let bell = self.instance.wakes.bell(&id.to_string());
        let right = Right { id, holder: self.instance.guid() };
        match self.ask(Item::Reserve(right)).await? {
            Answer::Done => {
                let back: Arc<dyn GivenBack> = self.instance.line.clone();
                Ok(Reserve::Yours(Held::new(right, back)))
            }
            Answer::Wait { .. } => Ok(Reserve::Taken(changed(bell))),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Changes what is known of an operation, by its right.
    ///
    /// # Errors
    /// It is not known to be written. It is said on in the background.
    pub async fn write(&self, held: &Held, writing: Writing) -> Result<Written, Trouble> {
        self.written(Item::Write(held.right, writing)).await
    }

    async fn written(&self, item: Item) -> Result<Written, Trouble> {
        match self.ask(item).await? {
            Answer::Done => Ok(Written::Durably),
            Answer::NotHeld => Ok(Written::NotHeld),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Nothing goes on of a dispatch that is in doubt. Whether there was such a doubt.
    ///
    /// # Errors
    /// It is not known to be written.
    pub async fn resolve(&self, keys: &[ResourceKey], token: Token) -> Result<bool, Trouble> {
        let answer = self.ask(Item::Resolve { keys: keys.into(), token }).await?;
        Ok(answer == Answer::Done)
    }

    /// Not longer than a dispatch could be of use: who waits for the database has a client that waits.
    async fn ask(&self, item: Item) -> Result<Answer, Trouble> {
        if let Some(lost) = self.instance.is_lost() {
            return Err(Trouble::Lost(lost));
        }
        match timeout(self.instance.terms.send_within, self.instance.line.ask(item)).await {
            Err(_) => Err(Trouble::Late),
            Ok(Err(_gone)) => Err(Trouble::Unreachable("this guard is leaving".into())),
            // Nothing comes between hearing it and handing it on.
            Ok(Ok(answer)) => answer.map(Answered::heard),
        }
    }

    fn unexpected(&self, answer: &Answer) -> Trouble {
        match answer {
            Answer::Dead => self.instance.lose(Lost::Dead),
            other => Trouble::Refused(format!("it answered {other:?}")),
        }
    }
}
