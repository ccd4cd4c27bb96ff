//! A ticket is valid for its five minutes, plus or minus the leeway, to the second.

use super::*;

/// A ticket is valid from its leeway before issue to its leeway after expiry, to the second.
#[test]
fn leeway_ends_at_exact_second() {
    let pair = key_pair();
    let verifier = KeySetFolder::with_keys(&[&pair]).verifier();
    let ticket = signed(&pair);
    let at = |now| verifier.verify(ticket.as_bytes(), OURS, now).map(drop);
    let expires = NOW + VALID;
    let expired = |now| Err(TicketVerificationError::Expired { expires, now });
    let future = Err(TicketVerificationError::Invalid(InvalidTenureTicketError::Future));
    // In the second round the ticket is in the verifier's cache.
    for _ in 0..2 {
        assert_eq!(at(NOW - LEEWAY - 1), future);
        assert_eq!(at(NOW - LEEWAY), Ok(()));
        assert_eq!(at(expires + LEEWAY - 1), Ok(()));
        assert_eq!(at(expires + LEEWAY), expired(expires + LEEWAY));
        assert_eq!(at(u64::MAX), expired(u64::MAX));
        assert_eq!(at(0), future);
    }
}

/// A ticket is signed again at half of its validity, and when the clock was set back.
#[test]
fn ticket_is_renewed_at_half_life() {
    let pair = key_pair();
    let ticket = TenureTicket::new(TicketSigner::with_key(&pair).into(), claims());
    let first = ticket.text(NOW);
    assert_eq!(ticket.text(NOW + VALID / 2 - 1), first);
    let second = ticket.text(NOW + VALID / 2);
    assert_ne!(second, first);
    assert_eq!(ticket.text(NOW + VALID / 2 + 1), second);
    // The clock is set back, so the ticket that was signed before would be from the future.
    let back = ticket.text(NOW - 3600);
    assert_ne!(back, second);
    assert_eq!(ticket.text(NOW - 3600), back);
    let verifier = KeySetFolder::with_keys(&[&pair]).verifier();
    assert!(verifier.verify(back.as_bytes(), OURS, NOW - 3600).is_ok());
}
