//! The client settings in CLIENTS.md repeat requests that were not dispatched, and no others.
//!
//! The blocks are taken out of the document, and run with the libraries that they are for: those of Debian, PyPI and
//! npm.
//!
//! The libraries are curl, urllib3, Java, go-retryablehttp and axios-retry. Each repeats 423 until the key is free,
//! and sends a request with an unknown outcome or a lost connection only once.

use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use fencegate_testkit::scratch;
use fencegate_tests::{
    client::TestRequest, gateway::Gateway, origin::OriginAction, prometheus::deploy, site::TestSite,
};
use tokio::task::spawn_blocking;

use super::clients::{node_with_package, persistent_folder, python_with_package, run};

/// The first block of code below a heading of CLIENTS.md.
fn documented_block(heading: &str) -> String {
    let document = fs::read_to_string(deploy().join("docs/CLIENTS.md")).expect("shipped");
    let (_, section) = document.split_once(&format!("### {heading}\n")).expect("a section of this name");
    let (_, code) = section.split_once("```").expect("a block of code");
    let (_, code) = code.split_once('\n').expect("the language of the block");
    code.split("```").next().expect("a block that ends").to_owned()
}

/// A client as its users call it: a command to which the URL is appended, and which sends one request of its own.
struct RetryingClient(Vec<String>);

impl RetryingClient {
    fn new(words: &[&str]) -> Self {
        Self(words.iter().map(|&word| word.to_owned()).collect())
    }

    async fn run_for(&self, url: &str) -> Output {
        let mut command = Command::new("timeout");
        command.arg("90").args(&self.0).arg(url);
        spawn_blocking(move || command.output()).await.expect("no panic").expect("`timeout` is there")
    }
}

/// Starts a service that reads each request and closes the connection without an answer, so that the outcome is
/// unknown.
fn start_breaking_service() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/pay/9", listener.local_addr().expect("bound"));
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&seen);
    thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let mut request = [0; 4096];
            if std::io::Read::read(&mut connection, &mut request).is_ok_and(|read| read > 0) {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    (url, seen)
}

/// Asserts which requests a client repeats: one for a held key, but none with an unknown outcome or a broken
/// connection.
async fn assert_repeats_only_undispatched(client: &RetryingClient) {
    let site = TestSite::fresh().await;
    let gateway = Gateway::start(&site.policy("gw-1").with("/routes/0/fence/wait", "100ms")).await;
    let url = |path: &str| format!("http://{}{path}", gateway.public);

    let holder = site.origin.hold_request(&gateway, TestRequest::post("/pay/7")).await;
    let locked = ["reason=\"locked\""];
    let refused = async {
        gateway.wait_series_at_least("fencegate_rejections_total", &locked, 1.0).await;
        assert_eq!(holder.finish().await.status, 200);
    };
    let target = url("/pay/7");
    let (output, ()) = tokio::join!(client.run_for(&target), refused);
    assert!(output.status.success(), "a locked key: {output:?}");
    assert_eq!(site.origin.count("/pay/7"), 2, "{output:?}");

    site.origin.script("/pay/8", [OriginAction::Reset]);
    let output = client.run_for(&url("/pay/8")).await;
    assert_eq!(site.origin.count("/pay/8"), 1, "an unknown outcome: {output:?}");

    let (target, seen) = start_breaking_service();
    let output = client.run_for(&target).await;
    assert_eq!(seen.load(Ordering::SeqCst), 1, "a connection that broke: {output:?}");
}

#[tokio::test]
async fn curl_loop_repeats_only_undispatched() {
    let script = documented_block("curl") + "fenced -d hi \"$1\"\n";
    assert_repeats_only_undispatched(&RetryingClient::new(&["bash", "-c", &script, "fenced"])).await;
}

#[tokio::test]
async fn urllib3_repeats_only_undispatched() {
    let python = python_with_package("urllib3", "urllib3==2.5.0").await;
    let ask = "import sys\nanswer = fenced.request('POST', sys.argv[1], body=b'hi')\nsys.exit(answer.status != 200)\n";
    let program = documented_block("urllib3") + ask;
    assert_repeats_only_undispatched(&RetryingClient::new(&[&python, "-c", &program])).await;
}

const JAVA: &str = "
    public static void main(String[] words) throws Exception {
        var body = HttpRequest.BodyPublishers.ofString(\"hi\");
        var request = HttpRequest.newBuilder(URI.create(words[0])).POST(body).build();
        System.exit(fenced(HttpClient.newHttpClient(), request).statusCode() == 200 ? 0 : 1);
    }
}
";

#[tokio::test]
async fn java_client_repeats_only_undispatched() {
    let home = scratch::temp_dir();
    let imports = "import java.net.URI;\nimport java.net.http.*;\nimport java.util.Set;\n\nclass Ask {\n";
    let file = write_executable(
        home.path(),
        "Ask.java",
        &(imports.to_owned() + &documented_block("Java HttpClient") + JAVA),
    );
    let classes = home.path().display().to_string();
    // `java Ask.java` would compile the file in each call.
    run("javac", &["-d", &classes, &file]).await;
    let quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"];
    let words = [&["java"][..], &quick, &["-cp", &classes, "Ask"]].concat();
    assert_repeats_only_undispatched(&RetryingClient::new(&words)).await;
}

const GO: &str = "
func main() {
\tanswer, err := fenced().Post(os.Args[1], \"text/plain\", strings.NewReader(\"hi\"))
\tif err != nil || answer.StatusCode != 200 {
\t\tos.Exit(1)
\t}
}
";

#[tokio::test]
async fn go_retryablehttp_repeats_only_undispatched() {
    let home = scratch::temp_dir();
    let names = ["context", "net/http", "os", "strings", "github.com/hashicorp/go-retryablehttp"];
    let imports = names.map(|name| format!("import \"{name}\"\n")).concat();
    let text = format!("package main\n\n{imports}\n{}{GO}", documented_block("go-retryablehttp"));
    let file = write_executable(home.path(), "main.go", &text);
    let cache = format!("GOCACHE={}", persistent_folder("retries-go").display());
    let program = home.path().join("ask").display().to_string();
    // Go builds from Debian's sources, without the network.
    let words = ["GO111MODULE=off", "GOPATH=/usr/share/gocode", &cache, "go", "build", "-o", &program, &file];
    run("env", &words).await;
    assert_repeats_only_undispatched(&RetryingClient::new(&[&program])).await;
}

#[tokio::test]
async fn axios_retry_repeats_only_undispatched() {
    let modules = node_with_package("axios-retry", "axios-retry@4.5.0").await;
    let required = "const axios = require('axios');\nconst axiosRetry = require('axios-retry').default;\n";
    let ask = "fenced.post(process.argv[1], 'hi').then(() => process.exit(0), () => process.exit(1));\n";
    let program = required.to_owned() + &documented_block("axios-retry") + ask;
    assert_repeats_only_undispatched(&RetryingClient::new(&["env", &modules, "node", "-e", &program])).await;
}

fn write_executable(folder: &Path, name: &str, text: &str) -> String {
    let file = folder.join(name);
    fs::write(&file, text).expect("our own folder");
    file.display().to_string()
}
