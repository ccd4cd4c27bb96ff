//! Reads where the other gateways reach this one.

use super::{block::Block, scalar};
use crate::plan::{Pair, Peer, PeerTls};

/// `None` where there is nothing, or where a fault says what is missing.
pub(super) fn peer(file: &mut Block) -> Option<Peer> {
    let written = file.is_present("peer");
    let read = file.inner("peer", |block| {
        if written {
            block.require("address", "address: 0.0.0.0:9910");
            block.require("advertise", "advertise: gw-1.internal:9910");
        }
        let address = block.value("address", scalar::address);
        let advertise = block.value("advertise", scalar::server);
        let tls = tls(block);
        Some(Peer { address: address?, advertise: advertise?, tls: tls? })
    });
    read.flatten()
}

/// `None` where a fault says what is missing.
fn tls(peer: &mut Block) -> Option<Option<PeerTls>> {
    let written = peer.is_present("tls");
    let read = peer.inner("tls", |block| {
        if written {
            block.require("certificate_file", "certificate_file: /etc/fencegate/peer.pem");
            block.require("key_file", "key_file: /etc/fencegate/peer.key");
            block.require("ca_file", "ca_file: /etc/fencegate/peers.pem");
        }
        let certificate = block.value("certificate_file", scalar::file);
        let key = block.value("key_file", scalar::file);
        let ca_file = block.value("ca_file", scalar::file);
        Some(PeerTls { pair: Pair { certificate: certificate?, key: key? }, ca_file: ca_file? })
    });
    if written { read.flatten().map(Some) } else { Some(None) }
}
