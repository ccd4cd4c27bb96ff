//! Gives each request of a fenced route its fence, and checks that the handler has claimed it. A second layer needs no
//! database: it refuses requests that come too late to be begun.

mod answer;
mod clock;
mod deadline;
mod fence;
mod layer;
mod not_after;
mod stamp;

pub use answer::{Answers, Problems, Refusal, Unclaimed};
pub use clock::{BootTime, Clock, Moment};
pub use deadline::{Deadline, DeadlineLayer, DeadlineService};
pub use fence::{AsyncTransaction, Fence, Mark, NotClaimed, Raise, Raised, Transaction};
pub use layer::{FenceLayer, Fenced};
pub use not_after::{NotAfter, ParseNotAfterError};
pub use stamp::{Compare, Mode, Number, Settings, Stamp, Token};
