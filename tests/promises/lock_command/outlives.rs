//! After each mishap the command is dead before its lock is another's. `tests/faults` measures it a hundred times.

use fencegate_tests::{
    charged::mishap::{Mishap, Scene},
    site::Turn,
};

#[tokio::test]
async fn a_command_never_outlives_its_lock() {
    let _turn = Turn::beside_others().await;
    let scene = Scene::new().await;
    for mishap in Mishap::ALL {
        for measured in scene.plays(mishap, 2).await {
            assert!(measured.before_the_next > 0.0 && measured.grows, "{measured:?}");
            assert!(measured.before_the_end > 0.0, "{measured:?}");
            assert!(measured.code.is_none_or(|code| code == 123), "{measured:?}");
        }
    }
}
