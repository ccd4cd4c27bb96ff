//! Random accidents: the gateway, the time and the duration of each.

use std::{rc::Rc, time::Duration};

use fencegate_tests::memory::{SeededRng, SimEnsemble, UndeliveredRequestFate, Wire, WireDirection};
use tokio::time::{Instant, sleep};
use tracing::info;

use super::{
    gateway::{T, is_lock},
    judge::StormKind,
    world::SimWorld,
};

/// The accidents of a storm. In addition, callers go away and gateways are restarted.
#[derive(Debug, Clone, Copy)]
enum StormFault {
    LostReply,
    LostRequest,
    Blink,
    Disconnect,
    Stall,
    Swap,
    Slow,
    Outage,
    Containers,
    Throttle,
    Expiry,
    Theft,
}

/// All accidents. The last two happen only in wild storms.
const ACCIDENTS: [StormFault; 12] = [
    StormFault::LostReply,
    StormFault::LostRequest,
    StormFault::Blink,
    StormFault::Disconnect,
    StormFault::Stall,
    StormFault::Swap,
    StormFault::Slow,
    StormFault::Outage,
    StormFault::Containers,
    StormFault::Throttle,
    StormFault::Expiry,
    StormFault::Theft,
];

impl StormKind {
    fn accident(self, dice: &SeededRng) -> StormFault {
        let kinds = if self == Self::Wild { ACCIDENTS.len() } else { ACCIDENTS.len() - 2 };
        *dice.one_of(&ACCIDENTS[..kinds])
    }
}

/// Causes accidents until `end`, and then repairs everything.
pub(super) async fn run_accidents(world: Rc<SimWorld>, end: Instant) {
    let SimWorld { ensemble, gateways, dice, .. } = &*world;
    while Instant::now() < end {
        sleep(dice.within(&(Duration::from_millis(5)..T / 2))).await;
        let at = dice.index(gateways.len());
        let accident = world.storm.accident(dice);
        info!("{accident:?} at gateway {at}");
        if dice.below(2) == 0 {
            // The upstream does not answer for a while, so that a holder keeps its lock during the accidents.
            gateways[at].hang_upstream(dice.within(&(Duration::ZERO..T * 3)));
        }
        strike(accident, ensemble, &gateways[at].wire, dice).await;
    }
    ensemble.recover();
    for gateway in gateways {
        gateway.wire.refuse_watches(0);
        gateway.wire.delay(Duration::ZERO..Duration::from_millis(1));
        gateway.wire.resume();
        gateway.wire.reconnect();
    }
    info!("calm");
}

async fn strike(accident: StormFault, ensemble: &SimEnsemble, wire: &Wire, dice: &SeededRng) {
    let underway =
        if dice.below(2) == 0 { UndeliveredRequestFate::Arrives } else { UndeliveredRequestFate::Lost };
    let while_it_lasts = dice.within(&(Duration::ZERO..T * 3));
    match accident {
        StormFault::LostReply => wire.lose_next_reply(),
        StormFault::LostRequest => wire.lose_next_request(),
        StormFault::Blink => wire.break_and_reconnect(underway),
        StormFault::Disconnect => {
            wire.disconnect(underway);
            sleep(while_it_lasts).await;
            wire.reconnect();
        }
        StormFault::Stall => {
            let directions = [WireDirection::ToServer, WireDirection::ToClient, WireDirection::Both];
            wire.stall(*dice.one_of(&directions));
            sleep(while_it_lasts).await;
            wire.resume();
        }
        StormFault::Expiry => wire.expire(),
        StormFault::Swap => {
            wire.swap_on_reconnect();
            wire.break_and_reconnect(underway);
        }
        StormFault::Slow => wire.delay(Duration::ZERO..dice.within(&(Duration::ZERO..T / 10))),
        StormFault::Outage => {
            ensemble.lose_majority();
            sleep(while_it_lasts).await;
            ensemble.recover();
        }
        StormFault::Containers => ensemble.remove_empty_containers(),
        StormFault::Throttle => wire.refuse_watches(1 + u32::try_from(dice.below(4)).unwrap_or_default()),
        StormFault::Theft => {
            let mut locks = ensemble.paths();
            locks.retain(|path| is_lock(path));
            if !locks.is_empty() {
                ensemble.delete_as_other_client(dice.one_of::<String>(&locks));
            }
        }
    }
}
