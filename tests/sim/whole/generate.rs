//! Generates the schedule of a seed: requests all the time, and accidents at random. Now and then it adds a sequence
//! of events that is rare by chance and tests one rule.

use std::time::Duration;

use fencegate_tests::memory::SeededRng;

use super::{
    addresses::{LONGEST_BLOCK, LONGEST_WORK, T},
    schedule::{
        ClientRequest, EventKind, LeaseSchedule, NetworkFault, ProcessId, RepeatedOperation, Schedule,
        ScheduledEvent, UpstreamPath,
    },
};

/// The time during which requests and accidents happen.
const STORM: Duration = Duration::from_secs(14);
const REQUESTS: u64 = 45;
const ACCIDENTS: u64 = 6;
const RESOURCES: [&str; 3] = ["a", "b", "c"];

/// Changes a seed into another one, for events that are generated separately.
const RELAY: u64 = 0x72_656c_617a;

const fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

pub(super) fn generate(seed: u64) -> Schedule {
    let dice = SeededRng::new(seed);
    let mild = dice.below(4) == 0;
    let moment = |dice: &SeededRng| dice.within(&(Duration::ZERO..STORM));
    let mut events: Vec<ScheduledEvent> = (0..REQUESTS)
        .map(|number| ScheduledEvent {
            at: moment(&dice),
            what: EventKind::Asks(request(&dice, number, mild)),
        })
        .collect();
    if mild {
        events.extend((0..2).map(|_| {
            let gateway = dice.index(2);
            let most = dice.within(&(Duration::ZERO..T / 20));
            ScheduledEvent {
                at: moment(&dice),
                what: EventKind::ZooKeeper(gateway, NetworkFault::Slow(most)),
            }
        }));
    } else {
        events.extend(
            (0..2 + dice.below(ACCIDENTS))
                .map(|_| ScheduledEvent { at: moment(&dice), what: accident(&dice) }),
        );
        let at = dice.within(&(Duration::ZERO..STORM / 3));
        let course = match dice.below(6) {
            0 => orphaned_set(&dice),
            1 => question_lost(&dice),
            2 => broken_off(&dice),
            3 => rekeyed(&dice),
            _ => Vec::new(),
        };
        events.extend(course.into_iter().map(|event| ScheduledEvent { at: at + event.at, what: event.what }));
        // From a separate seed, so that the events above stay those that each seed has always given.
        let apart = SeededRng::new(seed ^ RELAY);
        if apart.below(5) == 0 {
            let at = apart.within(&(Duration::ZERO..STORM / 2));
            let course = answered_early(&apart);
            events.extend(
                course.into_iter().map(|event| ScheduledEvent { at: at + event.at, what: event.what }),
            );
        }
    }
    events.sort_by_key(|event| event.at);
    Schedule { mild, way: UpstreamPath::Direct, events }
}

/// The longest standstill between guard and upstream.
const LONGEST_STANDSTILL: Duration = Duration::from_secs(20);

/// The schedule of the seed with three standstills: of a relay, of the upstream, or of the host of guard and
/// upstream. Requests are in flight then, and further requests for their keys follow. Keys are not renamed: a guard
/// keeps a doubt under the name of its key, and a gateway that was killed has forgotten the former name.
pub(super) fn generate_with_standstills(seed: u64, way: UpstreamPath) -> Schedule {
    let Schedule { mut events, .. } = generate(seed);
    events.retain(|event| !matches!(event.what, EventKind::Rekeys(_)));
    let dice = SeededRng::new(!seed);
    for _ in 0..3 {
        let at = dice.within(&(Duration::ZERO..STORM));
        let time = dice.within(&(ms(1000)..LONGEST_STANDSTILL));
        let what = match dice.below(3) {
            0 => EventKind::Blocked { from: ProcessId::Guard, to: ProcessId::Upstream, time },
            1 => EventKind::Freezes(ProcessId::Upstream, time),
            _ => EventKind::HostSleeps(time),
        };
        events.push(event(at, what));
        let path = format!("/strict/{}", dice.one_of(&RESOURCES));
        for ask in 0..6 {
            let works = dice.within(&(ms(50)..ms(900)));
            let asks = EventKind::Asks(ClientRequest::plain(dice.index(2), path.clone(), works));
            events.push(event(at + dice.within(&(Duration::ZERO..ms(300))) + ms(3500) * ask, asks));
        }
    }
    events.sort_by_key(|event| event.at);
    Schedule { mild: false, way, events }
}

