//! Public bug reports of other projects, played on us: each stands for a kind of mistake, and each test has further inputs of that
//! kind beside the reported one. The sentence above a test names its report.

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
