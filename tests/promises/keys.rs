//! `fencegate keys` makes keys that only their owner can read, and prints nothing of a secret.
//!
//! A new key overwrites no file. The public halves are printed as one key set.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use fencegate_testkit::scratch;
use fencegate_tests::gateway::command;
use serde_json::Value;

/// The exit code, stdout and stderr of `fencegate keys`.
async fn keys(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = command(&[&["keys"], arguments].concat()).await.expect("started");
    let [stdout, error] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text"));
    (output.status.code(), stdout, error)
}

/// Makes a key and gives its `kid`.
async fn new(file: &Path, more: &[&str]) -> String {
    let (code, stdout, error) = keys(&[&["new", text(file)], more].concat()).await;
    assert_eq!(code, Some(0), "{error}");
    stdout.trim_end().to_owned()
}

fn text(file: &Path) -> &str {
    file.to_str().expect("our own name")
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A new key file is readable by its owner only, and is never overwritten.
#[tokio::test]
async fn new_key_file_is_private() {
    let folder = scratch::temp_dir();
    for more in [&[][..], &["--hs256"]] {
        let file = folder.path().join(format!("key-{}", more.len()));
        let kid = new(&file, more).await;
        assert_eq!(kid.len(), 43, "a SHA-256 in base64url: {kid}");
        let mode = fs::metadata(&file).expect("made").permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);

        let before = fs::read(&file).expect("ours");
        let (code, stdout, error) = keys(&[&["new", text(&file)], more].concat()).await;
        assert_eq!((code, &*stdout), (Some(1), ""));
        assert!(error.contains("exists already"), "{error}");
        assert_eq!(fs::read(&file).expect("ours"), before);
    }
}

/// The public halves of all key files are one key set, without a private half.
#[tokio::test]
async fn public_keys_form_one_set() {
    let folder = scratch::temp_dir();
    let [old, next] = ["old.json", "new.json"].map(|name| folder.path().join(name));
    let kids = [new(&old, &[]).await, new(&next, &[]).await];
    let (code, stdout, error) = keys(&["public", text(&old), text(&next), text(&old)]).await;
    assert_eq!(code, Some(0), "{error}");
    let set = json(&stdout);
    let set = set["keys"].as_array().expect("a key set");
    assert_eq!(set.len(), 2, "each key once");
    for (public, (file, kid)) in set.iter().zip([&old, &next].into_iter().zip(&kids)) {
        let private = json(&fs::read_to_string(file).expect("ours"));
        assert_eq!(public["kid"], **kid);
        assert_eq!(public["x"], private["x"]);
        assert_eq!(
            (&public["kty"], &public["crv"], &public["d"]),
            (&"OKP".into(), &"Ed25519".into(), &Value::Null)
        );
        assert!(!stdout.contains(private["d"].as_str().expect("a private key")));
    }
}

#[tokio::test]
async fn shared_secret_has_no_public_half() {
    let folder = scratch::temp_dir();
    let file = folder.path().join("secret");
    new(&file, &["--hs256"]).await;
    let (code, stdout, error) = keys(&["public", text(&file)]).await;
    assert_eq!((code, &*stdout), (Some(1), ""));
    assert!(error.contains("no public half"), "{error}");
    let secret = fs::read_to_string(&file).expect("ours");
    assert!(!error.contains(secret.trim_end()), "{error}");
}

/// A key file that other users can read is refused, with a remedy.
#[tokio::test]
async fn readable_key_file_is_refused() {
    let folder = scratch::temp_dir();
    let file = folder.path().join("key.json");
    new(&file, &[]).await;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("ours");
    let (code, stdout, error) = keys(&["public", text(&file)]).await;
    assert_eq!((code, &*stdout), (Some(1), ""));
    assert!(error.contains("chmod 600"), "{error}");
}
