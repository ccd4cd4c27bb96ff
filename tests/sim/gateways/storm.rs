//! Random accidents: who is affected, when, and for how long.

use std::{rc::Rc, time::Duration};

use fencegate_tests::memory::{Dice, Direction, Ensemble, Underway, Wire};
use tokio::time::{Instant, sleep};
use tracing::info;

use super::{
    gateway::{T, is_lock},
    judge::Storm,
    world::World,
};

/// What can happen, beside callers that go away and gateways that are restarted.
#[derive(Debug, Clone, Copy)]
enum Accident {
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

/// The last two happen only in wild storms.
const ACCIDENTS: [Accident; 12] = [
    Accident::LostReply,
    Accident::LostRequest,
    Accident::Blink,
    Accident::Disconnect,
    Accident::Stall,
    Accident::Swap,
    Accident::Slow,
    Accident::Outage,
    Accident::Containers,
    Accident::Throttle,
    Accident::Expiry,
    Accident::Theft,
];

impl Storm {
    fn accident(self, dice: &Dice) -> Accident {
        let kinds = if self == Self::Wild { ACCIDENTS.len() } else { ACCIDENTS.len() - 2 };
        *dice.one_of(&ACCIDENTS[..kinds])
    }
}

/// Lets accidents happen until `end`. Then everything is mended.
pub(super) async fn rage(world: Rc<World>, end: Instant) {
    let World { ensemble, gateways, dice, .. } = &*world;
    while Instant::now() < end {
        sleep(dice.within(&(Duration::from_millis(5)..T / 2))).await;
        let (at, accident) = (dice.index(gateways.len()), world.storm.accident(dice));
        info!("{accident:?} at gateway {at}");
        if dice.below(2) == 0 {
            // The upstream hangs, so that a holder keeps its lock during the accidents.
            gateways[at].upstream_hangs(dice.within(&(Duration::ZERO..T * 3)));
        }
        strike(accident, ensemble, &gateways[at].wire, dice).await;
    }
    ensemble.recover();
    for gateway in gateways {
        gateway.wire.refuse_watches(0);
        gateway.wire.delay(Duration::ZERO..Duration::from_millis(1));
        gateway.wire.flow();
        gateway.wire.reconnect();
    }
    info!("calm");
}

async fn strike(accident: Accident, ensemble: &Ensemble, wire: &Wire, dice: &Dice) {
    let underway = if dice.below(2) == 0 { Underway::Arrives } else { Underway::Lost };
    let while_it_lasts = dice.within(&(Duration::ZERO..T * 3));
    match accident {
        Accident::LostReply => wire.lose_next_reply(),
        Accident::LostRequest => wire.lose_next_request(),
        Accident::Blink => wire.blink(underway),
        Accident::Disconnect => {
            wire.disconnect(underway);
            sleep(while_it_lasts).await;
            wire.reconnect();
        }
        Accident::Stall => {
            let directions = [Direction::ToServer, Direction::ToClient, Direction::Both];
            wire.stall(*dice.one_of(&directions));
            sleep(while_it_lasts).await;
            wire.flow();
        }
        Accident::Expiry => wire.expire(),
        Accident::Swap => {
            wire.swap_on_reconnect();
            wire.blink(underway);
        }
        Accident::Slow => wire.delay(Duration::ZERO..dice.within(&(Duration::ZERO..T / 10))),
        Accident::Outage => {
            ensemble.fail();
            sleep(while_it_lasts).await;
            ensemble.recover();
        }
        Accident::Containers => ensemble.remove_empty_containers(),
        Accident::Throttle => wire.refuse_watches(1 + u32::try_from(dice.below(4)).unwrap_or_default()),
        Accident::Theft => {
            let mut locks = ensemble.paths();
            locks.retain(|path| is_lock(path));
            if !locks.is_empty() {
                ensemble.steal(dice.one_of::<String>(&locks));
            }
        }
    }
}
