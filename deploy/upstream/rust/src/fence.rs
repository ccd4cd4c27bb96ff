//! The fence of one request. A handler claims it in the transaction that makes the change.

use std::{
    error::Error,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    answer::Refusal,
    stamp::{Compare, Mode, Stamp},
};

/// The fence of one request, which handlers find among its extensions. All clones are the same fence.
#[derive(Debug, Clone)]
pub struct Fence(Arc<FenceState>);

#[derive(Debug)]
struct FenceState {
    stamp: Stamp,
    compare: Compare,
    seen: Mutex<ClaimResults>,
}

/// The results of all claims of one fence.
#[derive(Debug, Clone, Copy, Default)]
struct ClaimResults {
    passed: bool,
    stale: bool,
}

/// A token or number to compare with the watermark of a key. If it is not stale, it becomes the new watermark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatermarkUpdate<'a> {
    pub key: &'a str,
    pub mode: Mode,
    pub mark: Mark<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark<'a> {
    /// A token. It has to be greater than the watermarks, compared by bytes.
    Token(&'a str),
    /// A number. It must not be smaller than the watermarks.
    Number(i64),
}

/// The result of a [`WatermarkUpdate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatermarkOutcome {
    Passes,
    Stale,
}

/// A database transaction in which watermarks are compared and raised.
pub trait Transaction {
    type Error;

    /// Compares and raises the watermark of one key, by one statement of a recipe.
    ///
    /// # Errors
    /// Returns an error if the database has failed. Then nothing will be committed, so a raised watermark does not
    /// matter.
    fn raise(&mut self, update: WatermarkUpdate<'_>) -> Result<WatermarkOutcome, Self::Error>;
}

/// A [`Transaction`] for an asynchronous database client.
pub trait AsyncTransaction {
    type Error;

    /// Like [`Transaction::raise`]. Dropping the future claims nothing.
    fn raise(
        &mut self,
        update: WatermarkUpdate<'_>,
    ) -> impl Future<Output = Result<WatermarkOutcome, Self::Error>> + Send;
}

/// The reason for which a claim has failed. The transaction has to be rolled back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimError<E> {
    /// A newer request was executed before.
    Stale,
    Database(E),
}

impl WatermarkOutcome {
    /// The outcome, from the number of rows that the SQL statement has changed: no row means that the request is
    /// stale.
    pub fn from_rows_affected(rows: usize) -> Self {
        if rows == 0 { Self::Stale } else { Self::Passes }
    }

    /// The former name of [`from_rows_affected`](Self::from_rows_affected).
    #[deprecated(since = "0.1.0", note = "renamed to `from_rows_affected`")]
    pub fn by_rows(rows: usize) -> Self {
        Self::from_rows_affected(rows)
    }
}

impl<E> fmt::Display for ClaimError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stale => "a newer request was executed before",
            Self::Database(_) => "the database failed during the claim",
        })
    }
}

impl<E: Error + 'static> Error for ClaimError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Stale => None,
            Self::Database(error) => Some(error),
        }
    }
}

impl Fence {
    pub(crate) fn new(stamp: Stamp, compare: Compare) -> Self {
        Self(Arc::new(FenceState { stamp, compare, seen: Mutex::default() }))
    }

    pub fn stamp(&self) -> &Stamp {
        &self.0.stamp
    }

    /// Compares and raises the watermarks of all keys of the request. Call it at the start of the transaction that
    /// makes the change.
    ///
    /// # Errors
    /// Returns a [`ClaimError`] if the request is stale or the database has failed; roll the transaction back.
    pub fn claim<T: Transaction>(&self, transaction: &mut T) -> Result<(), ClaimError<T::Error>> {
        self.claim_keys(transaction, &self.0.stamp.keys)
    }

    /// Like [`Fence::claim`], for keys that the handler names, in ascending order.
    ///
    /// # Errors
    /// Returns a [`ClaimError`] if the request is stale or the database has failed; roll the transaction back.
    ///
    /// # Panics
    /// Panics if `keys` is empty, because nothing would be compared.
    pub fn claim_keys<T: Transaction>(
        &self,
        transaction: &mut T,
        keys: &[String],
    ) -> Result<(), ClaimError<T::Error>> {
        assert!(!keys.is_empty(), "a claim without a key compares nothing");
        for key in keys {
            let outcome = transaction.raise(self.update(key)).map_err(ClaimError::Database)?;
            self.goes_on(outcome)?;
        }
        self.passed();
        Ok(())
    }

    /// Like [`Fence::claim`], for an asynchronous client. Dropping the future claims nothing.
    ///
    /// # Errors
    /// Returns a [`ClaimError`] if the request is stale or the database has failed; roll the transaction back.
    ///
    /// # Panics
    /// Panics if the request has no keys, because nothing would be compared.
    pub async fn claim_async<T: AsyncTransaction>(
        &self,
        transaction: &mut T,
    ) -> Result<(), ClaimError<T::Error>> {
        assert!(!self.0.stamp.keys.is_empty(), "a claim without a key compares nothing");
        for key in &self.0.stamp.keys {
            let outcome = transaction.raise(self.update(key)).await.map_err(ClaimError::Database)?;
            self.goes_on(outcome)?;
        }
        self.passed();
        Ok(())
    }

    fn update<'a>(&'a self, key: &'a str) -> WatermarkUpdate<'a> {
        let stamp = &self.0.stamp;
        let mark = match (self.0.compare, &stamp.token) {
            (Compare::Token, Some(token)) => Mark::Token(token.as_str()),
            (Compare::Token, None) => unreachable!("it was read with its token"),
            (Compare::Number, _) => Mark::Number(stamp.number.as_i64()),
        };
        WatermarkUpdate { key, mode: stamp.mode, mark }
    }

    fn goes_on<E>(&self, outcome: WatermarkOutcome) -> Result<(), ClaimError<E>> {
        match outcome {
            WatermarkOutcome::Passes => Ok(()),
            WatermarkOutcome::Stale => {
                self.0.seen.lock().unwrap_or_else(PoisonError::into_inner).stale = true;
                Err(ClaimError::Stale)
            }
        }
    }

    fn passed(&self) {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner).passed = true;
    }

    /// The refusal that replaces the handler's answer; `None` if the handler's answer stands. `success`: whether the
    /// handler has answered with a success.
    pub(crate) fn overrules(&self, success: bool) -> Option<Refusal> {
        match (*self.0.seen.lock().unwrap_or_else(PoisonError::into_inner), success) {
            // One claim has passed and another one was stale, so it is not known whether the transaction of the
            // passed claim was committed.
            (ClaimResults { passed: true, stale: true }, _) => Some(Refusal::ClaimedTwice),
            (ClaimResults { passed: true, stale: false }, _) => None,
            (ClaimResults { passed: false, .. }, true) => Some(Refusal::Unclaimed),
            (ClaimResults { passed: false, stale: true }, false) => Some(Refusal::Stale),
            (ClaimResults { passed: false, stale: false }, false) => None,
        }
    }
}
