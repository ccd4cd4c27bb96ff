//! What an operator asks ZooKeeper, or changes there, through a running gateway: the line of a key, the registered
//! gateways, operations with an unknown outcome.

pub mod answers;
mod permit_line;
mod shared_node;

use fencegate_policies::{key::ResourceKey, plan::LockSite};
use serde::{Deserialize, Serialize};
use tokio::{sync::oneshot, time::timeout};

use super::keeper::Keeper;
use crate::tenures::question::{
    Broken, Fleet, Holder, LineEntry, PATIENCE, Question, RegisteredGateway, Resolution, Resolved, Told,
    Untold,
};
use crate::tenures::work::Work;
use crate::{
    once::unresolved::Unresolved,
    recipe::grant_record::GrantRecord,
    session::{live::View, proof::Proof},
};

/// One of the gateway's sessions, as the gateway sees it without asking ZooKeeper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionStatus {
    pub number: usize,
    pub connected: bool,
    /// The session id as 16 hex digits; none without a session.
    pub id: Option<String>,
    /// How long the present proof of the session lasts, in milliseconds.
    pub proven_for_ms: u64,
    /// Why there is no session.
    pub away: Option<String>,
}

impl Keeper {
    /// Who stands in line for a key, in the order in which they get it.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing. This is true for all questions here, except `break_lock` and `resolve`.
    pub async fn line_of(&self, key: &ResourceKey, site: LockSite) -> Result<Vec<LineEntry>, Untold> {
        self.ask(key, |answer| Question::Line { key: key.clone(), site, answer }).await
    }

    /// The grant record of a key where nobody compares tokens; `None` if there is none.
    pub async fn record_of(&self, key: &ResourceKey) -> Result<Option<GrantRecord>, Untold> {
        self.ask(key, |answer| Question::Record { key: key.clone(), answer }).await
    }

    /// Removes a holder's lock node. The holder learns of it by a watch, so for a moment both it and the next holder
    /// may write. Then only a comparison of tokens tells them apart.
    ///
    /// # Cancellation
    /// The node may have been removed all the same.
    pub async fn break_lock(
        &self,
        key: &ResourceKey,
        site: LockSite,
        holder: String,
    ) -> Result<Broken, Untold> {
        self.ask(key, |answer| Question::Break { key: key.clone(), site, holder, answer })
            .await
            .map_err(Untold::of_a_change)
    }

    pub async fn members(&self) -> Result<Vec<RegisteredGateway>, Untold> {
        self.ask_any(|answer| Question::Members { answer }).await
    }

    /// The plans that the other gateways have published, compared with ours.
    pub async fn published(&self) -> Result<Fleet, Untold> {
        self.ask_any(|answer| Question::Published { answer }).await
    }

    /// The id of the session by which a lock of this key would be taken; `None` while there is none.
    pub fn session_of(&self, key: &ResourceKey) -> Option<i64> {
        match &*self.session(key).view.borrow() {
            View::Live { proof, .. } => Some(proof.session()),
            View::Away(_) | View::Unmade(_) | View::RolledBack(_) => None,
        }
    }

    /// The gateway that has registered the session with this member node. Clients may name any: for names of nobody
    /// ZooKeeper is asked a few times a second, however many there are.
    pub async fn holder(&self, member: String) -> Result<Holder, Untold> {
        let look = async || self.ask_any(|answer| Question::MemberNames { answer }).await;
        let known = timeout(PATIENCE, self.member_names.contain(&member, look)).await;
        if !known.map_err(|_elapsed| Untold::Late(PATIENCE))?? {
            return Ok(Holder::Gone);
        }
        let found = self.ask_any(|answer| Question::Holder { member: member.clone(), answer }).await;
        if matches!(found, Ok(Holder::Gone)) {
            self.member_names.forget(&member);
        }
        found
    }

    /// Operations with an unknown outcome.
    pub async fn operations(&self) -> Result<Vec<Unresolved>, Untold> {
        self.ask_any(|answer| Question::Operations { answer }).await
    }

    /// # Cancellation
    /// The resolution may have been written all the same.
    pub async fn resolve(&self, resolution: Resolution) -> Result<Resolved, Untold> {
        self.ask_any(|answer| Question::Resolve { resolution, answer }).await.map_err(Untold::of_a_change)
    }

    pub fn sessions(&self) -> Vec<SessionStatus> {
        let now = self.clock.now();
        let proven = |proof: &Proof| proof.deadline().since(now).as_millis().try_into().unwrap_or(u64::MAX);
        let status = |(number, view): (usize, View)| match view {
            View::Away(why) | View::Unmade(why) | View::RolledBack(why) => SessionStatus {
                number,
                connected: false,
                id: None,
                proven_for_ms: 0,
                away: Some(why.to_string()),
            },
            View::Live { connected, proof } => SessionStatus {
                number,
                connected,
                id: Some(format!("{:016x}", proof.session())),
                proven_for_ms: proven(&proof),
                away: None,
            },
        };
        self.desks.iter().map(|session| session.view.borrow().clone()).enumerate().map(status).collect()
    }

    async fn ask<T>(
        &self,
        key: &ResourceKey,
        question: impl FnOnce(Told<T>) -> Question,
    ) -> Result<T, Untold> {
        let (told, answer) = oneshot::channel();
        self.session(key).work.send(Work::Ask(question(told))).map_err(|_| Untold::Away)?;
        told_in_time(answer).await
    }

    /// Through a session that is ready, if there is one.
    async fn ask_any<T>(&self, question: impl FnOnce(Told<T>) -> Question) -> Result<T, Untold> {
        let ready = self.desks.iter().find(|session| session.view.borrow().is_ready(&self.clock));
        let session = ready.or(self.desks.first()).expect("there is at least one session");
        let (told, answer) = oneshot::channel();
        session.work.send(Work::Ask(question(told))).map_err(|_| Untold::Away)?;
        told_in_time(answer).await
    }
}

async fn told_in_time<T>(answer: oneshot::Receiver<Result<T, Untold>>) -> Result<T, Untold> {
    match timeout(PATIENCE, answer).await {
        Ok(answer) => answer.unwrap_or(Err(Untold::Ended)),
        Err(_elapsed) => Err(Untold::Late(PATIENCE)),
    }
}
