//! Gives each request of a fenced route its fence, and checks that the handler has claimed it.

mod answer;
mod fence;
mod layer;
mod stamp;

pub use answer::{Answers, Problems, Refusal, Unclaimed};
pub use fence::{AsyncTransaction, Fence, Mark, NotClaimed, Raise, Raised, Transaction};
pub use layer::{FenceLayer, Fenced};
pub use stamp::{Compare, Mode, Number, Settings, Stamp, Token};
