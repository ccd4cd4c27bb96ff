//! Writes bytes as hexadecimal digits, lower case.

/// Two digits of each byte into `digits`. For what each request needs: the formatter of the standard library takes
/// several times as long.
pub fn write(bytes: &[u8], digits: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, pair) in bytes.iter().zip(digits.chunks_exact_mut(2)) {
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 0xf)]]);
    }
}
