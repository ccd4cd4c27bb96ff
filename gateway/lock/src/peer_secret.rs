//! The secret by which gateways of one installation know each other: only who may read a gateway's member node in
//! ZooKeeper has its pass.

use std::{fmt, sync::Arc};

use aws_lc_rs::{
    constant_time::verify_slices_are_equal,
    hmac::{HMAC_SHA256, Key, sign},
};
use fencegate_policies::hex;
use serde::{Deserialize, Serialize};

use fencegate_process::randomness::Randomness;

/// 64 lower-case hex digits, drawn anew by each process. Comparison takes constant time.
#[derive(Clone, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PeerSecret(Arc<str>);

/// The text is no pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not 64 lower-case hex digits")]
pub struct ParsePeerSecretError;

const BYTES: usize = 32;

impl PeerSecret {
    pub fn new(randomness: &dyn Randomness) -> Self {
        Self(random_hex(randomness).into())
    }

    /// # Errors
    /// The text does not have the form of a pass.
    pub fn parse(text: &str) -> Result<Self, ParsePeerSecretError> {
        if is_well_formed(text) { Ok(Self(text.into())) } else { Err(ParsePeerSecretError) }
    }

    /// The digits. Show them to the gateway that drew them, and to nobody else.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The answer to `nonce`: only who knows the pass can compute it, and it does not reveal the pass.
    pub fn respond(&self, nonce: &Nonce) -> ChallengeResponse {
        let key = Key::new(HMAC_SHA256, self.0.as_bytes());
        let tag = sign(&key, [PURPOSE, nonce.as_str()].concat().as_bytes());
        ChallengeResponse(to_hex(tag.as_ref()))
    }
}

/// Mixed into each proof, so that a proof has no other use.
const PURPOSE: &str = "fencegate peer ";

/// Drawn anew for each question, so that old answers are worthless.
pub struct Nonce(String);

impl Nonce {
    pub fn new(randomness: &dyn Randomness) -> Self {
        Self(random_hex(randomness))
    }

    /// `None` where the text does not have the form of a nonce.
    pub fn parse(text: &str) -> Option<Self> {
        is_well_formed(text).then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A proof of the knowledge of a pass.
pub struct ChallengeResponse(String);

impl ChallengeResponse {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn matches(&self, said: &str) -> bool {
        verify_slices_are_equal(self.0.as_bytes(), said.as_bytes()).is_ok()
    }
}

fn random_hex(randomness: &dyn Randomness) -> String {
    let mut bytes = [0; BYTES];
    randomness.fill(&mut bytes);
    to_hex(&bytes)
}

fn to_hex(bytes: &[u8]) -> String {
    let mut digits = vec![0; 2 * bytes.len()];
    hex::write(bytes, &mut digits);
    String::from_utf8(digits).expect("hex digits are ASCII")
}

fn is_well_formed(text: &str) -> bool {
    let hex = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    text.len() == 2 * BYTES && text.bytes().all(hex)
}

impl PartialEq for PeerSecret {
    fn eq(&self, other: &Self) -> bool {
        verify_slices_are_equal(self.0.as_bytes(), other.0.as_bytes()).is_ok()
    }
}

/// Hides the digits: whoever reads them in a log could pass for a gateway.
impl fmt::Debug for PeerSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pass(..)")
    }
}

impl TryFrom<String> for PeerSecret {
    type Error = ParsePeerSecretError;

    fn try_from(text: String) -> Result<Self, ParsePeerSecretError> {
        Self::parse(&text)
    }
}

impl From<PeerSecret> for String {
    fn from(pass: PeerSecret) -> Self {
        pass.as_str().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencegate_process::randomness::SystemRandomness;

    #[test]
    fn a_pass_is_read_back_equals_itself_only_and_is_not_shown() {
        let [ours, other] = [(), ()].map(|()| PeerSecret::new(&SystemRandomness));
        assert_eq!(PeerSecret::parse(ours.as_str()), Ok(ours.clone()));
        assert!(ours != other);
        assert!(!format!("{ours:?}").contains(&ours.as_str()[..8]));
        for bad in ["", &ours.as_str()[1..], &ours.as_str().to_uppercase(), &format!("{}0", ours.as_str())] {
            assert_eq!(PeerSecret::parse(bad), Err(ParsePeerSecretError), "{bad}");
        }
    }

    #[test]
    fn a_proof_is_of_one_pass_and_one_question_and_does_not_tell_the_pass() {
        let [ours, other] = [(), ()].map(|()| PeerSecret::new(&SystemRandomness));
        let [asked, later] = [(), ()].map(|()| Nonce::new(&SystemRandomness));
        let proof = ours.respond(&asked);
        assert!(proof.matches(ours.respond(&asked).as_str()));
        for wrong in [other.respond(&asked), ours.respond(&later)] {
            assert!(!proof.matches(wrong.as_str()));
        }
        for wrong in ["", asked.as_str(), ours.as_str(), &proof.as_str()[1..]] {
            assert!(!proof.matches(wrong), "{wrong}");
        }
        assert!(Nonce::parse(asked.as_str()).is_some() && Nonce::parse("5").is_none());
    }
}
