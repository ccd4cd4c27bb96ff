//! Puts the pieces of a body together; most bodies come in one, which is then not copied.

use bytes::{Bytes, BytesMut};

/// What has come so far.
#[derive(Debug, Default)]
pub enum Pieces {
    #[default]
    None,
    One(Bytes),
    Several(BytesMut),
}

impl Pieces {
    pub fn add(&mut self, data: Bytes) {
        *self = match std::mem::take(self) {
            Self::None => Self::One(data),
            Self::One(first) => {
                let mut all = BytesMut::from(first);
                all.extend_from_slice(&data);
                Self::Several(all)
            }
            Self::Several(mut all) => {
                all.extend_from_slice(&data);
                Self::Several(all)
            }
        };
    }

    /// In bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(data) => data.len(),
            Self::Several(data) => data.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::None => Bytes::new(),
            Self::One(data) => data,
            Self::Several(data) => data.freeze(),
        }
    }
}
