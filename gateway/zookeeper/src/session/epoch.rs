//! Computes the epoch of a token from the czxid of its lock node.

use crate::error::GrantError;

/// The epoch of a token. A zxid above 2^63 reads as negative; that is an error, because a wrong token would be worse
/// than none.
pub fn token_epoch(base: u64, czxid: i64) -> Result<u64, GrantError> {
    u64::try_from(czxid)
        .ok()
        .filter(|czxid| *czxid > 0)
        .and_then(|czxid| base.checked_add(czxid))
        .filter(|epoch| i64::try_from(*epoch).is_ok())
        .ok_or_else(|| GrantError::Service(format!("czxid {czxid} gives no token")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `czxid` that is not positive, or that leads beyond the range of tokens, is an error.
    #[test]
    fn czxid_without_valid_epoch_fails() {
        assert_eq!(token_epoch(5, 7), Ok(12));
        for (base, czxid) in [(0, -1), (0, 0), (i64::MAX as u64, 1), (u64::MAX, 1)] {
            assert!(token_epoch(base, czxid).is_err(), "{base} {czxid}");
        }
    }
}
