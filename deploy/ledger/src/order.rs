//! The orders of clients: to change an account, to move money between two accounts, or to take units of a stock-keeping
//! unit.

use std::fmt;

/// Validated changes that take effect together or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    /// The client's name for the operation. The ledger does not check that it is executed only once.
    pub(crate) operation: String,
    /// At least one change, each of another resource.
    pub(crate) changes: Vec<BalanceChange>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BalanceChange {
    pub(crate) resource: LedgerResource,
    /// Cents or units; negative for a change that takes some; never 0.
    pub(crate) amount: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LedgerResource {
    Account(String),
    Sku(String),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ParseOrderError {
    #[error("an id has 1 to 64 characters of a-z, A-Z, 0-9, `-`, `_` and `.`")]
    Id,
    #[error("`operation` has 1 to 128 characters")]
    Operation,
    #[error("an amount or quantity is a whole number from 1 to {MOST}")]
    Amount,
    #[error("a transfer needs two different accounts")]
    ToItself,
}

/// The largest amount of one change: 10 million currency units. Sums of such amounts stay far below the limit of an
/// i64.
const MOST: i64 = 1_000_000_000;

#[derive(Debug, Clone, Copy)]
pub(crate) enum BalanceDirection {
    Give,
    Take,
}

impl Order {
    /// Reads an order for one resource.
    ///
    /// # Errors
    /// Returns a [`ParseOrderError`] that names the part that is not allowed.
    pub(crate) fn parse(
        resource: LedgerResource,
        operation: String,
        direction: BalanceDirection,
        amount: i64,
    ) -> Result<Self, ParseOrderError> {
        check_operation(&operation, amount)?;
        let amount = match direction {
            BalanceDirection::Give => amount,
            BalanceDirection::Take => -amount,
        };
        Ok(Self { operation, changes: vec![BalanceChange { resource, amount }] })
    }

    /// Reads an order that moves an amount from one account to another.
    ///
    /// # Errors
    /// Returns a [`ParseOrderError`] that names the part that is not allowed.
    pub(crate) fn transfer(
        from: LedgerResource,
        to: LedgerResource,
        operation: String,
        amount: i64,
    ) -> Result<Self, ParseOrderError> {
        check_operation(&operation, amount)?;
        if from == to {
            return Err(ParseOrderError::ToItself);
        }
        let changes =
            vec![BalanceChange { resource: from, amount: -amount }, BalanceChange { resource: to, amount }];
        Ok(Self { operation, changes })
    }

    /// The keys of the changed resources, ascending.
    pub(crate) fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.changes.iter().map(|change| change.resource.to_string()).collect();
        keys.sort_unstable();
        keys
    }
}

fn check_operation(operation: &str, amount: i64) -> Result<(), ParseOrderError> {
    if operation.is_empty() || operation.chars().count() > 128 {
        return Err(ParseOrderError::Operation);
    }
    if !(1..=MOST).contains(&amount) {
        return Err(ParseOrderError::Amount);
    }
    Ok(())
}

impl LedgerResource {
    /// The account with this id.
    ///
    /// # Errors
    /// Returns [`ParseOrderError::Id`] if the id is not allowed.
    pub(crate) fn account(id: &str) -> Result<Self, ParseOrderError> {
        parse_id(id).map(Self::Account)
    }

    /// The stock-keeping unit with this id.
    ///
    /// # Errors
    /// Returns [`ParseOrderError::Id`] if the id is not allowed.
    pub(crate) fn sku(id: &str) -> Result<Self, ParseOrderError> {
        parse_id(id).map(Self::Sku)
    }

    /// The initial balance of a resource, in cents or units.
    pub(crate) fn initial_balance(&self) -> i64 {
        match self {
            Self::Account(_) => 1_000_000,
            Self::Sku(_) => 1_000,
        }
    }
}

/// Writes the fencing key of the resource.
impl fmt::Display for LedgerResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account(id) => write!(f, "account/{id}"),
            Self::Sku(id) => write!(f, "sku/{id}"),
        }
    }
}

fn parse_id(id: &str) -> Result<String, ParseOrderError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if (1..=64).contains(&id.len()) && id.bytes().all(allowed) {
        Ok(id.to_owned())
    } else {
        Err(ParseOrderError::Id)
    }
}
