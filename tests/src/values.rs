//! What a key template gets from a request of which only the path counts.

use fencegate_policies::{
    key::{Field, Values, json},
    path::Bound,
};

pub struct FromPath<'a>(pub Bound<'a>);

impl Values for FromPath<'_> {
    fn path(&self, name: &str) -> Option<&str> {
        self.0.get(name)
    }

    fn query(&self) -> Option<&str> {
        None
    }

    fn header<'a>(&'a self, _: &str) -> Field<'a> {
        Field::Absent
    }

    fn host(&self) -> Option<&str> {
        None
    }

    fn body(&self) -> Option<&json::Body> {
        None
    }
}
