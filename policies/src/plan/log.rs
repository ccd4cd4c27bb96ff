//! What a process logs about requests.

use std::{path::PathBuf, sync::Arc};

/// The logs beside the process's own log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogSettings {
    pub access: AccessLogTarget,
    pub keys: KeyVisibility,
    /// The secret of the hashes of keys. `None`: each process has one of its own.
    pub key_secret_file: Option<PathBuf>,
    /// `None`: no spans are sent.
    pub traces: Option<Arc<TraceExportSettings>>,
}

/// Where spans of requests are sent (OTLP, the protocol of OpenTelemetry).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceExportSettings {
    /// `host:port` of their collector.
    pub collector: String,
    /// The `service.name` of the spans. Default `fencegate`.
    pub service_name: String,
    /// One in so many is recorded of the traces that begin here. For other traces their origin has decided. Default
    /// 1.
    pub one_in: u32,
}

/// Where the line per request goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AccessLogTarget {
    #[default]
    Off,
    Stdout,
}

/// How resource keys stand in the access log and in spans. They may be names of accounts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeyVisibility {
    #[default]
    Plain,
    /// A keyed hash of 16 hex digits, the same for the same keys under the same secret.
    Hash,
    Off,
}
