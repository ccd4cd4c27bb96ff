//! Compares the ledger's own record of executions with the responses that the clients received.

use std::collections::BTreeMap;

use fencegate_testkit::history::{KeyExecution, OrderViolation, find_order_violations};
use serde::{Deserialize, Serialize};

use super::clients::{PaymentOutcome, PaymentResult};

/// One execution in the ledger's record.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct LedgerExecution {
    pub(super) sequence: i64,
    pub(super) operation: String,
    pub(super) key: String,
    pub(super) token: Option<String>,
    pub(super) change: i64,
    /// Nanoseconds of the ledger's clock.
    pub(super) begin_ns: i64,
    pub(super) end_ns: i64,
    pub(super) effective: bool,
}

/// The ledger's balances, in cents.
pub(super) type Balances = BTreeMap<String, i64>;

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct PaymentAudit {
    /// Payments that were acknowledged to a client.
    pub(super) payments: usize,
    /// Payments whose outcome is unknown to the client. There are some if the machine is too busy to keep its
    /// ZooKeeper session.
    pub(super) unknown: usize,
    /// Operations that had their effect more than once.
    pub(super) executed_twice: usize,
    /// Executions that began before another one of the same key had ended.
    pub(super) overlaps: usize,
    /// Executions after one with a newer token, on the same key.
    pub(super) stale_executed: usize,
    /// Whether every balance equals the sum of its acknowledged payments, to the cent.
    pub(super) balance_ok: bool,
}

/// The first balance of an account.
const INITIAL: i64 = 1_000_000;

impl PaymentAudit {
    pub(super) fn new(
        executions: &[LedgerExecution],
        receipts: &[PaymentResult],
        balances: &Balances,
    ) -> Self {
        let effective: Vec<&LedgerExecution> =
            executions.iter().filter(|execution| execution.effective).collect();
        let count = |wanted: fn(&PaymentOutcome) -> bool| {
            receipts.iter().filter(|receipt| wanted(&receipt.outcome)).count()
        };
        Self {
            payments: count(|outcome| matches!(outcome, PaymentOutcome::Done { .. })),
            unknown: count(|outcome| matches!(outcome, PaymentOutcome::Unknown(_))),
            executed_twice: count_repeated(&effective),
            overlaps: group_by_key(&effective).values().map(|of_key| count_overlaps(of_key)).sum(),
            stale_executed: group_by_key(&effective).values().map(|of_key| count_stale(of_key)).sum(),
            balance_ok: balances
                .iter()
                .all(|(account, cents)| *cents == expected_balance(account, receipts, &effective)),
        }
    }
}

/// One account: its balance, and the balance that its acknowledged payments should give. In cents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct AccountStatement {
    pub(super) account: String,
    pub(super) began: i64,
    pub(super) has: i64,
    pub(super) should_have: i64,
}

impl AccountStatement {
    pub(super) fn for_all_accounts(
        executions: &[LedgerExecution],
        receipts: &[PaymentResult],
        balances: &Balances,
    ) -> Vec<Self> {
        let effective: Vec<&LedgerExecution> =
            executions.iter().filter(|execution| execution.effective).collect();
        let of = |(account, has): (&String, &i64)| Self {
            account: account.clone(),
            began: INITIAL,
            has: *has,
            should_have: expected_balance(account, receipts, &effective),
        };
        balances.iter().map(of).collect()
    }

    /// Cents that are missing, or too many.
    pub(super) fn balance_difference(&self) -> u64 {
        self.has.abs_diff(self.should_have)
    }
}

/// A few tokens of one key in the order of their executions, with the first and the last.
pub(super) fn sample_tokens(executions: &[LedgerExecution], key: &str) -> Vec<String> {
    const SIZE: usize = 6;
    let of_key = executions.iter().filter(|execution| execution.effective && execution.key == key);
    let tokens: Vec<&String> = of_key.filter_map(|execution| execution.token.as_ref()).collect();
    let last = tokens.len().saturating_sub(1);
    let places = (0..SIZE).map(|place| place * last / (SIZE - 1));
    let mut sample: Vec<String> =
        places.filter_map(|place| tokens.get(place)).map(|token| (*token).clone()).collect();
    sample.dedup();
    sample
}

fn group_by_key<'a>(executions: &[&'a LedgerExecution]) -> BTreeMap<&'a str, Vec<&'a LedgerExecution>> {
    let mut keys = BTreeMap::<_, Vec<_>>::new();
    for execution in executions {
        keys.entry(execution.key.as_str()).or_default().push(*execution);
    }
    keys
}

fn count_repeated(executions: &[&LedgerExecution]) -> usize {
    let mut times = BTreeMap::<_, usize>::new();
    for execution in executions {
        *times.entry(&execution.operation).or_default() += 1;
    }
    times.values().filter(|times| **times > 1).count()
}

fn count_overlaps(of_key: &[&LedgerExecution]) -> usize {
    let executions = of_key.iter().map(|execution| KeyExecution {
        token: execution.token.as_deref(),
        is_shared: false,
        began: execution.begin_ns,
        ended: Some(execution.end_ns),
    });
    let broken = find_order_violations(executions).into_iter();
    broken.filter(|violation| matches!(violation, OrderViolation::Overlap { .. })).count()
}

