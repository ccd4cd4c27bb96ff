//! Asks the database to let a dispatch in, and tells it how the dispatch ended.

use fencegate_process::clock::Boot;

use super::Shared;
use crate::{
    arbitration::{Admitted, Admitting, Looked, Right, Sent, Turn, Way},
    operation::Writing,
    postgres::{DispatchName, Look, Written},
    refused::Refused,
    register::{Claim, Ended},
};

impl Shared {
    /// See [`Arbiter::look`](crate::arbiter::Arbiter::look).
    pub(crate) async fn look(
        &self,
        turn: Turn,
        claim: &Claim,
        admitting: Option<Admitting<'_>>,
        admitted: &mut Admitted,
    ) -> Result<Looked, Refused> {
        let name = self.name(admitted);
        let operation = admitting.as_ref().and_then(|admitting| match admitting.right {
            Right::Shared(held) => Some((held, &*admitting.entry)),
            Right::Alone(_) => None,
        });
        let asked = match turn {
            Turn::First => self.postgres.admit(claim, name, operation).await,
            Turn::Again => self.postgres.settle(claim, name, operation).await,
        };
        let (way, raised) = match self.told("admit", asked)? {
            Look::Running { dispatch, since } => {
                *admitted = Admitted::Shared(dispatch);
                // Only the database knows whether the epoch is new, so the first dispatch number stands for it.
                (Way::Free { since }, claim.token.dispatch() == 1)
            }
            Look::Wait { told, doubt } => {
                let doubt = doubt.map(|left| self.now() + left);
                (Way::Taken { told, doubt }, false)
            }
            Look::Refused(refused) => return Err(refused),
            Look::NotHeld => return Err(taken_over()),
        };
        Ok(Looked { way, raised })
    }

    /// Raises marks and registers the dispatch even if its token is stale. Never lowers a mark.
    pub(crate) async fn let_pass(&self, claim: &Claim, admitted: &mut Admitted) -> Result<Boot, Refused> {
        let name = self.name(admitted);
        match self.told("admit", self.postgres.let_pass(claim, name).await)? {
            Look::Running { dispatch, since, .. } => {
                *admitted = Admitted::Shared(dispatch);
                Ok(since)
            }
            Look::Refused(refused) => Err(refused),
            Look::Wait { .. } | Look::NotHeld => {
                Err(Refused::Store("the database did not let pass what it had to let pass".into()))
            }
        }
    }

    /// The name of the dispatch: one name for all its looks, so that the database finds it again after a lost answer.
    fn name(&self, admitted: &mut Admitted) -> DispatchName {
        match admitted {
            Admitted::Asked(name) => *name,
            _ => {
                let name = self.postgres.name();
                *admitted = Admitted::Asked(name);
                name
            }
        }
    }

    /// Ends a dispatch that was let in. A look that was not granted needs no end.
    pub(crate) fn end(&self, admitted: &Admitted, ended: Ended, sent: Option<Sent>) {
        let Admitted::Shared(dispatch) = admitted else { return };
        let (Ended::InDoubt { .. }, Some(Sent { place, last }), Some(_)) = (ended, sent, &self.rules.watch)
        else {
            return self.postgres.end(dispatch, ended);
        };
        // Another guard of the store may have the longer one.
        let longest = self.postgres.status().longest_execution.max(self.rules.max_execution);
        self.postgres.in_doubt(dispatch, place, longest, self.now().max(last));
    }

    pub(crate) async fn conclude(
        &self,
        admitted: &Admitted,
        right: &mut Option<Right>,
        writing: Writing,
    ) -> Result<(), Refused> {
        let Admitted::Shared(dispatch) = admitted else { return Ok(()) };
        let Some(Right::Shared(held)) = right.take() else {
            self.postgres.end(dispatch, Ended::Known);
            return Ok(());
        };
        let written = self.postgres.finish(dispatch, Ended::Known, held, writing).await;
        durably(self.told("end", written)?)
    }
}

pub(super) fn durably(written: Written) -> Result<(), Refused> {
    match written {
        Written::Durably => Ok(()),
        Written::NotHeld => Err(taken_over()),
    }
}

fn taken_over() -> Refused {
    Refused::Store("another guard has taken the operation over: it held this one for dead".into())
}
