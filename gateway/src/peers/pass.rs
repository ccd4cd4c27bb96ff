//! The word by which a gateway knows the others: whoever may read its member node in ZooKeeper has it, nobody else.

use std::{fmt, sync::Arc};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use serde::{Deserialize, Serialize};

use crate::randomness::Randomness;

/// 64 lower-case hex digits, other ones with each process. Comparing takes as long for a wrong one as for the right one.
#[derive(Clone, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pass(Arc<str>);

/// The text is no pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not 64 lower-case hex digits")]
pub struct BadPass;

const BYTES: usize = 32;

impl Pass {
    pub fn new(randomness: &dyn Randomness) -> Self {
        let mut bytes = [0; BYTES];
        randomness.fill(&mut bytes);
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into())
    }

    /// # Errors
    /// It is not in the form of one.
    pub fn parse(text: &str) -> Result<Self, BadPass> {
        let hex = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        let good = text.len() == 2 * BYTES && text.bytes().all(hex);
        if good { Ok(Self(text.into())) } else { Err(BadPass) }
    }

    /// To be shown to the gateway that it is of, and to nobody else.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl PartialEq for Pass {
    fn eq(&self, other: &Self) -> bool {
        verify_slices_are_equal(self.0.as_bytes(), other.0.as_bytes()).is_ok()
    }
}

/// Not what it is: whoever reads it in a log could pass for a gateway.
impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pass(..)")
    }
}

impl TryFrom<String> for Pass {
    type Error = BadPass;

    fn try_from(text: String) -> Result<Self, BadPass> {
        Self::parse(&text)
    }
}

impl From<Pass> for String {
    fn from(pass: Pass) -> Self {
        pass.as_str().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::randomness::SystemRandomness;

    #[test]
    fn a_pass_is_read_back_equals_itself_only_and_is_not_shown() {
        let [ours, other] = [(), ()].map(|()| Pass::new(&SystemRandomness));
        assert_eq!(Pass::parse(ours.as_str()), Ok(ours.clone()));
        assert!(ours != other);
        assert!(!format!("{ours:?}").contains(&ours.as_str()[..8]));
        for bad in ["", &ours.as_str()[1..], &ours.as_str().to_uppercase(), &format!("{}0", ours.as_str())] {
            assert_eq!(Pass::parse(bad), Err(BadPass), "{bad}");
        }
    }
}
