//! The ZooKeeper in memory, as a site.

use std::rc::Rc;

use fencegate_tests::memory::{Client, Ensemble, Settings, Underway, Wire};

use super::{
    play::{Site, TIMEOUT, play},
    script::{Act, SESSIONS},
};
use crate::simulated;

struct InMemory {
    clients: [Client; SESSIONS],
    wires: [Rc<Wire>; SESSIONS],
}

impl Site for InMemory {
    type Client = Client;

    fn client(&self, who: usize) -> Client {
        self.clients[who].clone()
    }

    fn cut(&self, who: usize) {
        self.wires[who].disconnect(Underway::Lost);
    }

    fn plug(&self, who: usize) {
        self.wires[who].reconnect();
    }
}

pub(super) fn answers(root: &str, script: &[Act]) -> Vec<String> {
    simulated::run(async {
        let ensemble = Ensemble::start(Settings::default());
        let clients = std::array::from_fn(|_| ensemble.client(TIMEOUT));
        let wires = std::array::from_fn(|who: usize| Client::wire(&clients[who]));
        play(&InMemory { clients, wires }, root, script).await
    })
}
