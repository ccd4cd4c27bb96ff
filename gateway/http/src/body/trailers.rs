//! What becomes of the fields behind a body.

use std::{rc::Rc, sync::Arc};

use bytes::Bytes;
use fencegate_policies::plan::Plan;
use hyper::body::Frame;

use super::fields::clean;

/// What becomes of the trailers of a body.
#[derive(Clone)]
pub enum Trailers {
    /// A client's: a token sent as a trailer would arrive like one of ours.
    Drop,
    /// An upstream's: they pass, without fields that only we write.
    Clean(Rc<Arc<Plan>>),
    /// Filtered before.
    Pass,
}

impl Trailers {
    /// `None`: the frame does not pass.
    pub fn filter(&self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        match (self, frame.into_trailers()) {
            (_, Err(data)) => Some(data),
            (Self::Pass, Ok(trailers)) => Some(Frame::trailers(trailers)),
            (Self::Drop, Ok(_)) => None,
            (Self::Clean(plan), Ok(mut trailers)) => {
                clean(&mut trailers, &plan.fields);
                (!trailers.is_empty()).then(|| Frame::trailers(trailers))
            }
        }
    }
}
