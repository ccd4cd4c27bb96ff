//! Errors of the admission of an operation.

use fencegate_process::command_hint;

/// The reason for which an operation is not to be sent. Nothing of this request was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmitOperationError {
    /// The operation was answered before. `status`: the status of that answer; `None` if an
    /// operator resolved the operation as done.
    #[error("the operation was answered before")]
    Done { status: Option<u16> },
    #[error("its name was used for another request")]
    Mismatch,
    #[error("the same operation is running in this gateway")]
    InProgress,
    #[error(
        "nobody knows what came of operation {reference}; `{}` shows it",
        command_hint::command_line(command_hint::CommandHintTarget::Gateway, "once list")
    )]
    Unknown { reference: String },
    #[error("the lock was lost before the operation was written down")]
    Lost,
    #[error("as many operations are remembered as there may be")]
    Full,
    #[error("as many operations are remembered of the route as there may be: `once.share`")]
    RouteFull,
    #[error("as many operations are remembered of this principal as there may be: `once.client_share`")]
    ClientFull,
    #[error("the record of the operation: {0}")]
    Foreign(String),
    #[error("{0}")]
    Service(String),
}
