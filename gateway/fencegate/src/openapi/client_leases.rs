//! The lease interface for clients: leases, keys and elections, on the public listener.

use super::described::{ApiDocument, PathOperation};
use crate::{
    leases::{
        interface::{
            oversight::{BrokenLease, RevokedLease},
            watching::WatchQuery,
        },
        lease_json::{
            ElectionDocument, KeyDocument, LeaseDocument, LeaseList, LeaseRequest, Renewal, Revocation,
        },
    },
    refusal::Reason,
};

const DESCRIPTION: &str = "Locks that clients hold through a gateway, for work that is no request. Any gateway takes a request about any \
                    lease, and sends it to the one that holds it. Each refusal is `application/problem+json`, and nothing was done. \
                    A gateway whose policy has no `leases` routes such requests as any other.";

pub(super) fn described() -> ApiDocument {
    let mut api = ApiDocument::new("Leases of a Fencegate gateway", "http://127.0.0.1:8080", DESCRIPTION)
        .known_by("The token of a principal. A client with a certificate that the policy names shows none.");
    clients(&mut api);
    operators(&mut api);
    others(&mut api);
    api
}

/// Refusals that any request can meet before its subject is known.
const ANY_REQUEST_REASONS: [Reason; 12] = [
    Reason::Malformed,
    Reason::SlowRequest,
    Reason::BodyTooLarge,
    Reason::TargetTooLarge,
    Reason::Expectation,
    Reason::Misdirected,
    Reason::ClientLimit,
    Reason::HeaderTooLarge,
    Reason::TransferEncoding,
    Reason::Draining,
    Reason::Overloaded,
    Reason::Loop,
];

/// Refusals for a lease that another gateway may hold.
const LEASE_REASONS: [Reason; 5] = [
    Reason::LeaseRequired,
    Reason::LeaseForbidden,
    Reason::StaleToken,
    Reason::LeaseAway,
    Reason::LockService,
];

const REFERENCE: &str = "The reference of the lease in lists and logs: 16 hex digits.";
const EVENTS: &str = "text/event-stream";

fn of_a_lease(operation: PathOperation<'_>) -> PathOperation<'_> {
    operation
        .known_by_nothing()
        .named_like("reference", "^[0-9a-f]{16}$", REFERENCE)
        .field(
            "Fencing-Lease",
            "^v1\\.[A-Za-z0-9_-]+\\.[0-9a-f]{16}\\.[A-Za-z0-9_-]{43}$",
            "The id of the lease, which only its client knows.",
        )
        .refuses(&LEASE_REASONS)
        .refuses(&ANY_REQUEST_REASONS)
}

fn clients(api: &mut ApiDocument) {
    api.asked("post", "/.fencegate/v1/leases", "acquireLease", "Asks for a lease of all of these keys.")
        .given::<LeaseRequest>()
        .tells::<LeaseDocument>(201, "The lease is held. `Location` names it.")
        .tells::<LeaseDocument>(202, "With `Prefer: respond-async`: the lease waits. `Location` names it.")
        .refuses(&ANY_REQUEST_REASONS)
        .refuses(&[
            Reason::KeyInvalid,
            Reason::LeaseCredentials,
            Reason::LeaseForbidden,
            Reason::Locked,
            Reason::LeaseLimit,
            Reason::LockService,
            Reason::Suspended,
            Reason::KeyLimit,
            Reason::NotInitialised,
            Reason::RolledBack,
        ])
        .end();
    of_a_lease(api.asked("get", "/.fencegate/v1/leases/{reference}", "showLease", "The state of a lease."))
        .asks::<WatchQuery>()
        .tells::<LeaseDocument>(
            200,
            "The lease. With `Accept: text/event-stream` the same at each change, as events.",
        )
        .shows(200, EVENTS, "The lease. With `Accept: text/event-stream` the same at each change, as events.")
        .end();
    of_a_lease(api.asked(
        "post",
        "/.fencegate/v1/leases/{reference}/renew",
        "renewLease",
        "Renews a lease: it lives on for its ttl, from now.",
    ))
    .may_give::<Renewal>()
    .tells::<LeaseDocument>(200, "The lease.")
    .end();
    of_a_lease(api.asked(
        "delete",
        "/.fencegate/v1/leases/{reference}",
        "releaseLease",
        "Gives a lease back. A lease that is over counts as given back.",
    ))
    .says(204, "The lease is over. Requests under it end before the lock is released.")
    .end();
}

fn operators(api: &mut ApiDocument) {
    api.asked(
        "get",
        "/.fencegate/v1/leases",
        "listLeases",
        "The leases of this gateway: all of them for operators, and for other clients their own.",
    )
    .tells::<LeaseList>(200, "The leases, without their secrets.")
    .refuses(&ANY_REQUEST_REASONS)
    .refuses(&[Reason::LeaseCredentials])
    .end();
    api.asked(
        "post",
        "/.fencegate/v1/leases/{reference}/revoke",
        "revokeLease",
        "Asks the client of a lease to give it back.",
    )
    .named_like("reference", "^[0-9a-f]{16}$", REFERENCE)
    .given::<Revocation>()
    .tells::<RevokedLease>(200, "The client sees the reason when it renews or watches.")
    .refuses(&ANY_REQUEST_REASONS)
    .refuses(&[Reason::LeaseCredentials, Reason::LeaseForbidden, Reason::NoRoute])
    .end();
    api.asked(
        "post",
        "/.fencegate/v1/leases/{reference}/break",
        "breakLease",
        "Ends a lease without its client.",
    )
    .named_like("reference", "^[0-9a-f]{16}$", REFERENCE)
    .tells::<BrokenLease>(200, "The lease is over.")
    .refuses(&ANY_REQUEST_REASONS)
    .refuses(&[Reason::LeaseCredentials, Reason::LeaseForbidden, Reason::NoRoute])
    .end();
}

fn others(api: &mut ApiDocument) {
    api.asked(
        "get",
        "/.fencegate/v1/keys/{key}",
        "keyLine",
        "The holders and waiters of a key that the caller may hold.",
    )
    .named("key", "The key, with `/` as `%2F`.")
    .tells::<KeyDocument>(200, "The lock nodes, and the expected wait of a new request.")
    .refuses(&ANY_REQUEST_REASONS)
    .refuses(&[Reason::KeyInvalid, Reason::LeaseCredentials, Reason::LeaseForbidden, Reason::LockService])
    .end();
    api.asked(
        "get",
        "/.fencegate/v1/elections/{name}",
        "election",
        "The leader of an election: the holder of the key `election/` and the name.",
    )
    .named("name", "The name of the election.")
    .tells::<ElectionDocument>(
        200,
        "Who, if anybody. With `Accept: text/event-stream` the same at each change, as events.",
    )
    .shows(
        200,
        EVENTS,
        "Who, if anybody. With `Accept: text/event-stream` the same at each change, as events.",
    )
    .refuses(&ANY_REQUEST_REASONS)
    .refuses(&[
        Reason::KeyInvalid,
        Reason::LeaseCredentials,
        Reason::LeaseForbidden,
        Reason::LeaseLimit,
        Reason::LockService,
    ])
    .end();
    api.asked(
        "get",
        "/.fencegate/v1/elections/{name}/leader",
        "leads",
        "Whether a lease of this gateway leads. For load balancers.",
    )
    .known_by_nothing()
    .named("name", "The name of the election.")
    .says(200, "One does.")
    .refuses(&ANY_REQUEST_REASONS)
    .refuses(&[Reason::KeyInvalid, Reason::NoRoute])
    .end();
}
