//! Joins the chunks of a body, within the budget for bodies. Most bodies come in one chunk.

use bytes::Bytes;

use fencegate_policies::plan::buffer_limits::FREE;

use super::{MemoryBudget, MemoryReservation};

/// The part of one body that has been received so far.
#[derive(Debug)]
pub struct ChunkBuffer {
    held: BufferedChunks,
    room: MemoryReservation,
    /// The announced length of the body, or its limit.
    expected: usize,
}

#[derive(Debug, Default)]
enum BufferedChunks {
    #[default]
    None,
    One(Bytes),
    Several(Vec<u8>),
}

/// A chunk below this size is copied. A chunk is a slice of its reader's buffer and keeps all of that buffer in
/// memory, but only its own length is counted. Larger chunks come from buffers of about their size, so they are not
/// copied.
const COPIED: usize = 64 << 10;

/// A chunk that exceeds the budget. The chunks before it stay in the buffer.
#[derive(Debug)]
pub struct AddChunkError(pub Bytes);

impl ChunkBuffer {
    /// `expected` is the announced length of the body, or its limit.
    pub fn new(budget: &MemoryBudget, expected: usize) -> Self {
        Self { held: BufferedChunks::None, room: budget.reserve(), expected }
    }

    /// # Errors
    /// Returns the chunk if it exceeds the budget.
    pub fn add(&mut self, data: Bytes) -> Result<(), AddChunkError> {
        let all = self.len() + data.len();
        match &mut self.held {
            BufferedChunks::None => match self.room.resize(all) {
                Ok(()) if data.len() < COPIED => {
                    self.held = BufferedChunks::One(Bytes::copy_from_slice(&data))
                }
                Ok(()) => self.held = BufferedChunks::One(data),
                Err(_full) => return Err(AddChunkError(data)),
            },
            BufferedChunks::One(first) => {
                let mut several = Vec::new();
                if !grow(&mut several, all, self.expected, &mut self.room) {
                    return Err(AddChunkError(data));
                }
                several.extend_from_slice(first);
                several.extend_from_slice(&data);
                self.held = BufferedChunks::Several(several);
            }
            BufferedChunks::Several(several) => {
                if !grow(several, all, self.expected, &mut self.room) {
                    return Err(AddChunkError(data));
                }
                several.extend_from_slice(&data);
            }
        }
        Ok(())
    }

    /// The length of all chunks, in bytes.
    pub fn len(&self) -> usize {
        match &self.held {
            BufferedChunks::None => 0,
            BufferedChunks::One(data) => data.len(),
            BufferedChunks::Several(data) => data.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Joins all chunks. The memory is released when the last slice of the result is dropped.
    pub fn into_bytes(self) -> Bytes {
        let Self { held, mut room, .. } = self;
        let data = match held {
            BufferedChunks::None => return Bytes::new(),
            BufferedChunks::One(data) => data,
            BufferedChunks::Several(mut data) => {
                data.shrink_to_fit();
                Bytes::from(data)
            }
        };
        room.shrink(data.len());
        if data.len() <= FREE { data } else { Bytes::from_owner(BudgetedBytes { data, _room: room }) }
    }
}

/// Makes space for `all` bytes. The buffer doubles only up to the expected length, and then grows to the needed
/// size, so that it is never twice as large as the body.
fn grow(several: &mut Vec<u8>, all: usize, expected: usize, room: &mut MemoryReservation) -> bool {
    if all <= several.capacity() {
        return true;
    }
    let roomy = all.max(several.capacity().saturating_mul(2).min(expected));
    let Some(capacity) = [roomy, all].into_iter().find(|bytes| room.resize(*bytes).is_ok()) else {
        return false;
    };
    several.reserve_exact(capacity - several.len());
    true
}

/// A body and its reservation.
struct BudgetedBytes {
    data: Bytes,
    _room: MemoryReservation,
}

impl AsRef<[u8]> for BudgetedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffered::metrics::BufferMetrics;

    fn budget(most: usize) -> MemoryBudget {
        MemoryBudget::new(most, BufferMetrics::unexposed_metrics())
    }

    fn used(budget: &MemoryBudget) -> usize {
        usize::try_from(budget.metrics().add(0)).expect("never less than nothing")
    }

    /// A body reserves no more than its own size, and releases it with its last part.
    #[test]
    fn body_reserves_its_size_until_dropped() {
        let budget = budget(4 << 20);
        let whole: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
        let mut chunks = ChunkBuffer::new(&budget, whole.len());
        for chunk in whole.chunks(16 << 10) {
            chunks.add(Bytes::copy_from_slice(chunk)).expect("room");
            assert!(used(&budget) <= whole.len(), "{} bytes of {}", used(&budget), chunks.len());
        }
        let body = chunks.into_bytes();
        assert!(body == whole);
        assert_eq!(used(&budget), whole.len());
        let part = body.slice(5..6);
        drop(body);
        assert_eq!(used(&budget), whole.len(), "a part keeps all of it");
        drop(part);
        assert_eq!(used(&budget), 0);
    }

    /// A chunk that exceeds the budget is returned to the caller, and the chunks before it stay.
    #[test]
    fn chunk_over_budget_is_returned() {
        let budget = budget(100 << 10);
        let mut chunks = ChunkBuffer::new(&budget, 1 << 20);
        let chunk = Bytes::from(vec![7; 30 << 10]);
        for _ in 0..2 {
            chunks.add(chunk.clone()).expect("room");
        }
        let AddChunkError(back) = chunks.add(chunk.clone()).expect_err("more than three quarters");
        assert_eq!((back.len(), chunks.len()), (30 << 10, 60 << 10));
        assert_eq!(chunks.into_bytes(), vec![7; 60 << 10]);
        assert_eq!(used(&budget), 0);
    }

    /// A small body is not counted against the budget.
    #[test]
    fn small_bodies_are_not_counted() {
        let budget = budget(0);
        let buffer = Bytes::from(vec![1; 64 << 10]);
        let mut chunks = ChunkBuffer::new(&budget, 3);
        chunks.add(buffer.slice(..3)).expect("free");
        drop(buffer);
        assert_eq!(chunks.into_bytes(), vec![1; 3]);
        assert!(ChunkBuffer::new(&budget, 0).into_bytes().is_empty());
    }

    /// A chunk keeps no more of the read buffer alive than is counted.
    #[test]
    fn chunk_releases_read_buffer() {
        let budget = budget(1 << 20);
        for length in [1, FREE, FREE + 1, 16 << 10, COPIED - 1] {
            let buffer = Bytes::from(vec![1; 256 << 10]);
            let mut chunks = ChunkBuffer::new(&budget, length);
            chunks.add(buffer.slice(..length)).expect("room");
            assert!(buffer.is_unique(), "{length} bytes keep a buffer of {}", buffer.len());
            assert_eq!(used(&budget), if length <= FREE { 0 } else { length });
            assert_eq!(chunks.into_bytes(), vec![1; length]);
        }
    }
}
