//! A response that may be too large for memory, so it is read in parts.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, body::Incoming, client::conn::http1::SendRequest};
use tokio::time::timeout;

use super::{JsonClient, JsonClientError, JsonResponse};

/// A response whose body has not been read yet.
pub struct StreamedResponse {
    body: Incoming,
    /// Keeps the connection open.
    _connection: SendRequest<Full<Bytes>>,
}

impl JsonClient {
    /// A POST without a body, on a connection that is not used again. An error response is read as a whole.
    ///
    /// # Errors
    /// [`JsonClientError`] when no head of a response arrived within `patience`.
    pub async fn post_stream(
        &mut self,
        path: &str,
        patience: Duration,
    ) -> Result<Result<StreamedResponse, JsonResponse>, JsonClientError> {
        let begun = async {
            let (answer, connection) = self.send(Method::POST, path, &[], Bytes::new()).await?;
            if !answer.status().is_success() {
                return Ok(Err(JsonResponse::from_response(answer).await?));
            }
            Ok(Ok(StreamedResponse { body: answer.into_body(), _connection: connection }))
        };
        timeout(patience, begun).await.unwrap_or(Err(JsonClientError::Timeout(patience)))
    }
}

impl StreamedResponse {
    /// The next part of the body; `None` after its end.
    ///
    /// # Errors
    /// The response broke off, or nothing arrived within `patience`.
    pub async fn next_chunk(&mut self, patience: Duration) -> Result<Option<Bytes>, JsonClientError> {
        loop {
            let frame = timeout(patience, self.body.frame()).await;
            let Some(frame) = frame.map_err(|_| JsonClientError::Timeout(patience))? else { return Ok(None) };
            if let Ok(data) = frame?.into_data() {
                return Ok(Some(data));
            }
        }
    }
}
