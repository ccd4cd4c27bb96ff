//! Why a guard does not start, or did not end well.

use std::io;

use fencegate_guard::{
    join::NotJoined,
    open::NotOpened,
    postgres::NotUsable,
    store::{NotDurable, StoreError},
    ticket::BadFile,
};

use crate::{database::NoPlace, serve::not_serving::NotServing, ticket_keys::BadUrl};

/// Why a guard does not start or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum NotGuarding {
    #[error(transparent)]
    Process(#[from] NotServing),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    NotOpened(#[from] NotOpened),
    #[error(transparent)]
    NoPlace(#[from] NoPlace),
    #[error("FG0540: {0}")]
    NotUsable(#[from] NotUsable),
    #[error("a filter has no store: leave `--init` out")]
    Stateless,
    #[error("join the store: {0}")]
    NotJoined(NotJoined),
    #[error("read the ticket keys")]
    Keys(#[from] BadFile),
    #[error("fetch the ticket keys")]
    Jwks(#[from] BadUrl),
    #[error("the store failed, and what it holds is not known: {0}")]
    StoreFailed(#[from] NotDurable),
    #[error("start a thread or runtime")]
    Start(#[from] io::Error),
    #[error("what only memory knew was not written down; the next start takes this for a crash: {0}")]
    NotLeft(String),
}

impl From<NotJoined> for NotGuarding {
    fn from(not: NotJoined) -> Self {
        match not {
            NotJoined::Store(unusable) => Self::NotUsable(unusable),
            other => Self::NotJoined(other),
        }
    }
}
