//! The part of the memory for bodies that the heads of requests reserve.

use fencegate_policies::plan::buffer_limits::{self, FREE};
use hyper::Request;

use super::{MemoryBudget, MemoryBudgetExceededError, MemoryReservation};
use crate::client_quota::{ClientId, ClientQuotaPermit, ClientQuotas};

/// The memory for the heads that come over one connection.
#[derive(Debug, Clone)]
pub struct HeadMemoryBudget {
    budget: MemoryBudget,
    /// The client in whose quota these heads count. `None` for a trusted proxy, whose connections carry heads of
    /// many clients.
    quota: Option<(ClientQuotas, ClientId)>,
}

/// The memory of a head, or of the buffer into which heads are read, until it is dropped.
#[derive(Debug)]
pub struct HeadReservation {
    room: MemoryReservation,
    share: Option<ClientQuotaPermit>,
}

impl HeadMemoryBudget {
    pub fn new(budget: MemoryBudget, whose: Option<(ClientQuotas, ClientId)>) -> Self {
        Self { budget, quota: whose }
    }

    /// Makes a reservation of no bytes.
    pub(crate) fn reserve(&self) -> HeadReservation {
        let share = self.quota.as_ref().map(|(quotas, client)| quotas.acquire_heads(*client));
        HeadReservation { room: self.budget.reserve_head(), share }
    }

    /// Reserves memory for the head of a request that was read in full. `None` for a small head, which is not
    /// counted.
    pub(crate) fn reserve_for_parsed_head<B>(
        &self,
        request: &Request<B>,
    ) -> Result<Option<HeadReservation>, MemoryBudgetExceededError> {
        let bytes = head_bytes(request);
        if bytes <= FREE {
            return Ok(None);
        }
        let mut reservation = self.reserve();
        reservation
            .resize_within(COPIES * bytes, buffer_limits::complete_head_bytes_limit(self.budget.limit()))?;
        Ok(Some(reservation))
    }
}

impl HeadReservation {
    /// Raises the reservation of a head that is being read to `bytes`; it never lowers the reservation.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), MemoryBudgetExceededError> {
        self.resize_within(bytes, buffer_limits::total_head_bytes_limit(self.room.budget().limit()))
    }

    fn resize_within(&mut self, bytes: usize, heads: usize) -> Result<(), MemoryBudgetExceededError> {
        let before = self.room.bytes();
        if bytes <= FREE || bytes <= before {
            return Ok(());
        }
        // A head that is larger than the quota is accepted if its client has no other head.
        let most = buffer_limits::client_head_bytes_limit(heads).max(bytes);
        let has_share = self.share.as_mut().is_none_or(|share| share.resize(bytes, most));
        let all = self.room.budget().limit().max(heads);
        if has_share && self.room.resize_within(bytes, all, heads).is_ok() {
            return Ok(());
        }
        self.room.budget().metrics().record_rejected_head();
        self.shrink_client_quota_to(before);
        Err(MemoryBudgetExceededError)
    }

    pub(crate) fn release(&mut self) {
        self.room.shrink(0);
        self.shrink_client_quota_to(0);
    }

    /// Lowers the count in the client's quota to `bytes`; the caller passes no more than before.
    fn shrink_client_quota_to(&mut self, bytes: usize) {
        if let Some(share) = &mut self.share {
            // This is never refused, because the count does not grow.
            let _fits = share.resize(bytes, bytes);
        }
    }
}

/// The bytes of a head in memory: its text, and the library's index of its fields.
fn head_bytes<B>(request: &Request<B>) -> usize {
    let uri = request.uri();
    let target = uri.path().len() + uri.query().map_or(0, str::len);
    let fields = request.headers().iter();
    target + fields.map(|(name, value)| name.as_str().len() + value.len() + FIELD).sum::<usize>()
}

