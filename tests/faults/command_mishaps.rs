//! A hundred mishaps of those that watch over a command: for how long it was dead when its lock became another's.

use fencegate_tests::{
    charged::mishap::{Measured, Mishap, Scene},
    site::Turn,
};

/// Of each mishap; all of them at once, five at a time.
const OF_EACH: usize = 15;
const AT_ONCE: usize = 5;

#[tokio::test]
async fn a_command_is_dead_before_its_lock_is_anothers_a_hundred_times() {
    let _turn = Turn::beside_others().await;
    let scene = Scene::new().await;
    let mut all: Vec<Measured> = Vec::new();
    for _ in 0..OF_EACH / AT_ONCE {
        for mishap in Mishap::ALL {
            all.extend(scene.plays(mishap, AT_ONCE).await);
        }
    }
    for mishap in Mishap::ALL {
        let of_it = || all.iter().filter(|measured| measured.mishap == mishap);
        println!(
            "{mishap:?}: {} times; dead before the proof ended by {}; before the next one held the lock by {}",
            of_it().count(),
            spread(of_it().map(|measured| measured.before_the_end)),
            spread(of_it().map(|measured| measured.before_the_next)),
        );
    }
    assert!(all.len() >= 100, "not exercised");
    let bad = |measured: &&Measured| {
        let told = measured.code.is_none_or(|code| code == 123);
        measured.before_the_next <= 0.0 || measured.before_the_end <= 0.0 || !measured.grows || !told
    };
    let bad: Vec<_> = all.iter().filter(bad).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

/// The least, the middle and the most, in milliseconds.
fn spread(times: impl Iterator<Item = f64>) -> String {
    let mut times: Vec<_> = times.collect();
    times.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (times.first(), times.last()) else { return "nothing".to_owned() };
    format!("{least:.0} ms at least, {:.0} ms mostly, {most:.0} ms at most", times[times.len() / 2])
}
