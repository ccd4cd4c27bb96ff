//! Draws the schedule of a seed: requests all the time, and accidents at random. Now and then it adds a course of
//! events that is rare by chance and hard on one rule.

use std::time::Duration;

use fencegate_tests::memory::Dice;

use super::{
    places::{LONGEST_BLOCK, LONGEST_WORK, T},
    schedule::{Ask, Event, Lease, Once, Schedule, Trouble, WayToUpstream, What, Who},
};

/// How long accidents happen.
const STORM: Duration = Duration::from_secs(14);
const REQUESTS: u64 = 45;
const ACCIDENTS: u64 = 6;
const RESOURCES: [&str; 3] = ["a", "b", "c"];

/// Makes a seed of its own of each seed.
const RELAY: u64 = 0x72_656c_617a;

const fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

pub(super) fn drawn(seed: u64) -> Schedule {
    let dice = Dice::seeded(seed);
    let mild = dice.below(4) == 0;
    let moment = |dice: &Dice| dice.within(&(Duration::ZERO..STORM));
    let mut events: Vec<Event> = (0..REQUESTS)
        .map(|number| Event { at: moment(&dice), what: What::Asks(request(&dice, number, mild)) })
        .collect();
    if mild {
        events.extend((0..2).map(|_| {
            let (gateway, most) = (dice.index(2), dice.within(&(Duration::ZERO..T / 20)));
            Event { at: moment(&dice), what: What::ZooKeeper(gateway, Trouble::Slow(most)) }
        }));
    } else {
        events.extend(
            (0..2 + dice.below(ACCIDENTS)).map(|_| Event { at: moment(&dice), what: accident(&dice) }),
        );
        let at = dice.within(&(Duration::ZERO..STORM / 3));
        let course = match dice.below(6) {
            0 => orphaned_set(&dice),
            1 => question_lost(&dice),
            2 => broken_off(&dice),
            3 => rekeyed(&dice),
            _ => Vec::new(),
        };
        events.extend(course.into_iter().map(|event| Event { at: at + event.at, what: event.what }));
        // Drawn apart, so that all else is as the seed has always drawn it.
        let apart = Dice::seeded(seed ^ RELAY);
        if apart.below(5) == 0 {
            let at = apart.within(&(Duration::ZERO..STORM / 2));
            let course = answered_early(&apart);
            events.extend(course.into_iter().map(|event| Event { at: at + event.at, what: event.what }));
        }
    }
    events.sort_by_key(|event| event.at);
    Schedule { mild, way: WayToUpstream::Direct, events }
}

/// The longest time for which something on the way to the upstream stands still.
const LONGEST_STANDSTILL: Duration = Duration::from_secs(20);

/// The schedule of the seed, in which a relay, the upstream, or the host of guard and upstream stands still three times.
/// Requests are at work meanwhile, and others of their keys follow. Keys keep their names: a guard keeps a doubt under the
/// name of its key, and a gateway that was killed has forgotten the one before.
pub(super) fn with_standstills(seed: u64, way: WayToUpstream) -> Schedule {
    let Schedule { mut events, .. } = drawn(seed);
    events.retain(|event| !matches!(event.what, What::Rekeys(_)));
    let dice = Dice::seeded(!seed);
    for _ in 0..3 {
        let at = dice.within(&(Duration::ZERO..STORM));
        let time = dice.within(&(ms(1000)..LONGEST_STANDSTILL));
        let what = match dice.below(3) {
            0 => What::Blocked { from: Who::Guard, to: Who::Upstream, time },
            1 => What::Freezes(Who::Upstream, time),
            _ => What::HostSleeps(time),
        };
        events.push(event(at, what));
        let path = format!("/strict/{}", dice.one_of(&RESOURCES));
        for ask in 0..6 {
            let works = dice.within(&(ms(50)..ms(900)));
            let asks = What::Asks(Ask::plain(dice.index(2), path.clone(), works));
            events.push(event(at + dice.within(&(Duration::ZERO..ms(300))) + ms(3500) * ask, asks));
        }
    }
    events.sort_by_key(|event| event.at);
    Schedule { mild: false, way, events }
}

