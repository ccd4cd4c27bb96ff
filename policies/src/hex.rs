//! Writes bytes as hexadecimal digits, lower case.

/// Writes two hexadecimal digits for each byte into `digits`. This is used for each request, and the formatter
/// of the standard library takes several times as long.
pub fn write_digits(bytes: &[u8], digits: &mut [u8]) {
    for (byte, pair) in bytes.iter().zip(digits.as_chunks_mut().0) {
        *pair = PAIRS[usize::from(*byte)];
    }
}

/// The two digits of each byte.
static PAIRS: [[u8; 2]; 256] = hex_digit_pairs();

const fn hex_digit_pairs() -> [[u8; 2]; 256] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < pairs.len() {
        pairs[byte] = [DIGITS[byte >> 4], DIGITS[byte & 0xf]];
        byte += 1;
    }
    pairs
}
