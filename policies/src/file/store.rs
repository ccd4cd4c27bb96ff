//! Reads where a guard keeps watermarks and journal: in a file of its own, or in a database that several guards
//! share.

use super::{mapping::MappingReader, one_of::exactly_one, scalar, tls};
use crate::plan::{GuardStoreLocation, PostgresLocation};

const EXAMPLE: &str = "redb: /var/lib/fencegate/guard.redb";

pub(super) fn store(guard: &mut MappingReader) -> Option<GuardStoreLocation> {
    guard.require("store", &format!("store: {{{EXAMPLE}}}"));
    let read = |block: &mut MappingReader| {
        let chosen = exactly_one(block, &["redb", "postgres"], &format!("add `{EXAMPLE}`"));
        let redb = block.value("redb", scalar::file).map(GuardStoreLocation::Redb);
        let shared = block.is_present("postgres");
        let postgres = shared.then(|| block.read_inner("postgres", postgres)).flatten().flatten();
        match chosen? {
            "redb" => redb,
            _ => postgres.map(GuardStoreLocation::Postgres),
        }
    };
    guard.is_present("store").then(|| guard.read_inner("store", read)).flatten().flatten()
}

/// Reads the settings of a PostgreSQL store. The address of the database contains its password, so the policy
/// names a file with the address.
fn postgres(block: &mut MappingReader) -> Option<PostgresLocation> {
    block.require("url_file", "url_file: /run/secrets/fencegate-guard-database");
    let url_file = block.value("url_file", scalar::file);
    let secured = block.is_present("tls");
    let tls = block.read_inner("tls", tls::parse_host_verified_tls);
    Some(PostgresLocation { url_file: url_file?, tls: tls.filter(|_| secured) })
}
