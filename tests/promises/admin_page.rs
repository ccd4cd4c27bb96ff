//! The admin page shows an operator the state of a process. In a real browser it has no error in the console under a
//! strict content security policy and no axe violation, and it works without scripts too.
//!
//! The page shows two gateways under load, one of which has slept through its session. Chromium renders it in light
//! and in dark, and axe-core checks it. The pictures are kept in `target/tmp/page/`. With `REWRITE=1` one of them
//! becomes `deploy/page.png`.

use std::{env, fs, path::PathBuf};

use fencegate_tests::{
    browser::Browser,
    client::{ClientResponse, TestRequest},
    gateway::Gateway,
    guard::StampedRequest,
    guarded::GuardedSite,
    held_request::HeldRequest,
    origin::OriginAction,
    process::TestProcess,
    prometheus::deploy,
    site::TestSite,
    zombie::ZombieFixture,
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::clients::node_with_package;

/// Keeps a picture in the build folder for later inspection.
pub(super) fn keep_picture(name: &str, picture: &[u8]) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("page");
    fs::create_dir_all(&folder).expect("the target folder can be written");
    let file = folder.join(name);
    fs::write(&file, picture).expect("the folder can be written");
    file
}

/// The violations of accessibility rules that axe-core finds.
pub(super) async fn violations(browser: &Browser) -> Value {
    static FETCHED: OnceCell<String> = OnceCell::const_new();
    let modules = FETCHED.get_or_init(|| node_with_package("axe-core", "axe-core@4.10.3")).await;
    let folder = modules.strip_prefix("NODE_PATH=").expect("a variable");
    let axe = fs::read_to_string(format!("{folder}/axe-core/axe.min.js")).expect("fetched");
    browser.run(&axe).await;
    let result = browser
        .run_async(
            r#"const done = arguments[arguments.length - 1];
            const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
            axe.run(document, { runOnly: { type: "tag", values: tags } }).then((found) => done({
                passes: found.passes.length,
                violations: found.violations.map((one) =>
                    [one.impact, one.id, one.nodes.map((node) => node.html.slice(0, 200))]),
            }), (error) => done(String(error)));"#,
        )
        .await;
    assert!(result["passes"].as_u64().is_some_and(|passes| passes > 10), "axe did not run: {result}");
    result["violations"].clone()
}

/// Asserts that the content security policy refused nothing and no script failed.
pub(super) async fn assert_no_console_errors(browser: &Browser) {
    let messages = browser.console().await;
    assert!(messages.is_empty(), "the console says {messages:#?}");
}

/// Asserts that the page of a gateway reports its lost sessions and is accessible. The picture is kept under this name.
pub(super) async fn assert_shows_lost_sessions(gateway: &Gateway, picture: &str) {
    let browser = Browser::start().await;
    browser.open(&format!("http://{}/", gateway.admin)).await;
    let text = browser.text().await;
    for wanted in ["ready", "Held locks", "Hot keys", "What fencing met", "Sessions that ended unasked"] {
        assert!(text.contains(wanted), "no `{wanted}` on the page:\n{text}");
    }
    let ended = "return Number([...document.querySelectorAll('#safety tr')].find((row) => row.innerText.includes('ended unasked')).cells[1].innerText) > 0";
    assert_eq!(browser.run(ended).await, json!(true), "{text}");
    keep_picture(picture, &browser.screenshot().await);
    assert_eq!(violations(&browser).await, json!([]));
    assert_no_console_errors(&browser).await;
}

async fn admin(process: &TestProcess, request: TestRequest) -> ClientResponse {
    request.send_to(process.admin).await.expect("an answer")
}