fn request(dice: &Dice, number: u64, mild: bool) -> Ask {
    let (first, further) = (dice.index(3), 1 + dice.index(2));
    let one = RESOURCES[first];
    let longest = if dice.below(8) == 0 { LONGEST_WORK / 2 } else { ms(150) };
    let (gateway, works) = (dice.index(2), dice.within(&(Duration::ZERO..longest)));
    let leaves = (dice.below(6) == 0).then(|| dice.within(&(Duration::ZERO..ms(1500))));
    let routes: &[&str] = if mild {
        &["bare", "bare", "bare", "pay", "once"]
    } else {
        &["pay", "pay", "strict", "sent", "look", "move", "once", "shop", "bare", "held"]
    };
    let route = *dice.one_of(routes);
    let path = match route {
        "move" => format!("/move/{one}/{}", RESOURCES[(first + further) % 3]),
        _ => format!("/{route}/{one}"),
    };
    let repeats = u32::try_from(dice.below(4)).unwrap_or_default();
    let once = match route {
        "once" => Some(Once { name: format!("o{number}"), principal: None, repeats }),
        "shop" => {
            let principal = Some(*dice.one_of(&["north", "south"]));
            Some(Once { name: format!("s{}", number / 4), principal, repeats })
        }
        _ => None,
    };
    // Several shops use one name. Each shop has an operation of its own under that name.
    let path = if route == "shop" {
        format!("/shop/{}", RESOURCES[usize::try_from(number / 4).unwrap_or(0) % 3])
    } else {
        path
    };
    let pause = dice.within(&(Duration::ZERO..ms(900)));
    let requests = 1 + u32::try_from(dice.below(4)).unwrap_or_default();
    let lease = (route == "held").then_some(Lease { requests, pause });
    let other = dice.index(2);
    let calls = (route == "pay" && dice.below(4) == 0).then_some(other);
    Ask { gateway, path, works, leaves, once, lease, calls, relayed: None }
}

fn accident(dice: &Dice) -> What {
    let gateway = dice.index(2);
    let time = dice.within(&(ms(50)..T * 2));
    let ends = [
        (Who::Gateway(gateway), Who::Guard),
        (Who::Gateway(0), Who::Gateway(1)),
        (Who::Guard, Who::Upstream),
    ];
    match dice.below(16) {
        0 | 1 => What::Freezes(Who::Gateway(gateway), time),
        2 => What::Freezes(Who::Guard, time.min(LONGEST_BLOCK)),
        3 | 4 => What::Dies(Who::Gateway(gateway), dice.within(&(ms(20)..T))),
        5 => What::Dies(Who::Guard, dice.within(&(ms(20)..T))),
        6 => What::Restarts(*dice.one_of(&[Who::Gateway(gateway), Who::Guard])),
        7 | 8 => {
            let (one, other) = *dice.one_of(&ends);
            let (from, to) = if dice.below(2) == 0 { (one, other) } else { (other, one) };
            What::Blocked { from, to, time: time.min(LONGEST_BLOCK) }
        }
        9 | 10 => {
            let (one, other) = *dice.one_of(&ends);
            What::Breaks(one, other)
        }
        11 => What::Slow(dice.within(&(Duration::ZERO..ms(60)))),
        12 => What::DiskStalls(dice.within(&(ms(50)..ms(1500)))),
        _ => {
            let troubles = [
                Trouble::Cut(time * 2),
                Trouble::Cut(time),
                Trouble::Silent(time * 2),
                Trouble::LosesReply,
                Trouble::LosesRequest,
                Trouble::Blinks,
                Trouble::Slow(dice.within(&(Duration::ZERO..T / 10))),
                Trouble::Swaps,
            ];
            What::ZooKeeper(gateway, *dice.one_of(&troubles))
        }
    }
}

fn event(at: Duration, what: What) -> Event {
    Event { at, what }
}

