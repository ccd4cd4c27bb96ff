//! What clients ask a gateway about leases, keys and elections, on the listener that requests come to.

use super::described::{Described, PathOperation};
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

const SAYS: &str = "Locks that clients hold through a gateway, for work that is no request. Any gateway takes a request about any \
                    lease, and sends it to the one that holds it. Each refusal is `application/problem+json`, and nothing was done. \
                    A gateway whose policy has no `leases` routes such requests as any other.";

pub(super) fn described() -> Described {
    let mut api = Described::new("Leases of a Fencegate gateway", "http://127.0.0.1:8080", SAYS)
        .known_by("The token of a principal. A client with a certificate that the policy names shows none.");
    clients(&mut api);
    operators(&mut api);
    others(&mut api);
    api
}

/// What every request may meet before anybody has looked what it is about.
const ANY: [Reason; 12] = [
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

/// Of one that another gateway may hold.
const OF_A_LEASE: [Reason; 5] = [
    Reason::LeaseRequired,
    Reason::LeaseForbidden,
    Reason::StaleToken,
    Reason::LeaseAway,
    Reason::LockService,
];

const REFERENCE: &str = "What lists and logs call the lease: 16 hex digits.";
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
        .refuses(&OF_A_LEASE)
        .refuses(&ANY)
}

fn clients(api: &mut Described) {
    api.asked(
        "post",
        "/.fencegate/v1/leases",
        "acquireLease",
        "Asks for a lease of all of these keys, or of none.",
    )
    .given::<LeaseRequest>()
    .tells::<LeaseDocument>(201, "It is held. `Location` names it.")
    .tells::<LeaseDocument>(202, "With `Prefer: respond-async`: it waits. `Location` names it.")
    .refuses(&ANY)
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
    of_a_lease(api.asked(
        "get",
        "/.fencegate/v1/leases/{reference}",
        "showLease",
        "What has become of a lease.",
    ))
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
        "It lives on for its ttl, from now.",
    ))
    .may_give::<Renewal>()
    .tells::<LeaseDocument>(200, "The lease.")
    .end();
    of_a_lease(api.asked(
        "delete",
        "/.fencegate/v1/leases/{reference}",
        "releaseLease",
        "Gives it back. One that is over is given back.",
    ))
    .says(204, "It is over. What runs under it ends before the lock is given on.")
    .end();
}

fn operators(api: &mut Described) {
    api.asked(
        "get",
        "/.fencegate/v1/leases",
        "listLeases",
        "The leases of this gateway: all for operators, else one's own.",
    )
    .tells::<LeaseList>(200, "Without what only their clients know.")
    .refuses(&ANY)
    .refuses(&[Reason::LeaseCredentials])
    .end();
    api.asked(
        "post",
        "/.fencegate/v1/leases/{reference}/revoke",
        "revokeLease",
        "Asks its client to give it back.",
    )
    .named_like("reference", "^[0-9a-f]{16}$", REFERENCE)
    .given::<Revocation>()
    .tells::<RevokedLease>(200, "The client sees it.")
    .refuses(&ANY)
    .refuses(&[Reason::LeaseCredentials, Reason::LeaseForbidden, Reason::NoRoute])
    .end();
    api.asked("post", "/.fencegate/v1/leases/{reference}/break", "breakLease", "Ends it without its client.")
        .named_like("reference", "^[0-9a-f]{16}$", REFERENCE)
        .tells::<BrokenLease>(200, "It is over.")
        .refuses(&ANY)
        .refuses(&[Reason::LeaseCredentials, Reason::LeaseForbidden, Reason::NoRoute])
        .end();
}

fn others(api: &mut Described) {
    api.asked(
        "get",
        "/.fencegate/v1/keys/{key}",
        "keyLine",
        "Who holds and waits for a key that one may hold.",
    )
    .named("key", "The key, with `/` as `%2F`.")
    .tells::<KeyDocument>(200, "Who, and how long somebody waits who asks now.")
    .refuses(&ANY)
    .refuses(&[Reason::KeyInvalid, Reason::LeaseCredentials, Reason::LeaseForbidden, Reason::LockService])
    .end();
    api.asked(
        "get",
        "/.fencegate/v1/elections/{name}",
        "election",
        "Who leads: who holds the key `election/` and the name.",
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
    .refuses(&ANY)
    .refuses(&[Reason::KeyInvalid, Reason::LeaseCredentials, Reason::LockService])
    .end();
    api.asked(
        "get",
        "/.fencegate/v1/elections/{name}/leader",
        "leads",
        "Whether a lease of this gateway leads: for balancers.",
    )
    .known_by_nothing()
    .named("name", "The name of the election.")
    .says(200, "One does.")
    .refuses(&ANY)
    .refuses(&[Reason::KeyInvalid, Reason::NoRoute])
    .end();
}
