//! What a guard is asked: at its admin listener by operators, and where requests come in by gateways.

use fencegate_guard::announce::{ANNOUNCEMENT, Announcement};

use super::described::Described;
use crate::{
    admin::{
        fault::Word,
        outcomes::{Doubtful, Forgotten, KnownKey, ResolveAtGuard, StaleRefusals},
        replies::{DrainBegun, ResolvedOperation},
    },
    refusal::Problem,
};

const SAYS: &str = "What the admin listener of a guard tells and does, and what it says of itself where requests come in. \
                    `gateway/API.md` describes it for people. The pages for people are not described here.";

pub(super) fn described() -> Described {
    let mut api = Described::new("The admin API of a Fencegate guard", "http://127.0.0.1:9902", SAYS);
    probes(&mut api);
    outcomes(&mut api);
    others(&mut api);
    api.get(
        ANNOUNCEMENT,
        "announcement",
        "Who the guard is: gateways ask before the first request on each connection.",
    )
    .elsewhere("http://127.0.0.1:8081")
    .tells::<Announcement>(200, "What it says of itself.")
    .tells_as::<Problem>(503, "application/problem+json", "Its store cannot be asked, or it is overloaded.")
    .end();
    api
}

fn probes(api: &mut Described) {
    api.get("/live", "live", "The process lives.").open().shows(200, "text/plain", "It does.").end();
    api.get("/ready", "ready", "Something could be let in now.")
        .open()
        .shows(200, "text/plain", "It could, on some keys at least.")
        .shows(503, "text/plain", "It could not, and why.")
        .end();
    api.get("/metrics", "metrics", "What has been counted, for Prometheus.")
        .shows(200, "text/plain", "All families, in the text format of Prometheus.")
        .end();
}

fn outcomes(api: &mut Described) {
    const REFERENCE: &str = "As the list of operations tells it.";
    api.get(
        "/api/v1/operations",
        "operations",
        "Operations and executions of which nobody knows what came of them.",
    )
    .tells::<Doubtful>(200, "The first thousand.")
    .fails(&[Word::Away])
    .end();
    api.post("/api/v1/operations/{reference}/resolve", "resolveOperation", "Says what came of one.")
        .named("reference", REFERENCE)
        .given::<ResolveAtGuard>()
        .tells::<ResolvedOperation>(200, "It is written down.")
        .fails(&[Word::NotFound, Word::Away])
        .end();
    api.post(
        "/api/v1/operations/{reference}/forget",
        "forgetOperation",
        "Forgets a finished operation and its kept answer.",
    )
    .named("reference", REFERENCE)
    .tells::<Forgotten>(200, "It is forgotten.")
    .fails(&[Word::NotFound, Word::Away])
    .end();
}

fn others(api: &mut Described) {
    api.get("/api/v1/keys/{key}", "key", "The marks of a key, and what is in flight and in doubt under it.")
        .named("key", "The key, with `/` as `%2F` or as it is.")
        .tells::<KnownKey>(200, "What is known of it.")
        .fails(&[Word::NotFound, Word::Away])
        .end();
    api.get("/api/v1/refusals", "refusals", "Stale dispatches since the start, and the last one.")
        .tells::<StaleRefusals>(200, "How many, and which.")
        .end();
    api.post("/api/v1/backup", "backup", "A backup of the store, for those who have shown who they are.")
        .shows(200, "application/octet-stream", "The backup; one that is cut off is none.")
        .fails(&[Word::Open, Word::Elsewhere, Word::Away])
        .end();
    api.post("/api/v1/drain", "drain", "As SIGTERM: the process ends when everything that runs has ended.")
        .tells::<DrainBegun>(202, "It is ending.")
        .end();
}
