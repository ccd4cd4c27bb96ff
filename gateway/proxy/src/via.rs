//! The name of this process in `Via`, by which it finds a request that was here before.

use std::sync::Arc;

use fencegate_http::header_list::{append, list_entries};
use fencegate_process::randomness::Guid;
use fencegate_refusal::{Refusal, RefusalReason};
use hyper::{
    HeaderMap, Version,
    header::{HeaderValue, VIA},
};

/// The pseudonym of this process (RFC 9110, 7.6.3). It shows nothing of the machine, and changes with each start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViaName {
    name: Arc<str>,
    /// The entries for `Via`, by HTTP version: see [`ViaName::entry`]. They are leaked, so a copy needs no
    /// reference count, and each request has two copies.
    entries: [HeaderValue; 3],
}

impl ViaName {
    pub fn new(guid: Guid) -> Self {
        let name = format!("fencegate-{}", &guid.to_string()[..12]);
        let entry = |version| HeaderValue::from_static(format!("{version} {name}").leak());
        Self { entries: ["1.0", "1.1", "2"].map(entry), name: name.into() }
    }

    /// Adds the entry of this process to `Via`, for a message that was received in this HTTP version.
    pub fn add_via_entry(&self, headers: &mut HeaderMap, came: Version) {
        append(headers, VIA, self.entry(came));
    }

    fn entry(&self, version: Version) -> &HeaderValue {
        let [one_zero, one_one, two] = &self.entries;
        match version {
            Version::HTTP_10 => one_zero,
            Version::HTTP_2 => two,
            _ => one_one,
        }
    }

    /// Reads the hops of the request from `Via`.
    pub fn parse_via_chain(&self, headers: &HeaderMap) -> ViaChain {
        let mut hops = ViaChain { count: 0, looped: false };
        for entry in list_entries(headers, &VIA) {
            hops.looped |= split_words(entry).nth(1) == Some(self.name.as_bytes());
            hops.count += 1;
        }
        hops
    }
}

/// The hops that `Via` names.
pub struct ViaChain {
    count: u32,
    /// True if one of the hops was this process.
    pub looped: bool,
}

impl ViaChain {
    /// Returns the number of hops.
    ///
    /// # Errors
    /// Returns an error if the request was here before. It would go round until some limit ends it, and hold a
    /// lock each time.
    pub(crate) fn check_loop(self) -> Result<u32, Refusal> {
        match self.looped {
            true => Err(Refusal::new(RefusalReason::Loop, "the request has been here before")),
            false => Ok(self.count),
        }
    }
}

fn split_words(entry: &[u8]) -> impl Iterator<Item = &[u8]> {
    entry.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencegate_process::randomness::SystemRandomness;

    /// A process finds a loop by its own name and by no other name.
    #[test]
    fn hop_detects_own_name_only() {
        let name = |_| ViaName::new(Guid::new(&SystemRandomness));
        let [ours, other] = [1, 2].map(name);
        let mut headers = HeaderMap::new();
        for entry in ["1.0 fred, 1.1 example.com (Apache)", "2 p"] {
            headers.append(VIA, HeaderValue::from_static(entry));
        }
        append(&mut headers, VIA, other.entry(Version::HTTP_11));
        assert_eq!(ours.parse_via_chain(&headers).check_loop().expect("not seen"), 4);
        append(&mut headers, VIA, ours.entry(Version::HTTP_2));
        assert_eq!(
            ours.parse_via_chain(&headers).check_loop().expect_err("seen").reason,
            RefusalReason::Loop
        );
    }
}