fn request(dice: &SeededRng, number: u64, mild: bool) -> ClientRequest {
    let first = dice.index(3);
    let further = 1 + dice.index(2);
    let one = RESOURCES[first];
    let longest = if dice.below(8) == 0 { LONGEST_WORK / 2 } else { ms(150) };
    let gateway = dice.index(2);
    let works = dice.within(&(Duration::ZERO..longest));
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
        "once" => Some(RepeatedOperation { name: format!("o{number}"), principal: None, repeats }),
        "shop" => {
            let principal = Some(*dice.one_of(&["north", "south"]));
            Some(RepeatedOperation { name: format!("s{}", number / 4), principal, repeats })
        }
        _ => None,
    };
    // Several shops use one operation name, under which each has its own operation.
    let path = if route == "shop" {
        format!("/shop/{}", RESOURCES[usize::try_from(number / 4).unwrap_or(0) % 3])
    } else {
        path
    };
    let pause = dice.within(&(Duration::ZERO..ms(900)));
    let requests = 1 + u32::try_from(dice.below(4)).unwrap_or_default();
    let lease = (route == "held").then_some(LeaseSchedule { requests, pause });
    let other = dice.index(2);
    let calls = (route == "pay" && dice.below(4) == 0).then_some(other);
    ClientRequest { gateway, path, works, leaves, once, lease, calls, relayed: None }
}

fn accident(dice: &SeededRng) -> EventKind {
    let gateway = dice.index(2);
    let time = dice.within(&(ms(50)..T * 2));
    let ends = [
        (ProcessId::Gateway(gateway), ProcessId::Guard),
        (ProcessId::Gateway(0), ProcessId::Gateway(1)),
        (ProcessId::Guard, ProcessId::Upstream),
    ];
    match dice.below(16) {
        0 | 1 => EventKind::Freezes(ProcessId::Gateway(gateway), time),
        2 => EventKind::Freezes(ProcessId::Guard, time.min(LONGEST_BLOCK)),
        3 | 4 => EventKind::Dies(ProcessId::Gateway(gateway), dice.within(&(ms(20)..T))),
        5 => EventKind::Dies(ProcessId::Guard, dice.within(&(ms(20)..T))),
        6 => EventKind::Restarts(*dice.one_of(&[ProcessId::Gateway(gateway), ProcessId::Guard])),
        7 | 8 => {
            let (one, other) = *dice.one_of(&ends);
            let (from, to) = if dice.below(2) == 0 { (one, other) } else { (other, one) };
            EventKind::Blocked { from, to, time: time.min(LONGEST_BLOCK) }
        }
        9 | 10 => {
            let (one, other) = *dice.one_of(&ends);
            EventKind::Breaks(one, other)
        }
        11 => EventKind::Slow(dice.within(&(Duration::ZERO..ms(60)))),
        12 => EventKind::DiskStalls(dice.within(&(ms(50)..ms(1500)))),
        _ => {
            let troubles = [
                NetworkFault::Cut(time * 2),
                NetworkFault::Cut(time),
                NetworkFault::Silent(time * 2),
                NetworkFault::LosesReply,
                NetworkFault::LosesRequest,
                NetworkFault::Blinks,
                NetworkFault::Slow(dice.within(&(Duration::ZERO..T / 10))),
                NetworkFault::Swaps,
            ];
            EventKind::ZooKeeper(gateway, *dice.one_of(&troubles))
        }
    }
}

fn event(at: Duration, what: EventKind) -> ScheduledEvent {
    ScheduledEvent { at, what }
}

