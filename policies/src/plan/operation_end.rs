//! The meaning that the status of a complete response has for its operation.

/// The end of an operation, as far as its response shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationEndStatus {
    /// The operation is over. A repeat gets this status and is not executed.
    Final,
    /// The service has not started the operation, so a repeat is executed.
    NotStarted,
    /// The service may have executed the operation. It is not repeated automatically.
    Unknown,
}

/// The statuses with which a service reports that it has not started the operation: the client is not permitted to do
/// this (401, 403: RFC 9110, 15.5.2 and 15.5.4), the request was incomplete (408: 15.5.9), came to the wrong server
/// (421: 15.5.20) or too early (425: RFC 8470, 5.2), or there were too many requests (429: RFC 6585, 4).
///
/// The draft of `Idempotency-Key` leaves 401, 403, 429 and similar statuses to the service
/// (draft-ietf-httpapi-idempotency-key-header, "Error Scenarios"). Stripe documents that a 401 and a 429 come before
/// the name of an operation is checked, and stores neither.
const NOT_TAKEN_UP: [u16; 6] = [401, 403, 408, 421, 425, 429];

impl OperationEndStatus {
    /// The meaning of a status. `finals`: the further statuses that end an operation of this route.
    pub fn from_status(status: u16, finals: &[u16]) -> Self {
        match status {
            _ if finals.contains(&status) => Self::Final,
            500.. => Self::Unknown,
            _ if NOT_TAKEN_UP.contains(&status) => Self::NotStarted,
            _ => Self::Final,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operation may run again only after a status that reports that nothing was done.
    #[test]
    fn only_untaken_operation_runs_again() {
        let ends = |ending| {
            (100..600)
                .filter(|status| OperationEndStatus::from_status(*status, &[]) == ending)
                .collect::<Vec<_>>()
        };
        assert_eq!(ends(OperationEndStatus::NotStarted), NOT_TAKEN_UP);
        assert_eq!(ends(OperationEndStatus::Unknown), (500..600).collect::<Vec<_>>());
    }

    /// The settings of a route can only add statuses that end an operation.
    #[test]
    fn route_only_adds_final_statuses() {
        let all: Vec<u16> = (100..600).collect();
        assert!(
            all.iter()
                .all(|status| OperationEndStatus::from_status(*status, &all) == OperationEndStatus::Final)
        );
        assert_eq!(OperationEndStatus::from_status(403, &[503]), OperationEndStatus::NotStarted);
    }
}
