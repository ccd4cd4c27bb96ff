//! What the guard refuses, as reasons of ours: its words are those of the answer.

use fencegate_guard::refused::{Refused, Word};

use super::{Reason, Refusal};

impl From<Word> for Reason {
    fn from(word: Word) -> Self {
        match word {
            Word::Stale => Self::Stale,
            Word::Floor => Self::Floor,
            Word::Duplicate => Self::Duplicate,
            Word::TokenFuture => Self::TokenFuture,
            Word::TokenMalformed => Self::TokenMalformed,
            Word::TokenMissing => Self::TokenMissing,
            Word::TicketMissing => Self::TicketMissing,
            Word::TicketInvalid => Self::TicketInvalid,
            Word::TicketExpired => Self::TicketExpired,
            Word::TicketKey => Self::TicketKey,
            Word::Busy => Self::Busy,
            Word::InDoubt => Self::InDoubt,
            Word::Quarantine => Self::Quarantine,
            Word::Store => Self::Store,
            Word::InProgress => Self::InProgress,
            Word::IdempotencyMismatch => Self::IdempotencyMismatch,
            Word::OutcomeUnknown => Self::OutcomeRecordedUnknown,
        }
    }
}

impl From<&Refused> for Reason {
    fn from(refused: &Refused) -> Self {
        refused.word().into()
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let refusal = Self::new(Reason::from(&refused), refused.to_string());
        match refused {
            Refused::OutcomeUnknown { reference } => refusal.about(reference),
            _ => refusal,
        }
    }
}

impl Reason {
    /// Words in which a guard tells that it let nothing through, or what came of an operation before.
    pub fn is_of_a_guard(self) -> bool {
        Word::ALL.iter().any(|word| Self::from(*word) == self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_the_guard_is_the_word_of_its_reason() {
        for word in Word::ALL {
            assert_eq!(Reason::from(*word).word(), word.as_str());
        }
    }
}