/// The page shows locks, waiters, plots and sessions in light and dark, without console errors or axe violations.
#[tokio::test]
async fn page_is_accessible_in_both_schemes() {
    let (live, browser) = tokio::join!(ZombieFixture::start(), Browser::start());
    let url = |gateway: &Gateway| format!("http://{}/", gateway.admin);
    browser.open(&url(&live.sleeper)).await;
    // A plot draws a line only after two samples.
    let drawn = "return document.querySelectorAll('#plots polyline.most').length === 2";
    browser.wait_until("a line in both plots", drawn).await;
    // The page renews itself. While a request waits for the answer of ZooKeeper, the holder is not known yet.
    let known = "return document.body.innerText.includes('gw-2 holds it, by its node in ZooKeeper')";
    browser.wait_until("the holder of a key that requests wait for", known).await;
    let text = browser.text().await;
    for wanted in [
        "gw-1",
        "ready",
        "Why is this waiting?",
        "account/held",
        "gw-2 holds it, by its node in ZooKeeper",
        "account/hot-",
        "Held locks",
        "Hot keys",
        "The last fifteen minutes",
        "Sessions",
        "Gateways",
        "The plan in force",
    ] {
        assert!(text.contains(wanted), "no `{wanted}` on the page:\n{text}");
    }
    let count = async |what: &str| {
        let row = format!(
            "return [...document.querySelectorAll('#safety tr')].find((row) => row.innerText.includes('{what}')).cells[1].innerText"
        );
        browser.run(&row).await
    };
    assert_eq!(count("Sessions that ended unasked").await.as_str().map(|count| count > "0"), Some(true));
    assert_eq!(count("refused by a guard or a comparing upstream").await, json!("1"));
    for scheme in ["light", "dark"] {
        browser.set_color_scheme(scheme).await;
        let picture = browser.screenshot().await;
        keep_picture(&format!("gateway-{scheme}.png"), &picture);
        if scheme == "light" && env::var_os("REWRITE").is_some() {
            fs::write(deploy().join("page.png"), &picture).expect("our own tree");
        }
        assert_eq!(violations(&browser).await, json!([]), "{scheme}");
    }
    assert_no_console_errors(&browser).await;

    // New parts of the page appear by themselves, and the focus stays on the same element.
    browser
        .run("window.before = document.querySelector('#held'); document.querySelector('#waiting a').focus()")
        .await;
    let renewed = "return document.querySelector('#held') !== window.before";
    browser.wait_until("newer parts", renewed).await;
    assert_eq!(browser.run("return document.activeElement.tagName").await, json!("A"));

    browser.open(&format!("{}locks/account%2Fheld", url(&live.other))).await;
    let text = browser.text().await;
    assert!(text.contains("The key account/held is held by gw-2 for request"), "{text}");
    keep_picture("lock.png", &browser.screenshot().await);
    assert_eq!(violations(&browser).await, json!([]));
    assert_no_console_errors(&browser).await;
    browser.close().await;
    live.stop().await;
}

/// The count in a row of the section *What fencing met*.
async fn fencing_count(gateway: &Gateway, what: &str) -> f64 {
    let page = String::from_utf8(gateway.admin("/").await.body.to_vec()).expect("text");
    let row = page.split(what).nth(1).unwrap_or_else(|| panic!("no `{what}` in {page}"));
    let cell = row.split("<td class=\"n").nth(1).and_then(|cell| cell.split(['>', '<']).nth(1));
    cell.and_then(|count| count.parse().ok()).expect("a number")
}

/// The page shows as many refused stale dispatches as the metrics count.
#[tokio::test]
async fn page_counts_stale_refusals_like_metrics() {
    let guarded = GuardedSite::fresh().await;
    let guard = guarded.guard().await;
    let gateway = guarded.gateway("gw-1", &guard).await;
    let first = gateway.send(&TestRequest::post("/pay/7")).await;
    let first = first.token().expect("it went through").number();
    assert_eq!(fencing_count(&gateway, "Stale dispatches refused").await, 0.0);
    // The guard receives a later token of the key, as if a peer had held the key in between.
    let later = StampedRequest::new("account/7", first + (1 << 20));
    assert_eq!(guard.send(&later.post("/pay/7")).await.status, 200);
    assert_eq!(gateway.send(&TestRequest::post("/pay/7").field("prefer", "wait=1")).await.reason(), "fenced");
    let counted = gateway.metrics().await.sum("fencegate_guard_refusals_total", &["\"stale\""]);
    assert!(counted >= 1.0, "it is counted");
    assert_eq!(fencing_count(&gateway, "Stale dispatches refused").await, counted);
}

