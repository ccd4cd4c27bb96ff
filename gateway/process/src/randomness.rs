//! Randomness behind a trait, so that a simulation can repeat itself.

use std::fmt;

/// A source of random bytes.
pub trait Randomness: fmt::Debug + Send + Sync + 'static {
    fn fill(&self, bytes: &mut [u8]);
}

/// The operating system's generator.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandomness;

impl Randomness for SystemRandomness {
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the kernel gives random bytes once it has booted");
    }
}

/// The id of one lock attempt, by which its node is found again when the reply to the create is
/// lost.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Guid([u8; 16]);

impl Guid {
    pub fn new(randomness: &dyn Randomness) -> Self {
        let mut bytes = [0; 16];
        randomness.fill(&mut bytes);
        Self(bytes)
    }

    /// Reads the displayed form; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 32 || digits.iter().any(|d| !matches!(d, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(|value| Self(value.to_be_bytes()))
    }
}

/// Writes 32 lower-case hex digits.
impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guid_parses_only_own_format() {
        let guid = Guid::new(&SystemRandomness);
        assert_eq!(Guid::parse(&guid.to_string()), Some(guid));
        for other in ["", "+0000000000000000000000000000001", "A0000000000000000000000000000000"] {
            assert_eq!(Guid::parse(other), None, "{other}");
        }
    }
}
