//! The actions of the recording upstream, as data.

use std::time::Duration;

use tokio::sync::watch;

/// The action of the origin for one request. A released latch lets the action go on.
#[derive(Debug, Clone)]
pub enum OriginAction {
    /// Works for this time, then answers.
    Answer(Duration, OriginReply),
    /// Answers at once, then closes the connection without having announced that.
    AnswerAndClose(OriginReply),
    /// Works until the release, then answers.
    Hold(Latch, OriginReply),
    /// Sends the head and half of the body, and the rest after the release.
    HoldInBody(Latch, OriginReply),
    /// Reads nothing after the head of the request until the release. Then the next action of the path follows.
    ReadLater(Latch),
    /// Pauses for this time before it reads each small piece of the body. Then the next action of the path follows.
    ReadSlowly(Duration),
    /// Answers after the head of the request, and reads the body after the release.
    AnswerUnread(Latch, OriginReply),
    /// Sends this text after the head of the request and ends its side while the body is still on its way. Reads the
    /// body only to wait until the gateway has closed the connection.
    BreakUnread(&'static str),
    /// Sends this text after the head of the request, and nothing more, while the body is still on its way. Closes
    /// the connection at the release, and never reads the body.
    BeginUnread(&'static str, Latch),
    /// Reads the request, then resets the connection.
    Reset,
    /// Closes the connection in the middle of the answer's head.
    CloseInHead,
    /// Closes the connection in the middle of the answer's body.
    CloseInBody(OriginReply),
}

/// An answer of the origin.
#[derive(Debug, Clone)]
pub struct OriginReply {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The trailers. A body with trailers is sent in chunks, and a body without trailers has a length.
    pub trailers: Vec<(String, String)>,
}

/// An answer given byte for byte, for the next request of any path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScriptedResponse {
    /// The bytes of the answer. `None`: a 200 with the body `ok`.
    pub bytes: Option<Vec<u8>>,
    pub closes: bool,
    /// The answer is sent after the head of the request, before the body is read.
    pub early: bool,
}

/// Holds its waiters until it is released. It cannot be closed again.
#[derive(Debug, Clone)]
pub struct Latch(watch::Sender<bool>);

impl OriginAction {
    pub fn now(reply: OriginReply) -> Self {
        Self::Answer(Duration::ZERO, reply)
    }
}

impl OriginReply {
    pub fn ok() -> Self {
        Self::with_body("ok")
    }

    pub fn with_body(body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, fields: Vec::new(), body: body.into(), trailers: Vec::new() }
    }

    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    #[must_use]
    pub fn field(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    #[must_use]
    pub fn trailer(mut self, name: &str, value: &str) -> Self {
        self.trailers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The bytes of the answer's head.
    pub(super) fn head(&self) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} Scripted\r\n{}", self.status, lines(&self.fields));
        if self.trailers.is_empty() {
            head.push_str(&format!("Content-Length: {}\r\n\r\n", self.body.len()));
        } else {
            // Proxies may drop trailers that the head does not announce.
            let names: Vec<&str> = self.trailers.iter().map(|(name, _)| name.as_str()).collect();
            head.push_str(&format!("Transfer-Encoding: chunked\r\nTrailer: {}\r\n\r\n", names.join(", ")));
        }
        head.into_bytes()
    }

    /// The bytes after the head.
    pub(super) fn rest(&self) -> Vec<u8> {
        if self.trailers.is_empty() {
            return self.body.clone();
        }
        let mut rest = Vec::new();
        if !self.body.is_empty() {
            rest.extend(format!("{:x}\r\n", self.body.len()).as_bytes());
            rest.extend(&self.body);
            rest.extend(b"\r\n");
        }
        rest.extend(format!("0\r\n{}\r\n", lines(&self.trailers)).as_bytes());
        rest
    }
}

impl Default for Latch {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Latch {
    pub fn release(&self) {
        self.0.send_replace(true);
    }

    pub(crate) async fn wait_released(&self) {
        // `self` owns the sender, so the wait cannot fail: it ends only at the release.
        self.0.subscribe().wait_for(|gone| *gone).await.expect("the latch owns its sender");
    }
}

impl ScriptedResponse {
    /// A response to HEAD has no body.
    pub(super) fn bytes_for(&self, method: &str) -> Vec<u8> {
        const USUAL_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
        let usual = || if method == "HEAD" { USUAL_HEAD.to_vec() } else { [USUAL_HEAD, b"ok"].concat() };
        self.bytes.clone().unwrap_or_else(usual)
    }
}

fn lines(fields: &[(String, String)]) -> String {
    fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect()
}