/// The page breaks a lock only with the CSRF token of its form, the key as confirmation, and the node that still
/// holds the key.
#[tokio::test]
async fn page_break_requires_csrf_and_confirmation() {
    let site = TestSite::fresh().await.with_comparison();
    let gateway = Gateway::start(&site.policy("gw-1").with_cached_hold()).await;
    let HeldRequest { request: holder, latch, .. } =
        site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    let path = "/locks/account%2F7";
    let page = String::from_utf8(gateway.admin(path).await.body.to_vec()).expect("text");
    let hidden = |name: &str| {
        let rest = page.split(&format!("name=\"{name}\" value=\"")).nth(1).expect("a hidden field");
        rest.split('"').next().expect("a value").to_owned()
    };
    let csrf = hidden("csrf");
    let node = hidden("holder");
    let form = |csrf: &str, confirm: &str| {
        let body = format!("csrf={csrf}&holder={node}&confirm={confirm}");
        let ask = TestRequest::post(&format!("{path}/break")).body(body);
        ask.field("content-type", "application/x-www-form-urlencoded")
    };
    for (csrf, confirm, status) in [
        ("forged", "account%2F7", 403),
        ("", "account%2F7", 403),
        (csrf.as_str(), "account%2F8", 400),
        (&csrf, "", 400),
    ] {
        let answer = admin(&gateway, form(csrf, confirm)).await;
        assert_eq!(answer.status, status, "{csrf} {confirm}");
        assert!(answer.field("content-type").is_some_and(|kind| kind.starts_with("text/html")));
    }
    let foreign = form(&csrf, "account%2F7").field("origin", "http://evil.example");
    assert_eq!(admin(&gateway, foreign).await.status, 403);
    let answer = admin(&gateway, form(&csrf, "account%2F7")).await;
    assert_eq!((answer.status, answer.field("location")), (303, Some("/?done=broken")));
    gateway
        .wait_line("who broke it", |line| {
            line.message() == "audit" && line.field("asked").starts_with("broke")
        })
        .await;
    // A second break changes nothing: the node that was meant no longer holds the key.
    assert_eq!(admin(&gateway, form(&csrf, "account%2F7")).await.status, 409);
    latch.release();
    holder.result().await.ok();
}

/// Key names and query values that contain markup appear on the page as text only.
#[tokio::test]
async fn hostile_key_names_are_escaped() {
    let site = TestSite::fresh().await;
    let hostile = "</th><script>alert(1)</script>";
    let policy = site
        .policy("gw-1")
        .with_cached_hold()
        .with("/defaults/hold/linger", "30s")
        .with("/name", "a<b>&\"c\"");
    let policy = policy.with("/routes/0/fence/key", "{header.x-account}");
    let gateway = Gateway::start(&policy.with("/name", "gw-1")).await;
    for key in [hostile, "\"'><img/src=x/onerror=alert(1)>", "{{7*7}}", "&amp;"] {
        assert_eq!(gateway.send(&TestRequest::post("/pay/7").field("x-account", key)).await.status, 200);
    }
    for path in [
        "/",
        "/?done=%3Cscript%3E",
        "/locks/%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "/locks/%3Cscript%3Ealert(1)%3C%2Fscript%3E?request=%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "/locks/%7B%7B7*7%7D%7D?request=%3Cimg",
    ] {
        let page = gateway.admin(path).await;
        let text = String::from_utf8(page.body.to_vec()).unwrap_or_default();
        assert!(!text.contains("<script>alert") && !text.contains("<img"), "{path}: {text}");
    }
}

