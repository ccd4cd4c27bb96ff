//! Cases with two keys per request: the service raises both watermarks or neither.

use crate::{
    case::{
        CaseGroup,
        CasePrerequisite::{Several, TwoPlaces},
        Scenario::{Crossed, Steps},
        TestCase,
    },
    step::{
        A, B, C, D,
        ExpectedResult::{Accepted, Stale},
        write,
    },
    token_headers::epoch,
};

pub(super) const CASES: &[TestCase] = &[
    TestCase {
        group: CaseGroup::Several,
        name: "one-is-stale",
        title: "a request about two keys is refused if it is stale for one of them, whichever that is",
        needs: &[Several],
        play: Steps(&[
            write(epoch(6)).on_both(A, B),
            write(epoch(5)).on_both(B, C).expect(Stale),
            write(epoch(5)).on_both(D, A).expect(Stale),
            write(epoch(7)).on_both(B, C).expect(Accepted),
        ]),
        money: "a late transfer takes from one account what a newer one has already given on",
        mend: "raise the row of each key in `Fencing-Key`, in one transaction, and refuse if one of them does not change",
    },
    TestCase {
        group: CaseGroup::Several,
        name: "all-or-none",
        title: "where one key refuses, the watermark of the other one is not raised",
        needs: &[Several],
        play: Steps(&[
            write(epoch(9)).on_both(A, B),
            write(epoch(8)).on_both(B, C).expect(Stale),
            write(epoch(8)).on_both(C, B).expect(Stale),
            write(epoch(5)).on_both(C, D).expect(Accepted),
        ]),
        money: "a refused transfer closes an account for payments that nothing newer has overtaken",
        mend: "end the transaction with `ROLLBACK` where one row does not change",
    },
    TestCase {
        group: CaseGroup::Several,
        name: "crossed",
        title: "requests that take the same two keys in opposite order are all answered",
        needs: &[Several, TwoPlaces],
        play: Crossed,
        money: "transfers in both directions wait for each other until the database ends one of them: its outcome is \
                told as a failure of the service",
        mend: "raise the rows in the order of `Fencing-Key`, which is sorted, and not in that of the request",
    },
];
