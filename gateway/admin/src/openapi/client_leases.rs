//! The lease interface for clients: leases, keys and elections, on the public listener.

use fencegate_leases::api::{
    admin::{BreakLeaseResponse, RevokeLeaseResponse},
    watch::LeaseWatchQuery,
};
use fencegate_protocol::lease_documents::{
    AcquireLeaseBody, ElectionDocument, KeyDocument, LeaseDocument, LeaseList, RenewLeaseBody,
    RevokeLeaseBody,
};
use fencegate_refusal::RefusalReason;

use super::document::{OpenApiDocumentBuilder, OpenApiOperationBuilder};

const DESCRIPTION: &str = "Locks that clients hold through a gateway, for work that is no request. Any gateway takes a request about any \
                    lease, and sends it to the one that holds it. Each refusal is `application/problem+json`, and nothing was done. \
                    A gateway whose policy has no `leases` routes such requests as any other.";

pub(super) fn lease_api_document() -> OpenApiDocumentBuilder {
    let mut api =
        OpenApiDocumentBuilder::new("Leases of a Fencegate gateway", "http://127.0.0.1:8080", DESCRIPTION)
            .with_bearer_description(
                "The token of a principal. A client with a certificate that the policy names shows none.",
            );
    add_client_paths(&mut api);
    add_operator_paths(&mut api);
    add_other_paths(&mut api);
    api
}

/// Refusals that any request can meet before its subject is known.
const ANY_REQUEST_REASONS: [RefusalReason; 12] = [
    RefusalReason::Malformed,
    RefusalReason::SlowRequest,
    RefusalReason::BodyTooLarge,
    RefusalReason::TargetTooLarge,
    RefusalReason::Expectation,
    RefusalReason::Misdirected,
    RefusalReason::ClientLimit,
    RefusalReason::HeaderTooLarge,
    RefusalReason::TransferEncoding,
    RefusalReason::Draining,
    RefusalReason::Overloaded,
    RefusalReason::Loop,
];

/// Refusals for a lease that another gateway may hold.
const LEASE_REASONS: [RefusalReason; 5] = [
    RefusalReason::LeaseRequired,
    RefusalReason::LeaseForbidden,
    RefusalReason::StaleToken,
    RefusalReason::LeaseAway,
    RefusalReason::LockService,
];

const REFERENCE: &str = "The reference of the lease in lists and logs: 16 hex digits.";
const EVENTS: &str = "text/event-stream";

