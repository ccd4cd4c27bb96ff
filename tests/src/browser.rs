//! A headless browser, driven over WebDriver. Chromedriver is a child of the test, and the browser is a child of
//! chromedriver. Both end with the test.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use fencegate_testkit::{
    child::{ChildProcess, OutputTimeoutError, Signal},
    scratch,
    wait::PATIENCE,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use crate::client::TestRequest;

/// One browser with one window.
pub struct Browser {
    driver: SocketAddr,
    session: String,
    child: Arc<ChildProcess>,
    /// The folder of Chromium's profile.
    home: TempDir,
}

const LISTENS: &str = "started successfully on port ";

/// A script that chromedriver starts in the place of Chromium.
const CHROMIUM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/browser/chromium.sh");

/// Starts chromedriver. Returns it with the line in which it prints its port.
async fn start_driver() -> Result<(Arc<ChildProcess>, String), OutputTimeoutError> {
    let child = Arc::new(ChildProcess::spawn("chromedriver", ["--port=0"]).expect("setpriv"));
    let listening = child.clone();
    let line = spawn_blocking(move || listening.wait_line(|line| line.contains(LISTENS), PATIENCE));
    Ok((child, line.await.expect("no panic")?))
}

impl Browser {
    /// Starts a browser.
    ///
    /// # Panics
    /// If the browser does not start, for example because Debian's `chromium` or `chromium-driver` is missing.
    pub async fn start() -> Self {
        let home = scratch::temp_dir();
        let (child, line) = match start_driver().await {
            // Chromedriver looks for a free port before it binds it. If another process was faster, start it again.
            Err(error) if error.log.contains("port not available") => start_driver().await,
            started => started,
        }
        .unwrap_or_else(|error| panic!("chromedriver: {error}"));
        let port = line.split(LISTENS).nth(1).map(|rest| rest.trim_end_matches('.').trim());
        let port: u16 = port.and_then(|port| port.parse().ok()).expect("it says its port");
        let driver = SocketAddr::from(([127, 0, 0, 1], port));
        let profile = format!("--user-data-dir={}", home.path().display());
        let arguments = [
            "--headless=new",
            // Tests may run as root, for whom Chromium refuses to make its sandbox.
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--window-size=1280,1700",
            &profile,
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": CHROMIUM, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let made = post(driver, "/session", &wanted).await;
        let session = made["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {made}")).to_owned();
        Self { driver, session, child, home }
    }

    /// Opens a page. Returns when it is loaded.
    pub async fn open(&self, url: &str) {
        self.ask("url", &json!({ "url": url })).await;
    }

    /// Runs a script as the body of a function, and returns the function's result.
    pub async fn run(&self, script: &str) -> Value {
        self.ask("execute/sync", &json!({ "script": script, "args": [] })).await
    }

    /// Runs a script as the body of a function. Returns the value that it passes to the function's last argument, a
    /// callback.
    pub async fn run_async(&self, script: &str) -> Value {
        self.ask("execute/async", &json!({ "script": script, "args": [] })).await
    }

    /// The visible text of the page.
    pub async fn text(&self) -> String {
        self.run("return document.body.innerText").await.as_str().unwrap_or_default().to_owned()
    }

    /// All console messages since the last call: those of the page, and those about its content security policy.
    pub async fn console(&self) -> Vec<Value> {
        let told = self.ask("se/log", &json!({ "type": "browser" })).await;
        told.as_array().cloned().unwrap_or_default()
    }

    /// Emulates the setting of a user who prefers a `dark` or a `light` color scheme.
    pub async fn set_color_scheme(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        let params = json!({ "features": features });
        self.ask("goog/cdp/execute", &json!({"cmd": "Emulation.setEmulatedMedia", "params": params})).await;
    }

    /// Emulates a screen of this width, in CSS pixels.
    pub async fn set_screen_width(&self, width: u32) {
        let params = json!({"width": width, "height": 1700, "deviceScaleFactor": 1, "mobile": false});
        let cmd = "Emulation.setDeviceMetricsOverride";
        self.ask("goog/cdp/execute", &json!({ "cmd": cmd, "params": params })).await;
    }

    /// A picture (PNG) of the whole page, including the part below the window.
    ///
    /// # Panics
    /// If the browser returns no picture.
    pub async fn screenshot(&self) -> Vec<u8> {
        let params = json!({"format": "png", "captureBeyondViewport": true});
        let taken =
            self.ask("goog/cdp/execute", &json!({"cmd": "Page.captureScreenshot", "params": params})).await;
        BASE64_STANDARD.decode(taken["data"].as_str().expect("a picture")).expect("base64")
    }

    /// Repeats a script until it returns `true`.
    ///
    /// # Panics
    /// If no run of the script returns `true` in time.
    pub async fn wait_until(&self, what: &str, script: &str) {
        let deadline = std::time::Instant::now() + PATIENCE;
        while self.run(script).await != json!(true) {
            assert!(
                std::time::Instant::now() < deadline,
                "{what} did not come; the page:\n{}",
                self.text().await
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn ask(&self, what: &str, body: &Value) -> Value {
        post(self.driver, &format!("/session/{}/{what}", self.session), body).await
    }

    /// Kills chromedriver, which thus cannot end the browser itself.
    ///
    /// # Panics
    /// If the kernel refuses the signal.
    pub fn kill_driver(&self) {
        self.child.signal(Signal::KILL).expect("our own child");
    }

    /// The folder of the browser's profile. The command line of each of its processes contains this path.
    pub fn profile(&self) -> &Path {
        self.home.path()
    }

    /// Ends the browser.
    pub async fn close(self) {
        let path = format!("/session/{}", self.session);
        TestRequest::with_method("DELETE", &path).send_to(self.driver).await.ok();
    }
}

async fn post(driver: SocketAddr, path: &str, body: &Value) -> Value {
    let asked = TestRequest::post(path).field("content-type", "application/json").body(body.to_string());
    let answer = asked.send_to(driver).await.unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut told: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    assert_eq!(answer.status, 200, "{path}: {told:#}");
    told["value"].take()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use fencegate_testkit::wait::wait_until;

    /// The processes whose command lines name a folder.
    fn processes_naming(folder: &Path) -> Vec<String> {
        let folder = folder.display().to_string();
        let entries = fs::read_dir("/proc").expect("procfs").flatten();
        // A process that ends meanwhile has an empty command line or none.
        let lines = entries.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
        lines.filter(|line| line.contains(&folder)).map(|line| line.replace('\0', " ")).collect()
    }

    /// When chromedriver is killed, no process of its browser is left.
    #[tokio::test]
    async fn ends_when_chromedriver_is_killed() {
        let browser = Browser::start().await;
        let profile = browser.profile();
        assert!(
            !processes_naming(profile).is_empty(),
            "not exercised: no process names {}",
            profile.display()
        );
        browser.kill_driver();
        let gone = async {
            while !processes_naming(profile).is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        wait_until("the browser to be gone", gone, || processes_naming(profile)).await;
    }
}
