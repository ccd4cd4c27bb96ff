//! The page of a key explains why a request waits: in one sentence first, then with the holder, the queue, and the
//! outcomes of the last requests. It is readable on a telephone too, and its links lead somewhere.
//!
//! The sentence names the holder, its request, and the number of requests that wait before another one. The page also
//! shows leases, operations of unknown outcome, and the state of the key at a guard. Chromium renders it at a width
//! of 320 pixels and in dark, and follows every link.

use std::{collections::BTreeMap, time::Duration};

use fencegate_process::key_redaction::KeyHashSecret;
use fencegate_testkit::wait::wait_until;
use fencegate_tests::{
    browser::Browser,
    client::TestRequest,
    gateway::{Gateway, GatewayLaunch},
    guard::StampedRequest,
    guarded::GuardedSite,
    held_request::HeldRequest,
    leases::{CLIENT, ClientLease, LeaseTokens, OPERATOR},
    origin::OriginAction,
    process::TestProcess,
    site::TestSite,
    zombie::ZombieFixture,
};
use serde_json::{Value, json};

use super::admin_page::{assert_no_console_errors, keep_picture, violations};

/// The page as a browser shows it: the text without its tags.
async fn read(process: &TestProcess, path: &str) -> String {
    let answer = process.admin(path).await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    let page = String::from_utf8(answer.body.to_vec()).expect("text");
    page.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text)).collect()
}

