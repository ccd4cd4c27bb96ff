//! Which route a request takes.

/// All routes of a plan, tried top to bottom.
#[derive(Debug, Clone)]
pub struct RouteTable {}
