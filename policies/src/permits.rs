//! The number of holders that a key may have at once, and the numbers of their permits.

use std::{fmt, num::NonZeroU16};

use serde::{Deserialize, Serialize};

/// The number of permits of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PermitCount(u16);

/// The number of one permit, counted from 0. A later holder of the same permit has a larger token.
///
/// The field holds the number plus one, so that `Option<PermitIndex>` needs no extra space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct PermitIndex(NonZeroU16);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no key has a permit of that number")]
pub struct InvalidPermitError;

impl PermitCount {
    /// The least number: a single permit would be an ordinary lock.
    pub const LEAST: u16 = 2;
    /// The largest number, because each time a holder leaves, the next contender in the queue reads the list
    /// of all holders.
    pub const MOST: u16 = 1000;

    /// `None` if `count` is not within [`Self::LEAST`] and [`Self::MOST`].
    pub fn new(count: u16) -> Option<Self> {
        (Self::LEAST..=Self::MOST).contains(&count).then_some(Self(count))
    }

    /// Reads the form that [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        parse_permit_number(text).and_then(Self::new)
    }

    pub fn count(self) -> u16 {
        self.0
    }

    pub fn iter(self) -> impl Iterator<Item = PermitIndex> {
        (0..self.0).filter_map(PermitIndex::new)
    }

    pub fn last(self) -> PermitIndex {
        PermitIndex::new(self.0 - 1).expect("there are 2 at least and no more than there may be")
    }

    pub fn contains(self, permit: PermitIndex) -> bool {
        permit.number() < self.0
    }
}

impl PermitIndex {
    /// `None` for a number that no permit can have.
    pub fn new(number: u16) -> Option<Self> {
        NonZeroU16::new(number.saturating_add(1)).filter(|_| number < PermitCount::MOST).map(Self)
    }

    /// Reads the form that [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        parse_permit_number(text).and_then(Self::new)
    }

    pub fn number(self) -> u16 {
        self.0.get() - 1
    }
}

impl TryFrom<u16> for PermitIndex {
    type Error = InvalidPermitError;

    fn try_from(number: u16) -> Result<Self, InvalidPermitError> {
        Self::new(number).ok_or(InvalidPermitError)
    }
}

impl From<PermitIndex> for u16 {
    fn from(permit: PermitIndex) -> Self {
        permit.number()
    }
}

/// Reads a decimal number in its only spelling, without leading zeros.
fn parse_permit_number(text: &str) -> Option<u16> {
    let number = text.parse::<u16>().ok()?;
    (number.to_string() == text).then_some(number)
}

impl fmt::Display for PermitCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for PermitIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key has 2 to 1000 permits, which are counted from 0.
    #[test]
    fn permits_are_2_to_1000() {
        assert_eq!([0, 1, 1001].map(PermitCount::new), [None; 3]);
        for count in [2, 3, 1000] {
            let permits = PermitCount::new(count).expect("within bounds");
            assert_eq!(permits.iter().count(), usize::from(count));
            assert!(permits.contains(permits.last()) && permits.last().number() == count - 1);
            assert_eq!(PermitCount::parse(&permits.to_string()), Some(permits));
            assert_eq!(PermitIndex::parse(&permits.last().to_string()), Some(permits.last()));
        }
        for bad in ["", "1", "02", "+2", "1001", "x", "-2", "65538"] {
            assert_eq!(PermitCount::parse(bad), None, "{bad}");
        }
        assert_eq!([PermitIndex::parse("1000"), PermitIndex::parse("00")], [None; 2]);
        assert_eq!(PermitIndex::parse("0"), PermitIndex::new(0));
        assert_eq!(PermitIndex::new(0).map(PermitIndex::number), Some(0));
        assert_eq!(size_of::<Option<PermitIndex>>(), 2);
    }
}
