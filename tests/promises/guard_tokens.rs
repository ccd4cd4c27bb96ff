//! Only a gateway of this installation moves a watermark: after one forged token, every honest one would be refused.
//!
//! The tokens and tickets are forged, foreign, expired, malformed, or far too large.

use fencegate_process::randomness::SystemRandomness;
use fencegate_tests::{
    client::{FencingOutcome, TestRequest},
    guard::{GuardFixture, GuardLaunch, StampedRequest, assert_refused},
};
use fencegate_ticket::{TicketClaims, TicketSigner, jwks, keys::SigningKeyPair, unix_seconds};
use serde_json::json;

/// The largest epoch that there can be.
const LARGEST: u64 = i64::MAX as u64;

fn signer() -> (TicketSigner, String) {
    let pair = SigningKeyPair::generate(&SystemRandomness);
    let set = jwks::render_key_set(&[pair.public()]).expect("a key set");
    (TicketSigner::with_key(&pair), set)
}

/// A guard that requires tickets, and the signer that it accepts.
async fn launch_requiring_tickets(fixture: &GuardFixture) -> (GuardLaunch, TicketSigner) {
    let (signer, set) = signer();
    let launch = fixture.launch().await;
    let file = launch.home().join("keys.json");
    std::fs::write(&file, set).expect("the folder can be written");
    (launch.with("/tickets", json!({"public_keys_file": file})), signer)
}

/// A token that no gateway would write is refused, and moves no watermark.
#[tokio::test]
async fn malformed_token_moves_no_watermark() {
    let fixture = GuardFixture::new().await;
    let guard = fixture.guard().await;
    let good = StampedRequest::new("a", 20).token().to_string();
    let far = StampedRequest::new("a", LARGEST).token().to_string();
    let upper = StampedRequest::new("a", 0xab).token().to_string().to_uppercase();
    for (tokens, reason) in [
        (vec![far.as_str()], "token-future"),
        (vec!["9223372036854775807"], "token-malformed"),
        (vec!["-1"], "token-malformed"),
        (vec!["1e30"], "token-malformed"),
        (vec!["+5"], "token-malformed"),
        (vec!["007"], "token-malformed"),
        (vec![""], "token-malformed"),
        (vec![upper.as_str()], "token-malformed"),
        (vec!["v1-8000000000000000-00000001-00000001"], "token-malformed"),
        (vec!["v1-ffffffffffffffff-00000001-00000001"], "token-malformed"),
        (vec![good.as_str(), good.as_str()], "token-malformed"),
        (vec![good.as_str(), far.as_str()], "token-malformed"),
    ] {
        let request = TestRequest::post("/pay").field("Fencing-Key", "a").field("Fencing-Mode", "exclusive");
        let request = tokens.iter().fold(request, |request, token| request.field("Fencing-Token", token));
        let answer = guard.send(&request).await;
        assert_refused(&answer, reason);
        assert_eq!(answer.outcome(), Some(FencingOutcome::NotDispatched), "{tokens:?}");
    }
    for (name, value) in [
        ("fencing_token", good.as_str()),
        ("Fencing-Number", "21"),
        ("Fencing-Key", "b"),
        ("fencing_mode", "shared"),
        ("Fencing-Operation", "1"),
    ] {
        let answer = guard.send(&StampedRequest::new("a", 20).post("/pay").field(name, value)).await;
        assert_refused(&answer, "token-malformed");
    }
    assert_eq!(fixture.origin.count("/pay"), 0);
    assert_eq!(guard.send(&StampedRequest::new("a", 20).post("/honest")).await.status, 200);
}

