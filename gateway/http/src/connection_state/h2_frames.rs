//! Parses the outgoing frames of an HTTP/2 client's connection (RFC 9113, 4.1), to count the bytes of responses that
//! are written. The library takes chunks of responses before the client's window has space for them, and does not
//! report when they are written.

use std::io::IoSlice;

/// The position in the outgoing stream of frames.
#[derive(Debug, Default)]
pub(super) struct H2DataByteCounter {
    head: [u8; HEAD],
    have: usize,
    /// The bytes of the present payload that are still to come.
    left: usize,
    is_data: bool,
}

const HEAD: usize = 9;
const DATA: u8 = 0;

impl H2DataByteCounter {
    /// Reads the first `count` bytes of these slices, which the socket has accepted. Returns how many of them belong
    /// to bodies.
    pub(super) fn count_written_data(&mut self, slices: &[IoSlice<'_>], count: usize) -> usize {
        let mut left = count;
        let mut data = 0;
        for piece in slices {
            let passed = &piece[..left.min(piece.len())];
            left -= passed.len();
            data += self.count_data(passed);
        }
        data
    }

    fn count_data(&mut self, mut bytes: &[u8]) -> usize {
        let mut data = 0;
        while !bytes.is_empty() {
            if self.left > 0 {
                let passed = self.left.min(bytes.len());
                if self.is_data {
                    data += passed;
                }
                (self.left, bytes) = (self.left - passed, &bytes[passed..]);
                continue;
            }
            let taken = (HEAD - self.have).min(bytes.len());
            self.head[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
            (self.have, bytes) = (self.have + taken, &bytes[taken..]);
            if self.have == HEAD {
                let [high, middle, low, kind, ..] = self.head;
                self.left = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
                self.is_data = kind == DATA;
                self.have = 0;
            }
        }
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, length: usize) -> Vec<u8> {
        let [.., high, middle, low] = length.to_be_bytes();
        [&[high, middle, low, kind, 0, 0, 0, 0, 1][..], &vec![0; length]].concat()
    }

    /// Only bytes of DATA frames count, however the frames are cut.
    #[test]
    fn only_data_frame_bytes_count() {
        let frames = [(4, 18), (1, 300), (0, 70_000), (6, 8), (0, 0), (0, 5), (8, 4), (1, 0), (0, 1)];
        let all: Vec<u8> = frames.iter().flat_map(|(kind, length)| frame(*kind, *length)).collect();
        for size in [1, 2, 8, 9, 10, 1000, all.len()] {
            let mut followed = H2DataByteCounter::default();
            let data: usize = all
                .chunks(size)
                .map(|piece| followed.count_written_data(&[IoSlice::new(piece)], piece.len()))
                .sum();
            assert_eq!(data, 70_006, "in pieces of {size}");
        }
    }

    /// Bytes that a partial write did not take are counted when they are written again.
    #[test]
    fn partial_write_is_counted_once() {
        let first = frame(0, 10);
        let second = frame(0, 20);
        let mut followed = H2DataByteCounter::default();
        let slices = [IoSlice::new(&first), IoSlice::new(&second)];
        assert_eq!(followed.count_written_data(&slices, 22), 10);
        assert_eq!(followed.count_written_data(&[IoSlice::new(&second[3..])], 26), 20);
    }
}