/// A set waits at the guard for one of its keys, while its gateway is frozen for longer than its session, and the
/// other key is used.
fn orphaned_set(dice: &SeededRng) -> Vec<ScheduledEvent> {
    let first = dice.index(3);
    let one = RESOURCES[first];
    let other = RESOURCES[(first + 1) % 3];
    let mut events = vec![
        event(
            Duration::ZERO,
            EventKind::Asks(ClientRequest::plain(0, format!("/strict/{other}"), LONGEST_WORK)),
        ),
        event(ms(300), EventKind::Dies(ProcessId::Gateway(0), ms(100))),
        // The key becomes doubtful, so that the guard keeps it closed while the set waits.
        event(ms(800), EventKind::Breaks(ProcessId::Guard, ProcessId::Upstream)),
        event(ms(600), EventKind::Asks(ClientRequest::plain(1, format!("/move/{one}/{other}"), ms(100)))),
        event(
            ms(2750) + dice.within(&(Duration::ZERO..ms(300))),
            EventKind::Freezes(ProcessId::Gateway(1), T * 3),
        ),
    ];
    events.extend((0..6).map(|number| {
        event(
            ms(3200) + ms(400) * number,
            EventKind::Asks(ClientRequest::plain(0, format!("/strict/{one}"), ms(50))),
        )
    }));
    events
}

/// Two shops use one name for an operation. The request of the second shop is lost on its way to the service.
fn question_lost(dice: &SeededRng) -> Vec<ScheduledEvent> {
    let resource = dice.one_of(&RESOURCES);
    let shop = |principal, repeats| ClientRequest {
        once: Some(RepeatedOperation { name: "lost".into(), principal: Some(principal), repeats }),
        ..ClientRequest::plain(dice.index(2), format!("/shop/{resource}"), ms(30))
    };
    vec![
        event(Duration::ZERO, EventKind::Asks(shop("east", 0))),
        event(ms(900), EventKind::Blocked { from: ProcessId::Guard, to: ProcessId::Upstream, time: ms(700) }),
        event(ms(910), EventKind::Asks(shop("west", 5))),
        event(ms(1400), EventKind::Breaks(ProcessId::Guard, ProcessId::Upstream)),
    ]
}

/// The connection to the service breaks while an operation is in flight, and the client repeats the operation.
fn broken_off(dice: &SeededRng) -> Vec<ScheduledEvent> {
    let once = Some(RepeatedOperation { name: "off".into(), principal: None, repeats: 5 });
    let path = format!("/once/{}", dice.one_of(&RESOURCES));
    vec![
        event(
            Duration::ZERO,
            EventKind::Asks(ClientRequest {
                once,
                ..ClientRequest::plain(dice.index(2), path, LONGEST_WORK)
            }),
        ),
        event(
            ms(300) + dice.within(&(Duration::ZERO..ms(900))),
            EventKind::Breaks(ProcessId::Guard, ProcessId::Upstream),
        ),
    ]
}

/// A proxy before the service gives a response of its own while the service still works, and other requests for the
/// resource arrive.
fn answered_early(dice: &SeededRng) -> Vec<ScheduledEvent> {
    let resource = dice.one_of(&RESOURCES);
    let route = *dice.one_of(&["pay", "strict", "sent", "once"]);
    let once =
        (route == "once").then(|| RepeatedOperation { name: "early".into(), principal: None, repeats: 3 });
    let early = ClientRequest {
        once,
        relayed: Some(dice.within(&(ms(50)..ms(500)))),
        ..ClientRequest::plain(dice.index(2), format!("/{route}/{resource}"), LONGEST_WORK / 2)
    };
    let mut events = vec![event(Duration::ZERO, EventKind::Asks(early))];
    events.extend((1..4).map(|number| {
        let path = format!("/{}/{resource}", dice.one_of(&["pay", "strict"]));
        event(ms(400) * number, EventKind::Asks(ClientRequest::plain(dice.index(2), path, ms(100))))
    }));
    events
}

/// While requests are in flight, the keys of their resource are renamed, more than once.
fn rekeyed(dice: &SeededRng) -> Vec<ScheduledEvent> {
    let path = format!("/pay/{}", dice.one_of(&RESOURCES));
    let mut events = Vec::new();
    for round in 0..4_u32 {
        let begin = ms(700) * round;
        for gateway in 0..2 {
            events.push(event(
                begin + ms(100),
                EventKind::Asks(ClientRequest::plain(gateway, path.clone(), ms(900))),
            ));
            events.push(event(
                begin + ms(300),
                EventKind::Asks(ClientRequest::plain(gateway, path.clone(), ms(200))),
            ));
        }
        let both = dice.below(2) == 0;
        events.push(event(begin + dice.within(&(Duration::ZERO..ms(700))), EventKind::Rekeys(0)));
        if both {
            events.push(event(begin + dice.within(&(Duration::ZERO..ms(700))), EventKind::Rekeys(1)));
        }
    }
    events
}
