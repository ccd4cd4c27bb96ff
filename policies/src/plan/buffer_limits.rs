//! The memory limits for one buffered body, and for the heads of all requests.

/// Bodies and heads up to this size in bytes are not counted: the number of requests in flight bounds them, and a
/// counter that all workers share would cost a small request more than its body does.
pub const FREE: usize = 4 << 10;
/// Bodies above this size in bytes leave a quarter of the memory free for smaller ones, so that a sender of large
/// bodies does not keep small requests out.
pub const SMALL: usize = 64 << 10;

/// The most bytes that complete heads may take, out of `all` bytes of memory. The rest of the bytes for heads is for
/// reading: an HTTP/2 connection has to end if it gets no memory while it reads a head, while a request with a complete
/// head can be answered.
pub fn complete_head_bytes_limit(all: usize) -> usize {
    total_head_bytes_limit(all) / 4 * 3
}

/// The most bytes for heads that one client may take, out of `heads`, so that some are left for other clients. With the
/// limit for complete heads this leaves a client memory for reading.
pub fn client_head_bytes_limit(heads: usize) -> usize {
    heads / 2
}

const LEAST_FOR_HEADS: usize = 4 << 20;

/// The most bytes that may be in use after a body of this size was buffered, out of `all`.
pub fn buffer_fill_limit(all: usize, size: usize) -> usize {
    if size > SMALL { all / 4 * 3 } else { all }
}

/// The most bytes that the heads of all requests may take, out of `all` bytes of memory. Bodies keep the other half.
/// Even a small memory has room for some heads, each of which is bounded by `max_header`.
pub fn total_head_bytes_limit(all: usize) -> usize {
    (all / 2).max(LEAST_FOR_HEADS)
}

/// The largest body in bytes that fits into an empty memory of `all` bytes.
pub fn max_body(all: usize) -> usize {
    buffer_fill_limit(all, usize::MAX).max(all.min(SMALL)).max(FREE)
}

/// The smallest memory in bytes into which a body of this size fits.
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

    /// The smallest memory for a body is sufficient, and a smaller one is not.
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
