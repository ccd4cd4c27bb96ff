//! `fencegate elect`: one candidate leads at a time, and the next one leads after its end. A candidate that loses the
//! lead ends its command.

use fencegate_testkit::child::Signal;
use fencegate_tests::{
    charged::{CommandBehavior, GRACE, LockedCommand, install, signal},
    site::TestSite,
};

/// After a kill of the leader the next candidate leads when the leader's command is dead, with a larger token.
#[tokio::test]
async fn next_candidate_leads_after_leader_dies() {
    let site = TestSite::fresh().await;
    let policy = site.policy("jobs");
    install(&policy).await;
    let verb = [&["elect", "billing"], &GRACE[..]].concat();
    let first = LockedCommand::spawn(&policy, &verb, CommandBehavior::Meek);
    let led = first.wait_record().await;
    let second = LockedCommand::spawn(&policy, &[&verb[..], &["-v"]].concat(), CommandBehavior::Meek);
    second.wait_output("waits for the lock of `election/billing`").await;
    assert_eq!(second.record(), None, "two lead");
    first.signal(Signal::KILL);
    let leads = second.wait_record().await;
    let led = first.record().unwrap_or(led);
    assert!(leads.began > led.last && leads.token > led.token, "{led:?} {leads:?}");
    second.signal(Signal::TERM);
    assert_eq!(second.exit().await, 128 + 15, "{}", second.log());
}

/// With `--again` a candidate that loses the lead stands again, with growing tokens, until it receives SIGTERM.
#[tokio::test]
async fn candidate_with_again_leads_until_terminated() {
    let site = TestSite::fresh().await;
    let policy = site.policy("jobs");
    install(&policy).await;
    let line = "echo $FENCING_TOKEN >>$HOME_OF_TEST/led; echo led $(wc -l <$HOME_OF_TEST/led); \
                test $(wc -l <$HOME_OF_TEST/led) -ge 3 && exec sleep 60; test $(wc -l <$HOME_OF_TEST/led) = 1 && exit 7; \
                exec sleep 61";
    let candidate =
        LockedCommand::spawn_shell(&policy, &[&["elect", "billing", "--again"], &GRACE[..]].concat(), line);
    candidate.wait_output("led 2").await;
    // The candidate loses the lead and wins it again.
    signal(candidate.supervisor(), Signal::KILL);
    candidate.wait_output("led 3").await;
    assert!(candidate.log().contains("FG0622"), "{}", candidate.log());
    candidate.signal(Signal::TERM);
    assert_eq!(candidate.exit().await, 128 + 15, "{}", candidate.log());
    let led = std::fs::read_to_string(candidate.home().join("led")).expect("it led");
    assert!(led.lines().is_sorted_by(|one, next| one < next), "{led}");
}
