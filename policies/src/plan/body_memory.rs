//! What one body may take of the memory for all bodies that are here in full.

/// Bodies up to here are not counted: they are bounded by the number of requests in flight, and a count that all workers
/// share would cost each small request more than its body does.
pub const FREE: usize = 4 << 10;
/// A body beyond this is a large one, and large ones leave a quarter of the memory to the others: whoever sends many of
/// them does not keep small requests out.
pub const SMALL: usize = 64 << 10;

/// How far bodies of this size may fill a memory of `all` bytes.
pub fn bound(all: usize, size: usize) -> usize {
    if size > SMALL { all / 4 * 3 } else { all }
}

/// The largest body that finds room when there is no other one.
pub fn largest(all: usize) -> usize {
    bound(all, usize::MAX).max(all.min(SMALL)).max(FREE)
}

/// The least memory with room for a body of this size.
pub fn least(size: usize) -> usize {
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

    #[test]
    fn what_is_the_least_for_a_body_is_enough_for_it_and_no_byte_more() {
        for size in [1, FREE, FREE + 1, SMALL, SMALL + 1, SMALL + 2, SMALL + 3, 1 << 20, 1 << 30] {
            let all = least(size);
            assert!(largest(all) >= size, "{size}: {all}");
            assert!(bound(all, size) >= size || size <= FREE, "{size}: {all}");
            assert!(all <= SMALL || largest(all - 4) < size, "{size}: {all}");
        }
    }
}