/// Counts the executions that came after one with a newer token, in the order of their effects. Tokens compare
/// as text. An execution without a token is not counted here.
fn count_stale(of_key: &[&LedgerExecution]) -> usize {
    let in_order = of_key.iter().filter_map(|execution| {
        let token = execution.token.as_deref()?;
        let began = execution.sequence;
        Some(KeyExecution { token, is_shared: false, began, ended: Some(began) })
    });
    let broken = find_order_violations(in_order).into_iter();
    broken.filter(|violation| matches!(violation, OrderViolation::NotNewer { .. })).count()
}

/// The balance that a client may expect. For a payment with an unknown outcome the ledger's record counts.
fn expected_balance(account: &str, receipts: &[PaymentResult], effective: &[&LedgerExecution]) -> i64 {
    let of_account = receipts.iter().filter(|receipt| receipt.payment.account == account);
    let changes = of_account.map(|PaymentResult { payment, outcome }| match outcome {
        PaymentOutcome::Done { .. } => payment.change,
        PaymentOutcome::Refused(_) => 0,
        PaymentOutcome::Unknown(_) => {
            let executed = effective.iter().find(|execution| execution.operation == payment.operation);
            executed.map_or(0, |execution| execution.change)
        }
    });
    INITIAL + changes.sum::<i64>()
}

#[cfg(test)]
mod tests {
    use super::super::clients::Payment;
    use super::*;

    fn execution(sequence: i64, operation: &str, token: &str, times: (i64, i64)) -> LedgerExecution {
        LedgerExecution {
            sequence,
            operation: operation.to_owned(),
            key: "account/alice".to_owned(),
            token: Some(token.to_owned()),
            change: -10,
            begin_ns: times.0,
            end_ns: times.1,
            effective: true,
        }
    }

    fn receipt(operation: &str, outcome: PaymentOutcome) -> PaymentResult {
        let payment = Payment { operation: operation.to_owned(), account: "alice".to_owned(), change: -10 };
        PaymentResult { payment, outcome }
    }

    fn balance(cents: i64) -> Balances {
        [("alice".to_owned(), cents)].into()
    }

    const DONE: PaymentOutcome = PaymentOutcome::Done { token: None };

    #[test]
    fn clean_history_passes_audit() {
        let executions = [execution(1, "a", "v1-1", (0, 5)), execution(2, "b", "v1-2", (5, 9))];
        let receipts =
            [receipt("a", DONE), receipt("b", DONE), receipt("c", PaymentOutcome::Refused(String::new()))];
        let expected = PaymentAudit { payments: 2, balance_ok: true, ..PaymentAudit::default() };
        assert_eq!(PaymentAudit::new(&executions, &receipts, &balance(999_980)), expected);
        assert_eq!(sample_tokens(&executions, "account/alice"), ["v1-1", "v1-2"]);
    }

    /// A payment that is executed twice with a stale token shows as double execution, overlap, stale token and wrong
    /// balance.
    #[test]
    fn accident_shows_in_every_count() {
        let executions = [
            execution(1, "new", "v1-2", (10, 20)),
            execution(2, "retried", "v1-3", (20, 30)),
            execution(3, "retried", "v1-1", (15, 35)),
        ];
        let receipts = [receipt("new", DONE), receipt("retried", DONE)];
        let expected = PaymentAudit {
            payments: 2,
            executed_twice: 1,
            overlaps: 2,
            stale_executed: 1,
            balance_ok: false,
            ..PaymentAudit::default()
        };
        assert_eq!(PaymentAudit::new(&executions, &receipts, &balance(999_970)), expected);
    }

    #[test]
    fn statement_reports_missing_amount() {
        let executions = [execution(1, "a", "v1-1", (0, 5))];
        let statements =
            AccountStatement::for_all_accounts(&executions, &[receipt("a", DONE)], &balance(999_965));
        let [alice] = &*statements else { panic!("{statements:?}") };
        assert_eq!(
            (alice.began, alice.has, alice.should_have, alice.balance_difference()),
            (1_000_000, 999_965, 999_990, 25)
        );
    }

    #[test]
    fn execution_without_effect_is_ignored() {
        let mut without = execution(2, "a", "v1-1", (0, 5));
        without.effective = false;
        let executions = [execution(1, "a", "v1-2", (0, 5)), without];
        let found = PaymentAudit::new(&executions, &[receipt("a", DONE)], &balance(999_990));
        assert_eq!(found, PaymentAudit { payments: 1, balance_ok: true, ..PaymentAudit::default() });
    }

    /// A payment with an unknown outcome counts as executed exactly if the ledger has executed it.
    #[test]
    fn unknown_payments_follow_ledger() {
        let executions = [execution(1, "a", "v1-1", (0, 5))];
        let receipts = ["a", "b"].map(|operation| receipt(operation, PaymentOutcome::Unknown(String::new())));
        let found = PaymentAudit::new(&executions, &receipts, &balance(999_990));
        assert_eq!(found, PaymentAudit { unknown: 2, balance_ok: true, ..PaymentAudit::default() });
    }

    #[test]
    fn token_sample_keeps_order_and_ends() {
        let executions: Vec<_> =
            (1..=100).map(|n| execution(n, "a", &format!("v1-{n:03}"), (0, 0))).collect();
        let sample = sample_tokens(&executions, "account/alice");
        assert_eq!((sample.len(), sample[0].as_str(), sample[5].as_str()), (6, "v1-001", "v1-100"));
        assert!(sample.is_sorted());
        assert!(sample_tokens(&executions, "account/bob").is_empty());
    }
}
