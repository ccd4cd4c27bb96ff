//! The faults of a service that claims to compare tokens.

/// What is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServiceFault {
    /// Nothing: the others differ from this one in one thing.
    None,
    /// Compares, and later has its effect and writes the mark, in another transaction.
    CheckOutside,
    /// The same, but a mark is never lowered.
    CheckOutsideNewestStays,
    /// Compares when the head of the request is there, and reads the body afterwards.
    CheckAtHead,
    /// `<` where it should be `<=`: an equal token passes.
    NotStrict,
    /// Reads the mark from a cache of its own, once it is there.
    CachedMark,
    /// One at a time within a process, and nothing in the database.
    ProcessLock,
    /// Raises by `UPDATE` alone, which finds no row for a new key.
    NoUpsert,
    /// The same, and takes "no row" for "nothing is newer".
    NoRowPasses,
    /// Compares the decimal text of the number.
    TextNumbers,
    /// Keeps the number in 32 bits.
    Narrow,
    /// Keeps the number in floating point.
    Float,
    /// Neither compares nor remembers readers.
    IgnoresReads,
    /// Executes what has no token.
    AcceptsNoToken,
    /// Takes anything for a token, and compares its text.
    AcceptsAnything,
    /// Of two tokens it takes the first.
    FirstOfTwo,
    /// One mark for all keys.
    OneMark,
    /// Answers that it refused, and has done it.
    RefusesAndDoes,
    /// Answers that it did, and has not.
    SaysAndDoesNot,
    /// Refuses what is stale with 409.
    Conflict,
    /// Keeps marks in memory.
    InMemory,
    /// Commits the effect, and then the mark.
    MarkAfterwards,
    /// Commits the mark, and then the effect.
    MarkBefore,
    /// Claims in a transaction of its own, in front of a handler that takes its time.
    ClaimsApart,
    /// Keeps a mark for each kind of request.
    MarkPerRoute,
    /// Forgets a mark after a second.
    Forgets,
    /// Says that an operation was not done, and does not close its name.
    OpenNames,
    /// Takes the token of the last question, also where it is older.
    LowersNames,
    /// Keeps the names that it has closed in memory.
    NamesInMemory,
    /// Closes a name for good.
    ClosesForGood,
    /// Is a gateway.
    Gateway,
}
