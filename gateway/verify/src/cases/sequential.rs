//! Cases with one request after another.

use crate::{
    case::{
        CaseGroup,
        CasePrerequisite::{OtherWrite, Remember, Tokens},
        Scenario::Steps,
        TestCase,
    },
    step::{
        B,
        ExpectedResult::{Accepted, NotAgain, SameTenure, Stale},
        repeat, wait, write, write_other,
    },
    token_headers::epoch,
};

/// The remedy for most failures.
pub(super) const UPSERT: &str = "raise one row per key by one statement, the first of the transaction that has the effect, and \
    refuse where it changes no row: `INSERT ... ON CONFLICT (key) DO UPDATE ... WHERE excluded.token > fence.token`";

pub(super) const CASES: &[TestCase] = &[
    TestCase {
        group: CaseGroup::Order,
        name: "first",
        title: "the first token of a new key is let in, and has its effect once",
        needs: &[],
        play: Steps(&[write(epoch(5)).expect(Accepted)]),
        money: "nothing can be paid with an account that has never been paid with",
        mend: "make the row and compare in one statement (`INSERT ... ON CONFLICT`): an `UPDATE` alone finds no row; \
               where 401 or 404 is the answer, look at `--header` and `--request`",
    },
    TestCase {
        group: CaseGroup::Order,
        name: "newer",
        title: "a newer token is let in after an older one",
        needs: &[],
        play: Steps(&[write(epoch(5)), write(epoch(6)).expect(Accepted), write(epoch(900)).expect(Accepted)]),
        money: "payments stop as soon as the lock was given on once",
        mend: "compare with `>`, and look whether the row that is compared is that of this key",
    },
    TestCase {
        group: CaseGroup::Order,
        name: "older",
        title: "an older token is refused after a newer one, and goes on being refused",
        needs: &[],
        play: Steps(&[
            write(epoch(6)),
            write(epoch(5)).expect(Stale),
            write(epoch(5)).expect(Stale),
            write(epoch(2)).expect(Stale),
            write(epoch(7)).expect(Accepted),
        ]),
        money: "a payment of a gateway that slept through the end of its lock is carried out after the one that \
                replaced it: charged twice, or an old balance over a newer one",
        mend: UPSERT,
    },
    TestCase {
        group: CaseGroup::Order,
        name: "equal",
        title: "the token of the last request is no newer one; an equal number is of the same tenure",
        needs: &[],
        play: Steps(&[write(epoch(5)), write(epoch(5)).expect(SameTenure)]),
        money: "by token: a request that something on the way sends twice is carried out twice; by number: the second \
                request of each tenure is refused",
        mend: "tokens are compared with `>`, never with `>=`; numbers are compared with `>=`, never with `>`",
    },
    TestCase {
        group: CaseGroup::Order,
        name: "duplicate",
        title: "the same request once more, byte by byte, has no second effect",
        needs: &[Tokens],
        play: Steps(&[write(epoch(5)), repeat(epoch(5)).expect(NotAgain)]),
        money: "a copy of a request, made by a proxy or a network, is a second charge",
        mend: "tokens are compared with `>`, never with `>=`",
    },
    TestCase {
        group: CaseGroup::Order,
        name: "dispatch",
        title: "a later dispatch of one tenure is let in, and an earlier one is refused by who compares tokens",
        needs: &[],
        play: Steps(&[
            write(epoch(5)),
            write(epoch(5).with_dispatch(2)).expect(Accepted),
            write(epoch(5).with_dispatch(16)).expect(Accepted),
            write(epoch(5).with_dispatch(9)).expect(SameTenure),
        ]),
        money: "a gateway keeps a lock for many requests: all but the first are refused, or a late one is carried out \
                behind its successor",
        mend: "compare the whole token, byte by byte, and not a part of it",
    },
    TestCase {
        group: CaseGroup::Order,
        name: "sequence",
        title: "what is compared is epoch, then sequence, then dispatch",
        needs: &[Tokens],
        play: Steps(&[
            write(epoch(5).with_sequence(2).with_dispatch(9)),
            write(epoch(5).with_sequence(3)).expect(Accepted),
            write(epoch(5).with_sequence(2).with_dispatch(10)).expect(Stale),
            write(epoch(4).with_sequence(99).with_dispatch(99)).expect(Stale),
        ]),
        money: "of two locks that one transaction in ZooKeeper has made, the wrong one counts as the newer",
        mend: "compare the whole token, byte by byte, from left to right",
    },
    TestCase {
        group: CaseGroup::Order,
        name: "keys-apart",
        title: "each key has a watermark of its own",
        needs: &[],
        play: Steps(&[
            write(epoch(900)),
            write(epoch(5)).on_key(B).expect(Accepted),
            write(epoch(4)).on_key(B).expect(Stale),
            write(epoch(901)).expect(Accepted),
        ]),
        money: "a payment with one account makes those with all others fail",
        mend: "keep a row per key; where the key is taken from `Fencing-Key`, look at `--fencing-key`",
    },
    TestCase {
        group: CaseGroup::Order,
        name: "other-request",
        title: "requests of another kind are compared with the same watermark of their key",
        needs: &[OtherWrite],
        play: Steps(&[
            write(epoch(5)),
            write_other(epoch(7)).expect(Accepted),
            write(epoch(6)).expect(Stale),
            write(epoch(8)).expect(Accepted),
            write_other(epoch(7)).expect(Stale),
            write_other(epoch(9)).expect(Accepted),
        ]),
        money: "a late debit is refused, and a late refund of the same account is paid",
        mend: "put every request that works on a key behind the same comparison, with one row per key and not one per route",
    },
    TestCase {
        group: CaseGroup::Order,
        name: "remembered",
        title: "a watermark is still known after a while in which nobody asked for its key",
        needs: &[Remember],
        play: Steps(&[
            write(epoch(6)),
            wait(),
            write(epoch(5)).expect(Stale),
            write(epoch(7)).expect(Accepted),
        ]),
        money: "the longer a gateway has slept, the surer its late payment is carried out",
        mend: "keep a row for as long as its resource exists: no expiry, no eviction, and no cache in the place of a table",
    },
];
