//! An operator lists the leases of a gateway, revokes one and breaks one, through the admin listener or the command line.
//! No lease secret is shown, and the key of a broken lease stays held for as long as its client was promised.

use std::time::{Duration, Instant};

use fencegate_testkit::wait::wait_until;
use fencegate_tests::{
    client::TestRequest,
    gateway::{Gateway, command},
    leases::{ClientLease, LeaseTokens, acquire_request, json_body},
    site::TestSite,
};
use serde_json::{Value, json};

/// Status and body with which the admin listener answers a query about one lease or all leases.
async fn get_json(gateway: &Gateway, path: &str) -> (u16, Value) {
    let answer = gateway.admin(path).await;
    (answer.status, json_body(&answer))
}

async fn post_json(gateway: &Gateway, path: &str, body: &Value) -> (u16, Value) {
    let answer =
        TestRequest::post(path).body(body.to_string()).send_to(gateway.admin).await.expect("an answer");
    (answer.status, json_body(&answer))
}

/// Runs a command; returns its exit code, stdout and stderr.
async fn run_verb(gateway: &Gateway, verb: &[&str]) -> (Option<i32>, String, String) {
    let admin = gateway.admin.to_string();
    let output = command(&[verb, &["--admin", &admin]].concat()).await.expect("started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn secret(lease: &ClientLease) -> &str {
    lease.id.rsplit('.').next().expect("a secret")
}

/// An operator lists, revokes and breaks leases; changes are audited without secrets, and a broken key stays held as
/// promised.
#[tokio::test]
async fn operator_lists_revokes_and_breaks_leases() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let gateway = Gateway::start(&tokens.policy(&site, "gw-1")).await;
    let asked = Instant::now();
    let lease = ClientLease::acquire(&gateway, json!({"keys": ["account/7"], "note": "10.0.0.7:80"})).await;
    let held_for = Duration::from_millis(lease.document["held_for_ms"].as_u64().expect("a number"));
    let body = json!({"keys": ["account/7"], "note": "next"});
    let waiter = ClientLease::from_response(
        &gateway.send(&acquire_request(&body).field("prefer", "respond-async")).await,
    );
    let behind = async {
        loop {
            let (_, seen) = get_json(&gateway, &format!("/api/v1/leases/{}", waiter.reference)).await;
            if seen["ahead"] == 1 {
                return;
            }
        }
    };
    wait_until("one stands before it", behind, || "none").await;

    let (status, all) = get_json(&gateway, "/api/v1/leases").await;
    assert_eq!(
        (status, &all["held"], &all["waiting"], &all["more"]),
        (200, &json!(1), &json!(1), &json!(false))
    );
    let [first, second] = [&all["leases"][0], &all["leases"][1]];
    assert_eq!(
        [&first["reference"], &first["state"], &first["principal"], &first["note"], &first["mode"]],
        [
            &json!(lease.reference),
            &json!("held"),
            &json!("client"),
            &json!("10.0.0.7:80"),
            &json!("exclusive")
        ]
    );
    assert_eq!((&first["keys"], &first["token"]), (&json!(["account/7"]), &lease.document["token"]));
    assert!((1..=10_000).contains(&first["expires_in_ms"].as_u64().expect("a number")), "{first}");
    assert_eq!([&second["reference"], &second["state"]], [&json!(waiter.reference), &json!("waiting")]);
    // The list of leases comes in pages, and can be filtered by key.
    let (_, page) = get_json(&gateway, "/api/v1/leases?limit=1").await;
    assert_eq!((page["leases"].as_array().map(Vec::len), &page["more"]), (Some(1), &json!(true)));
    let (_, rest) = get_json(&gateway, &format!("/api/v1/leases?after={}", lease.reference)).await;
    assert_eq!(rest["leases"][0]["reference"], json!(waiter.reference));
    assert_eq!(get_json(&gateway, "/api/v1/leases?key=job%2F1").await.1["leases"], json!([]));
    assert_eq!(get_json(&gateway, "/api/v1/leases?after=0123456789abcdef").await.1["reason"], "changed");

    let place = |verb: &str| format!("/api/v1/leases/{}/{verb}", lease.reference);
    let why = "the database is being moved";
    let (status, seen) = post_json(&gateway, &place("revoke"), &json!({ "why": why })).await;
    assert_eq!((status, &seen["revocation"], &seen["state"]), (200, &json!(why), &json!("held")));
    assert_eq!(json_body(&lease.renew(&gateway).await)["revocation"], why);

    // A request under the lease is in flight. The next holder waits for the end of that request as well.
    let latch = site.origin.hold("/pay/7");
    let running = gateway.begin(lease.with_lease(TestRequest::post("/pay/7")));
    site.origin.wait_for_request("/pay/7", 1).await;
    for (body, status, reason) in [
        (json!({}), 400, "malformed"),
        (json!({"confirm": lease.reference}), 400, "malformed"),
        (json!({"confirm": waiter.reference, "why": why}), 400, "confirm"),
        (json!({"confirm": lease.reference, "why": "two\nlines"}), 400, "malformed"),
    ] {
        let (answered, told) = post_json(&gateway, &place("break"), &body).await;
        assert_eq!((answered, &told["reason"]), (status, &json!(reason)), "{body}");
    }
    let sure = json!({"confirm": lease.reference, "why": why});
    let (status, seen) = post_json(&gateway, &place("break"), &sure).await;
    assert_eq!((status, &seen["state"], &seen["why"]), (200, &json!("over"), &json!("broken")), "{seen}");
    assert_eq!(seen["at_work"], 1);
    assert!(seen["kept_for_ms"].as_u64().is_some_and(|kept| kept > 0), "{seen}");
    for verb in ["break", "revoke"] {
        let body = if verb == "break" { &sure } else { &json!({ "why": why }) };
        let (answered, told) = post_json(&gateway, &place(verb), body).await;
        assert_eq!((answered, &told["reason"]), (409, &json!("changed")), "{verb}");
    }
    let (_, over) = get_json(&gateway, &format!("/api/v1/leases/{}", lease.reference)).await;
    assert_eq!(over["why"], "broken");
    let waiting = async { while json_body(&waiter.get(&gateway).await)["state"] != "held" {} };
    latch.release();
    assert_eq!(running.answer().await.status, 200);
    wait_until("the next one to hold", waiting, || "it waits").await;
    assert!(asked.elapsed() >= held_for, "{:?} of {held_for:?}", asked.elapsed());

    let log = gateway.log();
    for audited in ["asked for lease", "broke lease"] {
        let line = log.lines().find(|line| line.contains("audit") && line.contains(audited)).expect("a line");
        assert!(
            line.contains(why) && line.contains(&lease.reference) && line.contains("account/7"),
            "{line}"
        );
    }
    for (lease, seen) in
        [(&lease, &all.to_string()), (&waiter, &all.to_string()), (&lease, &log), (&waiter, &log)]
    {
        assert!(!seen.contains(secret(lease)), "a secret");
    }
}

