//! What a key template gets from a request of which only the path counts.

use fencegate_policies::{key::Values, path::Bound};

pub struct FromPath<'a>(pub Bound<'a>);

impl Values for FromPath<'_> {
    fn path(&self, name: &str) -> Option<&str> {
        self.0.get(name)
    }
}
