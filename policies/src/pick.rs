//! Picks the endpoint that a request goes to, and those to try after it.

/// Round robin: every request starts one endpoint further than the one before.
#[derive(Debug, Clone, Default)]
pub struct RoundRobin {
    next: usize,
}

impl RoundRobin {
    /// The order in which one request tries `endpoints` endpoints: each index below it exactly once.
    pub fn order(&mut self, endpoints: usize) -> impl Iterator<Item = usize> + use<> {
        let first = self.next.checked_rem(endpoints).unwrap_or(0);
        self.next = first + 1;
        (first..endpoints).chain(0..first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_tries_every_endpoint_once_and_starts_one_further() {
        let mut turn = RoundRobin::default();
        let orders: Vec<Vec<usize>> = (0..4).map(|_| turn.order(3).collect()).collect();
        assert_eq!(orders, [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]);
    }

    #[test]
    fn the_number_of_endpoints_may_change_between_requests() {
        let mut turn = RoundRobin { next: usize::MAX };
        assert_eq!(turn.order(2).count(), 2);
        assert_eq!(turn.order(0).count(), 0);
        assert_eq!(turn.order(1).collect::<Vec<_>>(), [0]);
    }
}
