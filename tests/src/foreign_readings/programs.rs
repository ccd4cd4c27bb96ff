//! Runs the programs that read the texts.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    iter,
    net::{SocketAddr, TcpStream},
    process::Command,
    time::Duration,
};

use fencegate_testkit::scratch;

use super::{
    reading::{ParserReading, ParserReadingRow, RequestPart, folder, hex},
    rows::{RowSpellingMatch, RowSpellings, SpelledValue},
};
use crate::peers::ProxyProcess;

/// The readings of these texts by each program.
///
/// # Panics
/// If a program is missing, or does not answer.
pub fn readings(part: RequestPart, texts: &[String]) -> Vec<ParserReadingRow> {
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

/// The readings of these documents by releases of graphql-js. `node_path`: the environment variable by which Node
/// finds them.
///
/// # Panics
/// If a release is missing, or does not answer.
pub fn graphql_readings(
    node_path: &str,
    packages: &[&'static str],
    texts: &[String],
) -> Vec<ParserReadingRow> {
    let read = |package: &&'static str| {
        (*package, read_texts(&["env", node_path, "node", "graphql.mjs", package], texts))
    };
    to_rows(&packages.iter().map(read).collect::<Vec<_>>(), texts)
}

fn to_rows(readers: &[(&str, Vec<ParserReading>)], texts: &[String]) -> Vec<ParserReadingRow> {
    let row = |(at, text): (usize, &String)| {
        let readings = readers.iter().map(|(name, read)| ((*name).to_owned(), read[at].clone()));
        ParserReadingRow { text: text.clone(), readings: BTreeMap::from_iter(readings) }
    };
    texts.iter().enumerate().map(row).collect()
}

fn program(
    part: RequestPart,
    name: &str,
    script: &[&str],
    more: &[&str],
    texts: &[String],
) -> Vec<ParserReading> {
    read_texts(&[&[name][..], script, &[part.as_str(), part.name()], more].concat(), texts)
}

fn read_texts(command: &[&str], texts: &[String]) -> Vec<ParserReading> {
    let lines: String = texts.iter().map(|text| format!("{}\n", hex(text.as_bytes()))).collect();
    run_reader(command, &lines)
}

/// Compares each spelling of these rows with its row, by a program.
///
/// # Panics
/// If the program does not run, or does not take a row's own spelling for the row.
pub fn row_matches(command: &[&str], rows: &[&RowSpellings]) -> Vec<Vec<RowSpellingMatch>> {
    let word = |value: &SpelledValue| {
        let number = if matches!(value, SpelledValue::Number(_)) { "#" } else { "" };
        format!("{number}{}", hex(value.to_string().as_bytes()))
    };
    let lines = rows.iter().flat_map(|row| {
        let line = |spelling| format!("{} {} {}\n", hex(row.how.as_bytes()), word(&row.row), word(spelling));
        iter::once(&row.row).chain(row.spellings()).map(line).collect::<Vec<_>>()
    });
    let mut read = run_reader(command, &lines.collect::<String>()).into_iter();
    let row_matches = |row: &&RowSpellings| {
        let itself = read.next().expect("one for each line");
        assert!(matches!(itself, ParserReading::Text(_)), "{} {}: {itself}", row.how, row.row);
        let to_match = |reading| match reading {
            ParserReading::Unreadable => RowSpellingMatch::Refused,
            reading if reading == itself => RowSpellingMatch::Same,
            _ => RowSpellingMatch::Other,
        };
        read.by_ref().take(row.spellings().count()).map(to_match).collect()
    };
    rows.iter().map(row_matches).collect()
}

/// Runs a reader in `tests/readings`, which gets all lines at once and prints one reading for each.
fn run_reader(command: &[&str], lines: &str) -> Vec<ParserReading> {
    let home = scratch::temp_dir();
    let asked = home.path().join("asked");
    fs::write(&asked, lines).expect("a folder of our own");
    // Python must not write its cache into the folders of the repository.
    let ran = Command::new("timeout")
        .arg("300")
        .args(command)
        .current_dir(folder())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(File::open(&asked).expect("just written"))
        .output()
        .expect("coreutils");
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{command:?}: {} {complained}", ran.status);
    let told = String::from_utf8(ran.stdout).expect("signs and hexadecimal digits");
    let read: Option<Vec<ParserReading>> = told.lines().map(ParserReading::parse).collect();
    let read = read.unwrap_or_else(|| panic!("{command:?} says something else: {complained}"));
    assert_eq!(read.len(), lines.lines().count(), "{command:?}: {complained}");
    read
}

/// The paths with which nginx matches locations: decoded, with slashes merged and dots resolved.
fn nginx(paths: &[String]) -> Vec<ParserReading> {
    const SERVER: &str = "large_client_header_buffers 4 64k; keepalive_requests 1000000; default_type text/plain;\n\
                          server { listen LISTEN; location / { return 200 $uri; } }";
    let nginx = ProxyProcess::nginx_with(SERVER, "LISTEN", &[]);
    let mut connection = None;
    // A control character would end the request line or change the head, so it is not sent.
    let read = |path: &String| match path.contains(char::is_control) {
        true => ParserReading::Unreadable,
        false => ask_nginx(nginx.address, &mut connection, path),
    };
    paths.iter().map(read).collect()
}

fn ask_nginx(address: SocketAddr, kept: &mut Option<BufReader<TcpStream>>, path: &str) -> ParserReading {
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
        ParserReading::Text(body)
    } else {
        // nginx closes the connection after a request that it cannot read.
        ParserReading::Unreadable
    }
}
