//! The written record of an installation: one line of JSON, with a checksum over its values.

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

/// How far the tokens of an installation have come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallationRecord {
    pub installation: String,
    pub era: u64,
    /// The highest epoch that was seen.
    pub highest: u64,
}

/// The newest written form that this build understands.
pub(super) const FORMAT: u32 = 1;

/// Why bytes are no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseInstallationRecordError {
    #[error("it is of format {0}, and this build reads up to {FORMAT}")]
    Newer(u32),
    #[error("it is damaged: {0}")]
    Damaged(String),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EncodedRecord {
    format: u32,
    installation: String,
    era: u64,
    highest: u64,
    check: String,
}

/// The format of a record, which is read before anything else.
#[derive(Deserialize)]
struct RecordHeader {
    format: u32,
}

impl InstallationRecord {
    /// Whether `other` is of the same installation and at least as far.
    pub(super) fn is_covered_by(&self, other: &Self) -> bool {
        self.installation == other.installation && self.era <= other.era && self.highest <= other.highest
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let written = EncodedRecord {
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
        let damaged = |why: serde_json::Error| ParseInstallationRecordError::Damaged(why.to_string());
        let RecordHeader { format } = serde_json::from_slice(bytes).map_err(damaged)?;
        if format > FORMAT {
            return Err(ParseInstallationRecordError::Newer(format));
        }
        let written: EncodedRecord = serde_json::from_slice(bytes).map_err(damaged)?;
        let record = Self { installation: written.installation, era: written.era, highest: written.highest };
        // Epochs fit into a signed number, because services store them so.
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

    fn record() -> InstallationRecord {
        InstallationRecord { installation: "0123456789abcdef".into(), era: 3, highest: (3 << 32) + 4711 }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let bytes = record().to_bytes();
        assert_eq!(InstallationRecord::parse(&bytes), Ok(record()));
        assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1, "one line, for whoever looks");
    }

    #[test]
    fn a_record_that_is_torn_at_any_byte_is_damaged() {
        let bytes = record().to_bytes();
        // Without the last byte only the end of the line is missing.
        for end in 0..bytes.len() - 1 {
            let told = InstallationRecord::parse(&bytes[..end]);
            assert!(matches!(told, Err(ParseInstallationRecordError::Damaged(_))), "{end}: {told:?}");
        }
    }

    #[test]
    fn a_record_with_any_bit_turned_is_not_believed() {
        let bytes = record().to_bytes();
        for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut turned = bytes.clone();
            turned[at] ^= 1 << bit;
            assert!(InstallationRecord::parse(&turned).is_err(), "bit {bit} of byte {at}");
        }
    }

    #[test]
    fn a_later_format_is_told_from_damage_and_an_earlier_one_there_never_was() {
        let later = br#"{"format":2,"whatever":"it means"}"#;
        assert_eq!(InstallationRecord::parse(later), Err(ParseInstallationRecordError::Newer(2)));
        let none =
            String::from_utf8(record().to_bytes()).expect("JSON").replace("\"format\":1", "\"format\":0");
        assert!(matches!(
            InstallationRecord::parse(none.as_bytes()),
            Err(ParseInstallationRecordError::Damaged(_))
        ));
    }

    #[test]
    fn an_epoch_that_no_token_can_have_is_damage() {
        let beyond = InstallationRecord { highest: 1 << 63, ..record() };
        assert!(InstallationRecord::parse(&beyond.to_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(InstallationRecord::parse(&bytes).is_err());
        }
    }
}
