//! A hundred mishaps of those that watch over a command, and a hundred of the gateways whose leases are its locks: for how long it
//! was dead when its lock became another's.

use std::fmt::Debug;

use fencegate_tests::{
    charged::{
        gateway_mishap::{GatewayMishap, GatewayScene},
        measured::{Measured, summary},
        mishap::{Mishap, Scene},
    },
    site::Turn,
};

const AT_ONCE: usize = 5;

/// Says what was seen of each mishap.
fn judged<M: Copy + Debug + PartialEq>(mishaps: &[M], all: &[Measured<M>]) {
    for mishap in mishaps {
        println!("{mishap:?}: {}", summary(all.iter().filter(|measured| measured.mishap == *mishap)));
    }
    assert!(all.len() >= 100, "not exercised");
    let bad: Vec<_> = all.iter().filter(|measured| !measured.is_good()).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

#[tokio::test]
async fn a_command_is_dead_before_its_lock_is_anothers_a_hundred_times() {
    let _turn = Turn::beside_others().await;
    let (scene, mut all) = (Scene::new().await, Vec::new());
    for _ in 0..3 {
        for mishap in Mishap::ALL {
            all.extend(scene.plays(mishap, AT_ONCE).await);
        }
    }
    judged(&Mishap::ALL, &all);
}

#[tokio::test]
async fn a_command_under_a_lease_is_dead_before_its_key_is_anothers_a_hundred_times() {
    let (mut scene, mut all) = (GatewayScene::new().await, Vec::new());
    for _ in 0..7 {
        for mishap in GatewayMishap::ALL {
            all.extend(scene.plays(mishap, AT_ONCE).await);
        }
    }
    judged(&GatewayMishap::ALL, &all);
}
