//! Cases with requests that come after the moment of their `Fencing-Not-After`.

use crate::{
    case::{CaseGroup, CasePrerequisite::NotAfter as Claimed, Scenario::Steps, TestCase},
    step::{
        B,
        ExpectedResult::{Accepted, Expired, Refused},
        with_headers, write,
    },
    token_headers::{
        SyntheticDeadline::{Late, Text, Twice},
        SyntheticTokenHeaders::Until,
        epoch,
    },
};

const STRICT: &str = "read the field strictly, as `deploy/upstream` has it: one field, digits, and both parameters or none; \
    anything else is 400, before anything is done";

pub(super) const CASES: &[TestCase] = &[
    TestCase {
        group: CaseGroup::InTime,
        name: "late",
        title: "a request after its `Fencing-Not-After` is refused as expired, and leaves no watermark",
        needs: &[Claimed],
        play: Steps(&[
            write(epoch(5)),
            with_headers(Until(epoch(9), Late)).expect(Expired),
            with_headers(Until(epoch(9), Late)).on_key(B).expect(Expired),
            write(epoch(6)).expect(Accepted),
            write(epoch(6)).on_key(B).expect(Accepted),
        ]),
        money: "a payment that waited in a queue, or in a service that stood still, is carried out after everybody was \
                told that it is over",
        mend: "put the middleware innermost, where the work begins, and compare before anything is done",
    },
    TestCase {
        group: CaseGroup::InTime,
        name: "not-after-malformed",
        title: "a `Fencing-Not-After` that cannot be read is refused, and leaves no watermark",
        needs: &[Claimed],
        play: Steps(&[
            write(epoch(5)),
            with_headers(Until(epoch(9), Text(""))).expect(Refused),
            with_headers(Until(epoch(9), Text("soon"))).expect(Refused),
            with_headers(Until(epoch(9), Text("-1"))).expect(Refused),
            with_headers(Until(epoch(9), Text("4102444800000.5"))).expect(Refused),
            with_headers(Until(epoch(9), Text("4102444800000, 4102444800000"))).expect(Refused),
            with_headers(Until(epoch(9), Text("4102444800000;boot=\"b\""))).expect(Refused),
            with_headers(Until(epoch(9), Text("99999999999999999999"))).expect(Refused),
            write(epoch(6)).expect(Accepted),
        ]),
        money: "a text that is read as no deadline lets a late payment in",
        mend: STRICT,
    },
    TestCase {
        group: CaseGroup::InTime,
        name: "not-after-twice",
        title: "two deadlines in one request are refused, also where they are equal",
        needs: &[Claimed],
        play: Steps(&[
            write(epoch(5)),
            with_headers(Until(epoch(9), Twice)).expect(Refused),
            write(epoch(6)).expect(Accepted),
        ]),
        money: "one part of the service looks at the first deadline, another one believes the second",
        mend: STRICT,
    },
];
