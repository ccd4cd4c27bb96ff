//! The effect of a message on lock nodes, parsed from the bytes of ZooKeeper's protocol.

use fencegate_policies::plan::LockMode;
use fencegate_recipe::layout::LockQueueLayout;

/// An operation on a lock node or on `meta`. No other message, such as a heartbeat, can have a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockNodeOperation {
    /// Makes a lock node: a single create, or a transaction that makes lock nodes and deletes none.
    Create,
    /// Deletes a lock node: a single delete, or a transaction that deletes lock nodes and makes none.
    Delete,
    /// A transaction that makes a lock node: the first node of a key, the nodes of a set, or a yield.
    Multi,
    /// A transaction that names a lock node, and neither makes nor deletes one: it checks that the node is there.
    Admission,
    /// A transaction that writes to `meta`.
    Era,
}

impl LockNodeOperation {
    /// The operations as which this message counts. The list is empty if the message names no lock node and does not
    /// write to `meta`.
    pub(super) fn parse(message: &[u8]) -> &'static [Self] {
        const META: &[u8] = b"\"base\":";
        let code = read_i32(message, 2);
        if code == Some(MULTI) && message.windows(META.len()).any(|part| part == META) {
            return &[Self::Era];
        }
        if !names_a_lock_node(message) {
            return &[];
        }
        match code {
            Some(CREATE | CREATE_2) => &[Self::Create],
            Some(DELETE) => &[Self::Delete],
            Some(MULTI) => {
                let steps = steps(message.get(12..).unwrap_or_default());
                let does = |codes: &[i32]| {
                    steps.iter().any(|(code, path)| codes.contains(code) && names_a_lock_node(path))
                };
                match (does(&[CREATE, CREATE_2]), does(&[DELETE])) {
                    (true, false) => &[Self::Create, Self::Multi],
                    (false, true) => &[Self::Delete],
                    (true, true) => &[Self::Multi],
                    (false, false) => &[Self::Admission],
                }
            }
            _ => &[],
        }
    }
}

fn names_a_lock_node(bytes: &[u8]) -> bool {
    let marks = [LockMode::Exclusive, LockMode::Shared]
        .map(|mode| LockQueueLayout::Native.mode_marker(mode).as_bytes());
    marks.iter().any(|mark| bytes.windows(mark.len()).any(|part| part == *mark))
}

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const SET: i32 = 5;
const CHECK: i32 = 13;
const MULTI: i32 = 14;
const CREATE_2: i32 = 15;

/// The n-th 32-bit number of a message. Number 0 is the length, 1 the number of the request, and 2, in a request,
/// the code of the operation.
pub(super) fn read_i32(message: &[u8], n: usize) -> Option<i32> {
    message.chunks_exact(4).nth(n).map(|bytes| i32::from_be_bytes(bytes.try_into().expect("four")))
}

/// The code and the path of each step of a transaction.
fn steps(mut rest: &[u8]) -> Vec<(i32, &[u8])> {
    let mut steps = Vec::new();
    // A step begins with its code, a flag that marks the end of the list, and a field for an error.
    while let Some(code) = take_i32(&mut rest).filter(|code| *code > 0) {
        rest = rest.get(5..).unwrap_or_default();
        let Some(path) = take_text(&mut rest) else { break };
        steps.push((code, path));
        if code == DELETE || code == CHECK {
            take_i32(&mut rest);
            continue;
        }
        take_text(&mut rest);
        if code != SET {
            for _ in 0..take_i32(&mut rest).unwrap_or_default() {
                take_i32(&mut rest);
                take_text(&mut rest);
                take_text(&mut rest);
            }
        }
        take_i32(&mut rest);
    }
    steps
}

fn take_i32(rest: &mut &[u8]) -> Option<i32> {
    let (number, behind) = rest.split_first_chunk::<4>()?;
    *rest = behind;
    Some(i32::from_be_bytes(*number))
}

fn take_text<'m>(rest: &mut &'m [u8]) -> Option<&'m [u8]> {
    let length = take_i32(rest)?.max(0);
    let (text, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = behind;
    Some(text)
}
