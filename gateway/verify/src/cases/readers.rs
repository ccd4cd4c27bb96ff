//! Cases with readers that share a key, so that there is a watermark of writes and a watermark of reads.

use crate::{
    case::{CaseGroup, CasePrerequisite::Shared, Scenario::Steps, TestCase},
    step::{
        B, C,
        ExpectedResult::{Accepted, SameTenure, Stale},
        read, write,
    },
    token_headers::epoch,
};

const TWO_MARKS: &str = "keep two marks: a write has to be greater than both and raises that of writes, a read has to be \
    greater than that of writes and raises that of reads, if it is greater";

pub(super) const CASES: &[TestCase] = &[
    TestCase {
        group: CaseGroup::Shared,
        name: "readers",
        title: "readers are let in beside each other, also an older one after a newer one",
        needs: &[Shared],
        play: Steps(&[
            read(epoch(7)).expect(Accepted),
            read(epoch(5)).expect(Accepted),
            read(epoch(7).with_dispatch(2)).expect(Accepted),
            write(epoch(8)).expect(Accepted),
            read(epoch(9)).expect(Accepted),
        ]),
        money: "readers refuse each other, and reports fail for no reason",
        mend: TWO_MARKS,
    },
    TestCase {
        group: CaseGroup::Shared,
        name: "stale-reader",
        title: "a reader that is older than a write is refused",
        needs: &[Shared],
        play: Steps(&[write(epoch(6)), read(epoch(5)).expect(Stale), read(epoch(7)).expect(Accepted)]),
        money: "whoever still believes to hold the key decides by a balance that has changed under it",
        mend: TWO_MARKS,
    },
    TestCase {
        group: CaseGroup::Shared,
        name: "writer-behind-reader",
        title: "a write that is older than a read is refused",
        needs: &[Shared],
        play: Steps(&[
            write(epoch(4)),
            read(epoch(6)),
            write(epoch(5)).expect(Stale),
            write(epoch(7)).expect(Accepted),
            read(epoch(6)).on_key(B),
            write(epoch(5)).on_key(B).expect(Stale),
        ]),
        money: "a late payment changes the balance under a reader that has the key: what the reader has decided is wrong",
        mend: TWO_MARKS,
    },
    TestCase {
        group: CaseGroup::Shared,
        name: "older-reader",
        title: "an older reader does not lower the watermark of reads",
        needs: &[Shared],
        play: Steps(&[
            read(epoch(7)),
            read(epoch(5)),
            write(epoch(6)).expect(Stale),
            write(epoch(8)).expect(Accepted),
            write(epoch(3)).on_key(C),
            read(epoch(9)).on_key(C),
            read(epoch(8)).on_key(C),
            write(epoch(9)).on_key(C).expect(SameTenure),
        ]),
        money: "a stale payment passes because somebody has read late",
        mend: "the watermark of reads is the greatest of all reads, not the last one: `max(read, :token)`",
    },
];
