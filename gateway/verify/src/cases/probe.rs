//! Cases in which the service is probed for the outcome of an operation, as by a guard after a lost answer.

use crate::{
    case::{
        CaseGroup,
        CasePrerequisite::{Instances, Probe},
        Scenario::OneOperation,
        TestCase,
    },
    step::{
        ExpectedResult::{Accepted, Done, NotDone, Refused},
        probe, write,
    },
    token_headers::epoch,
};

const CLOSE: &str = "keep a row for each name and close it in the transaction that answers `not done`, with the larger token, as \
    the recipe in `deploy/docs/SERVICES.md` does; without that, leave `closes` out of the file of the guard";

const TWICE: &str = "a payment lay in a queue while the guard was told that it was not done: it is carried out, and its repeat as well";

pub(super) const CASES: &[TestCase] = &[
    TestCase {
        group: CaseGroup::Probe,
        name: "no-is-final",
        title: "what arrives after its operation was said to be not done is refused, unless its token is greater",
        needs: &[Probe],
        play: OneOperation(&[
            probe(epoch(8)).expect(NotDone),
            write(epoch(6)).expect(Refused),
            write(epoch(8)).expect(Refused),
        ]),
        money: TWICE,
        mend: CLOSE,
    },
    TestCase {
        group: CaseGroup::Probe,
        name: "no-is-kept",
        title: "a later question with an older token does not open the name again",
        needs: &[Probe],
        play: OneOperation(&[
            probe(epoch(8)).expect(NotDone),
            probe(epoch(5)).expect(NotDone),
            write(epoch(8)).expect(Refused),
        ]),
        money: TWICE,
        mend: "keep the larger one of the token that is there and the token of the question, and never the last one",
    },
    TestCase {
        group: CaseGroup::Probe,
        name: "no-elsewhere",
        title: "what one instance has said to be not done is refused at the others",
        needs: &[Probe, Instances],
        play: OneOperation(&[
            probe(epoch(8)).expect(NotDone),
            write(epoch(8)).on_second_instance().expect(Refused),
        ]),
        money: TWICE,
        mend: "keep the names in the database that has the effect, and not in the memory of an instance",
    },
    TestCase {
        group: CaseGroup::Probe,
        name: "repeat-runs",
        title: "a repeat with a greater token runs, and its operation is said to be done afterwards",
        needs: &[Probe],
        play: OneOperation(&[
            probe(epoch(8)).expect(NotDone),
            write(epoch(9)).expect(Accepted),
            probe(epoch(9)).expect(Done),
            probe(epoch(8)).expect(Done),
        ]),
        money: "a payment that was not made can never be made; or it was made, and is made again because the service says \
                that it was not",
        mend: "compare with `>`, write `done` in the transaction of the effect, and answer what the row says",
    },
];
