//! A ticket is good for its five minutes, give or take the leeway, to the second.

use super::*;

#[test]
fn the_leeway_ends_at_exactly_its_second() {
    let pair = pair();
    let verifier = KeySetFolder::of(&[&pair]).verifier();
    let ticket = signed(&pair);
    let at = |now| verifier.verify(ticket.as_bytes(), OURS, now).map(drop);
    let expires = NOW + VALID;
    let expired = |now| Err(TicketError::Expired { expires, now });
    let future = Err(TicketError::Invalid(InvalidTicketError::Future));
    // Twice: the second time it is known already.
    for _ in 0..2 {
        assert_eq!(at(NOW - LEEWAY - 1), future);
        assert_eq!(at(NOW - LEEWAY), Ok(()));
        assert_eq!(at(expires + LEEWAY - 1), Ok(()));
        assert_eq!(at(expires + LEEWAY), expired(expires + LEEWAY));
        assert_eq!(at(u64::MAX), expired(u64::MAX));
        assert_eq!(at(0), future);
    }
    assert_eq!(word(TicketError::Invalid(InvalidTicketError::Future)), "ticket-invalid");
    assert_eq!(word(TicketError::Expired { expires, now: NOW }), "ticket-expired");
}

#[test]
fn a_tenure_signs_again_at_half_of_the_time() {
    let pair = pair();
    let ticket = Ticket::new(Signer::with_key(&pair).into(), claims());
    let first = ticket.text(NOW);
    assert_eq!(ticket.text(NOW + VALID / 2 - 1), first);
    let second = ticket.text(NOW + VALID / 2);
    assert_ne!(second, first);
    assert_eq!(ticket.text(NOW + VALID / 2 + 1), second);
    // The clock is set back: what was signed would be from the future.
    let back = ticket.text(NOW - 3600);
    assert_ne!(back, second);
    assert_eq!(ticket.text(NOW - 3600), back);
    let verifier = KeySetFolder::of(&[&pair]).verifier();
    assert!(verifier.verify(back.as_bytes(), OURS, NOW - 3600).is_ok());
}
