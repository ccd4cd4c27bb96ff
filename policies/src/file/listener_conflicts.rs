//! Finds two listeners of one process with the same address.

use std::net::SocketAddr;

use super::{diagnostics::Diagnostics, mapping::MappingReader};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode, SourceSpan},
    plan::BindAddress,
};

/// One listener of the process.
pub(super) struct ConfiguredListener {
    /// The name of the listener in messages.
    pub(super) what: String,
    /// The field of the listener in the file.
    pub(super) field: &'static str,
    pub(super) address: SocketAddr,
    pub(super) at: ListenerAddressOrigin,
}

/// The place at which a mistake in a listener's address is reported.
#[derive(Debug, Clone, Copy)]
pub(super) enum ListenerAddressOrigin {
    Written(SourceSpan),
    /// The file does not set the address, so it is the default.
    Default,
}

impl ConfiguredListener {
    /// The public listener, named by its field. `None` for a Unix socket, which has no port.
    pub(super) fn public_listener(
        file: &mut MappingReader,
        field: &'static str,
        address: &BindAddress,
    ) -> Option<Self> {
        let address = address.tcp()?;
        Some(Self {
            what: format!("`{field}`"),
            field,
            address,
            at: ListenerAddressOrigin::Written(file.place_of(field)),
        })
    }

    /// Whether the two listeners cannot be open at the same time. With port 0 the kernel chooses a free port,
    /// so such a listener never overlaps.
    fn overlaps(&self, other: &Self) -> bool {
        let one = self.address;
        let other = other.address;
        let everywhere = one.ip().is_unspecified() || other.ip().is_unspecified();
        one.port() != 0 && one.port() == other.port() && (everywhere || one.ip() == other.ip())
    }
}

/// Reports listeners with the same address. `listeners`: in the order of precedence; the later one of two has
/// to change.
pub(super) fn report_clashes(listeners: &[ConfiguredListener], faults: &Diagnostics) {
    for (index, late) in listeners.iter().enumerate() {
        // One report for each listener is enough.
        if let Some(early) = listeners[..index].iter().find(|early| late.overlaps(early)) {
            faults.push(clash_diagnostic(early, late));
        }
    }
}

fn clash_diagnostic(early: &ConfiguredListener, late: &ConfiguredListener) -> Diagnostic {
    let message = format!("{} and {} both listen on port {}", late.what, early.what, late.address.port());
    let fault = Diagnostic::new(DiagnosticCode::SameAddress, message);
    let unwritten = |listener: &ConfiguredListener| {
        format!(
            "`{}` is not written, and listens on `{}`: give one of them another port",
            listener.field, listener.address
        )
    };
    match (early.at, late.at) {
        (ListenerAddressOrigin::Written(_), ListenerAddressOrigin::Written(place)) => {
            fault.at(place).with_remedy(format!("give {} a port of its own", late.what))
        }
        (ListenerAddressOrigin::Default, ListenerAddressOrigin::Written(place)) => {
            fault.at(place).with_remedy(unwritten(early))
        }
        (ListenerAddressOrigin::Written(place), ListenerAddressOrigin::Default) => {
            fault.at(place).with_remedy(unwritten(late))
        }
        (ListenerAddressOrigin::Default, ListenerAddressOrigin::Default) => {
            fault.with_remedy(unwritten(late))
        }
    }
}
