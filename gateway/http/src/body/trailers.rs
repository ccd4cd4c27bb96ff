//! The treatment of trailers.

use std::{rc::Rc, sync::Arc};

use bytes::Bytes;
use fencegate_policies::plan::ServingPlan;
use hyper::body::Frame;

use super::hop_by_hop::strip_hop_by_hop;

/// The treatment of a body's trailers.
#[derive(Clone)]
pub enum TrailerPolicy {
    /// For a client's body: all are dropped, because the service could take a token among them for one of this proxy.
    Drop,
    /// For an upstream's body: they pass, without the fields that only this proxy writes.
    Clean(Rc<Arc<ServingPlan>>),
    /// They were filtered before.
    Pass,
}

impl TrailerPolicy {
    /// `None`: the frame does not pass.
    pub fn filter(&self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        match (self, frame.into_trailers()) {
            (_, Err(data)) => Some(data),
            (Self::Pass, Ok(trailers)) => Some(Frame::trailers(trailers)),
            (Self::Drop, Ok(_)) => None,
            (Self::Clean(plan), Ok(mut trailers)) => {
                strip_hop_by_hop(&mut trailers, &plan.fields);
                (!trailers.is_empty()).then(|| Frame::trailers(trailers))
            }
        }
    }
}
