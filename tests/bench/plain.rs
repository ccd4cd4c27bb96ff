//! Sends one request and reads its whole response, for requests that are not measured.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use crate::result::BenchResult;

/// Enough for a server whose instructions are counted, which is fifty times slower.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) fn get(server: SocketAddr, path: &str) -> BenchResult<String> {
    send(server, "GET", path, "")
}

/// Sends a request in HTTP/1.0, so that the response is not chunked and ends with the connection. `body`: JSON, or
/// empty.
pub(crate) fn send(server: SocketAddr, method: &str, path: &str, body: &str) -> BenchResult<String> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
    stream.write_all(
        format!("{method} {path} HTTP/1.0\r\nHost: {server}\r\n{kind}Content-Length: {length}\r\n\r\n{body}")
            .as_bytes(),
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// True if the status of a response is a success.
pub(crate) fn is_good(answer: &str) -> bool {
    answer.split(' ').nth(1).is_some_and(|status| status.starts_with('2'))
}