/// A token without a valid ticket is refused, and moves no watermark.
#[tokio::test]
async fn bad_ticket_moves_no_watermark() {
    let fixture = GuardFixture::new().await;
    let (launch, gateway) = launch_requiring_tickets(&fixture).await;
    let guard = launch.start().await;
    let forged = StampedRequest::new("a", 900);
    let (stranger, _) = signer();
    let honest = forged.claims();
    let with = |change: fn(&mut TicketClaims)| {
        let mut claims = forged.claims();
        change(&mut claims);
        forged.clone().ticket(&gateway, &claims, unix_seconds())
    };
    let elsewhere = with(|claims| claims.ensemble = "another".into());
    let other_key = with(|claims| claims.keys = vec!["b".into()]);
    let more_keys = with(|claims| claims.keys.push("b".into()));
    let other_tenure = with(|claims| claims.tenure = StampedRequest::new("a", 20).with_dispatch(0).token());
    for (name, dispatch, reason) in [
        ("none", forged.clone(), "ticket-missing"),
        ("of a stranger", forged.clone().ticket(&stranger, &honest, unix_seconds()), "ticket-invalid"),
        ("of another installation", elsewhere, "ticket-invalid"),
        ("expired", forged.clone().ticket(&gateway, &honest, unix_seconds() - 400), "ticket-expired"),
        ("of tomorrow", forged.clone().ticket(&gateway, &honest, unix_seconds() + 400), "ticket-invalid"),
        ("for another key", other_key, "ticket-key"),
        ("for more keys", more_keys, "ticket-key"),
        ("of another tenure", other_tenure, "ticket-key"),
        ("for another mode", forged.clone().sign(&gateway).shared(), "ticket-key"),
    ] {
        let answer = guard.send(&dispatch.post("/pay")).await;
        assert_refused(&answer, reason);
        assert_eq!((answer.status, answer.outcome()), (403, Some(FencingOutcome::NotDispatched)), "{name}");
    }
    let twice = forged.clone().sign(&gateway).post("/pay").field("Fencing-Ticket", "x");
    assert_refused(&guard.send(&twice).await, "ticket-invalid");
    assert_eq!(fixture.origin.count("/pay"), 0);
    let honest = StampedRequest::new("a", 20).sign(&gateway);
    assert_eq!(guard.send(&honest.post("/honest")).await.status, 200);
    let record = fixture.origin.wait_for_request("/honest", 1).await;
    assert_eq!(record.request.field("fencing-ticket"), None, "who has it passes for a gateway");
    // One ticket is good for all dispatches of its tenure.
    assert_eq!(guard.send(&honest.with_dispatch(2).post("/honest")).await.status, 200);
}

/// A signed token far above all others passes only under a later era.
#[tokio::test]
async fn far_token_needs_later_era() {
    let fixture = GuardFixture::new().await;
    let (launch, gateway) = launch_requiring_tickets(&fixture).await;
    let guard = launch.start().await;
    let of_era = |dispatch: &StampedRequest, era| {
        let mut claims = dispatch.claims();
        claims.era = era;
        dispatch.clone().ticket(&gateway, &claims, unix_seconds())
    };
    assert_eq!(
        guard.send(&StampedRequest::new("a", 20).once(1).sign(&gateway).post("/pay")).await.status,
        200
    );
    let far = StampedRequest::new("a", 1 << 50);
    assert_refused(&guard.send(&far.clone().sign(&gateway).post("/far")).await, "token-future");
    assert_eq!(guard.send(&StampedRequest::new("a", 21).sign(&gateway).post("/pay")).await.status, 200);

    // The first token of an era that the guard sees is a replay, which announces nothing.
    let repeat = of_era(&StampedRequest::new("a", (1 << 50) - 9).once(1), 1);
    assert_eq!(guard.send(&repeat.post("/pay")).await.outcome(), Some(FencingOutcome::Replayed));
    let guard = guard.stop().await.start().await;
    assert_eq!(guard.send(&of_era(&far, 1).post("/far")).await.status, 200);
    assert_refused(
        &guard.send(&of_era(&StampedRequest::new("a", 1 << 60), 1).post("/far")).await,
        "token-future",
    );
    let guard = guard.stop().await.start().await;
    assert_refused(
        &guard.send(&of_era(&StampedRequest::new("a", 1 << 60), 1).post("/far")).await,
        "token-future",
    );
    assert_eq!(guard.send(&of_era(&far.with_dispatch(2), 1).post("/far")).await.status, 200);
    assert_eq!(fixture.origin.count("/far"), 2);
}
