//! What a gateway's member node says of it. Written with every heartbeat, so that it changes with the plan.

use std::sync::{Arc, Mutex, PoisonError};

use super::{member::Member, others::Others};
use crate::meta::FORMAT;
use crate::reach::Reach;

/// The data as it is to be written, shared by all sessions of a process.
#[derive(Debug, Clone)]
pub struct Nameplate {
    data: Arc<Mutex<Arc<[u8]>>>,
    /// The same as long as the process lives.
    reach: Option<Reach>,
    /// What the nameplates of the other gateways say.
    others: Arc<Others>,
}

impl Nameplate {
    /// `plan`: the fingerprint of what decides keys and lock paths.
    pub fn of(plan: u64) -> Self {
        Self::reached_at(plan, None)
    }

    /// Of a gateway that listens to others.
    pub fn reached_at(plan: u64, reach: Option<Reach>) -> Self {
        let data = data(plan, reach.as_ref());
        Self { data: Arc::new(Mutex::new(data)), reach, others: Arc::default() }
    }

    /// Another plan is in force.
    pub fn says(&self, plan: u64) {
        *self.data.lock().unwrap_or_else(PoisonError::into_inner) = data(plan, self.reach.as_ref());
        self.others.look_again();
    }

    /// Where other gateways reach this process.
    pub fn reach(&self) -> Option<&Reach> {
        self.reach.as_ref()
    }

    pub(super) fn others(&self) -> &Others {
        &self.others
    }

    pub fn data(&self) -> Arc<[u8]> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn data(plan: u64, reach: Option<&Reach>) -> Arc<[u8]> {
    let member = Member {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        plan: format!("{plan:016x}"),
        peer: reach.cloned(),
    };
    serde_json::to_vec(&member).expect("plain fields serialise").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_builds_write_is_read_and_what_they_do_not_know_does_not_disturb_them() {
        let older = r#"{"format":1,"version":"0.4.0","plan":"00"}"#;
        assert_eq!(serde_json::from_str::<Member>(older).expect("read").peer, None);
        let pass = "5a".repeat(32);
        let newer = format!(
            r#"{{"format":1,"version":"9","plan":"00","peer":{{"address":"gw:9910","pass":"{pass}","more":1}},"more":2}}"#
        );
        let peer = serde_json::from_str::<Member>(&newer).expect("read").peer.expect("it is reached");
        assert_eq!((peer.address.as_str(), peer.pass.as_str()), ("gw:9910", &*pass));
    }
}