/// A head is in memory twice: as it was received, and as it is forwarded.
const COPIES: usize = 2;
/// The bytes of an entry in the library's map of fields, beside its text.
const FIELD: usize = 104;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffered::metrics::BufferMetrics;

    const MIB: usize = 1 << 20;

    fn large() -> Request<()> {
        let long = "x".repeat(900);
        let request = (0..60).fold(Request::get("/f"), |request, n| request.header(format!("f-{n}"), &long));
        request.body(()).expect("a request")
    }

    /// Heads take at most half of the memory, leave a part for heads that are still read, and release all of it.
    #[test]
    fn heads_take_half_of_memory() {
        let budget = MemoryBudget::new(16 * MIB, BufferMetrics::unexposed_metrics());
        let memory = HeadMemoryBudget::new(budget.clone(), None);
        let held: Vec<_> = std::iter::from_fn(|| memory.reserve_for_parsed_head(&large()).ok()).collect();
        let each = COPIES * head_bytes(&large());
        assert_eq!(held.len(), 6 * MIB / each);
        let mut reading = memory.reserve();
        assert_eq!(
            (reading.resize(2 * MIB), reading.resize(3 * MIB)),
            (Ok(()), Err(MemoryBudgetExceededError))
        );
        let mut body = budget.reserve();
        assert_eq!(body.resize(4 * MIB), Ok(()), "bodies go on");
        let small = Request::get("/small").header("a", "b").body(()).expect("a request");
        assert!(
            memory.reserve_for_parsed_head(&small).is_ok_and(|reservation| reservation.is_none()),
            "what is small is not counted"
        );
        drop((held, body, reading));
        assert_eq!((budget.metrics().add(0), budget.metrics().add_to_heads(0)), (0, 0));
    }

    /// Heads are refused while bodies take all memory, unless the memory is small.
    #[test]
    fn full_memory_refuses_heads_unless_small() {
        let budget = MemoryBudget::new(16 * MIB, BufferMetrics::unexposed_metrics());
        let small_ones: Vec<_> = (0..256)
            .map(|_| {
                let mut reservation = budget.reserve();
                reservation.resize(64 << 10).expect("room");
                reservation
            })
            .collect();
        let memory = HeadMemoryBudget::new(budget, None);
        assert!(memory.reserve_for_parsed_head(&large()).is_err());
        drop(small_ones);
        assert!(memory.reserve_for_parsed_head(&large()).is_ok());
        let small =
            HeadMemoryBudget::new(MemoryBudget::new(64 << 10, BufferMetrics::unexposed_metrics()), None);
        assert!(small.reserve_for_parsed_head(&large()).is_ok());
    }

    /// One client takes at most half of the memory for heads, complete and partial ones together.
    #[test]
    fn client_takes_half_of_head_memory() {
        let budget = MemoryBudget::new(16 * MIB, BufferMetrics::unexposed_metrics());
        let quotas = ClientQuotas::default();
        let of = |last| {
            let client = ClientId::from_ip([192, 0, 2, last].into());
            HeadMemoryBudget::new(budget.clone(), Some((quotas.clone(), client)))
        };
        let one = of(1);
        let other = of(2);
        let each = COPIES * head_bytes(&large());
        let held: Vec<_> = std::iter::from_fn(|| one.reserve_for_parsed_head(&large()).ok()).collect();
        assert_eq!(held.len(), 3 * MIB / each);
        let mut reading = one.reserve();
        assert_eq!(
            (reading.resize(MIB), reading.resize(2 * MIB)),
            (Ok(()), Err(MemoryBudgetExceededError)),
            "of both together"
        );
        assert!(
            other.reserve_for_parsed_head(&large()).is_ok_and(|reservation| reservation.is_some()),
            "another client"
        );
        drop(held);
        assert_eq!((reading.resize(MIB), reading.resize(4 * MIB)), (Ok(()), Ok(())));
        assert!(one.reserve_for_parsed_head(&large()).is_err());
        assert_eq!(other.reserve().resize(4 * MIB), Ok(()));
        reading.release();
        assert_eq!(reading.resize(6 * MIB), Ok(()), "a single one may be larger than the share");
        drop(reading);
        assert_eq!((budget.metrics().add(0), budget.metrics().add_to_heads(0)), (0, 0));
    }
}
