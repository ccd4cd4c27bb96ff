//! Cases with requests at the same moment, at one instance and at two.

use super::sequential::UPSERT;
use crate::{
    case::{
        CaseGroup,
        CasePrerequisite::{Body, Instances, Slow, Tokens},
        InstanceSpread::{OneInstance, TwoInstances},
        Scenario, TestCase,
    },
    step::{
        ExpectedResult::{Accepted, Stale},
        write,
    },
    token_headers::epoch,
};

const ONE_TRANSACTION: &str = "compare in the transaction that has the effect, by one statement that makes or changes the \
    row (`INSERT ... ON CONFLICT ... WHERE`): between a check and a later transaction the newer request fits in, and \
    `SELECT ... FOR UPDATE` locks nothing where there is no row yet";

const IN_THE_DATABASE: &str = "compare in the database and keep no copy of the mark: a lock and a cache of one process do \
    not hold for the next one";

pub(super) const CASES: &[TestCase] = &[
    TestCase {
        group: CaseGroup::Race,
        name: "same-token",
        title: "of several requests with one token at once exactly one is let in",
        needs: &[Tokens],
        play: Scenario::Concurrent(OneInstance),
        money: "copies of one payment that arrive together are all carried out",
        mend: ONE_TRANSACTION,
    },
    TestCase {
        group: CaseGroup::Race,
        name: "overtaken",
        title: "of a newer write and older ones at once no older one comes second",
        needs: &[],
        play: Scenario::Overtaken(OneInstance),
        money: "the late payment is carried out after the one that replaced it, and its balance stays",
        mend: ONE_TRANSACTION,
    },
    TestCase {
        group: CaseGroup::Race,
        name: "slow-effect",
        title: "a slow write that a newer one has overtaken is refused",
        needs: &[Slow],
        play: Scenario::Slow,
        money: "the late payment was checked, then a newer one was carried out, then the late one was",
        mend: ONE_TRANSACTION,
    },
    TestCase {
        group: CaseGroup::Race,
        name: "held-body",
        title: "a write whose body came after a newer one was carried out is refused",
        needs: &[Body],
        play: Scenario::Held,
        money: "the fields of a late payment were checked when they arrived; what it does came later, and was not",
        mend: "compare in the transaction that has the effect, and not in what runs before the body is read",
    },
    TestCase {
        group: CaseGroup::Race,
        name: "writers",
        title: "64 writers at once, a quarter of them stale: tokens grow, nothing is lost, nothing stale is let in",
        needs: &[],
        play: Scenario::Writers,
        money: "under load stale payments pass, or paid ones are lost",
        mend: UPSERT,
    },
    TestCase {
        group: CaseGroup::Instances,
        name: "elsewhere",
        title: "what one instance has let in is known to the other one",
        needs: &[Instances],
        play: Scenario::Steps(&[
            write(epoch(5)).on_second_instance(),
            write(epoch(7)),
            write(epoch(6)).on_second_instance().expect(Stale),
            write(epoch(8)).on_second_instance().expect(Accepted),
            write(epoch(7).with_dispatch(2)).expect(Stale),
        ]),
        money: "behind a balancer every second late payment meets an instance that knows of nothing newer",
        mend: IN_THE_DATABASE,
    },
    TestCase {
        group: CaseGroup::Instances,
        name: "same-token-apart",
        title: "of several requests with one token, over two instances at once, exactly one is let in",
        needs: &[Instances, Tokens],
        play: Scenario::Concurrent(TwoInstances),
        money: "copies of one payment that arrive at two instances are both carried out",
        mend: IN_THE_DATABASE,
    },
    TestCase {
        group: CaseGroup::Instances,
        name: "overtaken-apart",
        title: "of a newer write at one instance and older ones at another no older one comes second",
        needs: &[Instances],
        play: Scenario::Overtaken(TwoInstances),
        money: "the late payment is carried out after the one that replaced it, by another instance",
        mend: IN_THE_DATABASE,
    },
];
