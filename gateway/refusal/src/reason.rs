//! The table of reasons: for an answer that the gateway gives by itself, or for an unknown outcome.

use fencegate_guard_client::guard_identity::GuardIdentityError;
use fencegate_guard_store::error as guard;
use fencegate_http::listen::handler;
use fencegate_http_client::upstream::pool::ConnectError;
use fencegate_idempotency::error as once;
use fencegate_lock::manager::{call_chain::NestedCallbackError, lock_manager};
use fencegate_policies::key::ExtractKeyError;
use hyper::StatusCode;

use super::source::RefusalSourceError::{
    self, Call, Guard, Key, Listener, Lock, Name, Once, Pool, Principal, Trust,
};

/// Whether a request reached an upstream, which is what a payment client needs to know. RFC 9457 bodies and the field
/// `Fencing-Outcome` have the same words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DispatchOutcome {
    /// The upstream answered in full.
    Done,
    /// The upstream answered an earlier request, and that answer is replayed.
    Replayed,
    /// Nothing was sent, so the request can be repeated.
    NotDispatched,
    /// Something was sent and no complete answer came back.
    Unknown,
}

/// The audience of a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalAudience {
    Clients,
    /// Gateways that forward requests to each other.
    Gateways,
    /// Gateways that send requests to a guard. They report another reason to their own clients.
    AskersOfGuards,
}

impl DispatchOutcome {
    /// Reads [`DispatchOutcome::as_str`] back.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Done, Self::Replayed, Self::NotDispatched, Self::Unknown]
            .into_iter()
            .find(|outcome| outcome.as_str() == word)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Replayed => "replayed",
            Self::NotDispatched => "not-dispatched",
            Self::Unknown => "unknown",
        }
    }
}

// A row has: sentences for the documents, if the title is not enough; then name, word, status, outcome, title; then, in
// brackets, the errors of other modules for which the reason stands. A reason without brackets is used by a step of the
// request path directly.
macro_rules! reasons {
    ($($hearers:ident { $(
        $(#[doc = $note:literal])*
        $name:ident = $word:literal, $status:literal, $outcome:ident, $title:literal $([$($below:tt)+])?;
    )* })*) => {
        /// The reason for a refusal, or for an unknown outcome. Metrics, logs and answers share this list.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum RefusalReason { $($(#[doc = $title] $(#[doc = $note])* $name,)*)* }

        impl RefusalReason {
            pub const ALL: &[Self] = &[$($(Self::$name,)*)*];

            /// The reason as it stands in metrics, logs, and problem bodies.
            pub fn word(self) -> &'static str {
                match self { $($(Self::$name => $word,)*)* }
            }

            /// Reads [`RefusalReason::word`] back. If several reasons have one word, the first is returned: it is the
            /// recorded one, which guards send.
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.word() == word)
            }

            pub(super) fn status(self) -> StatusCode {
                let code: u16 = match self { $($(Self::$name => $status,)*)* };
                StatusCode::from_u16(code).expect("every status of the table is one")
            }

            pub fn outcome(self) -> DispatchOutcome {
                match self { $($(Self::$name => DispatchOutcome::$outcome,)*)* }
            }

            /// The text for the client. It has nothing about hosts, holders or keys.
            pub fn title(self) -> &'static str {
                match self { $($(Self::$name => $title,)*)* }
            }

            /// The sentences of the documents beside the title, or nothing.
            pub fn note(self) -> String {
                let lines: &[&str] = match self { $($(Self::$name => &[$($note),*],)*)* };
                lines.concat().trim().to_owned()
            }

            pub fn hearers(self) -> RefusalAudience {
                match self { $($(Self::$name => RefusalAudience::$hearers,)*)* }
            }
        }

        impl From<RefusalSourceError<'_>> for RefusalReason {
            fn from(below: RefusalSourceError<'_>) -> Self {
                match below { $($($($($below)+ => Self::$name,)?)*)* }
            }
        }
    };
}

