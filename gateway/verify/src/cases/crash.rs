//! Cases in which the service is ended while it works, and started again.

use crate::{
    case::{CaseGroup, CasePrerequisite::Restart, Scenario, TestCase},
    step::{
        ExpectedResult::{Accepted, SameTenure, Stale},
        crash, write,
    },
    token_headers::epoch,
};

pub(super) const CASES: &[TestCase] = &[
    TestCase {
        group: CaseGroup::Crash,
        name: "after-restart",
        title: "what was let in before a crash is known after it",
        needs: &[Restart],
        play: Scenario::Steps(&[
            write(epoch(6)),
            crash(),
            write(epoch(5)).expect(Stale),
            write(epoch(6)).expect(SameTenure),
            write(epoch(7)).expect(Accepted),
        ]),
        money: "after each deployment late payments are carried out, because nobody remembers the newer ones",
        mend: "keep the watermark in the database that has the effect, and not in memory",
    },
    TestCase {
        group: CaseGroup::Crash,
        name: "cut",
        title: "a write that a crash cuts off has its effect and its watermark, or neither",
        needs: &[Restart],
        play: Scenario::CrashMidWrite,
        money: "an effect without its mark is carried out again; a mark without its effect is a payment that is never \
                made",
        mend: "raise the watermark in the transaction that has the effect, and answer after its commit",
    },
];
