//! Random numbers that a seed repeats.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use fencegate_process::randomness::Randomness;

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014). It works through a shared
/// reference, because the gateway's trait for randomness requires that.
#[derive(Debug)]
pub struct SeededRng(AtomicU64);

impl SeededRng {
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    pub fn next(&self) -> u64 {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(GOLDEN, Ordering::Relaxed).wrapping_add(GOLDEN);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `sides - 1`, evenly distributed; 0 if `sides` is 0.
    pub fn below(&self, sides: u64) -> u64 {
        self.next().checked_rem(sides).unwrap_or(0)
    }

    /// A random index into a list of this length.
    pub fn index(&self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("below a usize")
    }

    /// A random choice.
    ///
    /// # Panics
    /// If there are no choices.
    pub fn one_of<'a, T>(&self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }

    /// A random duration in the range; its start if it is empty.
    pub fn within(&self, range: &Range<Duration>) -> Duration {
        let width = range.end.saturating_sub(range.start).as_nanos();
        range.start + Duration::from_nanos(self.below(u64::try_from(width).unwrap_or(u64::MAX)))
    }
}

impl Randomness for SeededRng {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_repeats_numbers_within_range() {
        let one = SeededRng::new(7);
        let other = SeededRng::new(7);
        let range = Duration::from_millis(2)..Duration::from_millis(5);
        for _ in 0..100 {
            let rolled = one.within(&range);
            assert_eq!(rolled, other.within(&range));
            assert!(range.contains(&rolled));
        }
        assert_eq!(one.within(&(range.start..range.start)), range.start);
    }
}
