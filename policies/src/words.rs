//! The words for the values of a field. The reader of files accepts them, and a shown plan contains them.

/// Gives an enum its words in a policy: `WORDS`, in the order in which messages list them, and `as_str`.
macro_rules! words {
    ($type:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl $type {
            /// The words of a policy, each with its value.
            pub(crate) const WORDS: &[(&'static str, Self)] = &[$(($word, Self::$variant)),+];

            /// The word in a policy.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    };
}

pub(crate) use words;
