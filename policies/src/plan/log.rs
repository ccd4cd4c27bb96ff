//! What a process logs about requests.

use std::{path::PathBuf, sync::Arc};

use serde::{Serialize, Serializer};

use super::shown;
use crate::words::words;

/// The logs beside the process's own log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LogSettings {
    pub access: AccessLogTarget,
    pub keys: KeyVisibility,
    /// The secret of the hashes of keys. `None`: each process has one of its own.
    #[serde(serialize_with = "shown::presence")]
    pub key_secret_file: Option<PathBuf>,
    /// `None`: no spans are sent.
    #[serde(serialize_with = "traces")]
    pub traces: Option<Arc<TraceExportSettings>>,
}

/// Where spans of requests are sent (OTLP, the protocol of OpenTelemetry).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TraceExportSettings {
    /// `host:port` of their collector.
    #[serde(rename = "endpoint")]
    pub collector: String,
    /// The `service.name` of the spans. Default `fencegate`.
    pub service_name: String,
    /// One in so many is recorded of the traces that begin here. For other traces their origin has decided. Default
    /// 1.
    pub one_in: u32,
}

fn traces<S: Serializer>(
    traces: &Option<Arc<TraceExportSettings>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    traces.as_deref().serialize(serializer)
}

/// Where the line per request goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AccessLogTarget {
    #[default]
    Off,
    Stdout,
}

words! { AccessLogTarget { Off = "off", Stdout = "stdout" } }

/// How resource keys stand in the access log and in spans. They may be names of accounts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeyVisibility {
    #[default]
    Plain,
    /// A keyed hash of 16 hex digits, the same for the same keys under the same secret.
    Hash,
    Off,
}

words! { KeyVisibility { Plain = "plain", Hash = "hash", Off = "off" } }
