//! The name of an operation between gateway and guard: hashes, so that no store holds the names that clients use.

use aws_lc_rs::digest::{Context, SHA256};
use fencegate_policies::plan::{self, Once};

use fencegate_policies::operation::{Fingerprint, Operation, OperationId};

/// The parts that two requests with one name must have in common.
#[derive(Debug, Clone, Copy)]
pub struct Content<'a> {
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    pub body: &'a [u8],
}

/// `upstream` is the name of the upstream in the policy. It is no part of the identity, because it may change. In an
/// earlier build it was, so operations are also looked up under the identity of that build.
pub fn operation(upstream: &str, once: &Once, named: &plan::OperationName, wanted: Content<'_>) -> Operation {
    let Content { method, target, body } = wanted;
    Operation {
        id: identity(&once.scope, named),
        former: (once.scope != upstream).then(|| identity(upstream, named)),
        fingerprint: Fingerprint::of(hash([method.as_bytes(), target.as_bytes(), body])),
        keep: once.keep.as_secs(),
        finals: once.finals.clone(),
        askable: once.is_by_header(),
    }
}

/// Within a scope, two requests are one operation exactly if principal and name are the same.
pub fn identity(scope: &str, named: &plan::OperationName) -> OperationId {
    OperationId::of(hash([scope.as_bytes(), named.principal.as_bytes(), named.name.as_bytes()]))
}

/// The hash under which the operations of a principal are counted.
pub fn principal(named: &plan::OperationName) -> Option<String> {
    let hashed = || OperationId::of(hash([b"principal", named.principal.as_bytes(), b""])).reference();
    (!named.principal.is_empty()).then(hashed)
}

/// SHA-256 over the parts, each with its length in front, so that `ab`, `c` differs from `a`, `bc`.
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
    use fencegate_policies::file;

    use super::*;

    fn named(name: &str, principal: &str) -> plan::OperationName {
        plan::OperationName { name: name.into(), principal: principal.into() }
    }

    fn once(scope: &str) -> Once {
        let plan =
            file::load(include_str!("../../../../../policies/tests/complete.yaml")).plan.expect("sound");
        let routes = plan.serving.routes.routes();
        let once = routes.iter().find_map(|route| route.fence.as_ref()?.once.clone()).expect("one");
        Once { scope: scope.into(), ..once }
    }

    const WANTED: Content<'_> = Content { method: "POST", target: "/a", body: b"{}" };

    #[test]
    fn names_of_two_scopes_or_principals_are_two_operations() {
        let id = |scope, name, principal| operation("u", &once(scope), &named(name, principal), WANTED).id;
        let ids =
            [id("s", "n", "p"), id("t", "n", "p"), id("s", "n", "q"), id("s", "np", ""), id("sn", "", "p")];
        for (at, one) in ids.iter().enumerate() {
            assert!(ids.iter().skip(at + 1).all(|other| one != other), "{at}");
        }
    }

    #[test]
    fn the_upstream_s_name_is_how_operations_were_called_before() {
        let of = |upstream, scope| operation(upstream, &once(scope), &named("n", "p"), WANTED);
        assert_eq!(of("u", "").id, of("v", "").id);
        assert_ne!(of("u", "").former, of("v", "").former);
        // If the scope has the old name of the upstream, the old identity is the same, and no second lookup is
        // needed.
        assert_eq!(Some(of("v", "u").id), of("u", "").former);
        assert_eq!(of("u", "u").former, None);
    }

    #[test]
    fn the_fingerprint_is_that_of_the_request() {
        let of = |wanted| operation("u", &once(""), &named("n", "p"), wanted).fingerprint;
        let same = of(WANTED);
        assert_eq!(of(Content { ..WANTED }), same);
        for other in [
            Content { method: "PUT", ..WANTED },
            Content { target: "/a?b", ..WANTED },
            Content { body: b"{ }", ..WANTED },
        ] {
            assert_ne!(of(other), same);
        }
    }
}
