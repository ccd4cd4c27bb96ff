//! The fence of one request: it is claimed in the transaction that has the effect.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    answer::Refusal,
    stamp::{Compare, Mode, Stamp},
};

/// What a handler is given, as an extension of its request. Clones are the same fence.
#[derive(Debug, Clone)]
pub struct Fence(Arc<Held>);

#[derive(Debug)]
struct Held {
    stamp: Stamp,
    compare: Compare,
    seen: Mutex<Seen>,
}

/// What came of all calls of `claim`.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    passed: bool,
    stale: bool,
}

/// A mark to be compared, and raised if it is not stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raise<'a> {
    pub key: &'a str,
    pub mode: Mode,
    pub mark: Mark<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark<'a> {
    /// Greater than the marks, by bytes.
    Token(&'a str),
    /// Not smaller than the marks.
    Number(i64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Raised {
    Passes,
    Stale,
}

/// A transaction of some database, in which marks are raised.
pub trait Transaction {
    type Error;

    /// Compares and raises the mark of one key, by one statement of a recipe.
    ///
    /// # Errors
    /// When the database fails; whether it was raised does not matter, because nothing will be committed.
    fn raise(&mut self, raise: Raise<'_>) -> Result<Raised, Self::Error>;
}

/// The same of a database that is waited for.
pub trait AsyncTransaction {
    type Error;

    /// As [`Transaction::raise`]. Dropping the future claims nothing.
    fn raise(&mut self, raise: Raise<'_>) -> impl Future<Output = Result<Raised, Self::Error>> + Send;
}

/// The transaction has to be rolled back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotClaimed<E> {
    /// A newer request was let in.
    Stale,
    Database(E),
}

impl Raised {
    /// By how many rows the statement has changed.
    pub fn by_rows(rows: usize) -> Self {
        if rows == 0 { Self::Stale } else { Self::Passes }
    }
}

impl Fence {
    pub(crate) fn new(stamp: Stamp, compare: Compare) -> Self {
        Self(Arc::new(Held { stamp, compare, seen: Mutex::default() }))
    }

    pub fn stamp(&self) -> &Stamp {
        &self.0.stamp
    }

    /// Compares and raises the marks of all keys of the request. Call it first in the transaction of the effect.
    ///
    /// # Errors
    /// [`NotClaimed`]: roll back.
    pub fn claim<T: Transaction>(&self, transaction: &mut T) -> Result<(), NotClaimed<T::Error>> {
        self.claim_keys(transaction, &self.0.stamp.keys)
    }

    /// The same of keys that the handler names, ascending.
    ///
    /// # Errors
    /// [`NotClaimed`]: roll back.
    ///
    /// # Panics
    /// If there is no key: nothing would be compared.
    pub fn claim_keys<T: Transaction>(
        &self,
        transaction: &mut T,
        keys: &[String],
    ) -> Result<(), NotClaimed<T::Error>> {
        assert!(!keys.is_empty(), "a claim without a key compares nothing");
        for key in keys {
            let raised = transaction.raise(self.raise(key)).map_err(NotClaimed::Database)?;
            self.goes_on(raised)?;
        }
        self.passed();
        Ok(())
    }

    /// As [`Fence::claim`]. Dropping the future claims nothing.
    ///
    /// # Errors
    /// [`NotClaimed`]: roll back.
    ///
    /// # Panics
    /// If the service was to name the keys: nothing would be compared.
    pub async fn claim_async<T: AsyncTransaction>(
        &self,
        transaction: &mut T,
    ) -> Result<(), NotClaimed<T::Error>> {
        assert!(!self.0.stamp.keys.is_empty(), "a claim without a key compares nothing");
        for key in &self.0.stamp.keys {
            let raised = transaction.raise(self.raise(key)).await.map_err(NotClaimed::Database)?;
            self.goes_on(raised)?;
        }
        self.passed();
        Ok(())
    }

    fn raise<'a>(&'a self, key: &'a str) -> Raise<'a> {
        let stamp = &self.0.stamp;
        let mark = match (self.0.compare, &stamp.token) {
            (Compare::Token, Some(token)) => Mark::Token(token.as_str()),
            (Compare::Token, None) => unreachable!("it was read with its token"),
            (Compare::Number, _) => Mark::Number(stamp.number.as_i64()),
        };
        Raise { key, mode: stamp.mode, mark }
    }

    fn goes_on<E>(&self, raised: Raised) -> Result<(), NotClaimed<E>> {
        match raised {
            Raised::Passes => Ok(()),
            Raised::Stale => {
                self.0.seen.lock().unwrap_or_else(PoisonError::into_inner).stale = true;
                Err(NotClaimed::Stale)
            }
        }
    }

    fn passed(&self) {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner).passed = true;
    }

    /// What is told in the place of the handler's answer; `None` where that may be told. `success`: it says that it is done.
    pub(crate) fn overrules(&self, success: bool) -> Option<Refusal> {
        match (*self.0.seen.lock().unwrap_or_else(PoisonError::into_inner), success) {
            // One of the two was committed, or not: this is not for us to say.
            (Seen { passed: true, stale: true }, _) => Some(Refusal::ClaimedTwice),
            (Seen { passed: true, stale: false }, _) => None,
            (Seen { passed: false, .. }, true) => Some(Refusal::Unclaimed),
            (Seen { passed: false, stale: true }, false) => Some(Refusal::Stale),
            (Seen { passed: false, stale: false }, false) => None,
        }
    }
}
