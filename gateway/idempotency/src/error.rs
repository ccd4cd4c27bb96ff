//! Errors of the admission of an operation.

use fencegate_process::command_hint;

/// The reason for which an operation is not to be sent. Nothing of this request was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmitOperationError {
    /// The operation was answered before. `status`: the status of that answer; `None` if an
    /// operator resolved the operation as done.
    #[error("the operation was answered before")]
    Done { status: Option<u16> },
    #[error("the name of the operation was used for another request")]
    Mismatch,
    #[error("the same operation is running in this gateway")]
    InProgress,
    #[error(
        "the outcome of operation {reference} is unknown; `{}` shows the operation",
        command_hint::command_line(command_hint::CommandHintTarget::Gateway, "once list")
    )]
    Unknown { reference: String },
    #[error("the lock was lost before the operation was recorded")]
    Lost,
    #[error("the largest number of remembered operations is reached")]
    Full,
    #[error("the largest number of remembered operations of the route is reached (`once.share`)")]
    RouteFull,
    #[error("the largest number of remembered operations of this principal is reached (`once.client_share`)")]
    ClientFull,
    #[error("the record of the operation cannot be read: {0}")]
    Foreign(String),
    #[error("{0}")]
    Service(String),
}
