//! The programs that read the texts.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::Command,
    time::Duration,
};

use fencegate_testkit::scratch;

use super::reading::{Reading, ReadingRow, RequestPart, folder, hex};
use crate::peers::ProxyProcess;

/// How each of them reads these texts.
///
/// # Panics
/// If one of them is not there, or does not answer.
pub fn readings(part: RequestPart, texts: &[String]) -> Vec<ReadingRow> {
    let mut readers = vec![
        ("php", program(part, "php", &["-n", "-d", "display_errors=stderr", "reader.php"], &[], texts)),
        ("python", program(part, "python3", &["reader.py"], &[], texts)),
        ("node", program(part, "node", &["reader.mjs"], &[], texts)),
    ];
    match part {
        RequestPart::Path => readers.push(("nginx", nginx(texts))),
        RequestPart::Query => {
            readers.push(("querystring", program(part, "node", &["reader.mjs"], &["older"], texts)))
        }
        RequestPart::Body => {}
        RequestPart::Graphql => panic!("documents are for `graphql_readings`"),
    }
    to_rows(&readers, texts)
}

/// How these releases of graphql-js read documents. `node_path`: the variable with which Node finds them.
///
/// # Panics
/// If one of them is not there, or does not answer.
pub fn graphql_readings(node_path: &str, packages: &[&'static str], texts: &[String]) -> Vec<ReadingRow> {
    let read = |package: &&'static str| {
        (*package, run(RequestPart::Graphql, "env", &[node_path, "node", "graphql.mjs", package], texts))
    };
    to_rows(&packages.iter().map(read).collect::<Vec<_>>(), texts)
}

fn to_rows(readers: &[(&str, Vec<Reading>)], texts: &[String]) -> Vec<ReadingRow> {
    let row = |(at, text): (usize, &String)| {
        let readings = readers.iter().map(|(name, read)| ((*name).to_owned(), read[at].clone()));
        ReadingRow { text: text.clone(), readings: BTreeMap::from_iter(readings) }
    };
    texts.iter().enumerate().map(row).collect()
}

fn program(part: RequestPart, name: &str, script: &[&str], more: &[&str], texts: &[String]) -> Vec<Reading> {
    run(part, name, &[script, &[part.as_str(), part.name()], more].concat(), texts)
}

/// Runs one of the readers in `tests/readings`, and gives it all texts at once.
fn run(part: RequestPart, name: &str, arguments: &[&str], texts: &[String]) -> Vec<Reading> {
    let home = scratch::temp_dir();
    let asked = home.path().join("asked");
    let lines: String = texts.iter().map(|text| format!("{}\n", hex(text.as_bytes()))).collect();
    fs::write(&asked, lines).expect("a folder of our own");
    let mut command = Command::new("timeout");
    command.args(["300", name]).args(arguments);
    // The Python reader shall leave no cache in the folders of the repository.
    command
        .current_dir(folder())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(File::open(&asked).expect("just written"));
    let ran = command.output().expect("coreutils");
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{name} for {}: {} {complained}", part.as_str(), ran.status);
    let told = String::from_utf8(ran.stdout).expect("signs and hexadecimal digits");
    let read: Option<Vec<Reading>> = told.lines().map(Reading::parse).collect();
    let read = read.unwrap_or_else(|| panic!("{name} says something else: {complained}"));
    assert_eq!(read.len(), texts.len(), "{name}: {complained}");
    read
}

/// The path with which nginx matches locations. It has merged the slashes, decoded the path and resolved the dots.
fn nginx(paths: &[String]) -> Vec<Reading> {
    const SERVER: &str = "large_client_header_buffers 4 64k; keepalive_requests 1000000; default_type text/plain;\n\
                          server { listen LISTEN; location / { return 200 $uri; } }";
    let nginx = ProxyProcess::nginx_with(SERVER, "LISTEN", &[]);
    let mut connection = None;
    // A control character would change the head of the request.
    let read = |path: &String| match path.contains(char::is_control) {
        true => Reading::Unreadable,
        false => asked(nginx.address, &mut connection, path),
    };
    paths.iter().map(read).collect()
}

fn asked(address: SocketAddr, kept: &mut Option<BufReader<TcpStream>>, path: &str) -> Reading {
    let mut connection = kept.take().unwrap_or_else(|| {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("not zero");
        BufReader::new(stream)
    });
    let request = format!("GET {path} HTTP/1.1\r\nHost: service\r\n\r\n");
    connection.get_mut().write_all(request.as_bytes()).expect("it reads");
    let mut status = String::new();
    let mut length = 0;
    connection.read_line(&mut status).expect("it answers");
    loop {
        let mut line = String::new();
        connection.read_line(&mut line).expect("a whole head");
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().expect("a number");
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).expect("a whole body");
    if status.starts_with("HTTP/1.1 200 ") {
        *kept = Some(connection);
        Reading::Text(body)
    } else {
        // Nginx closes the connection after a request that it cannot read.
        Reading::Unreadable
    }
}
