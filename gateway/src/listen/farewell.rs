//! Ends a connection of our own accord: with a refusal where there is something to say, and so that it arrives.

use std::{fmt::Write as _, io, time::Duration, time::SystemTime};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};
use tracing::info;

use crate::{admin::metrics::WorkerMetrics, refusal::Refusal};

/// Counts and logs a refusal that no step has seen, and gives its words.
pub(super) fn refused(metrics: &WorkerMetrics, refusal: Refusal, took: Duration) -> Bytes {
    let route = metrics.unrouted();
    route.rejected(refusal.reason);
    route.answered(refusal.status(), took);
    info!(reason = refusal.reason.word(), detail = %refusal.detail, "refused before it was a request");
    words(refusal)
}

/// A refusal as HTTP/1.1 writes it.
fn words(refusal: Refusal) -> Bytes {
    let reply = refusal.into_reply();
    let (status, body) = (reply.status(), reply.body().bytes().unwrap_or_default());
    let mut head = format!("HTTP/1.1 {status}\r\n");
    for (name, value) in reply.headers() {
        let value = value.to_str().expect("a refusal has fields of visible ASCII");
        write!(head, "{name}: {value}\r\n").expect("memory takes everything");
    }
    let date = httpdate::HttpDate::from(SystemTime::now());
    write!(head, "content-length: {}\r\nconnection: close\r\ndate: {date}\r\n\r\n", body.len())
        .expect("memory takes everything");
    [head.as_bytes(), body].concat().into()
}

/// Says `words` and closes. A connection that is closed while the client still sends is reset, and the reset may
/// overtake the words: so what still comes is read and thrown away, for a moment.
pub(crate) async fn farewell<I: AsyncRead + AsyncWrite + Unpin>(mut stream: I, words: Bytes) {
    let said = async {
        stream.write_all(&words).await?;
        stream.shutdown().await?;
        let mut sink = [0; SINK];
        while stream.read(&mut sink).await? > 0 {}
        io::Result::Ok(())
    };
    // Whoever has gone need not be told.
    drop(timeout(LINGER, said).await);
}

/// Closes after the last answer, in the same way if anything that nobody has read is there.
pub(super) async fn close<I: AsyncRead + AsyncWrite + Unpin>(mut stream: I) {
    let mut sink = [0; SINK];
    let closed = async {
        stream.shutdown().await?;
        tokio::select! {
            biased;
            read = stream.read(&mut sink) => io::Result::Ok(read? > 0),
            () = std::future::ready(()) => Ok(false),
        }
    };
    if let Ok(Ok(true)) = timeout(LINGER, closed).await {
        farewell(stream, Bytes::new()).await;
    }
}

const LINGER: Duration = Duration::from_secs(1);
const SINK: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Reason;

    #[test]
    fn the_words_are_those_of_every_other_refusal() {
        let words = words(Refusal::new(Reason::HeaderTooLarge, "too much"));
        let text = std::str::from_utf8(&words).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"), "{head}");
        assert!(head.contains("\r\ncontent-type: application/problem+json\r\n"), "{head}");
        assert!(head.contains("\r\nfencing-outcome: not-dispatched\r\n"), "{head}");
        assert!(head.contains(&format!("\r\ncontent-length: {}\r\nconnection: close\r\ndate: ", body.len())));
        assert!(body.contains("\"reason\":\"header-too-large\""), "{body}");
    }
}
