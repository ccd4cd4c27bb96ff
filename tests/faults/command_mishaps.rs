//! A hundred faults of the processes that guard a command, and a hundred of the gateways whose leases are the locks
//! of commands. Each test measures the time from the end of the command to the grant of its lock to another holder.

use std::fmt::Debug;

use fencegate_tests::{
    charged::{
        gateway_mishap::{GatewayFault, GatewayFaultFixture},
        measured::{FaultTiming, summary},
        mishap::{CommandFault, CommandFaultFixture},
    },
    site::TestSlot,
};

const AT_ONCE: usize = 5;

/// Prints a summary for each mishap, and fails if one of the measurements is bad.
fn assert_all_good<M: Copy + Debug + PartialEq>(mishaps: &[M], all: &[FaultTiming<M>]) {
    for mishap in mishaps {
        println!("{mishap:?}: {}", summary(all.iter().filter(|measured| measured.mishap == *mishap)));
    }
    assert!(all.len() >= 100, "not exercised");
    let bad: Vec<_> = all.iter().filter(|measured| !measured.is_good()).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

/// In a hundred faults a command is dead before another holder gets its lock.
#[tokio::test]
async fn command_ends_before_next_lock_holder() {
    let _turn = TestSlot::beside_others().await;
    let scene = CommandFaultFixture::new().await;
    let mut all = Vec::new();
    for _ in 0..3 {
        for mishap in CommandFault::ALL {
            all.extend(scene.run_rounds(mishap, AT_ONCE).await);
        }
    }
    assert_all_good(&CommandFault::ALL, &all);
}

/// In a hundred faults of gateways a command under a lease is dead before another client gets its key.
#[tokio::test]
async fn leased_command_ends_before_next_holder() {
    let mut scene = GatewayFaultFixture::new().await;
    let mut all = Vec::new();
    for _ in 0..7 {
        for mishap in GatewayFault::ALL {
            all.extend(scene.run_rounds(mishap, AT_ONCE).await);
        }
    }
    assert_all_good(&GatewayFault::ALL, &all);
}