/// `fencegate lease` lists, shows, revokes and breaks leases of the addressed gateway; `break` needs `--yes`.
#[tokio::test]
async fn commands_show_revoke_and_break_leases() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let policies = ["gw-1", "gw-2"].map(|name| tokens.policy(&site, name));
    let (gateway, other) = Gateway::start_both(&policies[0], &policies[1]).await;
    let (code, none, wrong) = run_verb(&gateway, &["lease", "list"]).await;
    assert_eq!((code, none.trim_end(), wrong.as_str()), (Some(0), "gw-1: 0 leases held, 0 wait", ""));
    let lease = ClientLease::acquire(&gateway, json!({"keys": ["job/1"], "note": "10.0.0.7:80"})).await;
    let reference = lease.reference.as_str();

    let (code, list, _) = run_verb(&gateway, &["lease", "list", "--key", "job/1"]).await;
    assert!(code == Some(0) && list.starts_with("gw-1: 1 lease held, 0 wait\n"), "{list}");
    let (code, show, _) = run_verb(&gateway, &["lease", "show", reference]).await;
    assert!(code == Some(0) && show.starts_with(&format!("lease {reference} of gw-1: held for ")), "{show}");
    for said in [&list, &show] {
        for wanted in ["job/1", "exclusive", "client", "10.0.0.7:80"] {
            assert!(said.contains(wanted), "no `{wanted}` in\n{said}");
        }
        assert!(!said.contains(secret(&lease)), "a secret");
    }
    let (code, told, _) = run_verb(&gateway, &["lease", "show", reference, "--format", "json"]).await;
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((code, &told["token"]), (Some(0), &lease.document["token"]));
    // A peer has its own leases. For an unknown lease it names the other gateways.
    let (code, _, wrong) = run_verb(&other, &["lease", "show", reference]).await;
    assert!(
        code == Some(1) && wrong.contains("gw-2 knows no lease") && wrong.contains("gw-1 (peer 127.0.0.1"),
        "{wrong}"
    );

    let (code, asked, _) = run_verb(&gateway, &["lease", "revoke", reference, "--why", "moving house"]).await;
    assert!(code == Some(0) && asked.contains("client is asked to give it back"), "{asked}");
    assert_eq!(json_body(&lease.get(&gateway).await)["revocation"], "moving house");

    let (code, _, wrong) = run_verb(&gateway, &["lease", "break", reference, "--why", "moving house"]).await;
    assert!(code == Some(2) && wrong.contains("FG0603"), "{wrong}");
    let again =
        format!("fencegate lease break {reference} --yes --why 'moving house' --admin {}", gateway.admin);
    assert!(wrong.contains(&again), "no `{again}` in\n{wrong}");
    assert_eq!(json_body(&lease.get(&gateway).await)["state"], "held");
    let sure = ["lease", "break", reference, "--yes", "--why", "moving house"];
    let (code, broken, _) = run_verb(&gateway, &sure).await;
    assert!(code == Some(0) && broken.contains("job/1 is given on in "), "{broken}");
    assert_eq!(lease.renew(&gateway).await.status, 412);
    let (code, _, wrong) = run_verb(&gateway, &sure).await;
    assert!(code == Some(1) && wrong.contains("over already"), "{wrong}");
    let (code, show, _) = run_verb(&gateway, &["lease", "show", reference]).await;
    assert!(code == Some(0) && show.contains("over: broken"), "{show}");
}

/// With `log.keys: hash` the admin API and the log name keys only by their hash, and the API accepts that hash as a
/// filter.
#[tokio::test]
async fn hashed_keys_stay_hidden_from_operators() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let gateway = Gateway::start(&tokens.policy(&site, "gw-1").with("/log/keys", "hash")).await;
    let lease = ClientLease::acquire(&gateway, json!({"keys": ["account/secret"]})).await;
    let (_, all) = get_json(&gateway, "/api/v1/leases").await;
    let number = all["leases"][0]["keys"][0].as_str().expect("a number").to_owned();
    assert!(number.starts_with('#') && !all.to_string().contains("account/secret"), "{all}");
    let (_, found) = get_json(&gateway, &format!("/api/v1/leases?key={}", number.replace('#', "%23"))).await;
    assert_eq!(found["leases"][0]["reference"], json!(lease.reference));
    let place = format!("/api/v1/leases/{}/break", lease.reference);
    let (status, _) = post_json(&gateway, &place, &json!({"confirm": lease.reference, "why": "over"})).await;
    assert_eq!(status, 200);
    assert!(!gateway.log().contains("account/secret"), "{}", gateway.log());
}
