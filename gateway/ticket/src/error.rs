//! The reasons for which a ticket is refused, for the log. The gateway that sent the ticket only gets one of four
//! codes.

/// A refused ticket. Its text is for the log; it quotes nothing of the ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TicketVerificationError {
    #[error("the request has no ticket")]
    Missing,
    #[error("the ticket is invalid: {0}")]
    Invalid(InvalidTenureTicketError),
    /// The ticket has expired, even with the leeway.
    #[error("the ticket expired at {expires}, now is {now} (seconds since 1970)")]
    Expired { expires: u64, now: u64 },
    #[error("the ticket is for {0}")]
    Key(TicketMismatchError),
}

/// A defect that makes a ticket invalid for every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTenureTicketError {
    #[error("the request has more than one ticket")]
    Repeated,
    #[error("the ticket is too long")]
    TooLong,
    /// The ticket has not three parts in base64url, or its header is no JSON object with a known `alg`; `none` is
    /// not known.
    #[error("the ticket is not a signed token")]
    Format,
    #[error("its `typ` is not that of a ticket")]
    Type,
    /// The header lists critical extensions (RFC 7515, 4.1.11), and no extension is supported.
    #[error("its header has a `crit`")]
    Critical,
    /// The ticket has no `kid`, or one that no key has.
    #[error("it is signed with an unknown key")]
    UnknownKey,
    /// The algorithm belongs to the key, not to the token (RFC 8725, 3.1).
    #[error("its `alg` is not that of the key")]
    Algorithm,
    #[error("its signature is wrong")]
    Signature,
    /// A claim is missing, malformed, or for another audience.
    #[error("its claims are malformed")]
    Claims,
    #[error("its format is newer than this build")]
    Version,
    /// `iat` or `nbf` is further ahead than the leeway. This is not `ticket-expired`, because a new ticket would not
    /// help: the clocks have to be set.
    #[error("it is from the future: compare the clocks")]
    Future,
    /// The ticket is valid for longer than a ticket may be, or for no time at all.
    #[error("its validity from `iat` to `exp` is longer than a ticket may have, or not above zero")]
    Lifetime,
    #[error("it is of another installation")]
    Ensemble,
}

/// The difference between a valid ticket and its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TicketMismatchError {
    #[error("other keys")]
    Keys,
    #[error("another tenure")]
    Tenure,
    #[error("another mode")]
    Mode,
    #[error("an earlier `Fencing-Not-After`")]
    NotAfter,
}
