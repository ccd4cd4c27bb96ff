//! Values for key templates, from requests of which only the path counts.

use fencegate_policies::{key::RequestValues, path::PathParams};

pub struct PathValues<'a>(pub PathParams<'a>);

impl RequestValues for PathValues<'_> {
    fn path(&self, name: &str) -> Option<&str> {
        self.0.get(name)
    }
}

/// A request whose path has this decoded value for every variable.
pub struct OnePathValue(pub String);

impl RequestValues for OnePathValue {
    fn path(&self, _: &str) -> Option<&str> {
        Some(&self.0)
    }
}
