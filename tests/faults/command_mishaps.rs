//! A hundred mishaps of the processes that guard a command, and a hundred of the gateways whose leases are its locks.
//! Each test measures for how long the command was dead when another holder got its lock.

use std::fmt::Debug;

use fencegate_tests::{
    charged::{
        gateway_mishap::{GatewayFault, GatewayFixture},
        measured::{FaultTiming, summary},
        mishap::{CommandFault, FaultFixture},
    },
    site::TestSlot,
};

const AT_ONCE: usize = 5;

/// Prints a summary for each mishap, and fails if one of the measurements is bad.
fn judged<M: Copy + Debug + PartialEq>(mishaps: &[M], all: &[FaultTiming<M>]) {
    for mishap in mishaps {
        println!("{mishap:?}: {}", summary(all.iter().filter(|measured| measured.mishap == *mishap)));
    }
    assert!(all.len() >= 100, "not exercised");
    let bad: Vec<_> = all.iter().filter(|measured| !measured.is_good()).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

#[tokio::test]
async fn a_command_is_dead_before_its_lock_is_anothers_a_hundred_times() {
    let _turn = TestSlot::beside_others().await;
    let (scene, mut all) = (FaultFixture::new().await, Vec::new());
    for _ in 0..3 {
        for mishap in CommandFault::ALL {
            all.extend(scene.run_rounds(mishap, AT_ONCE).await);
        }
    }
    judged(&CommandFault::ALL, &all);
}

#[tokio::test]
async fn a_command_under_a_lease_is_dead_before_its_key_is_anothers_a_hundred_times() {
    let (mut scene, mut all) = (GatewayFixture::new().await, Vec::new());
    for _ in 0..7 {
        for mishap in GatewayFault::ALL {
            all.extend(scene.run_rounds(mishap, AT_ONCE).await);
        }
    }
    judged(&GatewayFault::ALL, &all);
}
