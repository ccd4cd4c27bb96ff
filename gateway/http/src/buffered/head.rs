//! The room that the heads of requests take of the memory for bodies.

use fencegate_policies::plan::body_memory::{self, FREE};
use hyper::Request;

use super::{Budget, BudgetExceededError, BudgetReservation};
use crate::share::{ClientId, ClientQuotas, QuotaPermit};

/// The memory for the heads that come over one connection.
#[derive(Debug, Clone)]
pub struct HeadMemory {
    budget: Budget,
    /// The client whose share they count for. `None`: they are those of many clients.
    whose: Option<(ClientQuotas, ClientId)>,
}

/// The room of a head, or of the buffer into which heads are read, until it is dropped.
#[derive(Debug)]
pub struct HeadReservation {
    room: BudgetReservation,
    share: Option<QuotaPermit>,
}

impl HeadMemory {
    pub fn new(budget: Budget, whose: Option<(ClientQuotas, ClientId)>) -> Self {
        Self { budget, whose }
    }

    /// No room yet.
    pub(crate) fn reserve(&self) -> HeadReservation {
        let share = self.whose.as_ref().map(|(shares, client)| shares.of_heads(*client));
        HeadReservation { room: self.budget.room_of_head(), share }
    }

    /// Room for the head of a request that was read in full. `None`: it is small, and is not counted.
    pub(crate) fn hold<B>(
        &self,
        request: &Request<B>,
    ) -> Result<Option<HeadReservation>, BudgetExceededError> {
        let bytes = head_bytes(request);
        if bytes <= FREE {
            return Ok(None);
        }
        let mut room = self.reserve();
        room.hold_within(COPIES * bytes, body_memory::complete_heads(self.budget.most()))?;
        Ok(Some(room))
    }
}

impl HeadReservation {
    /// Makes room for `bytes` of a head that is being read. What has room keeps it.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), BudgetExceededError> {
        self.hold_within(bytes, body_memory::heads(self.room.budget().most()))
    }

    fn hold_within(&mut self, bytes: usize, heads: usize) -> Result<(), BudgetExceededError> {
        let before = self.room.bytes();
        if bytes <= FREE || bytes <= before {
            return Ok(());
        }
        // A head that is larger than the share finds room where its client has no other one.
        let most = body_memory::of_one_client(heads).max(bytes);
        let has_share = self.share.as_mut().is_none_or(|share| share.resize(bytes, most));
        let all = self.room.budget().most().max(heads);
        if has_share && self.room.hold_within(bytes, all, heads).is_ok() {
            return Ok(());
        }
        self.room.budget().metrics().head_refused();
        self.share_counts(before);
        Err(BudgetExceededError)
    }

    pub(crate) fn give_back(&mut self) {
        self.room.shrink(0);
        self.share_counts(0);
    }

    /// No more than it did before.
    fn share_counts(&mut self, bytes: usize) {
        if let Some(share) = &mut self.share {
            // Less is never refused.
            let _fits = share.resize(bytes, bytes);
        }
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
        let memory = HeadMemory::new(budget.clone(), None);
        let held: Vec<_> = std::iter::from_fn(|| memory.hold(&large()).ok()).collect();
        let each = COPIES * head_bytes(&large());
        assert_eq!(held.len(), 6 * MIB / each);
        let mut reading = memory.reserve();
        assert_eq!((reading.hold(2 * MIB), reading.hold(3 * MIB)), (Ok(()), Err(BudgetExceededError)));
        let mut body = budget.room();
        assert_eq!(body.hold(4 * MIB), Ok(()), "bodies go on");
        let small = Request::get("/small").header("a", "b").body(()).expect("a request");
        assert!(memory.hold(&small).is_ok_and(|room| room.is_none()), "what is small is not counted");
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
        let memory = HeadMemory::new(budget, None);
        assert!(memory.hold(&large()).is_err());
        drop(small_ones);
        assert!(memory.hold(&large()).is_ok());
        let small = HeadMemory::new(Budget::new(64 << 10, BufferedMetrics::nobodys()), None);
        assert!(small.hold(&large()).is_ok());
    }

    #[test]
    fn one_client_takes_half_of_the_part_for_heads_whether_they_are_complete_or_not() {
        let budget = Budget::new(16 * MIB, BufferedMetrics::nobodys());
        let shares = ClientQuotas::default();
        let of = |last| {
            let client = ClientId::at([192, 0, 2, last].into());
            HeadMemory::new(budget.clone(), Some((shares.clone(), client)))
        };
        let (one, other) = (of(1), of(2));
        let each = COPIES * head_bytes(&large());
        let held: Vec<_> = std::iter::from_fn(|| one.hold(&large()).ok()).collect();
        assert_eq!(held.len(), 3 * MIB / each);
        let mut reading = one.reserve();
        assert_eq!(
            (reading.hold(MIB), reading.hold(2 * MIB)),
            (Ok(()), Err(BudgetExceededError)),
            "of both together"
        );
        assert!(other.hold(&large()).is_ok_and(|room| room.is_some()), "another client");
        drop(held);
        assert_eq!((reading.hold(MIB), reading.hold(4 * MIB)), (Ok(()), Ok(())));
        assert!(one.hold(&large()).is_err());
        assert_eq!(other.reserve().hold(4 * MIB), Ok(()));
        reading.give_back();
        assert_eq!(reading.hold(6 * MIB), Ok(()), "a single one may be larger than the share");
        drop(reading);
        assert_eq!((budget.metrics().add(0), budget.metrics().add_to_heads(0)), (0, 0));
    }
}
