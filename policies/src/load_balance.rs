//! Picks the endpoint for a request, and the order of the endpoints to try after it.

use crate::{fnv::fnv1a, words::words};

/// The way in which requests are distributed over endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LbPolicy {
    /// Each request begins with the endpoint after the one of the request before.
    #[default]
    RoundRobin,
    /// Each request begins with the endpoint that has the fewest requests in flight.
    LeastBusy,
    /// Requests with the same key go to the same endpoint while it is usable (rendezvous hashing).
    ByKey,
}

words! { LbPolicy { RoundRobin = "round-robin", LeastBusy = "least-busy", ByKey = "by-key" } }

/// The state of an endpoint at the moment when a request picks one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LbCandidate {
    /// The hash of the endpoint's name by [`hash_name`].
    pub name: u64,
    /// The number of requests in flight.
    pub busy: usize,
    /// True if the endpoint is neither unhealthy nor ejected.
    pub usable: bool,
}

/// Hashes a text to the same number in every gateway of every version.
pub fn hash_name(text: &str) -> u64 {
    mix_bits(fnv1a(text.as_bytes()))
}

/// The order in which one request tries the candidates, each once. Unusable candidates come last, so that all are
/// tried if none is usable.
///
/// `turn`: the number of requests before this one. `key`: [`hash_name`] of the value for [`LbPolicy::ByKey`].
pub fn candidate_order(balance: LbPolicy, turn: usize, key: u64, candidates: &[LbCandidate]) -> Vec<usize> {
    let (usable, out): (Vec<usize>, Vec<usize>) =
        (0..candidates.len()).partition(|at| candidates[*at].usable);
    let mut order = arrange(balance, turn, key, candidates, usable);
    order.extend(arrange(balance, turn, key, candidates, out));
    order
}

fn arrange(
    balance: LbPolicy,
    turn: usize,
    key: u64,
    candidates: &[LbCandidate],
    mut part: Vec<usize>,
) -> Vec<usize> {
    let first = turn.checked_rem(part.len()).unwrap_or(0);
    part.rotate_left(first);
    match balance {
        LbPolicy::RoundRobin => {}
        // The sort is stable, so the turn decides between endpoints with equally many requests. Otherwise an idle
        // upstream would only use its first endpoint.
        LbPolicy::LeastBusy => part.sort_by_key(|at| candidates[*at].busy),
        LbPolicy::ByKey => {
            part.sort_by_key(|at| {
                (std::cmp::Reverse(mix_bits(key ^ candidates[*at].name)), candidates[*at].name)
            });
        }
    }
    part
}

/// Mixes a hash so that every bit depends on every other bit (the finaliser of splitmix64), because the names of
/// endpoints often differ in one digit only.
fn mix_bits(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(names: &[&str]) -> Vec<LbCandidate> {
        names.iter().map(|name| LbCandidate { name: hash_name(name), busy: 0, usable: true }).collect()
    }

    /// Each request tries every endpoint once, and begins with the endpoint after the one of the request before.
    #[test]
    fn each_endpoint_is_tried_once() {
        let three = candidates(&["a:1", "b:1", "c:1"]);
        let orders: Vec<Vec<usize>> =
            (0..4).map(|turn| candidate_order(LbPolicy::RoundRobin, turn, 0, &three)).collect();
        assert_eq!(orders, [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]);
        assert_eq!(candidate_order(LbPolicy::RoundRobin, usize::MAX, 0, &[]), [0; 0]);
    }

    /// An unusable endpoint comes last, and its requests are shared among all others.
    #[test]
    fn unusable_endpoint_comes_last() {
        let mut three = candidates(&["a:1", "b:1", "c:1"]);
        three[1].usable = false;
        let firsts: Vec<usize> =
            (0..4).map(|turn| candidate_order(LbPolicy::RoundRobin, turn, 0, &three)[0]).collect();
        assert_eq!(firsts, [0, 2, 0, 2]);
        assert_eq!(candidate_order(LbPolicy::RoundRobin, 0, 0, &three), [0, 2, 1]);
        for candidate in &mut three {
            candidate.usable = false;
        }
        assert_eq!(
            candidate_order(LbPolicy::RoundRobin, 1, 0, &three),
            [1, 2, 0],
            "all are out: all are used"
        );
    }

    /// The endpoint with the fewest requests in flight is first, and equal endpoints take turns.
    #[test]
    fn least_busy_endpoint_is_first() {
        let mut three = candidates(&["a:1", "b:1", "c:1"]);
        three[0].busy = 2;
        assert_eq!(candidate_order(LbPolicy::LeastBusy, 0, 0, &three), [1, 2, 0]);
        assert_eq!(candidate_order(LbPolicy::LeastBusy, 2, 0, &three), [2, 1, 0]);
    }

    /// A key keeps its endpoint when another endpoint is added or removed.
    #[test]
    fn key_keeps_endpoint_across_changes() {
        let names: Vec<String> = (0..5).map(|n| format!("10.0.0.{n}:80")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let all = candidates(&names);
        let fewer = candidates(&names[..4]);
        let mut shares = [0; 5];
        for key in (0..1000).map(|n| hash_name(&format!("account/{n}"))) {
            let before = candidate_order(LbPolicy::ByKey, 0, key, &all);
            let after = candidate_order(LbPolicy::ByKey, 9, key, &fewer);
            shares[before[0]] += 1;
            let stays: Vec<usize> = before.into_iter().filter(|at| *at != 4).collect();
            assert_eq!(after, stays);
        }
        assert!(shares.iter().all(|share| (120..=280).contains(share)), "{shares:?}");
    }
}
