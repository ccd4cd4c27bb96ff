//! A response that may be too large for memory, so it is read in parts.

use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, Response, body::Incoming};
use tokio::time::timeout;

use super::{JsonClient, JsonClientError, JsonConnection, JsonResponse, LONGEST};

/// A response whose body has not been read yet.
pub struct StreamedResponse {
    body: Incoming,
    connection: JsonConnection,
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
            let request = self.build_request(Method::POST, path, &[], Bytes::new());
            let mut connection = self.take_connection().await?;
            let (head, body) = connection.send(request).await?.into_parts();
            if head.status.is_success() {
                return Ok(Ok(StreamedResponse { body, connection }));
            }
            let body = connection.read_body(body, LONGEST).await?;
            Ok(Err(JsonResponse::from_response(&Response::from_parts(head, body))))
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
            let frame = timeout(patience, self.connection.next_frame(&mut self.body)).await;
            let Some(frame) = frame.map_err(|_| JsonClientError::Timeout(patience))? else { return Ok(None) };
            if let Ok(data) = frame?.into_data() {
                return Ok(Some(data));
            }
        }
    }
}
