//! Reads HTTP/1.1 messages as they arrive. The reader changes no name and drops no field, so that a test sees all of
//! them.

use std::{io, time::Duration};

use tokio::io::{AsyncRead, AsyncReadExt};

/// One request or response, spelled as it was sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpWireMessage {
    /// Request line or status line, without its line end.
    pub start: String,
    /// The name and value of every field line, in order. The values have no surrounding blanks.
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
}

/// The meaning of a message without a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingLengthMeaning {
    /// The message has no body: it is a request, or the response to HEAD.
    Empty,
    /// The body ends with the connection: the message is a response.
    UntilClose,
}

/// Reads messages from one direction of a connection, and calls `seen` with every piece that arrives.
pub struct MessageReader<R> {
    io: R,
    seen: ByteTap,
    ahead: Vec<u8>,
    /// A pause before each piece. With a pause, the reader reads small pieces.
    pause: Option<Duration>,
}

/// A function that is called with every piece of input.
type ByteTap = Box<dyn FnMut(&[u8]) + Send>;

impl HttpWireMessage {
    /// The value of the only field of this name, in any case of letters. `None` if there is no such field.
    ///
    /// # Panics
    /// If the message has the field twice, because the caller expects one value.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut found = self.fields.iter().filter(|(given, _)| given.eq_ignore_ascii_case(name));
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "`{name}` stands twice in {self:?}");
        value
    }

    /// The n-th word of the start line.
    pub fn word(&self, n: usize) -> &str {
        self.start.split(' ').nth(n).unwrap_or_default()
    }

    /// The bytes of the message with a Content-Length, even if it was sent in chunks.
    pub fn to_bytes(&self) -> Vec<u8> {
        let framing = ["content-length", "transfer-encoding", "connection"];
        let mut head = format!("{}\r\n", self.start);
        for (name, value) in &self.fields {
            if !framing.iter().any(|field| name.eq_ignore_ascii_case(field)) {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", self.body.len()));
        [head.into_bytes(), self.body.clone()].concat()
    }

    fn length(&self) -> io::Result<Option<usize>> {
        self.field("content-length")
            .map(|text| text.parse().map_err(|_| invalid_data("content-length")))
            .transpose()
    }

    fn chunked(&self) -> bool {
        self.field("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
    }
}

impl<R: AsyncRead + Unpin> MessageReader<R> {
    pub fn new(io: R, seen: impl FnMut(&[u8]) + Send + 'static) -> Self {
        Self { io, seen: Box::new(seen), ahead: Vec::new(), pause: None }
    }

    /// From now on pauses for this time before each small piece.
    pub fn set_read_pause(&mut self, pause: Duration) {
        self.pause = Some(pause);
    }

    /// Waits for the first byte of the next message. Returns false if the connection ends instead.
    pub async fn wait_first_byte(&mut self) -> io::Result<bool> {
        Ok(!self.ahead.is_empty() || self.read_more().await? > 0)
    }

    /// Reads the start line and the fields. The body is not read.
    pub async fn read_head(&mut self) -> io::Result<HttpWireMessage> {
        let start = self.read_line().await?;
        Ok(HttpWireMessage { start, fields: self.read_fields().await?, ..HttpWireMessage::default() })
    }

    /// Reads the body and the trailers of a message.
    pub async fn read_body(
        &mut self,
        message: &mut HttpWireMessage,
        unframed: MissingLengthMeaning,
    ) -> io::Result<()> {
        if message.chunked() {
            return self.read_chunks(message).await;
        }
        match (message.length()?, unframed) {
            (Some(length), _) => message.body = self.read_exactly(length).await?,
            (None, MissingLengthMeaning::Empty) => {}
            (None, MissingLengthMeaning::UntilClose) => {
                while self.read_more().await? > 0 {}
                message.body = std::mem::take(&mut self.ahead);
            }
        }
        Ok(())
    }

    /// Reads all bytes up to the end of the connection. A broken connection counts as its end.
    pub async fn read_rest(&mut self, rest: &mut Vec<u8>) {
        loop {
            rest.append(&mut self.ahead);
            if !self.read_more().await.is_ok_and(|count| count > 0) {
                return;
            }
        }
    }

    /// Returns when the other side has ended the connection. All bytes before the end are skipped.
    pub async fn wait_end(&mut self) {
        while self.read_more().await.is_ok_and(|count| count > 0) {}
    }

    async fn read_chunks(&mut self, message: &mut HttpWireMessage) -> io::Result<()> {
        loop {
            let size = self.read_line().await?;
            let digits = size.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(digits, 16).map_err(|_| invalid_data("chunk size"))?;
            if size == 0 {
                message.trailers = self.read_fields().await?;
                return Ok(());
            }
            message.body.extend(self.read_exactly(size).await?);
            self.read_line().await?;
        }
    }

    /// Reads field lines up to the empty line.
    async fn read_fields(&mut self) -> io::Result<Vec<(String, String)>> {
        let mut fields = Vec::new();
        loop {
            let line = self.read_line().await?;
            if line.is_empty() {
                return Ok(fields);
            }
            let (name, value) = line.split_once(':').ok_or_else(|| invalid_data("field line"))?;
            fields.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    async fn read_line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.ahead.windows(2).position(|pair| pair == b"\r\n") {
                let line = String::from_utf8_lossy(&self.ahead[..end]).into_owned();
                self.ahead.drain(..end + 2);
                return Ok(line);
            }
            self.needed().await?;
        }
    }

    async fn read_exactly(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.ahead.len() < count {
            self.needed().await?;
        }
        Ok(self.ahead.drain(..count).collect())
    }

    async fn needed(&mut self) -> io::Result<()> {
        match self.read_more().await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Reads a piece into `ahead`. Dropping the future loses nothing.
    async fn read_more(&mut self) -> io::Result<usize> {
        let before = self.ahead.len();
        let count = match self.pause {
            None => self.io.read_buf(&mut self.ahead).await?,
            Some(pause) => {
                tokio::time::sleep(pause).await;
                (&mut self.io).take(A_LITTLE).read_buf(&mut self.ahead).await?
            }
        };
        (self.seen)(&self.ahead[before..]);
        Ok(count)
    }
}

const A_LITTLE: u64 = 16 << 10;

fn invalid_data(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(text: &str, unframed: MissingLengthMeaning) -> io::Result<HttpWireMessage> {
        let mut reader = MessageReader::new(text.as_bytes(), |_| {});
        let mut message = reader.read_head().await?;
        reader.read_body(&mut message, unframed).await?;
        Ok(message)
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// Field and trailer names that look like others are read with the spelling they arrived with.
    #[tokio::test]
    async fn lookalike_fields_keep_spelling() {
        let text = "POST /a HTTP/1.1\r\nFENCING_token: x\r\nTransfer-Encoding: chunked\r\n\r\n\
                    2;ext\r\nhi\r\n0\r\nfencing-Token:y\r\n\r\n";
        let message = read(text, MissingLengthMeaning::Empty).await.expect("well formed");
        assert_eq!(message.fields, pairs(&[("FENCING_token", "x"), ("Transfer-Encoding", "chunked")]));
        assert_eq!(message.trailers, pairs(&[("fencing-Token", "y")]));
        assert_eq!(message.body, b"hi");
    }

    #[tokio::test]
    async fn every_framing_yields_same_body() {
        for (framing, unframed) in [
            ("Content-Length: 2\r\n\r\nhi", MissingLengthMeaning::Empty),
            ("Transfer-Encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\n\r\n", MissingLengthMeaning::Empty),
            ("\r\nhi", MissingLengthMeaning::UntilClose),
        ] {
            let text = format!("HTTP/1.1 200 OK\r\n{framing}");
            assert_eq!(read(&text, unframed).await.expect(framing).body, b"hi", "{framing:?}");
        }
    }

    /// A message that ends early is an error, and never a short body.
    #[tokio::test]
    async fn truncated_message_is_error() {
        for cut in ["POST / HT", "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nhi"] {
            let error = read(cut, MissingLengthMeaning::Empty).await.expect_err(cut);
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{cut:?}");
        }
    }
}
