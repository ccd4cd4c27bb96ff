//! The secret by which gateways of one installation authenticate each other: only clients that may read a gateway's
//! member node in ZooKeeper have its secret.

use std::{fmt, sync::Arc};

use aws_lc_rs::{
    constant_time::verify_slices_are_equal,
    hmac::{HMAC_SHA256, Key, sign},
};
use fencegate_policies::hex;
use serde::{Deserialize, Serialize};

use fencegate_process::randomness::Randomness;

/// The secret of one process: 64 lower-case hex digits, drawn anew at its start. Comparison takes constant time.
#[derive(Clone, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PeerSecret(Arc<str>);

/// The text is no peer secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the peer secret is not 64 lower-case hex digits")]
pub struct ParsePeerSecretError;

const BYTES: usize = 32;

impl PeerSecret {
    pub fn new(randomness: &dyn Randomness) -> Self {
        Self(random_hex(randomness).into())
    }

    /// # Errors
    /// Returns an error if the text does not have the form of a peer secret.
    pub fn parse(text: &str) -> Result<Self, ParsePeerSecretError> {
        if is_well_formed(text) { Ok(Self(text.into())) } else { Err(ParsePeerSecretError) }
    }

    /// The digits. Send them to the gateway that drew them, and to no other peer.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The response to `nonce`: it can be computed only with the secret, and does not reveal the secret.
    pub fn respond(&self, nonce: &ChallengeNonce) -> ChallengeResponse {
        let key = Key::new(HMAC_SHA256, self.0.as_bytes());
        let tag = sign(&key, [PURPOSE, nonce.as_str()].concat().as_bytes());
        ChallengeResponse(to_hex(tag.as_ref()))
    }
}

/// Mixed into each response, so that a response has no other use.
const PURPOSE: &str = "fencegate peer ";

/// The random part of one challenge, drawn anew each time, so that old responses are worthless.
pub struct ChallengeNonce(String);

impl ChallengeNonce {
    pub fn new(randomness: &dyn Randomness) -> Self {
        Self(random_hex(randomness))
    }

    /// Parses a nonce; `None` if the text does not have the form of one.
    pub fn parse(text: &str) -> Option<Self> {
        is_well_formed(text).then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The response to a challenge: proves the knowledge of a peer secret.
pub struct ChallengeResponse(String);

impl ChallengeResponse {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn matches(&self, response: &str) -> bool {
        verify_slices_are_equal(self.0.as_bytes(), response.as_bytes()).is_ok()
    }
}

fn random_hex(randomness: &dyn Randomness) -> String {
    let mut bytes = [0; BYTES];
    randomness.fill(&mut bytes);
    to_hex(&bytes)
}

fn to_hex(bytes: &[u8]) -> String {
    let mut digits = vec![0; 2 * bytes.len()];
    hex::write_digits(bytes, &mut digits);
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

/// Hides the digits: a reader of the log could impersonate a gateway with them.
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

    /// A peer secret is parsed from its own text only, equals only itself, and does not appear in its `Debug` output.
    #[test]
    fn secret_parses_back_and_stays_hidden() {
        let [ours, other] = [(), ()].map(|()| PeerSecret::new(&SystemRandomness));
        assert_eq!(PeerSecret::parse(ours.as_str()), Ok(ours.clone()));
        assert!(ours != other);
        assert!(!format!("{ours:?}").contains(&ours.as_str()[..8]));
        for bad in ["", &ours.as_str()[1..], &ours.as_str().to_uppercase(), &format!("{}0", ours.as_str())] {
            assert_eq!(PeerSecret::parse(bad), Err(ParsePeerSecretError), "{bad}");
        }
    }

    /// A response matches one peer secret and one nonce; neither the nonce, the secret nor a part of the response
    /// passes for it.
    #[test]
    fn response_matches_one_secret_and_nonce() {
        let [ours, other] = [(), ()].map(|()| PeerSecret::new(&SystemRandomness));
        let [nonce, later] = [(), ()].map(|()| ChallengeNonce::new(&SystemRandomness));
        let response = ours.respond(&nonce);
        assert!(response.matches(ours.respond(&nonce).as_str()));
        for wrong in [other.respond(&nonce), ours.respond(&later)] {
            assert!(!response.matches(wrong.as_str()));
        }
        for wrong in ["", nonce.as_str(), ours.as_str(), &response.as_str()[1..]] {
            assert!(!response.matches(wrong), "{wrong}");
        }
        assert!(ChallengeNonce::parse(nonce.as_str()).is_some() && ChallengeNonce::parse("5").is_none());
    }
}
