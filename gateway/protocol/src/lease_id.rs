//! The id of a lease. It names the member that holds the lease, and contains a secret that only the client of the
//! lease has.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use fencegate_process::randomness::Randomness;

/// The id of a lease: `v1.<member>.<reference>.<secret>`. The member node of the session that holds the lease, in
/// base64url; 16 hex digits; 32 random bytes in base64url. Every party that has the id may use the lease, so it is
/// never logged.
#[derive(Clone, PartialEq, Eq)]
pub struct LeaseId {
    member: String,
    reference: LeaseReference,
    secret: [u8; SECRET_LEN],
}

/// The name of a lease for operators, lists and logs. It gives no right to use the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseReference(u64);

const SECRET_LEN: usize = 32;
const VERSION: &str = "v1";
/// The longest id in bytes, far above the length that names of gateways and sessions need.
const MAX_LEN: usize = 1024;

impl LeaseId {
    /// Makes a new id. `member` is the name of the member node of the session that will hold the lease.
    pub fn new(member: String, randomness: &dyn Randomness) -> Self {
        let mut reference = [0; 8];
        let mut secret = [0; SECRET_LEN];
        randomness.fill(&mut reference);
        randomness.fill(&mut secret);
        Self { member, reference: LeaseReference(u64::from_be_bytes(reference)), secret }
    }

    /// Parses an id; `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_LEN {
            return None;
        }
        let [VERSION, member, reference, secret] = *text.split('.').collect::<Vec<_>>() else { return None };
        let member = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(member).ok()?).ok()?;
        let secret = BASE64_URL_SAFE_NO_PAD.decode(secret).ok()?.try_into().ok()?;
        Some(Self { member, reference: LeaseReference::parse(reference)?, secret })
    }

    pub fn lease_member_node(&self) -> &str {
        &self.member
    }

    pub fn reference(&self) -> LeaseReference {
        self.reference
    }

    /// Compares in a time that does not depend on the position of a difference.
    pub fn matches(&self, shown: &Self) -> bool {
        verify_slices_are_equal(&self.secret, &shown.secret).is_ok() && self.member == shown.member
    }

    /// Returns the text of the id with its secret, which only the client of the lease may get.
    pub fn to_secret_text(&self) -> String {
        let base64 = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let member = base64(self.member.as_bytes());
        let secret = base64(&self.secret);
        format!("{VERSION}.{member}.{}.{secret}", self.reference)
    }
}

/// Shows the reference and not the secret.
impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseId({})", self.reference)
    }
}

impl LeaseReference {
    pub fn parse(text: &str) -> Option<Self> {
        let hex = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        let in_form = text.len() == 16 && text.bytes().all(hex);
        in_form.then(|| u64::from_str_radix(text, 16).ok()).flatten().map(Self)
    }
}

impl fmt::Display for LeaseReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use fencegate_process::randomness::SystemRandomness;
    use proptest::prelude::*;

    use super::*;

    /// An id is parsed from its own text, equals only itself, and does not show its secret in `Debug`.
    #[test]
    fn id_round_trips_and_hides_secret() {
        let [one, other] = [(), ()].map(|()| LeaseId::new("gw-1-0100".into(), &SystemRandomness));
        let text = one.to_secret_text();
        let read = LeaseId::parse(&text).expect("its own form");
        assert!(
            read.matches(&one)
                && read.lease_member_node() == "gw-1-0100"
                && read.reference() == one.reference()
        );
        assert!(!one.matches(&other));
        assert!(!format!("{one:?}").contains(text.rsplit('.').next().expect("a secret")));
        let elsewhere = LeaseId { member: "gw-2-0100".into(), ..one.clone() };
        assert!(!one.matches(&elsewhere), "the same secret of another gateway");
    }

    #[test]
    fn malformed_ids_are_refused() {
        let text = LeaseId::new("gw".into(), &SystemRandomness).to_secret_text();
        for bad in [
            String::new(),
            "v1...".into(),
            text.replacen("v1", "v2", 1),
            format!("{text}A"),
            format!("{text}.x"),
            text[..text.len() - 1].to_owned(),
            "x".repeat(2000),
        ] {
            assert!(LeaseId::parse(&bad).is_none(), "{bad}");
        }
        for bad in ["", "0", "00000000000000001", "000000000000000G", "000000000000000A", "+00000000000000f"]
        {
            assert!(LeaseReference::parse(bad).is_none(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn parsed_id_prints_unchanged(
            text in "\\PC{0,40}|v[12]\\.[A-Za-z0-9_-]{0,12}\\.[0-9a-fA]{15,17}\\.[A-Za-z0-9_-]{42,44}=?",
        ) {
            if let Some(id) = LeaseId::parse(&text) {
                prop_assert_eq!(id.to_secret_text(), text);
            }
        }

        #[test]
        fn any_member_name_round_trips(member in "\\PC{0,60}") {
            let id = LeaseId::new(member.clone(), &SystemRandomness);
            let read = LeaseId::parse(&id.to_secret_text()).expect("its own form");
            prop_assert!(read.matches(&id) && read.lease_member_node() == member && read.reference() == id.reference());
        }
    }
}
