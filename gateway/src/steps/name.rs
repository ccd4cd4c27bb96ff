//! The name of an operation between gateway and guard: hashes, so that no store holds what clients call things.

use aws_lc_rs::digest::{Context, SHA256};
use fencegate_policies::plan;

use crate::guard::operation::{Fingerprint, Operation, OperationId};

/// What decides whether two requests with one name are the same request.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    pub body: &'a [u8],
}

/// `keep`: seconds that it is remembered after its end.
pub fn operation(upstream: &str, named: &plan::Operation, wanted: Wanted<'_>, keep: u64) -> Operation {
    let Wanted { method, target, body } = wanted;
    Operation {
        id: OperationId::of(hash([upstream.as_bytes(), named.principal.as_bytes(), named.name.as_bytes()])),
        fingerprint: Fingerprint::of(hash([method.as_bytes(), target.as_bytes(), body])),
        keep,
        by_header: false,
    }
}

/// SHA-256 over the parts, each with its length before it: `ab`, `c` is not `a`, `bc`.
fn hash(parts: [&[u8]; 3]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, principal: &str) -> plan::Operation {
        plan::Operation { name: name.into(), principal: principal.into() }
    }

    const WANTED: Wanted<'_> = Wanted { method: "POST", target: "/a", body: b"{}" };

    #[test]
    fn names_of_two_upstreams_or_principals_are_two_operations() {
        let id = |upstream, name, principal| operation(upstream, &named(name, principal), WANTED, 1).id;
        let ids =
            [id("u", "n", "p"), id("v", "n", "p"), id("u", "n", "q"), id("u", "np", ""), id("un", "", "p")];
        for (at, one) in ids.iter().enumerate() {
            assert!(ids.iter().skip(at + 1).all(|other| one != other), "{at}");
        }
    }

    #[test]
    fn the_fingerprint_is_that_of_the_request() {
        let of = |wanted| operation("u", &named("n", "p"), wanted, 1).fingerprint;
        let same = of(WANTED);
        assert_eq!(of(Wanted { ..WANTED }), same);
        for other in [
            Wanted { method: "PUT", ..WANTED },
            Wanted { target: "/a?b", ..WANTED },
            Wanted { body: b"{ }", ..WANTED },
        ] {
            assert_ne!(of(other), same);
        }
    }
}
