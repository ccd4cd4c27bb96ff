//! Finds two listeners of one file with the same address.

use std::net::SocketAddr;

use super::{block::Block, faults::Faults};
use crate::{
    diagnose::{Code, Diagnostic, Place},
    plan::Bind,
};

/// One listener of the process.
pub(super) struct Door {
    /// What messages call it.
    pub(super) what: String,
    /// Where it is written in the file.
    pub(super) field: &'static str,
    pub(super) address: SocketAddr,
    pub(super) at: At,
}

/// Where a fault of a listener's address is shown.
#[derive(Debug, Clone, Copy)]
pub(super) enum At {
    Written(Place),
    /// The file does not write the address: it is the default.
    Default,
}

impl Door {
    /// The public listener, named by its field. `None` for a unix socket, which has no port to share.
    pub(super) fn public(file: &mut Block, field: &'static str, address: &Bind) -> Option<Self> {
        let address = address.tcp()?;
        Some(Self { what: format!("`{field}`"), field, address, at: At::Written(file.place_of(field)) })
    }

    /// Both listeners cannot be open at once. With port 0 the kernel chooses a free port, so it never overlaps.
    fn overlaps(&self, other: &Self) -> bool {
        let (one, other) = (self.address, other.address);
        let everywhere = one.ip().is_unspecified() || other.ip().is_unspecified();
        one.port() != 0 && one.port() == other.port() && (everywhere || one.ip() == other.ip())
    }
}

/// `doors` in the order of their rank: of two with one address, the later one has to move.
pub(super) fn clash(doors: &[Door], faults: &Faults) {
    for (index, late) in doors.iter().enumerate() {
        // One clash is enough to report.
        if let Some(early) = doors[..index].iter().find(|early| late.overlaps(early)) {
            faults.push(fault(early, late));
        }
    }
}

fn fault(early: &Door, late: &Door) -> Diagnostic {
    let message = format!("{} and {} both listen on port {}", late.what, early.what, late.address.port());
    let fault = Diagnostic::new(Code::SameAddress, message);
    let unwritten = |door: &Door| {
        format!(
            "`{}` is not written, and listens on `{}`: give one of them another port",
            door.field, door.address
        )
    };
    match (early.at, late.at) {
        (At::Written(_), At::Written(place)) => {
            fault.at(place).remedy(format!("give {} a port of its own", late.what))
        }
        (At::Default, At::Written(place)) => fault.at(place).remedy(unwritten(early)),
        (At::Written(place), At::Default) => fault.at(place).remedy(unwritten(late)),
        (At::Default, At::Default) => fault.remedy(unwritten(late)),
    }
}
