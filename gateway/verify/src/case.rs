//! A case: how it is run, its requirements, and the meaning of a failure.

use super::{
    service::{DeadlineSupport, HeaderNameMapping, KeysPerRequest, SharedModeSupport, TestedService},
    step::CaseStep,
    token_headers::ComparedHeaderKind,
};

/// One test case that is run against the service under test.
#[derive(Debug)]
pub struct TestCase {
    pub group: CaseGroup,
    /// The name: one word, or a few with dashes; unique.
    pub name: &'static str,
    /// The behaviour of a service that passes.
    pub title: &'static str,
    pub needs: &'static [CasePrerequisite],
    pub play: Scenario,
    /// The damage if the service fails.
    pub money: &'static str,
    pub mend: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaseGroup {
    Order,
    Forged,
    Width,
    Several,
    Shared,
    InTime,
    Probe,
    Race,
    Instances,
    Crash,
}

/// A requirement of a case that not every service meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CasePrerequisite {
    Tokens,
    Numbers,
    Body,
    Several,
    /// The request itself has placeholders for two keys.
    TwoPlaces,
    Shared,
    Slow,
    Instances,
    Restart,
    OtherWrite,
    Remember,
    /// The service claims to refuse late requests.
    NotAfter,
    /// The service can be probed for the outcome of an operation, and closes its name when it reports that it was not
    /// done.
    Probe,
    /// The service gets field names as they were spelled.
    Spelled,
}

/// The scenario of a case.
#[derive(Debug, Clone, Copy)]
pub enum Scenario {
    Steps(&'static [CaseStep]),
    /// Steps whose requests and probes are all about one operation.
    OneOperation(&'static [CaseStep]),
    /// Texts that are sent in the place of a token, or of a number.
    Malformed {
        token: &'static [&'static str],
        number: &'static [&'static str],
    },
    /// One token, presented several times at the same moment.
    Concurrent(InstanceSpread),
    /// A newer write and older ones, at the same moment.
    Overtaken(InstanceSpread),
    /// An older write that takes long, and a newer one that is sent while it runs.
    Slow,
    /// Many writers, some of them stale.
    Writers,
    /// An older write whose token is checked before its body is complete.
    Held,
    /// Two keys, taken in both orders.
    Crossed,
    /// A crash with writes under way.
    CrashMidWrite,
}

/// The instances that take part in a race.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstanceSpread {
    /// The first one alone.
    OneInstance,
    /// The first two.
    TwoInstances,
}

impl CaseGroup {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Forged => "forged",
            Self::Width => "width",
            Self::Several => "several",
            Self::Shared => "shared",
            Self::InTime => "in-time",
            Self::Probe => "probe",
            Self::Race => "race",
            Self::Instances => "instances",
            Self::Crash => "crash",
        }
    }
}

impl TestCase {
    /// The reason for which the case does not apply; `None` if it does.
    pub(crate) fn skip_reason(&self, service: &TestedService) -> Option<String> {
        if !service.only.is_empty() && !service.only.iter().any(|name| name == self.name) {
            return Some("`--only` names other cases".to_owned());
        }
        let missing = self.needs.iter().find(|need| !need.is_met(service))?;
        Some(missing.unmet_reason().to_owned())
    }
}

impl CasePrerequisite {
    fn is_met(self, service: &TestedService) -> bool {
        match self {
            Self::Tokens => service.fields.form == ComparedHeaderKind::Token,
            Self::Numbers => service.fields.form == ComparedHeaderKind::Number,
            Self::Body => service.write.has_body(),
            Self::Several => service.reach == KeysPerRequest::Several,
            Self::TwoPlaces => service.write.names_two_keys(),
            Self::Shared => service.sharing == SharedModeSupport::TwoMarks,
            Self::Slow => service.slow.is_some(),
            Self::Instances => service.instances.len() > 1,
            Self::Restart => service.restart.is_some(),
            Self::OtherWrite => service.also.is_some(),
            Self::Remember => service.remember.is_some(),
            Self::NotAfter => service.deadlines == DeadlineSupport::Enforced,
            Self::Probe => service.probe.is_some(),
            Self::Spelled => service.names == HeaderNameMapping::Spelled,
        }
    }

    fn unmet_reason(self) -> &'static str {
        match self {
            Self::Tokens => {
                "it compares numbers, which are equal within a tenure: a duplicate cannot be told"
            }
            Self::Numbers => "it compares tokens",
            Self::Body => "the request has no body: `--body` gives it one",
            Self::Several => "a request is about one key: `--keys several` claims more",
            Self::TwoPlaces => "the request names one key: `{other}` in it would name a second one",
            Self::Shared => "it claims one watermark only: `--shared` claims one for reads as well",
            Self::Slow => "no slow path is known: `--slow-request` names one",
            Self::Instances => "one instance is known: name a second URL of the same service",
            Self::OtherWrite => "one kind of request is known: `--also` names another one about the same key",
            Self::Remember => "nobody has said how long watermarks are kept: `--remember` waits for it",
            Self::NotAfter => "it does not claim to refuse what comes too late: `--not-after` does",
            Self::Probe => "nobody has said where it is asked what became of an operation: `--probe` does",
            Self::Spelled => "`--folded-names`: to it `Fencing_Token` and `Fencing-Token` are the same",
            Self::Restart => "nobody has said how it is restarted: `--restart` does",
        }
    }
}