fn lease_operation(operation: OpenApiOperationBuilder<'_>) -> OpenApiOperationBuilder<'_> {
    operation
        .without_credential()
        .path_param_like("reference", "^[0-9a-f]{16}$", REFERENCE)
        .header_param(
            "Fencing-Lease",
            "^v1\\.[A-Za-z0-9_-]+\\.[0-9a-f]{16}\\.[A-Za-z0-9_-]{43}$",
            "The id of the lease, which only its client knows.",
        )
        .refusal_responses(&LEASE_REASONS)
        .refusal_responses(&ANY_REQUEST_REASONS)
}

fn add_client_paths(api: &mut OpenApiDocumentBuilder) {
    api.public_listener_operation(
        "post",
        "/.fencegate/v1/leases",
        "acquireLease",
        "Asks for a lease of all of these keys.",
    )
    .optional_header_param(
        "Idempotency-Key",
        "^[!-~]{1,255}$",
        "A name for this request. A repeat under the same name, with the same body and at the same gateway, gets the same lease.",
    )
    .required_body::<AcquireLeaseBody>()
    .json_response::<LeaseDocument>(201, "The lease is held. `Location` names it.")
    .json_response::<LeaseDocument>(
        202,
        "With `Prefer: respond-async`: the lease waits. `Location` names it.",
    )
    .refusal_responses(&ANY_REQUEST_REASONS)
    .refusal_responses(&[
        RefusalReason::KeyInvalid,
        RefusalReason::LeaseCredentials,
        RefusalReason::LeaseForbidden,
        RefusalReason::LeaseInProgress,
        RefusalReason::PermitsDiffer,
        RefusalReason::StaleToken,
        RefusalReason::IdempotencyMismatch,
        RefusalReason::Locked,
        RefusalReason::LeaseLimit,
        RefusalReason::LockService,
        RefusalReason::Suspended,
        RefusalReason::KeyLimit,
        RefusalReason::NotInitialised,
        RefusalReason::RolledBack,
    ])
    .finish();
    lease_operation(api.public_listener_operation(
        "get",
        "/.fencegate/v1/leases/{reference}",
        "showLease",
        "The state of a lease.",
    ))
    .query_params::<LeaseWatchQuery>()
    .json_response::<LeaseDocument>(
        200,
        "The lease. With `Accept: text/event-stream` the same at each change, as events.",
    )
    .raw_response(
        200,
        EVENTS,
        "The lease. With `Accept: text/event-stream` the same at each change, as events.",
    )
    .finish();
    lease_operation(api.public_listener_operation(
        "post",
        "/.fencegate/v1/leases/{reference}/renew",
        "renewLease",
        "Renews a lease: it lives on for its ttl, from now.",
    ))
    .optional_body::<RenewLeaseBody>()
    .json_response::<LeaseDocument>(200, "The lease.")
    .finish();
    lease_operation(api.public_listener_operation(
        "delete",
        "/.fencegate/v1/leases/{reference}",
        "releaseLease",
        "Gives a lease back. A lease that is over counts as given back.",
    ))
    .empty_response(204, "The lease is over. Requests under it end before the lock is released.")
    .finish();
}

fn add_operator_paths(api: &mut OpenApiDocumentBuilder) {
    api.public_listener_operation(
        "get",
        "/.fencegate/v1/leases",
        "listLeases",
        "The leases of this gateway: all of them for operators, and for other clients their own.",
    )
    .json_response::<LeaseList>(200, "The leases, without their secrets.")
    .refusal_responses(&ANY_REQUEST_REASONS)
    .refusal_responses(&[RefusalReason::LeaseCredentials])
    .finish();
    api.public_listener_operation(
        "post",
        "/.fencegate/v1/leases/{reference}/revoke",
        "revokeLease",
        "Asks the client of a lease to give it back.",
    )
    .path_param_like("reference", "^[0-9a-f]{16}$", REFERENCE)
    .required_body::<RevokeLeaseBody>()
    .json_response::<RevokeLeaseResponse>(200, "The client sees the reason when it renews or watches.")
    .refusal_responses(&ANY_REQUEST_REASONS)
    .refusal_responses(&[
        RefusalReason::LeaseCredentials,
        RefusalReason::LeaseForbidden,
        RefusalReason::NoRoute,
    ])
    .finish();
    api.public_listener_operation(
        "post",
        "/.fencegate/v1/leases/{reference}/break",
        "breakLease",
        "Ends a lease without its client.",
    )
    .path_param_like("reference", "^[0-9a-f]{16}$", REFERENCE)
    .json_response::<BreakLeaseResponse>(200, "The lease is over.")
    .refusal_responses(&ANY_REQUEST_REASONS)
    .refusal_responses(&[
        RefusalReason::LeaseCredentials,
        RefusalReason::LeaseForbidden,
        RefusalReason::NoRoute,
    ])
    .finish();
}

fn add_other_paths(api: &mut OpenApiDocumentBuilder) {
    api.public_listener_operation(
        "get",
        "/.fencegate/v1/keys/{key}",
        "keyLine",
        "The holders and waiters of a key that the caller may hold.",
    )
    .path_param("key", "The key, with `/` as `%2F`.")
    .json_response::<KeyDocument>(200, "The lock nodes, and the expected wait of a new request.")
    .refusal_responses(&ANY_REQUEST_REASONS)
    .refusal_responses(&[
        RefusalReason::KeyInvalid,
        RefusalReason::LeaseCredentials,
        RefusalReason::LeaseForbidden,
        RefusalReason::LockService,
    ])
    .finish();
    api.public_listener_operation(
        "get",
        "/.fencegate/v1/elections/{name}",
        "election",
        "The leader of an election: the holder of the key `election/` and the name.",
    )
    .path_param("name", "The name of the election.")
    .json_response::<ElectionDocument>(
        200,
        "Who, if anybody. With `Accept: text/event-stream` the same at each change, as events.",
    )
    .raw_response(
        200,
        EVENTS,
        "Who, if anybody. With `Accept: text/event-stream` the same at each change, as events.",
    )
    .refusal_responses(&ANY_REQUEST_REASONS)
    .refusal_responses(&[
        RefusalReason::KeyInvalid,
        RefusalReason::LeaseCredentials,
        RefusalReason::LeaseForbidden,
        RefusalReason::LeaseLimit,
        RefusalReason::LockService,
    ])
    .finish();
    api.public_listener_operation(
        "get",
        "/.fencegate/v1/elections/{name}/leader",
        "leads",
        "Whether a lease of this gateway leads. For load balancers.",
    )
    .without_credential()
    .path_param("name", "The name of the election.")
    .empty_response(200, "One does.")
    .refusal_responses(&ANY_REQUEST_REASONS)
    .refusal_responses(&[RefusalReason::KeyInvalid, RefusalReason::NoRoute])
    .finish();
}
