//! Judges overlapping requests for one key: is there an order in which a service that compares tokens could have
//! executed them?

use super::{
    case_result::CaseError,
    sent_request::{ServiceRequestOutcome, TestRequestRecord},
    token_headers::{ComparedHeaderKind, SyntheticToken},
};

/// Checks that a service that compares tokens could have given these answers. `shots` are all writes of one key,
/// beginning with the first.
pub(crate) fn check_linearizable(
    shots: &[TestRequestRecord],
    form: ComparedHeaderKind,
) -> Result<(), CaseError> {
    let accepted: Vec<&TestRequestRecord> =
        shots.iter().filter(|shot| matches!(shot.came, ServiceRequestOutcome::Accepted(_))).collect();
    check_stale(&accepted, form)?;
    if form == ComparedHeaderKind::Token {
        check_duplicates(&accepted)?;
    }
    check_stale_refusals(shots, form)?;
    let odd = |shot: &&TestRequestRecord| {
        !matches!(shot.came, ServiceRequestOutcome::Accepted(_) | ServiceRequestOutcome::Stale)
    };
    let odd: Vec<&TestRequestRecord> = shots.iter().filter(odd).collect();
    match odd.first() {
        None => Ok(()),
        Some(first) => CaseError::undecided(format!(
            "{} of {} were neither done nor stale, so nobody knows what became of them; the first, `{}`, got {}. A \
             service tries a transaction again that its database has ended for the sake of another one",
            odd.len(),
            shots.len(),
            first.sent,
            first.came
        )),
    }
}

/// Fails if an older write was accepted after a newer one had been answered before the older was sent.
fn check_stale(accepted: &[&TestRequestRecord], form: ComparedHeaderKind) -> Result<(), CaseError> {
    for (older, token) in tokens(accepted) {
        for (newer, other) in tokens(accepted) {
            if form.is_stale(token, other) && newer.ended < older.began {
                return CaseError::failed(format!(
                    "`{}` was let in although `{}` had been, {:?} before",
                    older.sent,
                    newer.sent,
                    older.began - newer.ended
                ));
            }
        }
    }
    Ok(())
}

fn check_duplicates(accepted: &[&TestRequestRecord]) -> Result<(), CaseError> {
    for (number, (one, token)) in tokens(accepted).enumerate() {
        let same = tokens(accepted).skip(number + 1).filter(|(_, other)| *other == token).count();
        if same > 0 {
            return CaseError::failed(format!(
                "`{}` was let in {} times under one token",
                one.sent,
                same + 1
            ));
        }
    }
    Ok(())
}

/// Fails if a write was refused as stale although nothing newer can have been done before its refusal.
fn check_stale_refusals(shots: &[TestRequestRecord], form: ComparedHeaderKind) -> Result<(), CaseError> {
    let all: Vec<&TestRequestRecord> = shots.iter().collect();
    for (refused, token) in tokens(&all).filter(|(shot, _)| shot.came == ServiceRequestOutcome::Stale) {
        let reason = |(other, newer): (&TestRequestRecord, _)| {
            other.came.may_have_been_done() && form.is_stale(token, newer) && other.began <= refused.ended
        };
        if !tokens(&all).any(reason) {
            return CaseError::failed(format!(
                "`{}` was refused as stale, and nothing newer had been done",
                refused.sent
            ));
        }
    }
    Ok(())
}

fn tokens<'a>(
    shots: &[&'a TestRequestRecord],
) -> impl Iterator<Item = (&'a TestRequestRecord, SyntheticToken)> {
    shots.iter().filter_map(|shot| Some((*shot, shot.mint?)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use tokio::time::Instant;

    use super::*;
    use crate::token_headers::epoch;

    fn sent_write(
        mint: SyntheticToken,
        began: u64,
        ended: u64,
        came: ServiceRequestOutcome,
    ) -> TestRequestRecord {
        let at = |ms| *ORIGIN.get_or_init(Instant::now) + Duration::from_millis(ms);
        TestRequestRecord {
            sent: format!("{mint:?}"),
            mint: Some(mint),
            began: at(began),
            ended: at(ended),
            came,
            passed_a_gateway: false,
        }
    }

    static ORIGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    const YES: ServiceRequestOutcome = ServiceRequestOutcome::Accepted(200);

    fn check_fails(shots: &[TestRequestRecord], form: ComparedHeaderKind) -> bool {
        matches!(check_linearizable(shots, form), Err(CaseError::Failed(_)))
    }

    /// An older token that is accepted after a newer one fails; one that overlaps with the newer one may have
    /// come first.
    #[test]
    fn older_after_newer_fails_unless_concurrent() {
        for form in [ComparedHeaderKind::Token, ComparedHeaderKind::Number] {
            let newer = sent_write(epoch(6), 0, 10, YES);
            assert!(check_fails(&[newer.clone(), sent_write(epoch(5), 11, 20, YES)], form));
            assert_eq!(check_linearizable(&[newer.clone(), sent_write(epoch(5), 9, 20, YES)], form), Ok(()));
            assert_eq!(
                check_linearizable(&[newer, sent_write(epoch(5), 9, 20, ServiceRequestOutcome::Stale)], form),
                Ok(())
            );
        }
    }

    /// A token is accepted once; a number may be accepted again.
    #[test]
    fn token_counts_once_number_does_not() {
        let both = [sent_write(epoch(6), 0, 10, YES), sent_write(epoch(6), 5, 10, YES)];
        assert!(check_fails(&both, ComparedHeaderKind::Token));
        assert_eq!(check_linearizable(&both, ComparedHeaderKind::Number), Ok(()));
    }

    /// A refusal as stale requires an accepted newer token that may have come first.
    #[test]
    fn refusal_requires_newer_accepted_token() {
        let refused = sent_write(epoch(5), 5, 10, ServiceRequestOutcome::Stale);
        assert!(check_fails(std::slice::from_ref(&refused), ComparedHeaderKind::Token));
        assert!(
            check_fails(&[refused.clone(), sent_write(epoch(6), 11, 12, YES)], ComparedHeaderKind::Token),
            "it came too late to be one"
        );
        assert!(check_fails(&[refused.clone(), sent_write(epoch(4), 0, 2, YES)], ComparedHeaderKind::Token));
        let perhaps = sent_write(epoch(6), 0, 2, ServiceRequestOutcome::TimedOut(String::new()));
        let judged = check_linearizable(&[refused, perhaps], ComparedHeaderKind::Token);
        assert!(matches!(judged, Err(CaseError::Undecided(_))), "{judged:?}");
    }

    proptest! {
        /// A service with one lock around comparison and effect always passes, whatever overlaps.
        #[test]
        fn sequential_service_passes(
            all in proptest::collection::vec((1_u64..9, 0_u64..50, 0_u64..50, 0_u64..50), 1..20),
            numbers: bool,
        ) {
            let form = if numbers { ComparedHeaderKind::Number } else { ComparedHeaderKind::Token };
            let mut order: Vec<_> = all.iter().map(|&(e, at, before, after)| (at, e, before, after)).collect();
            order.sort_unstable();
            let mut watermark: Option<SyntheticToken> = None;
            let mut shots = Vec::new();
            for (at, e, before, after) in order {
                let token = epoch(e);
                let came = match watermark {
                    Some(watermark) if form.is_stale(token, watermark) => ServiceRequestOutcome::Stale,
                    _ => YES,
                };
                if came == YES {
                    watermark = watermark.max(Some(token));
                }
                shots.push(sent_write(token, at.saturating_sub(before), at + after + 1, came));
            }
            prop_assert_eq!(check_linearizable(&shots, form), Ok(()));
        }
    }
}
