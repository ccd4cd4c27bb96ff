//! What the status of a complete answer says of the operation that it answers.

/// How an operation ended, as far as its answer tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It is over. A repeat is told this status, and not carried out.
    Over,
    /// The service did not take it up: nothing was done, and a repeat is carried out.
    NotTakenUp,
    /// It may have been done: nobody repeats it by himself.
    Unknown,
}

/// By their definitions a service that answers with one of these has not begun: who asked may not ask this (401, 403:
/// RFC 9110, 15.5.2 and 15.5.4), the request was not there in full (408: 15.5.9), came to the wrong place (421:
/// 15.5.20) or too early (425: RFC 8470, 5.2), or there were too many (429: RFC 6585, 4).
///
/// The draft of `Idempotency-Key` leaves 401, 403, 429 and what is like them to the service
/// (draft-ietf-httpapi-idempotency-key-header, "Error Scenarios"). Stripe says that a 401 and a 429 come before the
/// name of an operation is looked at, and remembers neither.
const NOT_TAKEN_UP: [u16; 6] = [401, 403, 408, 421, 425, 429];

impl Ending {
    /// `finals`: statuses that are the end of an operation of this route, too.
    pub fn of(status: u16, finals: &[u16]) -> Self {
        match status {
            _ if finals.contains(&status) => Self::Over,
            500.. => Self::Unknown,
            _ if NOT_TAKEN_UP.contains(&status) => Self::NotTakenUp,
            _ => Self::Over,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_says_that_nothing_was_done_may_run_again() {
        let ends =
            |ending| (100..600).filter(|status| Ending::of(*status, &[]) == ending).collect::<Vec<_>>();
        assert_eq!(ends(Ending::NotTakenUp), NOT_TAKEN_UP);
        assert_eq!(ends(Ending::Unknown), (500..600).collect::<Vec<_>>());
    }

    #[test]
    fn a_route_can_only_make_more_statuses_an_end() {
        let all: Vec<u16> = (100..600).collect();
        assert!(all.iter().all(|status| Ending::of(*status, &all) == Ending::Over));
        assert_eq!(Ending::of(403, &[503]), Ending::NotTakenUp);
    }
}
