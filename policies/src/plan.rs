//! The plan: a policy file after all checks, the only form that the gateway accepts.

mod admin;
mod balancing;
mod bind;
pub mod body_memory;
mod conditions;
mod ending;
mod fence;
mod fields;
mod gateway;
mod guard;
mod layout;
mod leases;
mod listener;
mod log;
mod once;
mod peer_listener;
mod route;
mod routing;
mod served_tls;
mod service;
mod serving;
mod tickets;
mod tls;
mod unfinished;
mod upstream;
mod zookeeper;

pub use crate::plan::peer_listener::{Forward, PeerListener, PeerTls};
pub use admin::Admin;
pub use balancing::{Dns, Eject, Health, PoolLimits, Sharing};
pub use bind::{Bind, SocketFile, UNIX, host_of, socket_path};
pub use conditions::Conditions;
pub use ending::Ending;
pub use fence::{
    BodyType, Caching, Enforce, Fence, Former, Hold, LargeBodies, LeaseUse, Mode, ModeRule, Nested,
};
pub use fields::{ReservedFields, TokenFields, is_credential};
pub use gateway::{Gateway, Mixed};
pub use guard::{Guard, Journal, Missing, Postgres, Probe, Store};
pub use layout::{Foreign, Layout, LockSite, Placing};
pub use leases::{BadKeyPattern, KeyPattern, Leases, Principal, Shows};
pub use listener::{Limits, Listener, Protocols, ProxyProtocol, Timeouts};
pub use log::{Access, KeysShown, Log, Traces};
pub use once::{Memory, Once, OnceStore, OperationName};
pub use route::{Route, RouteId};
pub use routing::{Found, RouteTable};
pub use served_tls::{ClientAuth, Pair, ServedTls, TlsVersion};
pub use service::{Service, ServiceId, Spot, services};
pub use serving::{Plan, Unmatched};
pub use tickets::{Signing, Verification};
pub use tls::{ClientCertificate, Tls};
pub use unfinished::UnfinishedStatuses;
pub use upstream::{Expiry, Level, Protocol, Upstream, UpstreamId};
pub use zookeeper::{Acl, Digest, ZooKeeper};

pub use crate::spelling::{are_alike, begins_plain, is_plain, plain};