/// The page of a guard shows an operation in doubt, and an operator resolves it there; the resolution is audited.
#[tokio::test]
async fn guard_page_resolves_operation_in_doubt() {
    let site = GuardedSite::fresh().await;
    let guard = site.guard().await;
    let once = json!({"store": "guard", "key": "{header.idempotency-key}"});
    let policy = site.policy("gw-1", &[guard.public]).with("/routes/0/fence/once", once);
    let gateway = Gateway::start(&policy).await;
    site.site.origin.script("/pay/7", [OriginAction::Reset]);
    let lost = gateway.send(&TestRequest::post("/pay/7").field("idempotency-key", "<b>one</b>")).await;
    assert_eq!(lost.status, 502, "{lost:?}");
    let browser = Browser::start().await;
    browser.open(&format!("http://{}/", guard.admin)).await;
    let text = browser.text().await;
    assert!(
        text.contains("In doubt") && text.contains("POST /pay/7") && text.contains("account/7"),
        "{text}"
    );
    keep_picture("guard.png", &browser.screenshot().await);
    assert_eq!(violations(&browser).await, json!([]));
    let reference = browser.run("return document.querySelector('#operations tbody a').innerText").await;
    browser.run("document.querySelector('#operations tbody a').click()").await;
    browser.wait_until("the form", "return document.querySelector('form') !== null").await;
    assert!(browser.text().await.contains("<b>one</b>"));
    keep_picture("operation.png", &browser.screenshot().await);
    assert_eq!(violations(&browser).await, json!([]));
    let fill = format!(
        "document.querySelector('#confirm').value = {reference};
         document.querySelector('[value=not-done]').checked = true;
         const force = document.querySelector('[name=force]');
         if (force) force.checked = true;
         document.querySelector('form').requestSubmit()"
    );
    browser.run(&fill).await;
    browser.wait_until("what was done", "return document.body.innerText.includes('Written down')").await;
    assert_no_console_errors(&browser).await;
    browser.close().await;
    guard
        .wait_line("who said so", |line| line.message() == "audit" && line.field("principal") == "local")
        .await;
    let open = guard.admin("/api/v1/operations").await;
    assert_eq!(serde_json::from_slice::<Value>(&open.body).expect("JSON")["operations"], json!([]));
}

/// The page of a gateway that answers 200 to `/ready` still shows its troubles: a refused reload until a reload
/// succeeds, and a guard that does not answer.
#[tokio::test]
async fn page_tells_of_refused_reload_and_absent_guard() {
    let guarded = GuardedSite::fresh().await;
    let guard = guarded.guard().await;
    let policy = guarded.policy("gw-1", &[guard.public]);
    let gateway = Gateway::start(&policy).await;
    gateway.wait_ready().await;
    let troubles = async || {
        let page = String::from_utf8(gateway.admin("/").await.body.to_vec()).expect("text");
        let part = page.split("<div id=\"troubles\"").nth(1).expect("it is always there").to_owned();
        part.split("</div>").next().unwrap_or_default().to_owned()
    };
    assert_eq!(gateway.send(&TestRequest::post("/pay/7")).await.status, 200);
    assert!(!troubles().await.contains("role=\"alert\""), "{}", troubles().await);

    gateway.rewrite(&policy.clone().with("/routes/0/fence/key", "account/{path.nobody}"));
    assert_eq!(gateway.reload(&[]).await.0, Some(78));
    assert!(troubles().await.contains("The last reload was refused"), "{}", troubles().await);
    gateway.rewrite(&policy);
    assert_eq!(gateway.reload(&[]).await.0, Some(0));
    assert!(!troubles().await.contains("reload"), "{}", troubles().await);

    let away = guard.public.to_string();
    drop(guard);
    assert_eq!(gateway.send(&TestRequest::post("/pay/8")).await.status, 502);
    let told = troubles().await;
    assert!(told.contains("The guard at") && told.contains(&away), "{told}");
}
