//! The grant record in the parent of a key whose upstream does not compare tokens: the last holder of the key, and
//! whether its requests are over.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The newest format of a record that this build can read, and the one that it writes.
const FORMAT: u32 = 1;

/// The data of a parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GrantRecord {
    format: u32,
    pub state: LastTenureState,
    /// The epoch of the tenure that wrote it; 0 if none did.
    pub epoch: u64,
    /// How long requests may go on after the end of that tenure, in milliseconds.
    delay_ms: u64,
}

/// How the last tenure ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Parting))]
pub enum LastTenureState {
    /// The holder has not left yet, or has left without recording that its requests are over.
    Held,
    /// All requests that were sent under this key are over.
    Clean,
}

/// Errors of parsing the data of a parent as a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseGrantRecordError {
    #[error("its record has format {0}, and this build reads up to {FORMAT}: run the build that wrote it")]
    Newer(u32),
    #[error(
        "its record cannot be read ({0}): remove the node when nothing can be at work any more under its key"
    )]
    Garbled(String),
}

impl GrantRecord {
    /// The record of a parent under which no request was ever sent.
    pub fn clean_record() -> Self {
        Self { format: FORMAT, state: LastTenureState::Clean, epoch: 0, delay_ms: 0 }
    }

    pub fn held_record(epoch: u64, delay: Duration) -> Self {
        // Rounded up, because a longer delay is always safe.
        let delay_ms = u64::try_from(delay.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
        Self { format: FORMAT, state: LastTenureState::Held, epoch, delay_ms }
    }

    /// The time that the next holder has to wait at least; `None` if it need not wait.
    pub fn required_delay(&self) -> Option<Duration> {
        (self.state == LastTenureState::Held).then_some(Duration::from_millis(self.delay_ms))
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain fields serialise")
    }

    /// Parses the data of a parent. `None`: the parent was made without a record.
    ///
    /// # Errors
    /// Returns an error if a newer build wrote the record, or if the data is no record at all.
    pub fn parse(data: &[u8]) -> Result<Option<Self>, ParseGrantRecordError> {
        #[derive(Deserialize)]
        struct GrantRecordHeader {
            format: u32,
        }
        if data.is_empty() {
            return Ok(None);
        }
        let garbled = |error: serde_json::Error| ParseGrantRecordError::Garbled(error.to_string());
        // The format is read first, because a newer form may have other fields.
        let form: GrantRecordHeader = serde_json::from_slice(data).map_err(garbled)?;
        if form.format > FORMAT {
            return Err(ParseGrantRecordError::Newer(form.format));
        }
        serde_json::from_slice(data).map(Some).map_err(garbled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record is parsed as it was written; only a held record requires a delay, rounded up to milliseconds.
    #[test]
    fn only_held_record_requires_delay() {
        let held = GrantRecord::held_record(7, Duration::from_micros(1500));
        assert_eq!(GrantRecord::parse(&held.to_bytes()), Ok(Some(held.clone())));
        assert_eq!(held.required_delay(), Some(Duration::from_millis(2)), "never shorter");
        assert_eq!(GrantRecord::clean_record().required_delay(), None);
        assert_eq!(GrantRecord::parse(b""), Ok(None));
    }

    /// A record of a newer format or with garbled content is an error and never counts as clean.
    #[test]
    fn unreadable_grant_record_is_not_clean() {
        let newer = GrantRecord::parse(br#"{"format":2,"left":"well"}"#);
        assert_eq!(newer, Err(ParseGrantRecordError::Newer(2)));
        for garbled in [&b"x"[..], b"{}", br#"{"format":1,"state":"gone","epoch":1,"delay_ms":0}"#] {
            assert!(matches!(GrantRecord::parse(garbled), Err(ParseGrantRecordError::Garbled(_))));
        }
    }
}
