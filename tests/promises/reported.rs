//! Public bug reports of other projects, played on us: each stands for a kind of mistake, and each test has further inputs of that
//! kind beside the reported one. The sentence above a test names its report.
//!
//! Examples: A request that an HTTP/2 service reports as not processed is sent once more. A grant whose answer was
//! lost is found again. A skipped job is told apart from a failed one. A connection over HTTP/1.0 is kept only with a
//! length. JSON is recognised in every spelling. A mounted policy is read again however it is replaced. An answer to
//! no request is never taken. In a real browser a page of a listed origin reads the responses that the gateway itself
//! makes, and its preflights take no lock.

mod browsers;
mod http10;
mod http2_services;
mod idle_connections;
mod json_bodies;
mod key_files;
mod lost_answers;
mod mounted_files;
mod resource_names;
mod silent_probes;
mod skipped_jobs;