/// Polls the page: no event reports the queue.
async fn wait_page_text(process: &TestProcess, path: &str, wanted: &str) -> String {
    let reached = async {
        loop {
            let text = read(process, path).await;
            if text.contains(wanted) {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    wait_until(wanted, reached, || process.log()).await
}

fn pay(request: &str) -> TestRequest {
    TestRequest::post("/pay/7").field("x-request-id", request)
}

const PAGE: &str = "/locks/account%2F7";

/// One sentence names the holder, its request, and how many requests wait before.
#[tokio::test]
async fn first_sentence_names_holder_and_queue() {
    let site = TestSite::fresh().await.with_comparison();
    let policies = (site.policy("gw-1").with_cached_hold(), site.policy("gw-2").with_cached_hold());
    let latch = site.origin.hold("/pay/7");
    let (one, two) = Gateway::start_both(&policies.0, &policies.1).await;
    let nobody = read(&one, PAGE).await;
    assert!(nobody.contains("Nobody holds the key account/7. No request waits."), "{nobody}");

    let holder = one.begin(pay("holder"));
    let token = site.origin.wait_for_request("/pay/7", 1).await.expect_token();
    let mut waiting = Vec::new();
    for (request, wanted) in
        [("first", "one request waits."), ("second", "two requests wait."), ("third", "three requests wait.")]
    {
        waiting.push(one.begin(pay(request)));
        wait_page_text(&one, PAGE, wanted).await;
    }
    let text = read(&one, &format!("{PAGE}?request=third")).await;
    for wanted in [
        "The key account/7 is held by gw-1 for request holder of route pay since ",
        "two requests wait before yours.",
        "Your request third waits here since ",
        &format!("{token} (number {})", token.number()),
        "If gw-1 dies or freezes, ZooKeeper ends its session after ",
        "A request of route pay is given up when the service has not answered ",
    ] {
        assert!(text.contains(wanted), "no `{wanted}` in {text}");
    }
    assert!(
        read(&one, &format!("{PAGE}?request=holder"))
            .await
            .contains("Your request holder has the key, since ")
    );
    assert!(
        read(&one, &format!("{PAGE}?request=nobody"))
            .await
            .contains("Of request nobody nothing is known at gw-1")
    );

    waiting.push(two.begin(pay("elsewhere")));
    let behind = wait_page_text(&two, &format!("{PAGE}?request=elsewhere"), "is held by gw-1 since ").await;
    assert!(behind.contains("no request waits before yours."), "{behind}");
    // The holder's own gateway shows more: the link leads there.
    let page = String::from_utf8(two.admin(PAGE).await.body.to_vec()).expect("text");
    assert!(page.contains(&format!("<a href=\"http://{}{PAGE}\">gw-1</a>", one.admin)), "{page}");

    latch.release();
    for request in waiting.into_iter().chain([holder]) {
        assert_eq!(request.answer().await.status, 200);
    }
    let over = read(&one, &format!("{PAGE}?request=second")).await;
    assert!(over.contains("Your request second is over: it was answered with 200, outcome done."), "{over}");
    assert!(over.contains("The service before ledger has let in token "), "{over}");
    let found = one.admin("/locks?key=account%2F7&request=second").await;
    assert_eq!((found.status, found.field("location")), (303, Some("/locks/account%2F7?request=second")));
}

/// A lease and an operation of unknown outcome are on the page of their key.
#[tokio::test]
async fn page_shows_lease_and_unknown_operation() {
    let site = TestSite::fresh().await.with_comparison();
    let tokens = LeaseTokens::default();
    let once = json!({"store": "zookeeper", "key": "{header.idempotency-key}"});
    let policy = tokens.policy(&site, "gw-1").with("/routes/0/fence/once", once);
    let gateway = Gateway::start(&policy).await;
    gateway.wait_ready().await;
    site.origin.script("/pay/7", [OriginAction::Reset]);
    let lost = gateway.send(&pay("lost").field("idempotency-key", "<i>one</i>")).await;
    assert_eq!(lost.status, 502, "{lost:?}");
    let text = wait_page_text(&gateway, PAGE, "somebody has to record the outcome").await;
    assert!(text.contains("POST /pay/7") && text.contains("the runbook on operations in doubt"), "{text}");
    assert!(text.contains("502") && text.contains("unknown"), "{text}");

    let lease = ClientLease::acquire(
        &gateway,
        json!({"keys": ["account/7"], "wait_ms": 10_000, "note": "<b>job</b>"}),
    )
    .await;
    let text = wait_page_text(&gateway, PAGE, "for the client client, as lease ").await;
    assert!(text.contains(&lease.reference) && text.contains("unless its client renews it"), "{text}");
    let path = format!("/.fencegate/v1/leases/{}/revoke", lease.reference);
    let body = json!({"why": "somebody needs it"}).to_string();
    let revocation =
        TestRequest::post(&path).field("authorization", &format!("Bearer {OPERATOR}")).body(body);
    assert_eq!(gateway.send(&revocation).await.status, 200);
    wait_page_text(&gateway, PAGE, "somebody needs it").await;
    let page = String::from_utf8(gateway.admin(PAGE).await.body.to_vec()).expect("text");
    assert!(!page.contains("<b>job") && page.contains("job"), "{page}");
}

/// A guard's pages report in words which requests it has refused, and what it has recorded of a key.
#[tokio::test]
async fn guard_page_explains_refusals_in_words() {
    let guarded = GuardedSite::fresh().await;
    let guard = guarded.guard().await;
    let gateway = guarded.gateway("gw-1", &guard).await;
    let token = gateway.send(&TestRequest::post("/pay/7")).await.token().expect("it went through");
    let known = read(&guard, "/keys/account/7").await;
    let wanted = format!(
        "The newest token of the key account/7 has number {}; nothing is at work under it.",
        token.number()
    );
    assert!(known.contains(&wanted), "{known}");
    assert!(
        read(&guard, "/keys/account/8").await.contains("No request under the key account/8 is remembered")
    );

    let without = guard.send(&TestRequest::post("/pay/7")).await;
    assert_eq!(without.status, 403, "{without:?}");
    let later = StampedRequest::new("account/7", token.number() + (1 << 20));
    assert_eq!(guard.send(&later.post("/pay/7")).await.status, 200);
    let text = read(&guard, "/").await;
    for wanted in ["Came without a token", "POST from 127.0.0.1:", "Let in, of a newer tenure"] {
        assert!(text.contains(wanted), "no `{wanted}` in {text}");
    }
    for unwanted in ["admit_new_tenure", "ticket-expired", "the ticket has expired"] {
        assert!(!text.contains(unwanted), "`{unwanted}` in {text}");
    }
}

/// Where the links of the page that is open lead.
async fn links(browser: &Browser) -> Vec<String> {
    let hrefs = browser.run("return [...document.querySelectorAll('a[href]')].map((a) => a.href)").await;
    let hrefs = hrefs.as_array().expect("a list").iter();
    hrefs.map(|href| href.as_str().expect("a text").to_owned()).collect()
}

/// Asserts that each link is answered, and that its fragment is on the page. A page is opened once for all links to it.
async fn assert_links_work(browser: &Browser, links: &[String]) {
    let mut pages = BTreeMap::<&str, Vec<&str>>::new();
    for link in links {
        let (page, fragment) = link.split_once('#').unwrap_or((link, ""));
        pages.entry(page).or_default().push(fragment);
    }
    for (page, fragments) in pages {
        browser.open(page).await;
        let known = "return performance.getEntriesByType('navigation')[0].responseStatus";
        assert_eq!(browser.run(known).await, json!(200), "{page}");
        let missing = format!(
            "return {}.filter((place) => place && !document.getElementById(decodeURIComponent(place)))",
            json!(fragments)
        );
        assert_eq!(browser.run(&missing).await, json!([]), "{page} has no such places");
    }
}

/// Pages fit a telephone, in light and dark mode, and their links lead somewhere.
#[tokio::test]
async fn pages_fit_phone_and_links_work() {
    let (live, browser) = tokio::join!(ZombieFixture::start(), Browser::start());
    let pages = ["/", "/locks/account%2Fheld", "/locks/account%2Fhot-1", "/runbook"];
    let mut all = Vec::new();
    // Each page once in each width and each scheme.
    for (width, scheme) in [(320, "dark"), (1280, "light")] {
        browser.set_screen_width(width).await;
        browser.set_color_scheme(scheme).await;
        for page in pages {
            browser.open(&format!("http://{}{page}", live.other.admin)).await;
            let wide = browser.run("return document.documentElement.scrollWidth").await;
            assert!(
                wide.as_u64().is_some_and(|wide| wide <= u64::from(width)),
                "{page} is {wide} wide of {width}"
            );
            // Text is not cut off either. Only commands that are meant to be typed may be wider than the page.
            let cut = "return [...document.querySelectorAll('section .wide')].filter((part) => part.scrollWidth > part.clientWidth + 1).map((part) => part.innerText)";
            let cut = browser.run(cut).await;
            assert_eq!(cut, json!([]), "{page} at {width}");
            // A picture of the runbook would be many thousand lines high.
            if scheme == "dark" && page != "/runbook" {
                keep_picture(
                    &format!("{}-{scheme}-{width}.png", page.replace(['/', '%'], "_")),
                    &browser.screenshot().await,
                );
            }
            assert_eq!(violations(&browser).await, json!([]), "{page} at {width}, {scheme}");
            all.extend(links(&browser).await);
        }
    }
    assert_no_console_errors(&browser).await;
    all.sort_unstable();
    all.dedup();
    let others = all.iter().filter(|link| link.contains(&live.sleeper.admin.to_string())).count();
    assert!(others >= 2, "the other gateway is linked to: {all:#?}");
    assert!(all.iter().any(|link| link.ends_with("/runbook#contention")), "{all:#?}");
    let ours: Vec<String> = all.into_iter().filter(|link| link.starts_with("http://127.0.0.1")).collect();
    assert_links_work(&browser, &ours).await;
    browser.close().await;
    live.stop().await;
}

/// The page of a key works without scripts, and renews itself with them.
#[tokio::test]
async fn page_works_without_scripts() {
    let site = TestSite::fresh().await;
    let gateway = GatewayLaunch::new(&site.policy("gw-1").with_cached_hold()).start().await;
    gateway.wait_ready().await;
    let browser = Browser::start().await;
    browser.open(&format!("http://{}{PAGE}?request=one", gateway.admin)).await;
    assert!(browser.text().await.contains("Of request one nothing is known"));
    let HeldRequest { request, latch, .. } = site.origin.hold_request(&gateway, pay("one")).await;
    let renewed = "return document.body.innerText.includes('Your request one has the key')";
    browser.wait_until("the request, without a reload", renewed).await;
    let value: Value = browser.run("return document.querySelector('#request').value").await;
    assert_eq!(value, json!("one"));
    // The answer itself contains everything that a script would renew.
    assert!(read(&gateway, PAGE).await.contains("held by gw-1 for request one of route pay"));
    assert_no_console_errors(&browser).await;
    latch.release();
    assert_eq!(request.answer().await.status, 200);
    browser.close().await;
}

/// A key that is not locked any more is found by its number. The log shows this number where names must not appear, so an
/// operator who looks into a slow request has only the number.
#[tokio::test]
async fn unlocked_key_is_found_by_number() {
    let site = TestSite::fresh().await;
    let tokens = LeaseTokens::default();
    let hashed = json!({"keys": "hash", "key_secret_file": tokens.file("client")});
    let gateway = Gateway::start(&tokens.policy(&site, "gw-1").with("/log", hashed)).await;
    let secret = KeyHashSecret::new(CLIENT.as_bytes());
    let page = |key: &str| format!("/locks/%23{}", secret.hash_digits_with_secret(key));
    let of_request = page("account/7");
    let of_lease = page("job/1");
    for unknown in [&of_request, &of_lease] {
        assert_eq!(gateway.admin(unknown).await.status, 409);
    }
    assert_eq!(gateway.send(&pay("nightly-7")).await.status, 200);
    let lease = ClientLease::acquire_exclusive(&gateway, "job/1").await;
    assert_eq!(lease.release(&gateway).await.status, 204);
    site.tree().await.wait_locks("nobody locks them", |locks| locks.is_empty()).await;
    wait_page_text(&gateway, &of_request, "nightly-7").await;
    let nobody = read(&gateway, &of_lease).await;
    assert!(nobody.contains("Nobody holds the key #"), "{nobody}");
}
