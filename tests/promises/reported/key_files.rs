//! A certificate and its key are read in all of the forms in which editors and tools write PEM.

use std::fs;

use fencegate_tests::{
    client::{Http1Client, TestRequest},
    gateway::Gateway,
    site::TestSite,
};
use serde_json::json;

use crate::tls::TlsFiles;

/// Reported against rustls and cert-manager: a certificate and key that other servers accept were refused. This test
/// covers text around the lines of PEM (RFC 7468, 2 and 5.2), with the same certificate and the same key.
#[tokio::test]
async fn pem_is_read_in_every_form() {
    let site = TestSite::fresh().await;
    type Rewrite = fn(&str) -> String;
    let forms: [(&str, Rewrite); 6] = [
        ("as it is", str::to_owned),
        ("with a byte order mark", |text| format!("\u{feff}{text}")),
        ("with line ends of Windows", |text| text.replace('\n', "\r\n")),
        ("with both", |text| format!("\u{feff}{}", text.replace('\n', "\r\n"))),
        ("with text around", |text| format!("Bag Attributes\n    friendlyName: pay\n{text}\n# end\n")),
        ("without a last line end", |text| text.trim_end().to_owned()),
    ];
    for (what, form) in forms {
        let keys = TlsFiles::new();
        let pair = keys.write("a", "pay.example");
        for field in ["certificate_file", "key_file"] {
            let file = pair[field].as_str().expect("a path");
            let text = fs::read_to_string(file).expect("written");
            // In place: the key keeps its mode.
            fs::write(file, form(&text)).expect("ours");
        }
        let policy = site.policy("gw-1").with("/listeners/public/tls", json!({"certificates": [pair]}));
        let gateway = Gateway::start(&policy).await;
        let stream = keys.client().connect(gateway.public, "pay.example").await;
        let stream = stream.unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut client = Http1Client::on_stream(stream, gateway.public).await.expect("speaks HTTP/1.1");
        let answer =
            client.send(&TestRequest::get("/x").field("host", "pay.example")).await.expect("answered");
        assert_eq!(answer.status, 200, "{what}");
        gateway.stop().await;
    }
}
