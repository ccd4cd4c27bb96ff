//! The requests of a test: random operations on few paths, so that the operations affect each other.

use fencegate_zookeeper::session::client::NodeCreateMode;
use proptest::{collection::vec, prelude::*};

/// The number of sessions of one script.
pub(super) const SESSIONS: usize = 3;

/// One step of a script. The next step begins when this one is over.
#[derive(Debug, Clone)]
pub(super) enum ScriptStep {
    Do(usize, SessionOperation),
    /// The session sends these operations at once, without waiting for answers in between.
    Together(usize, Vec<SessionOperation>),
    /// Ends the session. Its next operation starts a new one.
    Close(usize),
    /// Cuts the connection of the session, whose client accepts `queued` nevertheless. The other sessions send
    /// `meanwhile`, and then the connection comes back.
    Away {
        who: usize,
        queued: Vec<SessionOperation>,
        meanwhile: Vec<(usize, SessionOperation)>,
    },
}

/// One call of the gateway's session trait. Paths are relative to the root of the script.
#[derive(Debug, Clone)]
pub(super) enum SessionOperation {
    Create(String, NodeCreateMode),
    Delete(String),
    Children(String),
    ChildrenOf(Vec<String>),
    Seen(String),
    Data(String),
    Watch(String),
    WatchChildren(String),
    Sync(String),
    Commit(Vec<TransactionStep>),
    Ephemerals(String),
}

/// One step of a transaction.
#[derive(Debug, Clone)]
pub(super) enum TransactionStep {
    Check(String, i32),
    Create(String, NodeCreateMode),
    Set(String),
    Delete(String),
}

impl TransactionStep {
    pub(super) fn path(&self) -> &str {
        match self {
            Self::Check(path, _) | Self::Create(path, _) | Self::Set(path) | Self::Delete(path) => path,
        }
    }
}

/// Scripts in which no connection is cut.
pub(super) fn unbroken_scripts() -> impl Strategy<Value = Vec<ScriptStep>> {
    let act = prop_oneof![
        12 => (any_session(), any_operation()).prop_map(|(who, op)| ScriptStep::Do(who, op)),
        3 => (any_session(), vec(any_operation(), 2..6)).prop_map(|(who, ops)| ScriptStep::Together(who, ops)),
        1 => any_session().prop_map(ScriptStep::Close),
    ];
    (initial_nodes(), vec(act, 10..40)).prop_map(|(mut acts, then)| {
        acts.extend(then);
        acts
    })
}

/// Scripts in which watches are set, a connection is cut, and nodes change meanwhile.
pub(super) fn broken_scripts() -> impl Strategy<Value = Vec<ScriptStep>> {
    let watch = || {
        any_path().prop_flat_map(|path| {
            prop_oneof![
                Just(SessionOperation::Watch(path.clone())),
                Just(SessionOperation::WatchChildren(path))
            ]
        })
    };
    let away = || {
        (any_session(), vec(any_operation(), 0..4), vec((any_session(), any_operation()), 1..8)).prop_map(
            |(who, queued, mut meanwhile)| {
                meanwhile.retain(|(other, _)| *other != who);
                ScriptStep::Away { who, queued, meanwhile }
            },
        )
    };
    let watches = || vec((any_session(), watch()).prop_map(|(who, op)| ScriptStep::Do(who, op)), 3..8);
    (initial_nodes(), watches(), away(), watches(), away()).prop_map(
        |(mut acts, first, away, second, again)| {
            acts.extend(first.into_iter().chain([away]).chain(second).chain([again]));
            acts
        },
    )
}

/// Steps that create a few nodes at the beginning, on which most paths depend.
fn initial_nodes() -> impl Strategy<Value = Vec<ScriptStep>> {
    let create = |path: &str, kind: NodeCreateMode| {
        ScriptStep::Do(0, SessionOperation::Create(named(path.to_owned(), kind), kind))
    };
    let parents = prop_oneof![Just(NodeCreateMode::Persistent), Just(NodeCreateMode::Container)];
    (parents, vec((any_session(), any_kind()), 0..4)).prop_map(move |(kind, children)| {
        let children = children.into_iter().map(|(who, kind)| {
            let name = if kind == NodeCreateMode::EphemeralSequential { "/a" } else { "/a/a" };
            ScriptStep::Do(who, SessionOperation::Create(named(name.to_owned(), kind), kind))
        });
        [create("/a", kind), create("/b", NodeCreateMode::Persistent)].into_iter().chain(children).collect()
    })
}

fn any_session() -> impl Strategy<Value = usize> {
    0..SESSIONS
}

fn any_operation() -> impl Strategy<Value = SessionOperation> {
    prop_oneof![
        6 => (any_path(), any_kind()).prop_map(|(path, kind)| SessionOperation::Create(named(path, kind), kind)),
        5 => any_path().prop_map(SessionOperation::Delete),
        2 => any_path().prop_map(SessionOperation::Children),
        2 => vec(any_path(), 1..4).prop_map(SessionOperation::ChildrenOf),
        2 => any_path().prop_map(SessionOperation::Seen),
        2 => any_path().prop_map(SessionOperation::Data),
        3 => any_path().prop_map(SessionOperation::Watch),
        3 => any_path().prop_map(SessionOperation::WatchChildren),
        1 => any_path().prop_map(SessionOperation::Sync),
        5 => vec(any_step(), 0..4).prop_map(SessionOperation::Commit),
        2 => prop_oneof![Just(""), Just("/a")].prop_map(|prefix| SessionOperation::Ephemerals(prefix.to_owned())),
    ]
}

fn any_step() -> impl Strategy<Value = TransactionStep> {
    prop_oneof![
        2 => (any_path(), -1..3).prop_map(|(path, version)| TransactionStep::Check(path, version)),
        4 => (any_path(), any_kind()).prop_map(|(path, kind)| TransactionStep::Create(named(path, kind), kind)),
        4 => any_path().prop_map(TransactionStep::Set),
        2 => any_path().prop_map(TransactionStep::Delete),
    ]
}

fn any_kind() -> impl Strategy<Value = NodeCreateMode> {
    prop_oneof![
        3 => Just(NodeCreateMode::Persistent),
        1 => Just(NodeCreateMode::Container),
        2 => Just(NodeCreateMode::Ephemeral),
        4 => Just(NodeCreateMode::EphemeralSequential),
    ]
}

/// The path of a new node. Sequential nodes get the prefix that the paths of [`any_path`] have before their number.
fn named(path: String, kind: NodeCreateMode) -> String {
    match kind {
        NodeCreateMode::EphemeralSequential => format!("{path}/x-"),
        NodeCreateMode::Persistent | NodeCreateMode::Container | NodeCreateMode::Ephemeral => path,
    }
}

/// Few paths, so that most of them exist at some time. Among them are paths of sequential nodes and one invalid path.
fn any_path() -> impl Strategy<Value = String> {
    let numbered = |parent| (0..4).prop_map(move |number| format!("{parent}/x-{number:010}"));
    prop_oneof![
        12 => Just("/a".to_owned()),
        6 => Just("/b".to_owned()),
        4 => Just("/a/a".to_owned()),
        2 => Just(String::new()),
        6 => numbered("/a"),
        2 => numbered("/b"),
        1 => numbered("/a/a"),
        1 => Just("/a//b".to_owned()),
    ]
}
