//! The names that may stand in several places, each with the one thing that it stands for.

use crate::names::Allowed;

/// Of files and folders, over all crates.
pub(crate) const FILES: &[Allowed] = &[
    Allowed {
        names: "admin*4 balancing bind conditions fence*4 gateway*3 guard*4 key*3 layout*3 leases*4 listener log*3 once*5 \
            peer_listener probe route*4 served_tls store*3 tickets tls*3 upstream*3 zookeeper*5",
        are: "a part of a policy: how it is read, what it comes to, who does it, and who starts it for a test",
    },
    Allowed {
        names: "check ensemble*4 era explain keys outcomes policy*3 reload verify",
        are: "a verb of the command line, and what it is about",
    },
    Allowed {
        names: "journal*3 operation operations",
        are: "operations that happen at most once, and the journal of them, wherever they are kept",
    },
    Allowed {
        names: "plans",
        are: "the plans of gateways: what is counted of them, and where they are published",
    },
    Allowed { names: "runbook", are: "the runbook: as a page, and as tests read it" },
    Allowed { names: "admit*3 claim", are: "a dispatch that asks a guard to be let in, and is" },
    Allowed {
        names: "time view",
        are: "the time of a guard's store and the look into it, in a file and in a database",
    },
    Allowed {
        names: "operators options*4 role",
        are: "what a gateway and a guard have each, and other programs",
    },
    Allowed { names: "database postgres", are: "the PostgreSQL that several guards share" },
    Allowed { names: "client", are: "who asks for something: of ZooKeeper, or of a gateway under test" },
    Allowed { names: "session tree watches", are: "ZooKeeper's sessions, nodes and watches" },
    Allowed { names: "server", are: "one server of those that a test starts" },
    Allowed {
        names: "answer*3 fields frames",
        are: "parts of HTTP: an answer, its fields, the frames of HTTP/2",
    },
    Allowed { names: "hop", are: "who stands between two others, and says so" },
    Allowed {
        names: "listen places speak",
        are: "what is done with connections, whoever they come from or lead to",
    },
    Allowed { names: "canonical", are: "the one canonical spelling, of a host and of a path" },
    Allowed { names: "template*3", are: "a text with places for values" },
    Allowed { names: "name values", are: "what a template of a key is filled with, and what it names" },
    Allowed { names: "stamp*4", are: "the fields with which a dispatch is stamped" },
    Allowed { names: "service*3", are: "what stands behind a proxy and does the work" },
    Allowed { names: "case parse play", are: "a case as data: how it is read, and played" },
    Allowed { names: "crash race", are: "cases of `fencegate verify`, and how they are played" },
    Allowed { names: "trace", are: "the trace of a request, and the step that reads it" },
    Allowed { names: "worker", are: "a worker of the process, and what is counted of it" },
    Allowed { names: "metrics*6", are: "what is counted of the part of the program that it stands in" },
    Allowed {
        names: "json report*3 text*3",
        are: "how something is told: to programs, at the end, to people",
    },
];

/// Of types, within the crate in front of them.
pub(crate) const TYPES: &[Allowed] = &[
    Allowed { names: "fencegate::Arguments*5", are: "what a verb of the command line is told" },
    Allowed {
        names: "fencegate::Trouble*6",
        are: "why a verb of the command line could not do what it was told",
    },
];
