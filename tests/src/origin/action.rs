//! What the recording upstream does with a request, as data.

use std::time::Duration;

use tokio::sync::watch;

/// One request's fate at the origin.
#[derive(Debug, Clone)]
pub enum OriginAction {
    /// Works that long, then answers.
    Answer(Duration, OriginReply),
    /// Answers at once, then ends the connection without having announced it.
    AnswerAndClose(OriginReply),
    /// Works until let go, then answers.
    Hold(Latch, OriginReply),
    /// Sends the head and half of the body, and the rest when let go.
    HoldInBody(Latch, OriginReply),
    /// Reads nothing behind the head until let go; then plays the next act of the path.
    ReadLater(Latch),
    /// Pauses that long before it reads each little piece of the body; then plays the next act of the path.
    ReadSlowly(Duration),
    /// Answers behind the head, and reads the body when let go.
    AnswerUnread(Latch, OriginReply),
    /// Sends this behind the head and ends its side, while the body is still coming; reads nothing of that until the
    /// gateway has ended the connection.
    BreakUnread(&'static str),
    /// Sends this behind the head and nothing more, while the body is still coming; reads nothing of that until the
    /// release.
    BeginUnread(&'static str, Latch),
    /// Reads the request, then resets the connection.
    Reset,
    /// Ends the connection within the head of the answer.
    CloseInHead,
    /// Ends the connection within the body of the answer.
    CloseInBody(OriginReply),
}

/// An answer to give.
#[derive(Debug, Clone)]
pub struct OriginReply {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Sent after a chunked body; a body without trailers has a length.
    pub trailers: Vec<(String, String)>,
}

/// An answer byte for byte, for the next request whatever its path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScriptedResponse {
    /// `None`: 200 with the body `ok`.
    pub bytes: Option<Vec<u8>>,
    pub closes: bool,
    /// The answer is sent after the head of the request, before the body is read.
    pub early: bool,
}

/// Holds its waiters until the release, once and for all.
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

    /// The bytes of the head.
    pub(super) fn head(&self) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} Scripted\r\n{}", self.status, lines(&self.fields));
        if self.trailers.is_empty() {
            head.push_str(&format!("Content-Length: {}\r\n\r\n", self.body.len()));
        } else {
            // Proxies may drop what is not announced.
            let names: Vec<&str> = self.trailers.iter().map(|(name, _)| name.as_str()).collect();
            head.push_str(&format!("Transfer-Encoding: chunked\r\nTrailer: {}\r\n\r\n", names.join(", ")));
        }
        head.into_bytes()
    }

    /// The bytes behind the head.
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
        // The sender lives in `self`, so waiting ends only by letting go.
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
