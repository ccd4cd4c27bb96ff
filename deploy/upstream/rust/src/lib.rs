//! Gives each request of a fenced route its fence, and checks that the handler has claimed it. A second layer needs no
//! database: it refuses requests that come too late to be begun.
//!
//! - [`FenceLayer`]: the first layer, in `layer`; [`Fence`]: the fence of one request, in `fence`. Begin with these two
//! - [`DeadlineLayer`]: the second layer, in `deadline`; [`NotAfter`]: the moment that it compares with the clocks of `clock`
//! - `stamp`: reads the fields that a gateway stamps; `answer`: the answers that replace a handler's answer

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
pub use fence::{AsyncTransaction, ClaimError, Fence, Mark, Transaction, WatermarkOutcome, WatermarkUpdate};
pub use layer::{FenceLayer, Fenced};
pub use not_after::{NotAfter, ParseNotAfterError};
pub use stamp::{Compare, Mode, Number, Settings, Stamp, Token};

// The former names stay for one version.

/// The former name of [`ClaimError`].
#[deprecated(since = "0.1.0", note = "renamed to `ClaimError`")]
pub type NotClaimed<E> = ClaimError<E>;

/// The former name of [`WatermarkUpdate`].
#[deprecated(since = "0.1.0", note = "renamed to `WatermarkUpdate`")]
pub type Raise<'a> = WatermarkUpdate<'a>;

/// The former name of [`WatermarkOutcome`].
#[deprecated(since = "0.1.0", note = "renamed to `WatermarkOutcome`")]
pub type Raised = WatermarkOutcome;