/// A set waits at the guard for one of its keys. Its gateway is frozen for longer than its session, and the other key
/// is used meanwhile.
fn orphaned_set(dice: &Dice) -> Vec<Event> {
    let first = dice.index(3);
    let (one, other) = (RESOURCES[first], RESOURCES[(first + 1) % 3]);
    let mut events = vec![
        event(Duration::ZERO, What::Asks(Ask::plain(0, format!("/strict/{other}"), LONGEST_WORK))),
        event(ms(300), What::Dies(Who::Gateway(0), ms(100))),
        // The key is in doubt and closed for long enough.
        event(ms(800), What::Breaks(Who::Guard, Who::Upstream)),
        event(ms(600), What::Asks(Ask::plain(1, format!("/move/{one}/{other}"), ms(100)))),
        event(ms(2750) + dice.within(&(Duration::ZERO..ms(300))), What::Freezes(Who::Gateway(1), T * 3)),
    ];
    events.extend((0..6).map(|number| {
        event(ms(3200) + ms(400) * number, What::Asks(Ask::plain(0, format!("/strict/{one}"), ms(50))))
    }));
    events
}

/// Two shops use one name for an operation. The request of the second shop is lost on its way to the service.
fn question_lost(dice: &Dice) -> Vec<Event> {
    let resource = dice.one_of(&RESOURCES);
    let shop = |principal, repeats| Ask {
        once: Some(Once { name: "lost".into(), principal: Some(principal), repeats }),
        ..Ask::plain(dice.index(2), format!("/shop/{resource}"), ms(30))
    };
    vec![
        event(Duration::ZERO, What::Asks(shop("east", 0))),
        event(ms(900), What::Blocked { from: Who::Guard, to: Who::Upstream, time: ms(700) }),
        event(ms(910), What::Asks(shop("west", 5))),
        event(ms(1400), What::Breaks(Who::Guard, Who::Upstream)),
    ]
}

/// The connection to the service breaks while an operation is at work, and its client asks again.
fn broken_off(dice: &Dice) -> Vec<Event> {
    let once = Some(Once { name: "off".into(), principal: None, repeats: 5 });
    let path = format!("/once/{}", dice.one_of(&RESOURCES));
    vec![
        event(Duration::ZERO, What::Asks(Ask { once, ..Ask::plain(dice.index(2), path, LONGEST_WORK) })),
        event(ms(300) + dice.within(&(Duration::ZERO..ms(900))), What::Breaks(Who::Guard, Who::Upstream)),
    ]
}

/// A proxy before the service answers in its own name while the service works on, and others ask for the resource.
fn answered_early(dice: &Dice) -> Vec<Event> {
    let resource = dice.one_of(&RESOURCES);
    let route = *dice.one_of(&["pay", "strict", "sent", "once"]);
    let once = (route == "once").then(|| Once { name: "early".into(), principal: None, repeats: 3 });
    let early = Ask {
        once,
        relayed: Some(dice.within(&(ms(50)..ms(500)))),
        ..Ask::plain(dice.index(2), format!("/{route}/{resource}"), LONGEST_WORK / 2)
    };
    let mut events = vec![event(Duration::ZERO, What::Asks(early))];
    events.extend((1..4).map(|number| {
        let path = format!("/{}/{resource}", dice.one_of(&["pay", "strict"]));
        event(ms(400) * number, What::Asks(Ask::plain(dice.index(2), path, ms(100))))
    }));
    events
}

/// While requests are at work, the keys of their resource are renamed, more than once.
fn rekeyed(dice: &Dice) -> Vec<Event> {
    let path = format!("/pay/{}", dice.one_of(&RESOURCES));
    let mut events = Vec::new();
    for round in 0..4_u32 {
        let begin = ms(700) * round;
        for gateway in 0..2 {
            events.push(event(begin + ms(100), What::Asks(Ask::plain(gateway, path.clone(), ms(900)))));
            events.push(event(begin + ms(300), What::Asks(Ask::plain(gateway, path.clone(), ms(200)))));
        }
        let both = dice.below(2) == 0;
        events.push(event(begin + dice.within(&(Duration::ZERO..ms(700))), What::Rekeys(0)));
        if both {
            events.push(event(begin + dice.within(&(Duration::ZERO..ms(700))), What::Rekeys(1)));
        }
    }
    events
}