// 409 is never used for a stale token, because service meshes retry a 409. 503 is never used if something may have been
// dispatched, because clients retry a 503.
reasons! {
    Clients {
        AmbiguousPath = "ambiguous-path", 400, NotDispatched, "the path can be read in more than one way";
        KeyMissing = "key-missing", 400, NotDispatched, "a value that names the resource is missing"
            [Key(ExtractKeyError::Missing { .. } | ExtractKeyError::EmptyList { .. })];
        KeyInvalid = "key-invalid", 400, NotDispatched, "a value that names the resource or the operation is not acceptable"
            [Key(ExtractKeyError::Invalid { .. } | ExtractKeyError::TooLong | ExtractKeyError::LockPath(_))
                | Name(ExtractKeyError::Invalid { .. } | ExtractKeyError::TooLong | ExtractKeyError::LockPath(_)
                    | ExtractKeyError::EmptyList { .. } | ExtractKeyError::TooManyKeys { .. }
                    | ExtractKeyError::SetTooLong { .. })
                | Principal(ExtractKeyError::Invalid { .. } | ExtractKeyError::TooLong | ExtractKeyError::LockPath(_)
                    | ExtractKeyError::EmptyList { .. } | ExtractKeyError::TooManyKeys { .. }
                    | ExtractKeyError::SetTooLong { .. })];
        /// Or the policy takes the name of the operation from elsewhere, and it is not there.
        IdempotencyKeyRequired = "idempotency-key-required", 400, NotDispatched, "an Idempotency-Key is required"
            [Name(ExtractKeyError::Missing { .. })];
        /// The request has a name for its operation. `once.principal` of the policy says where it has to say whose it is.
        PrincipalMissing = "principal-missing", 400, NotDispatched, "a value that says whose operation it is is missing"
            [Principal(ExtractKeyError::Missing { .. })];
        /// Two fields `Authorization`, one in another spelling, or none behind `Bearer`.
        BearerMalformed = "bearer-malformed", 400, NotDispatched, "the request has no single bearer token";
        Malformed = "malformed", 400, NotDispatched, "the request is malformed"
            [Listener(handler::RequestRejection::Malformed(_))];
        BodyBroken = "malformed", 400, Unknown, "the body of the request broke off after a part of it was sent on";
        /// The route takes a claim of a token.
        BearerMissing = "bearer-missing", 401, NotDispatched, "a bearer token is required"
            [Key(ExtractKeyError::NoToken) | Name(ExtractKeyError::NoToken) | Principal(ExtractKeyError::NoToken)];
        /// `WWW-Authenticate` and `detail` say why: it has expired, is for another audience, or was not signed by its issuer.
        BearerInvalid = "bearer-invalid", 401, NotDispatched, "the bearer token is not valid";
        /// On the interface for leases: the request has neither a token nor a client certificate that the policy
        /// knows.
        LeaseCredentials = "lease-credentials", 401, NotDispatched, "who asks for the lease is not known";
        /// The route takes the name of its client out of the certificate that the client has shown: none was shown, or it has no
        /// name of the kind that `client_name` of the listener says.
        CertificateRequired = "certificate-required", 403, NotDispatched, "a client certificate with a name is required"
            [Key(ExtractKeyError::NoClientName) | Name(ExtractKeyError::NoClientName) | Principal(ExtractKeyError::NoClientName)];
        /// The client is verified, and no rule in `allow` of the route is about it.
        AccessDenied = "access-denied", 403, NotDispatched, "this client may not do that";
        /// The secret is wrong, the keys or the mode of the lease do not cover the request, or its client may not
        /// hold it.
        LeaseForbidden = "lease-forbidden", 403, NotDispatched, "the lease is not good for this";
        NoRoute = "no-route", 404, NotDispatched, "nothing is served here";
        Method = "method", 405, NotDispatched, "the method is not served";
        SlowRequest = "slow-request", 408, NotDispatched, "the request did not arrive in time"
            [Listener(handler::RequestRejection::TimedOut)];
        /// An upload that is streamed stopped halfway, after its first part was sent.
        SlowUpload = "slow-request", 408, Unknown, "the rest of the request did not arrive in time";
        /// The answer is not kept; `recorded_status` is the status that it had.
        AlreadyDone = "already-done", 409, Done, "the operation was done before"
            [Once(once::AdmitOperationError::Done { status: None | Some(..400) })];
        /// `recorded_status` is that status; the answer itself is not kept.
        AlreadyRefused = "already-refused", 409, Replayed, "the service has answered this operation before, with this status"
            [Once(once::AdmitOperationError::Done { status: Some(400..) })];
        /// With `store: zookeeper` it can come for a while although nothing was sent: ZooKeeper's answer to the
        /// record was lost, and the gateway has not taken the record back yet.
        InProgress = "in-progress", 409, Unknown, "the same operation is running"
            [Once(once::AdmitOperationError::InProgress) | Guard(guard::RefusalCode::InProgress)];
        /// On the interface for leases: the wait of this request is over, and that of the earlier one is not. A repeat
        /// gets the lease of the earlier one, or another lease.
        LeaseInProgress = "in-progress", 409, NotDispatched, "an earlier request with this Idempotency-Key waits for the lease";
        /// The operation is recorded as unknown, and `operation_ref` names it. With `store: zookeeper` it can come
        /// for a while although nothing was sent, as `in-progress` can.
        OutcomeRecordedUnknown = "outcome-unknown", 409, Unknown, "what came of this operation is not known"
            [Once(once::AdmitOperationError::Unknown { .. }) | Guard(guard::RefusalCode::OutcomeUnknown)];
        /// The route allows another number of holders than the present holders do: those came through another
        /// gateway, or hold a lease. The first holder decides until it leaves.
        PermitsDiffer = "permits-differ", 409, NotDispatched, "others hold the resource with another number of permits"
            [Lock(lock_manager::AcquireError::PermitsDiffer)];
        /// A service has called back while it works on a dispatch, and shows the ticket of the dispatch. Such a
        /// request never waits for a lock. Nothing was sent: the service may ask again, best when its own request is
        /// over.
        DeadlockAvoided = "deadlock-avoided", 409, NotDispatched, "it would have to wait for the request that it was called from, or for one that may wait for that"
            [Call(NestedCallbackError::NotInnermost | NestedCallbackError::TooDeep | NestedCallbackError::Upgrade) | Guard(guard::RefusalCode::DeadlockAvoided)];
        /// A service has called back and shows a ticket, or the request is under a client's lease.
        StaleToken = "stale-token", 412, NotDispatched, "the lease is over, or the request that it was called from, or the lock of either"
            [Call(NestedCallbackError::NotHeld | NestedCallbackError::NotInFlight | NestedCallbackError::Closed)];
        /// The limit is `max_keys` of a route. `detail` has both numbers.
        TooManyKeys = "too-many-keys", 413, NotDispatched, "the request names too many resources at once"
            [Key(ExtractKeyError::TooManyKeys { .. } | ExtractKeyError::SetTooLong { .. })];
        BodyTooLarge = "body-too-large", 413, NotDispatched, "the body is too large";
        TargetTooLarge = "target-too-large", 414, NotDispatched, "the request target is too large"
            [Listener(handler::RequestRejection::TargetTooLarge)];
        Expectation = "expectation", 417, NotDispatched, "the expectation is not supported";
        Misdirected = "misdirected", 421, NotDispatched, "this host is not served here";
        IdempotencyMismatch = "idempotency-mismatch", 422, NotDispatched, "the Idempotency-Key was used for another request"
            [Once(once::AdmitOperationError::Mismatch) | Guard(guard::RefusalCode::IdempotencyMismatch)];
        /// Another holder has it, and the wait is over. `locked_status` may make it 409, 429 or 503.
        Locked = "locked", 423, NotDispatched, "the resource is busy"
            [Lock(lock_manager::AcquireError::Locked)];
        /// With `fencing: delay`: the resource stays closed for everybody, and `Retry-After` says for how long.
        /// `locked_status` counts here, too.
        Delayed = "delayed", 423, NotDispatched, "the resource rests until what its last holder sent is over"
            [Lock(lock_manager::AcquireError::Delayed(_))];
        /// A proxy in front of the gateway accepted the request before its TLS handshake was complete.
        EarlyData = "early-data", 425, NotDispatched, "not accepted as early data";
        /// The route has `lease: required`.
        LeaseRequired = "lease-required", 428, NotDispatched, "a lease is required: the field `Fencing-Lease`";
        QueueFull = "queue-full", 429, NotDispatched, "too many requests wait for the resource"
            [Lock(lock_manager::AcquireError::QueueFull)];
        /// The limits are `limits.per_client`, and `client_share` of a route.
        ClientLimit = "client-limit", 429, NotDispatched, "too many requests of this client";
        /// The limit is `once.client_share`.
        ClientOperations = "client-operations", 429, NotDispatched, "too many operations of this client are remembered"
            [Once(once::AdmitOperationError::ClientFull)];
        /// The limits are `leases.most` and `leases.per_principal`.
        LeaseLimit = "lease-limit", 429, NotDispatched, "too many leases";
        HeaderTooLarge = "header-too-large", 431, NotDispatched, "the header is too large"
            [Listener(handler::RequestRejection::HeaderTooLarge)];
        TransferEncoding = "transfer-encoding", 501, NotDispatched, "the transfer coding is not supported";
        UpstreamConnect = "upstream-connect", 502, NotDispatched, "the service, or the guard before it, could not be reached"
            [Pool(ConnectError::Io { .. } | ConnectError::Exhausted)];
        /// It said so by HTTP/2: it refused the stream, or ended the connection with an earlier one. The gateway has tried
        /// once more where it had the whole body.
        UpstreamRefused = "upstream-refused", 502, NotDispatched, "the service has refused the request before it did anything";
        OutcomeUnknown = "outcome-unknown", 502, Unknown, "the answer broke off; what came of the request is not known";
        OutcomeLate = "outcome-unknown", 504, Unknown, "no answer came in time; what came of the request is not known";
        /// It comes where the upstream is not `direct`, and for a duplicate.
        OutcomeRefused = "outcome-unknown", 502, Unknown, "the guard refused it; whether a copy of it passed before is not known";
        Fenced = "fenced", 503, NotDispatched, "a newer holder has the resource";
        Busy = "busy", 503, NotDispatched, "an older request still works on the resource"
            [Guard(guard::RefusalCode::Busy)];
        InDoubt = "in-doubt", 503, NotDispatched, "what came of an older request is not known yet"
            [Guard(guard::RefusalCode::InDoubt)];
        Quarantine = "quarantine", 503, NotDispatched, "the guard waits until older requests are over"
            [Guard(guard::RefusalCode::Quarantine)];
        KeyLimit = "key-limit", 503, NotDispatched, "no more locks can be taken"
            [Lock(lock_manager::AcquireError::KeyLimit(_))];
        /// A node in ZooKeeper that ends with no session, where `lock_path` of the route leads. It stays until somebody
        /// removes it, or corrects the policy.
        LockPlace = "lock-place", 503, NotDispatched, "at the place of the lock stands something that is no lock"
            [Lock(lock_manager::AcquireError::PlaceTaken(_))];
        LockService = "lock-service", 503, NotDispatched, "the lock service is away"
            [Lock(lock_manager::AcquireError::Service(_)) | Once(once::AdmitOperationError::Service(_))];
        Suspended = "suspended", 503, NotDispatched, "the hold of the resource could not be proven in time"
            [Once(once::AdmitOperationError::Lost) | Call(NestedCallbackError::Unproven)];
        /// The session of that gateway lives, as ZooKeeper says. A request under the lease waits, or is repeated
        /// later.
        LeaseAway = "lease-away", 503, NotDispatched, "the gateway that holds the lease cannot be reached";
        /// The key templates or layouts differ from those of an older gateway, so one resource would have two locks.
        /// `fencegate reload --dry-run --fleet` names the routes and the other gateway.
        ConfigMismatch = "config-mismatch", 503, NotDispatched, "another gateway locks the resource in another way";
        /// Nobody has run `fencegate era init` yet.
        NotInitialised = "not-initialised", 503, NotDispatched, "the lock service was not set up for this gateway yet"
            [Lock(lock_manager::AcquireError::NotInitialised(_))];
        /// ZooKeeper may have been wiped as well. An operator has to act.
        RolledBack = "rolled-back", 503, NotDispatched, "the lock service was restored to an older state"
            [Lock(lock_manager::AcquireError::RolledBack(_))];
        /// The token names a key that is not known, and the key set of its issuer cannot be fetched; or so many requests wait for
        /// it that this one does not.
        JwksAway = "jwks-away", 503, NotDispatched, "the keys that verify the bearer token are away";
        /// The key set of its issuer could not be fetched for longer than `max_key_age`. A key that the issuer has revoked since
        /// would still count, so no token of the issuer does.
        JwksStale = "jwks-stale", 503, NotDispatched, "the keys that verify the bearer token are too old";
        Guard = "guard", 503, NotDispatched, "the guard is away or refused"
            [Pool(ConnectError::Distrusted { .. })
                | Trust(GuardIdentityError::Replaced | GuardIdentityError::NoGuard(_) | GuardIdentityError::OtherInstallation { .. }
                    | GuardIdentityError::RolledBack { .. } | GuardIdentityError::TimeoutTooShort { .. })];
        GuardSplit = "guard-split", 503, NotDispatched, "the guards of the service do not share a store"
            [Trust(GuardIdentityError::Split | GuardIdentityError::MultipleProcesses)];
        Store = "store", 503, NotDispatched, "the record of operations is away"
            [Once(once::AdmitOperationError::Foreign(_)) | Guard(guard::RefusalCode::Store)];
        /// The share of the route is `once.share`.
        RouteOperations = "route-operations", 503, NotDispatched, "too many operations of this kind are remembered"
            [Once(once::AdmitOperationError::RouteFull)];
        /// All room for operations is used up.
        OperationsFull = "operations-full", 503, NotDispatched, "too many operations are remembered"
            [Once(once::AdmitOperationError::Full)];
        Draining = "draining", 503, NotDispatched, "the gateway is stopping";
        Overloaded = "overloaded", 503, NotDispatched, "too many requests at once"
            [Listener(handler::RequestRejection::Displaced | handler::RequestRejection::HeadMemoryExhausted) | Pool(ConnectError::LimitReached)];
        Loop = "loop", 508, NotDispatched, "the request came back to where it was sent from";
    }
    Gateways {
        PeerForbidden = "peer-forbidden", 403, NotDispatched, "this listener is for gateways";
        NotHolder = "not-holder", 421, NotDispatched, "this gateway does not keep the resource"
            [Lock(lock_manager::AcquireError::NotHolder | lock_manager::AcquireError::Elsewhere(_))];
    }
    AskersOfGuards {
        Stale = "stale", 412, NotDispatched, "a newer token was announced" [Guard(guard::RefusalCode::Stale)];
        Floor = "floor", 412, NotDispatched, "the token is older than what is remembered" [Guard(guard::RefusalCode::Floor)];
        /// Or the clocks of gateway and guard differ by more than `clock_error`.
        Expired = "expired", 412, NotDispatched, "it came after the moment until which it might be begun"
            [Guard(guard::RefusalCode::Expired)];
        Duplicate = "duplicate", 412, Unknown, "the token was announced before" [Guard(guard::RefusalCode::Duplicate)];
        TokenFuture = "token-future", 412, NotDispatched, "the token is far above all others"
            [Guard(guard::RefusalCode::TokenFuture)];
        TokenMalformed = "token-malformed", 400, NotDispatched, "the token cannot be read"
            [Guard(guard::RefusalCode::TokenMalformed)];
        /// Only a filter says this.
        NotAfterMissing = "not-after-missing", 403, NotDispatched, "it does not say until when it may be begun: the way in is the gateway"
            [Guard(guard::RefusalCode::NotAfterMissing)];
        TokenMissing = "token-missing", 403, NotDispatched, "there is no token: the way in is the gateway"
            [Guard(guard::RefusalCode::TokenMissing)];
        TicketMissing = "ticket-missing", 403, NotDispatched, "there is no ticket" [Guard(guard::RefusalCode::TicketMissing)];
        TicketInvalid = "ticket-invalid", 403, NotDispatched, "the ticket is not valid"
            [Guard(guard::RefusalCode::TicketInvalid)];
        TicketExpired = "ticket-expired", 403, NotDispatched, "the ticket has expired"
            [Guard(guard::RefusalCode::TicketExpired)];
        TicketKey = "ticket-key", 403, NotDispatched, "the ticket is of another dispatch"
            [Guard(guard::RefusalCode::TicketKey)];
    }
}

