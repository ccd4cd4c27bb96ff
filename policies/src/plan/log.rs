//! The settings for the logs about requests.

use std::{path::PathBuf, sync::Arc};

use serde::{Serialize, Serializer};

use super::shown;
use crate::words::words;

/// The logs other than the process's own log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LogSettings {
    pub access: AccessLogTarget,
    pub keys: KeyVisibility,
    /// The secret for the hashes of keys. `None`: each process makes a secret of its own.
    #[serde(serialize_with = "shown::presence")]
    pub key_secret_file: Option<PathBuf>,
    /// The settings for traces; `None` if no spans are sent.
    #[serde(serialize_with = "traces")]
    pub traces: Option<Arc<TraceExportSettings>>,
}

/// The settings for sending spans of requests (OTLP, the protocol of OpenTelemetry).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TraceExportSettings {
    /// The `host:port` of the collector.
    #[serde(rename = "endpoint")]
    pub collector: String,
    /// The `service.name` of the spans. Default `fencegate`.
    pub service_name: String,
    /// One of this many traces that begin here is recorded. For other traces their origin decides. Default 1.
    pub one_in: u32,
}

fn traces<S: Serializer>(
    traces: &Option<Arc<TraceExportSettings>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    traces.as_deref().serialize(serializer)
}

/// The destination of the log line of each request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AccessLogTarget {
    #[default]
    Off,
    Stdout,
}

words! { AccessLogTarget { Off = "off", Stdout = "stdout" } }

/// The form of resource keys in the access log and in spans. Keys may contain names of accounts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeyVisibility {
    #[default]
    Plain,
    /// A keyed hash of 16 hex digits. With the same secret, equal keys have equal hashes.
    Hash,
    Off,
}

words! { KeyVisibility { Plain = "plain", Hash = "hash", Off = "off" } }
