//! A real PostgreSQL for all tests of a process, and servers that one test may kill, freeze, follow and promote.

mod database;
mod programs;
mod psql;
mod server;
mod standby;
mod tls;

use std::sync::LazyLock;

pub use self::{
    database::{TestDatabase, USER},
    programs::{chown_to_nobody, program, unprivileged},
    psql::{BlockedStatement, PsqlSession},
    server::PostgresServer,
    standby::StandbyMode,
};

/// The server that all tests share. It ends with the process. A test that stops its server starts one of its own.
pub fn shared() -> &'static PostgresServer {
    static SERVER: LazyLock<PostgresServer> = LazyLock::new(|| PostgresServer::start(&[]));
    &SERVER
}

/// Creates a database on the server that all tests share.
pub fn fresh_database() -> TestDatabase {
    shared().fresh_database()
}

#[cfg(test)]
mod tests;
