//! The plan: the result of a policy file after all checks, and the only form that the gateway accepts.

mod access;
mod admin;
mod balancing;
mod bind_address;
mod body_conditions;
pub mod buffer_limits;
mod conditions;
mod cors;
mod fence;
mod gateway;
mod guard;
mod inconclusive_statuses;
mod jwt;
mod layout;
mod leases;
mod listener;
mod log;
mod once;
mod operation_end;
mod peer_listener;
mod reserved_fields;
mod route;
mod routing;
mod served_tls;
mod service;
mod serving;
mod shown;
mod tickets;
mod tls;
mod upstream;
mod zookeeper;

pub use crate::plan::peer_listener::{PeerForwardPolicy, PeerListenerSettings, PeerTls};
pub use access::{AccessRule, EffectiveAccessRule, IdentityPattern};
pub use admin::AdminListenerSettings;
pub use balancing::{DnsSettings, HealthCheck, LoadBalancingSettings, OutlierEjection, PoolLimits};
pub use bind_address::{BindAddress, UNIX, UnixSocketFile, host_header, socket_path};
pub use body_conditions::{BodyCondition, ConditionValue};
pub use conditions::{MatchConditions, MatchConditionsError};
pub use cors::{AllowedOrigins, CorsSettings, OriginPattern, ParseOriginError};
pub use fence::{
    BodyTypeRequirement, CachedHoldLimits, EffectiveFence, EffectiveFormerLock, EmptyListPolicy, Enforcement,
    FenceRule, FormerLock, LargeBodyPolicy, LockMode, LockModeRule, LockReusePolicy, NestedRequestPolicy,
    RequestLeasePolicy,
};
pub use gateway::{GatewayPlan, MixedPlanPolicy};
pub use guard::{
    GuardPlan, GuardStoreLocation, IdempotencyJournalSettings, MissingFencingTokenPolicy,
    OutcomeProbeSettings, PostgresLocation,
};
pub use inconclusive_statuses::InconclusiveStatuses;
pub use jwt::{EffectiveIssuer, JwksSource, JwtAlgorithm, JwtIssuer, JwtSettings};
pub use layout::{ForeignLockLayout, LockLayout, LockLocation, LockPlacement};
pub use leases::{KeyPattern, LeaseGrantSettings, LeasePrincipal, ParseKeyPatternError, PrincipalCredential};
pub use listener::{
    ListenerLimits, ListenerProtocols, ListenerSettings, ListenerTimeouts, ProxyProtocolMode,
};
pub use log::{AccessLogTarget, KeyVisibility, LogSettings, TraceExportSettings};
pub use once::{
    ClientOperationName, EffectiveIdempotency, IdempotencyRule, IdempotencyStore, OperationNameError,
    OperationQuota,
};
pub use operation_end::OperationEndStatus;
pub use reserved_fields::{
    EffectiveHeaderNames, IdentityHeaderNames, ReservedHeaderNames, TokenHeaderNames, is_credential,
};
pub use route::{EffectiveBodyCondition, EffectiveRoute, NamedConditionValue, Route, RouteId};
pub use routing::{FindRouteError, RouteMatch, RouteTable};
pub use served_tls::{CertificateFiles, ClientCertificateMode, ListenerTls, TlsVersion};
pub use service::{CanonicalAddress, ServiceId, UpstreamService, group_services};
pub use serving::{AlternateRequestReading, CommonServingPlan, UnmatchedRequestPolicy};
pub use shown::format_duration;
pub use tickets::{TicketSigningKey, TicketVerificationKeys};
pub use tls::{ClientCertificateFiles, ClientTls, EffectiveClientTls};
pub use upstream::{
    EffectiveUpstream, FencingLevel, NotAfterEnforcement, Upstream, UpstreamId, UpstreamProtocol,
};
pub use zookeeper::{AclMode, DigestCredential, ZooKeeperSettings};

pub use crate::graphql::GraphqlOperation;
pub use crate::header_name::{is_spelling_of, normalize, same_field, starts_with_spelling};
