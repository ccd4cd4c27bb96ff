//! The faults of a service that claims to compare tokens.

/// The fault of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServiceFault {
    /// No fault: each other service differs from this one in one thing.
    None,
    /// Compares in one transaction, and has its effect and writes the watermark in a later one.
    CheckOutside,
    /// As [`Self::CheckOutside`], but a watermark is never lowered.
    CheckOutsideNewestStays,
    /// Compares when the head of the request has arrived, and reads the body afterwards.
    CheckAtHead,
    /// Compares with `<` instead of `<=`, so an equal token passes.
    NotStrict,
    /// Reads the watermark from a cache, once it is there.
    CachedMark,
    /// Serialises requests within a process, and not in the database.
    ProcessLock,
    /// Raises the watermark by `UPDATE` alone, which finds no row for a new key.
    NoUpsert,
    /// As [`Self::NoUpsert`], but a missing row counts as no newer token.
    NoRowPasses,
    /// Compares the number as decimal text.
    TextNumbers,
    /// Stores the number in 32 bits.
    Narrow,
    /// Stores the number as a floating-point number.
    Float,
    /// Neither compares nor records the tokens of readers.
    IgnoresReads,
    /// Executes requests without a token.
    AcceptsNoToken,
    /// Accepts any text as a token, and compares it as text.
    AcceptsAnything,
    /// Uses the first of two tokens.
    FirstOfTwo,
    /// Has one watermark for all keys.
    OneMark,
    /// Answers that it has refused a request which it has executed.
    RefusesAndDoes,
    /// Answers that it has executed a request which it has not executed.
    SaysAndDoesNot,
    /// Refuses stale requests with 409.
    Conflict,
    /// Keeps watermarks in memory.
    InMemory,
    /// Commits the effect, and then the watermark.
    MarkAfterwards,
    /// Commits the watermark, and then the effect.
    MarkBefore,
    /// Claims in a separate transaction before a slow handler.
    ClaimsApart,
    /// Has a watermark for each kind of request.
    MarkPerRoute,
    /// Forgets a watermark after a second.
    Forgets,
    /// Answers that an operation was not done, and does not close its name.
    OpenNames,
    /// Closes a name up to the token of the last probe, also if an earlier probe had a newer token.
    LowersNames,
    /// Keeps closed names in memory.
    NamesInMemory,
    /// Closes a name for all later tokens, too.
    ClosesForGood,
    /// Answers with `Fencing-Outcome`, as a gateway does.
    Gateway,
}
