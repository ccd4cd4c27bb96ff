//! Cases with large numbers, and with numbers that order differently as text.

use crate::{
    case::{
        CaseGroup,
        CasePrerequisite::Tokens,
        Scenario::{Malformed, Steps},
        TestCase,
    },
    step::{
        B, C,
        ExpectedResult::{Accepted, Stale},
        write,
    },
    token_headers::epoch,
};

pub(super) const CASES: &[TestCase] = &[
    TestCase {
        group: CaseGroup::Width,
        name: "as-text",
        title: "numbers are compared as numbers: 10 is newer than 9",
        needs: &[],
        play: Steps(&[
            write(epoch(9)),
            write(epoch(10)).expect(Accepted),
            write(epoch(9)).expect(Stale),
            write(epoch(99)).on_key(B),
            write(epoch(100)).on_key(B).expect(Accepted),
            write(epoch(99)).on_key(B).expect(Stale),
            write(epoch(0xf)).on_key(C),
            write(epoch(0x10)).on_key(C).expect(Accepted),
            write(epoch(0xf)).on_key(C).expect(Stale),
        ]),
        money: "at each change of the number of digits the newest payment is refused, and stale ones are let in",
        mend: "keep the number in a column of 64 bits (BIGINT, INTEGER in SQLite), or compare `Fencing-Token`, which has \
               a fixed width",
    },
    TestCase {
        group: CaseGroup::Width,
        name: "beyond-32-bits",
        title: "all 64 bits count: 2^32 + 1 is newer than 6",
        needs: &[],
        play: Steps(&[
            write(epoch(5)),
            write(epoch((1 << 32) + 1)).expect(Accepted),
            write(epoch(6)).expect(Stale),
            write(epoch(1 << 33)).expect(Accepted),
        ]),
        money: "ZooKeeper counts from 2^32 on after each election: the comparison is wrong from the first day",
        mend: "parse and keep the number with 64 bits: BIGINT, `long`, `int64`, `i64`, `BigInt`",
    },
    TestCase {
        group: CaseGroup::Width,
        name: "beyond-53-bits",
        title: "no floating point: 2^53 + 1 is newer than 2^53",
        needs: &[],
        play: Steps(&[
            write(epoch(1 << 53)),
            write(epoch((1 << 53) + 1)).expect(Accepted),
            write(epoch(1 << 53)).expect(Stale),
            write(epoch((1 << 62) + 1)).on_key(B),
            write(epoch(1 << 62)).on_key(B).expect(Stale),
            write(epoch((1 << 62) + 2)).on_key(B).expect(Accepted),
        ]),
        money: "after enough elections several tokens look the same: stale payments pass",
        mend: "never make a double of it: `BigInt` in JavaScript, strings or integers in JSON; or compare \
               `Fencing-Token` as text",
    },
    TestCase {
        group: CaseGroup::Width,
        name: "dispatch-width",
        title: "the last digit of the token counts, and its dispatches have 32 bits",
        needs: &[Tokens],
        play: Steps(&[
            write(epoch(5).with_dispatch(1)),
            write(epoch(5).with_dispatch(u32::MAX - 1)).expect(Accepted),
            write(epoch(5).with_dispatch(u32::MAX)).expect(Accepted),
            write(epoch(5).with_dispatch(i32::MAX as u32)).expect(Stale),
            write(epoch(5).with_sequence(u32::MAX)).expect(Accepted),
            write(epoch(6).with_sequence(0)).expect(Accepted),
        ]),
        money: "late requests of a long tenure pass, or its later half is refused",
        mend: "compare the whole token as bytes, without taking it apart",
    },
    TestCase {
        group: CaseGroup::Width,
        name: "largest",
        title: "2^63 - 1 is a number like any other",
        needs: &[],
        play: Steps(&[
            write(epoch(i64::MAX as u64 - 1)),
            write(epoch(i64::MAX as u64)).expect(Accepted),
            write(epoch(i64::MAX as u64 - 1)).expect(Stale),
            write(epoch(1)).expect(Stale),
            write(epoch(1)).on_key(B).expect(Accepted),
        ]),
        money: "the newest payment of an old installation is taken for the oldest",
        mend: "a signed column of 64 bits holds every number; look for a narrower one on the way",
    },
    TestCase {
        group: CaseGroup::Width,
        name: "overflow",
        title: "a number of 2^63 or more is refused, and leaves no watermark",
        needs: &[],
        play: Malformed {
            token: &[
                "v1-8000000000000000-00000007-00000001",
                "v1-ffffffffffffffff-ffffffff-ffffffff",
                "v1-ffffffffffffffff0-0000007-00000001",
                "v1-10000000000000017-00000007-00000001",
            ],
            number: &[
                "9223372036854775808",
                "18446744073709551615",
                "18446744073709551639",
                "99999999999999999999999999999999999999999999999999",
            ],
        },
        money: "a number that wraps around is negative, or small: everything that is stale is newer than it",
        mend: "parse with a check for overflow, and answer 400 above 9223372036854775807",
    },
];
