//! The room that the heads of requests take of the memory for bodies.

use fencegate_policies::plan::body_memory::{self, FREE};
use hyper::Request;

use super::{Budget, Full};

/// The room of a head, or of the buffer into which heads are read, until it is dropped.
#[derive(Debug)]
pub struct HeadReservation {
    of: Budget,
    bytes: i64,
}

impl Budget {
    /// Room for the head of a request that was read in full. `None`: it is small, and is not counted.
    pub(crate) fn hold_head<B>(&self, request: &Request<B>) -> Result<Option<HeadReservation>, Full> {
        let bytes = head_bytes(request);
        if bytes <= FREE {
            return Ok(None);
        }
        let mut room = HeadReservation::of(self);
        room.hold_within(COPIES * bytes, body_memory::complete_heads(self.most()))?;
        Ok(Some(room))
    }
}

impl HeadReservation {
    pub(crate) fn of(budget: &Budget) -> Self {
        Self { of: budget.clone(), bytes: 0 }
    }

    /// Makes room for `bytes` of a head that is being read. What has room keeps it.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), Full> {
        self.hold_within(bytes, body_memory::heads(self.of.most()))
    }

    fn hold_within(&mut self, bytes: usize, heads: usize) -> Result<(), Full> {
        let wanted = i64::try_from(bytes).map_err(|_| Full)?;
        let more = wanted - self.bytes;
        if bytes <= FREE || more <= 0 {
            return Ok(());
        }
        let metrics = self.of.metrics();
        let all = self.of.most();
        let within = |bytes: i64, bound: usize| usize::try_from(bytes).is_ok_and(|bytes| bytes <= bound);
        // If two heads add at once, both may be refused, but never both are admitted beyond the bound.
        let fits = within(metrics.add_to_heads(more), heads) & within(metrics.add(more), all.max(heads));
        if !fits {
            metrics.add_to_heads(-more);
            metrics.add(-more);
            metrics.head_refused();
            return Err(Full);
        }
        self.bytes = wanted;
        Ok(())
    }

    pub(crate) fn give_back(&mut self) {
        if self.bytes > 0 {
            self.of.metrics().add_to_heads(-self.bytes);
            self.of.metrics().add(-self.bytes);
            self.bytes = 0;
        }
    }
}

impl Drop for HeadReservation {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// The bytes of a head in memory: its text, and what the library takes to find each field.
fn head_bytes<B>(request: &Request<B>) -> usize {
    let uri = request.uri();
    let target = uri.path().len() + uri.query().map_or(0, str::len);
    let fields = request.headers().iter();
    target + fields.map(|(name, value)| name.as_str().len() + value.len() + FIELD).sum::<usize>()
}

/// A head is in memory as it came, and as it is sent on.
const COPIES: usize = 2;
/// An entry of a map of fields, beside its text.
const FIELD: usize = 104;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffered::metrics::BufferedMetrics;

    const MIB: usize = 1 << 20;

    fn large() -> Request<()> {
        let long = "x".repeat(900);
        let request = (0..60).fold(Request::get("/f"), |request, n| request.header(format!("f-{n}"), &long));
        request.body(()).expect("a request")
    }

    #[test]
    fn heads_take_half_of_the_memory_leave_some_for_reading_and_give_all_of_it_back() {
        let budget = Budget::new(16 * MIB, BufferedMetrics::nobodys());
        let held: Vec<_> = std::iter::from_fn(|| budget.hold_head(&large()).ok()).collect();
        let each = COPIES * head_bytes(&large());
        assert_eq!(held.len(), 6 * MIB / each);
        let mut reading = HeadReservation::of(&budget);
        assert_eq!((reading.hold(2 * MIB), reading.hold(3 * MIB)), (Ok(()), Err(Full)));
        let mut body = budget.room();
        assert_eq!(body.hold(4 * MIB), Ok(()), "bodies go on");
        let small = Request::get("/small").header("a", "b").body(()).expect("a request");
        assert!(budget.hold_head(&small).is_ok_and(|room| room.is_none()), "what is small is not counted");
        drop((held, body, reading));
        assert_eq!((budget.metrics().add(0), budget.metrics().add_to_heads(0)), (0, 0));
    }

    #[test]
    fn where_bodies_take_all_heads_find_no_room_unless_the_memory_is_small() {
        let budget = Budget::new(16 * MIB, BufferedMetrics::nobodys());
        let small_ones: Vec<_> = (0..256)
            .map(|_| {
                let mut room = budget.room();
                room.hold(64 << 10).expect("room");
                room
            })
            .collect();
        assert!(budget.hold_head(&large()).is_err());
        drop(small_ones);
        assert!(budget.hold_head(&large()).is_ok());
        let budget = Budget::new(64 << 10, BufferedMetrics::nobodys());
        assert!(budget.hold_head(&large()).is_ok());
    }
}
