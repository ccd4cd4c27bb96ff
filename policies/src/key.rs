//! Key templates, and the resource key that comes out of one.

/// A parsed template such as `order/{path.order_id}`.
#[derive(Debug, Clone)]
pub struct KeyTemplate {}
