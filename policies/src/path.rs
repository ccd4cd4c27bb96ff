//! The one canonical path of a request, or why there is none.

/// A parsed path template such as `/v1/orders/{order_id}/capture`.
#[derive(Debug, Clone)]
pub struct PathTemplate {}
