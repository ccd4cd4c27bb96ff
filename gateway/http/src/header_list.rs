//! Reads and extends lists in header fields, as bytes, so that no entry is hidden by a malformed one beside it.

use hyper::{
    HeaderMap,
    header::{Entry, HeaderName, HeaderValue},
};

/// Returns the entries of a list that may stand in several fields, in order. The entries are bytes: one byte that
/// is not ASCII must not hide the other entries.
pub fn list_entries<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl DoubleEndedIterator<Item = &'a [u8]> {
    let lines = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let entries = lines.flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    entries.filter(|entry| !entry.is_empty())
}

/// Appends an entry to a list, and joins all fields of the list into one.
pub fn append(headers: &mut HeaderMap, name: HeaderName, entry: &HeaderValue) {
    // `entry` looks up the field only once, whether it is there or not.
    let mut line = match headers.entry(name) {
        Entry::Vacant(vacant) => {
            vacant.insert(entry.clone());
            return;
        }
        Entry::Occupied(line) => line,
    };
    let mut list = Vec::new();
    for value in line.iter() {
        list.extend_from_slice(value.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(entry.as_bytes());
    line.insert(HeaderValue::from_bytes(&list).expect("made of field values"));
}
