//! How much memory one body may take from the memory for all buffered bodies, and how much all heads of requests.

/// Bodies and heads up to here are not counted: they are bounded by the number of requests in flight, and a count that all workers
/// share would cost each small request more than its body does.
pub const FREE: usize = 4 << 10;
/// Larger bodies leave a quarter of the memory to smaller ones, so that a sender of large bodies does not keep small
/// requests out.
pub const SMALL: usize = 64 << 10;

/// How many of these the heads that were read in full may take. The rest is for reading: an HTTP/2 connection whose
/// head gets no memory while it is read has to end, and one whose head was read in full gets an answer.
pub fn complete_head_bytes_limit(all: usize) -> usize {
    total_head_bytes_limit(all) / 4 * 3
}

/// How many of these bytes for heads one client may take, so that it leaves some to others. So a client has memory
/// for reading as well when its complete heads get none.
pub fn client_head_bytes_limit(heads: usize) -> usize {
    heads / 2
}

const LEAST_FOR_HEADS: usize = 4 << 20;

/// How many of `all` bytes may be in use after a body of this size was buffered.
pub fn buffer_fill_limit(all: usize, size: usize) -> usize {
    if size > SMALL { all / 4 * 3 } else { all }
}

/// How many of `all` bytes the heads of requests may take together. Bodies keep the other half. Where the memory is
/// small, some heads fit all the same: each is bounded by `max_header`.
pub fn total_head_bytes_limit(all: usize) -> usize {
    (all / 2).max(LEAST_FOR_HEADS)
}

/// The largest body that fits into an empty memory.
pub fn max_body(all: usize) -> usize {
    buffer_fill_limit(all, usize::MAX).max(all.min(SMALL)).max(FREE)
}

/// The smallest memory into which a body of this size fits.
pub fn min_memory(size: usize) -> usize {
    if size <= FREE {
        1
    } else if size <= SMALL {
        size
    } else {
        size.div_ceil(3) * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least memory for a body is enough for it, and less is not.
    #[test]
    fn minimum_memory_fits_body_exactly() {
        for size in [1, FREE, FREE + 1, SMALL, SMALL + 1, SMALL + 2, SMALL + 3, 1 << 20, 1 << 30] {
            let all = min_memory(size);
            assert!(max_body(all) >= size, "{size}: {all}");
            assert!(buffer_fill_limit(all, size) >= size || size <= FREE, "{size}: {all}");
            assert!(all <= SMALL || max_body(all - 4) < size, "{size}: {all}");
        }
    }
}
