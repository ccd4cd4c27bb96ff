//! The data of an exclusive node, which names its owner, and of the lock nodes that queue for it.

use fencegate_process::randomness::Guid;

use super::layout::attempt_guid;

/// The first word of the data, for people who see it in the output of another program.
const OURS: &str = "fencegate";

/// The data of an exclusive node: the member node of its gateway, and the attempt that created it.
pub fn encode_exclusive_node_data(member: &str, attempt: Guid) -> String {
    format!("{OURS} {member} {attempt}")
}

/// The attempt that created the exclusive node; `None` if the data is not a gateway's.
pub fn parse_attempt(says: &[u8]) -> Option<Guid> {
    let rest = std::str::from_utf8(says).ok()?.strip_prefix(OURS)?.strip_prefix(' ')?;
    rest.rsplit_once(' ').and_then(|(_, attempt)| Guid::parse(attempt))
}

/// Whether the node with this data was created by the attempt whose lock node in the queue is called
/// `place`.
pub fn is_made_by_attempt(says: &[u8], place: &str) -> bool {
    parse_attempt(says).is_some_and(|attempt| attempt_guid(place) == Some(attempt))
}

/// The path of the exclusive node that a queued lock node waits for; `None` if its own queue is the lock.
pub fn parse_exclusive_path(says: &[u8]) -> Option<&str> {
    std::str::from_utf8(says).ok().filter(|says| says.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencegate_process::randomness::SystemRandomness;

    /// Node data is parsed back to the attempt that wrote it; the data of foreign nodes gives no attempt.
    #[test]
    fn node_data_identifies_own_attempts_only() {
        let guid = Guid::new(&SystemRandomness);
        assert_eq!(
            parse_attempt(encode_exclusive_node_data("gw-1-00000000000000ff", guid).as_bytes()),
            Some(guid)
        );
        assert!(is_made_by_attempt(
            encode_exclusive_node_data("gw-1", guid).as_bytes(),
            &format!("{guid}-w-0000000007")
        ));
        assert!(!is_made_by_attempt(
            encode_exclusive_node_data("gw-1", guid).as_bytes(),
            &format!("{}-w-0000000007", Guid::new(&SystemRandomness))
        ));
        let strange =
            ["", "host-7", "fencegate", "fencegate gw-1", &format!("fencegat{guid}"), &guid.to_string()];
        for says in strange {
            assert_eq!(parse_attempt(says.as_bytes()), None, "{says}");
        }
        assert_eq!(parse_attempt(b"fencegate \xff"), None);
    }

    /// The data of a queued lock node is an exclusive path only if it is UTF-8 and begins with a slash.
    #[test]
    fn exclusive_path_must_be_absolute_utf8() {
        assert_eq!(parse_exclusive_path(b"/app/locks/7"), Some("/app/locks/7"));
        assert_eq!(
            [parse_exclusive_path(b""), parse_exclusive_path(b"gw-1-00ff"), parse_exclusive_path(b"/\xff")],
            [None; 3]
        );
    }
}
