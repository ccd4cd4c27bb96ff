//! The numbers of the nodes below one parent come to their limit: the parent is replaced when all are gone that stand in line
//! below it, and tokens go on growing.

use std::time::Duration;

use fencegate_lock::{
    session::link::{Connect, Kind, Link, Step},
    tenures::{
        keeper::{Keeper, Refused},
        tenure::Tenure,
        wish::{Waits, Wish},
    },
};
use fencegate_policies::plan::{Hold, Mode};
use fencegate_tests::memory::{Ensemble, Session, Settings};
use tokio::{
    task::{JoinHandle, spawn_local},
    time::sleep,
};

use crate::{
    doctored::{Doctor, Library, Locks, key, parent},
    plan::ROOT,
    simulated,
};

const T: Duration = Duration::from_secs(2);

/// Nodes with the numbers 0 to 2 may hold.
const LIMIT: u32 = 2;

struct Stage {
    ensemble: Ensemble,
    gateways: Vec<Locks>,
    looker: Session,
}

impl Stage {
    async fn set() -> Self {
        let ensemble = Ensemble::start(Settings::default());
        let mut gateways = Vec::new();
        for _ in 0..2 {
            let library = Library { ensemble: ensemble.clone(), timeout: T, doctor: Doctor::new() };
            gateways.push(Locks::numbered_to(library, LIMIT).await);
        }
        let looker = ensemble.client(&ensemble.wire(), T).connect().await.expect("a session");
        Self { ensemble, gateways, looker }
    }

    /// Asks for these keys at a gateway.
    fn asks(&self, gateway: usize, names: &[&'static str]) -> JoinHandle<Result<Tenure, Refused>> {
        spawn_local(asked(self.gateways[gateway].keeper.clone(), names.to_vec()))
    }

    /// Returns when so many nodes stand in line for the key.
    async fn stand_in_line(&self, name: &str, many: usize) {
        let parent = parent(name);
        loop {
            let nodes = self.looker.children(&parent).await.unwrap_or_default();
            if nodes.len() == many {
                return;
            }
            sleep(T / 100).await;
        }
    }

    async fn end(self) {
        for gateway in self.gateways {
            gateway.stop().await;
        }
        let left = |path: &String| path.matches('/').count() > 3 && path.contains("/locks/");
        let left: Vec<String> = self.ensemble.paths().into_iter().filter(left).collect();
        assert!(left.iter().all(|path| path.matches('/').count() == 4), "lock nodes are left: {left:?}");
    }
}

async fn asked(keeper: Keeper, names: Vec<&'static str>) -> Result<Tenure, Refused> {
    let keys: Vec<_> = names.into_iter().map(key).collect();
    let (mode, hold, wait, route) = (Mode::Exclusive, Hold::Strict, T * 20, "sim".into());
    let (sites, queue, waits, delay) = (&[], 100, Waits::Here, None);
    keeper.acquire(Wish { keys: &keys, sites, mode, hold, wait, queue, waits, delay, route: &route }).await
}

fn sequence(tenure: &Tenure) -> u32 {
    let nodes = tenure.nodes();
    let (_, number) = nodes[0].rsplit_once('-').expect("a numbered node");
    number.parse().expect("a number")
}

fn gives_back(tenure: Tenure) {
    tenure.known();
    drop(tenure);
}

/// Somebody stands in line all the time, so the parent stays and its numbers are used up.
async fn hand_over(stage: &Stage, names: &[&'static str], times: usize) -> Vec<(u64, u32)> {
    let mut seen = Vec::new();
    let mut held = stage.asks(0, names).await.expect("no panic").expect("free");
    for turn in 0..times {
        seen.push((held.first_token().expect("its first").number(), sequence(&held)));
        let next = stage.asks((turn + 1) % 2, names);
        if sequence(&held) < LIMIT {
            stage.stand_in_line(names[0], 2).await;
        } else {
            // Its node has a number above the limit. It goes, and waits for the end of the parent.
            sleep(T / 2).await;
            stage.stand_in_line(names[0], 1).await;
        }
        gives_back(held);
        held = next.await.expect("no panic").expect("its turn comes");
    }
    gives_back(held);
    seen
}

fn check(seen: &[(u64, u32)]) {
    assert!(seen.windows(2).all(|two| two[0].0 < two[1].0), "tokens grow: {seen:?}");
    assert!(seen.iter().all(|(_, number)| *number <= LIMIT), "{seen:?}");
    let numbers: Vec<u32> = seen.iter().map(|(_, number)| *number).collect();
    assert_eq!(numbers, [0, 1, 2, 0, 1, 2, 0], "each number is used, and they begin anew");
}

#[test]
fn numbers_begin_anew_below_a_new_parent_and_tokens_grow() {
    simulated::run(async {
        let stage = Stage::set().await;
        check(&hand_over(&stage, &["hot"], 7).await);
        stage.end().await;
    });
}

#[test]
fn numbers_of_the_keys_of_a_set_begin_anew_as_well() {
    simulated::run(async {
        let stage = Stage::set().await;
        check(&hand_over(&stage, &["hot", "warm"], 7).await);
        stage.end().await;
    });
}

#[test]
fn a_parent_that_keeps_a_record_is_not_replaced() {
    simulated::run(async {
        let stage = Stage::set().await;
        let first = stage.asks(0, &["hot"]).await.expect("no panic").expect("free");
        let second = stage.asks(1, &["hot"]);
        stage.stand_in_line("hot", 2).await;
        gives_back(first);
        let second = second.await.expect("no panic").expect("its turn");
        let third = stage.asks(0, &["hot"]);
        stage.stand_in_line("hot", 2).await;
        gives_back(second);
        let third = third.await.expect("no panic").expect("its turn");
        assert_eq!(sequence(&third), LIMIT);
        let parent = parent("hot");
        let record = [Step::Set { path: &parent, data: b"a record of a former policy" }];
        stage.looker.commit(&record).await.expect("written");
        let fourth = stage.asks(1, &["hot"]);
        sleep(T).await;
        gives_back(third);
        let fourth = fourth.await.expect("no panic");
        assert!(matches!(fourth, Err(Refused::KeyLimit(_))), "{:?}", fourth.err());
        let (data, _) = stage.looker.data(&parent).await.expect("it is there");
        assert_eq!(data, b"a record of a former policy");
        stage.end().await;
    });
}

#[test]
fn nodes_of_others_are_waited_for_before_a_parent_is_replaced() {
    simulated::run(async {
        let stage = Stage::set().await;
        let parent = parent("hot");
        // Somebody else's nodes have used up the numbers, and one of them stays for a while.
        for folder in [format!("{ROOT}/locks"), parent.rsplit_once('/').expect("absolute").0.to_owned()] {
            drop(stage.looker.create(&folder, b"", Kind::Persistent).await);
        }
        stage.looker.create(&parent, b"", Kind::Container).await.expect("made");
        for _ in 0..=LIMIT {
            let node = format!("{parent}/_c_0-w-");
            stage.looker.create(&node, b"", Kind::EphemeralSequential).await.expect("made");
        }
        let before = stage.looker.children(&parent).await.expect("there");
        let asked = stage.asks(0, &["hot"]);
        sleep(T).await;
        for node in before {
            stage.looker.delete(&format!("{parent}/{node}")).await.expect("ours");
        }
        let held = asked.await.expect("no panic").expect("free");
        assert_eq!(sequence(&held), 0);
        gives_back(held);
        stage.end().await;
    });
}
