//! The written record of an installation: one line of JSON, with a checksum over its values.

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

/// The highest epoch and the latest era of an installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HighestEpochRecord {
    pub installation: String,
    pub era: u64,
    /// The highest epoch that was seen.
    pub highest: u64,
}

/// The newest format of a record that this build can read, and the one that it writes.
pub(super) const FORMAT: u32 = 1;

/// Errors of parsing a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseInstallationRecordError {
    #[error("the record is of format {0}, and this build reads up to {FORMAT}")]
    Newer(u32),
    #[error("the record is damaged: {0}")]
    Damaged(String),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EncodedInstallationRecord {
    format: u32,
    installation: String,
    era: u64,
    highest: u64,
    check: String,
}

/// The format of a record, which is read before anything else.
#[derive(Deserialize)]
struct InstallationRecordHeader {
    format: u32,
}

impl HighestEpochRecord {
    /// Whether `other` is of the same installation and at least as high.
    pub(super) fn is_covered_by(&self, other: &Self) -> bool {
        self.installation == other.installation && self.era <= other.era && self.highest <= other.highest
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let written = EncodedInstallationRecord {
            format: FORMAT,
            installation: self.installation.clone(),
            era: self.era,
            highest: self.highest,
            check: self.checksum(),
        };
        let mut bytes = serde_json::to_vec(&written).expect("plain fields serialise");
        bytes.push(b'\n');
        bytes
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ParseInstallationRecordError> {
        let damaged = |error: serde_json::Error| ParseInstallationRecordError::Damaged(error.to_string());
        let InstallationRecordHeader { format } = serde_json::from_slice(bytes).map_err(damaged)?;
        if format > FORMAT {
            return Err(ParseInstallationRecordError::Newer(format));
        }
        let written: EncodedInstallationRecord = serde_json::from_slice(bytes).map_err(damaged)?;
        let record = Self { installation: written.installation, era: written.era, highest: written.highest };
        // Epochs above the range of a signed number are refused, because services store epochs as
        // signed numbers.
        let possible = format > 0 && i64::try_from(record.highest).is_ok();
        match possible && record.checksum() == written.check {
            true => Ok(record),
            false => Err(ParseInstallationRecordError::Damaged("its checksum is another one".into())),
        }
    }

    fn checksum(&self) -> String {
        let Self { installation, era, highest } = self;
        let digest = digest(&SHA256, format!("{FORMAT} {installation} {era} {highest}").as_bytes());
        digest.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> HighestEpochRecord {
        HighestEpochRecord { installation: "0123456789abcdef".into(), era: 3, highest: (3 << 32) + 4711 }
    }

    #[test]
    fn record_round_trips() {
        let bytes = record().to_bytes();
        assert_eq!(HighestEpochRecord::parse(&bytes), Ok(record()));
        assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1, "one line, for whoever looks");
    }

    /// A record that is cut at any byte is reported as damaged.
    #[test]
    fn truncated_record_is_damaged() {
        let bytes = record().to_bytes();
        // The end is left out, because without its last byte the record only lacks the end of the
        // line.
        for end in 0..bytes.len() - 1 {
            let parsed = HighestEpochRecord::parse(&bytes[..end]);
            assert!(matches!(parsed, Err(ParseInstallationRecordError::Damaged(_))), "{end}: {parsed:?}");
        }
    }

    #[test]
    fn record_with_flipped_bit_is_refused() {
        let bytes = record().to_bytes();
        for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut turned = bytes.clone();
            turned[at] ^= 1 << bit;
            assert!(HighestEpochRecord::parse(&turned).is_err(), "bit {bit} of byte {at}");
        }
    }

    /// A later format is distinguished from damage; format 0 never existed and is damage.
    #[test]
    fn newer_format_is_not_damage() {
        let later = br#"{"format":2,"whatever":"it means"}"#;
        assert_eq!(HighestEpochRecord::parse(later), Err(ParseInstallationRecordError::Newer(2)));
        let none =
            String::from_utf8(record().to_bytes()).expect("JSON").replace("\"format\":1", "\"format\":0");
        assert!(matches!(
            HighestEpochRecord::parse(none.as_bytes()),
            Err(ParseInstallationRecordError::Damaged(_))
        ));
    }

    #[test]
    fn epoch_beyond_token_range_is_refused() {
        let beyond = HighestEpochRecord { highest: 1 << 63, ..record() };
        assert!(HighestEpochRecord::parse(&beyond.to_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(HighestEpochRecord::parse(&bytes).is_err());
        }
    }
}