impl RefusalReason {
    /// The action for the client after this answer: sentences of its `detail`, and of the documents.
    pub fn client_action(self) -> &'static str {
        use DispatchOutcome::{Done, NotDispatched, Replayed, Unknown};
        match self {
            Self::DeadlockAvoided => {
                "Repeat it when the request that you work for is answered, or the key that you hold is given up."
            }
            Self::PermitsDiffer => {
                "Ask with the number that the holders have, or repeat it when they have left."
            }
            Self::StaleToken => "Do not repeat it. Begin anew: read again, decide anew.",
            Self::InProgress | Self::LeaseInProgress => {
                "Repeat it with the same `Idempotency-Key`, after `Retry-After`."
            }
            Self::IdempotencyKeyRequired => {
                "Send `Idempotency-Key` with a name that is new for each operation, and the same in a repeat."
            }
            Self::PrincipalMissing => "Say whose operation it is where the policy looks for it.",
            Self::IdempotencyMismatch => {
                "Use a new `Idempotency-Key` for a new operation. A repeat has the same method, target, body and credentials."
            }
            Self::NoRoute => {
                "Compare method, path and host with the routes of the policy; `fencegate explain` says for a request which route takes it."
            }
            Self::Method => "Use one of the methods in `Allow`.",
            Self::LeaseCredentials => {
                "Send `Authorization: Bearer` with a token that the policy knows, or show such a certificate."
            }
            Self::BearerMissing => {
                "Send `Authorization: Bearer` with a token of an issuer that the policy names."
            }
            Self::BearerInvalid => "Get a new token, and repeat the request with it.",
            Self::BearerMalformed => "Send one `Authorization: Bearer` with one token.",
            Self::CertificateRequired => {
                "Show a client certificate with such a name, directly to the gateway."
            }
            Self::LeaseRequired => "Ask for a lease of the key, and send its id in `Fencing-Lease`.",
            _ => match (self.outcome(), self.status().as_u16()) {
                (Done, _) => "Nothing is left to do: it is finished.",
                (Replayed, _) => "Do what the service documents for this status.",
                (Unknown, 409) => "Stop, and give `operation_ref` to whoever runs the gateway or the guard.",
                (Unknown, _) => {
                    "Find out: on a `once` route repeat it with the same `Idempotency-Key`; else ask the service, and never repeat it \
                     under a new `Idempotency-Key`."
                }
                (NotDispatched, 408 | 423 | 425 | 429 | 502 | 503) => {
                    "Repeat the same request, after `Retry-After` where there is one, each time a little later."
                }
                (NotDispatched, _) => "Do not repeat it as it is: mend the request or the policy.",
            },
        }
    }

    /// Whether the client may see the detail: only if its own request is at fault, and the detail is about nothing
    /// else.
    pub(super) fn shows_cause(self) -> bool {
        matches!(
            self,
            Self::AmbiguousPath
                | Self::KeyMissing
                | Self::KeyInvalid
                | Self::IdempotencyKeyRequired
                | Self::PrincipalMissing
                | Self::Malformed
                | Self::BearerMalformed
                | Self::BearerMissing
                | Self::BearerInvalid
                | Self::CertificateRequired
                | Self::LeaseCredentials
                | Self::LeaseForbidden
                | Self::LeaseRequired
                | Self::LeaseLimit
                | Self::NoRoute
                | Self::Method
                | Self::StaleToken
                | Self::PermitsDiffer
                | Self::BodyTooLarge
                | Self::TargetTooLarge
                | Self::HeaderTooLarge
                | Self::Expectation
                | Self::Misdirected
                | Self::TransferEncoding
        )
    }

    /// Whether a guard reports this reason to a gateway, as a word of its own.
    pub fn is_guard_reason(self) -> bool {
        guard::RefusalCode::ALL.iter().any(|word| Self::from(Guard(*word)) == self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reason for a word of the guard has the same word.
    #[test]
    fn guard_word_is_its_reason_word() {
        for word in guard::RefusalCode::ALL {
            assert_eq!(RefusalReason::from(Guard(*word)).word(), word.as_str());
        }
    }

    /// Reasons share a word only if they mean the same to a client.
    #[test]
    fn only_synonymous_reasons_share_word() {
        let mut words: Vec<_> = RefusalReason::ALL.iter().map(|reason| reason.word()).collect();
        words.sort_unstable();
        words.dedup();
        // `outcome-unknown` has four reasons: broken off, late, recorded, and a refusal by a guard that does not prove
        // that nothing was sent. `slow-request` and `malformed` have one reason each for a request of which a part may
        // have been sent. `in-progress` has one for leases, of which nothing was sent.
        assert_eq!(words.len(), RefusalReason::ALL.len() - 6);
    }
}
