//! Plays a script on a ZooKeeper, and writes the answers down in terms that are the same on every ZooKeeper.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};

use fencegate_lock::session::link::{Connect, ConnectionState, Failed, Fault, Kind, Link, Step};
use tokio::task::{JoinHandle, spawn_local, yield_now};

use super::{
    line::{Line, rendered},
    script::{Act, Change, Op, SESSIONS},
};

/// A ZooKeeper with cables that can be cut.
pub(super) trait Site {
    type Client: Connect;
    /// The client of session `who`, with its cable plugged in.
    fn client(&self, who: usize, timeout: Duration) -> Self::Client;
    fn cut(&self, who: usize);
    fn plug(&self, who: usize);
}

/// Long enough that no session expires while its connection is cut.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the answers in their order.
pub(super) async fn play<S: Site>(site: &S, root: &str, script: &[Act]) -> Vec<String> {
    let mut stage = Stage {
        site,
        root: root.into(),
        links: [const { None }; SESSIONS],
        sessions: Vec::new(),
        lines: Vec::new(),
        watches: Vec::new(),
    };
    let made = stage.link(0).await.create(root, b"", Kind::Persistent).await;
    made.expect("the root of a script is its own");
    for act in script {
        stage.act(act).await;
    }
    for who in 0..SESSIONS {
        stage.close(who).await;
    }
    rendered(&stage.lines, &stage.sessions)
}

struct Stage<'a, S: Site> {
    site: &'a S,
    root: Rc<str>,
    links: [Option<Rc<<S::Client as Connect>::Link>>; SESSIONS],
    /// The ids of the sessions, in the order in which the sessions were made.
    sessions: Vec<i64>,
    lines: Vec<Line>,
    /// The watches that have not fired.
    watches: Vec<Watching>,
}

struct Watching {
    /// The number of the line in which the watch was set.
    set_in: usize,
    who: usize,
    fired: Fired,
}

type Fired = Pin<Box<dyn Future<Output = ()>>>;
type Answered = (Line, Option<Fired>);

impl<S: Site> Stage<'_, S> {
    async fn act(&mut self, act: &Act) {
        match act {
            Act::Do(who, op) => self.together(*who, std::slice::from_ref(op)).await,
            Act::Together(who, ops) => self.together(*who, ops).await,
            Act::Close(who) => self.close(*who).await,
            Act::Away { who, queued, meanwhile } => self.away(*who, queued, meanwhile).await,
        }
    }

    async fn together(&mut self, who: usize, ops: &[Op]) {
        let asked = self.ask(who, ops).await;
        self.hear(who, asked).await;
        self.look_at_watches(None).await;
    }

    async fn away(&mut self, who: usize, queued: &[Op], meanwhile: &[(usize, Op)]) {
        let link = self.link(who).await;
        self.site.cut(who);
        becomes(&*link, ConnectionState::Disconnected).await;
        let asked = self.ask(who, queued).await;
        for (other, op) in meanwhile {
            let answers = self.ask(*other, std::slice::from_ref(op)).await;
            self.hear(*other, answers).await;
            self.look_at_watches(Some(who)).await;
        }
        self.site.plug(who);
        becomes(&*link, ConnectionState::Connected).await;
        self.hear(who, asked).await;
        self.look_at_watches(None).await;
    }

    async fn close(&mut self, who: usize) {
        if let Some(link) = self.links[who].take() {
            Rc::into_inner(link).expect("nobody else has a handle").close().await;
            self.look_at_watches(None).await;
        }
    }

    /// Sends all operations before the first one is answered.
    async fn ask(&mut self, who: usize, ops: &[Op]) -> Vec<JoinHandle<Answered>> {
        let link = self.link(who).await;
        let perform = |op: &Op| spawn_local(perform(link.clone(), self.root.clone(), op.clone()));
        let asked = ops.iter().map(perform).collect();
        // Tasks begin in the order in which they were made, and send their request at once.
        yield_now().await;
        asked
    }

    async fn hear(&mut self, who: usize, asked: Vec<JoinHandle<Answered>>) {
        for answer in asked {
            let (line, watch) = answer.await.expect("no panic");
            self.watches.extend(watch.map(|fired| Watching { set_in: self.lines.len(), who, fired }));
            self.lines.push(line);
        }
    }

    /// Finds the watches that have fired. Each session asks something first, because an event comes before any later
    /// answer of its session.
    async fn look_at_watches(&mut self, away: Option<usize>) {
        let waits = |who| Some(who) != away && self.watches.iter().any(|watching| watching.who == who);
        let links = (0..SESSIONS).filter(|who| waits(*who)).filter_map(|who| self.links[who].as_ref());
        // All questions are sent here.
        let asked: Vec<_> = links.map(|link| link.seen(&self.root)).collect();
        for answer in asked {
            answer.await.expect("the session lives");
        }
        let mut fired = Vec::new();
        for mut watching in std::mem::take(&mut self.watches) {
            match poll_fn(|cx| Poll::Ready(watching.fired.as_mut().poll(cx))).await {
                Poll::Ready(()) => fired.push(watching.set_in),
                Poll::Pending => self.watches.push(watching),
            }
        }
        if !fired.is_empty() {
            self.lines.push(Line::text(format!("fired: {fired:?}")));
        }
    }

    async fn link(&mut self, who: usize) -> Rc<<S::Client as Connect>::Link> {
        if self.links[who].is_none() {
            let link = self.site.client(who, TIMEOUT).connect().await.expect("a session");
            self.sessions.push(link.id());
            self.links[who] = Some(Rc::new(link));
        }
        self.links[who].clone().expect("made above")
    }
}

pub(super) async fn becomes(link: &impl Link, state: ConnectionState) {
    while link.state() != state {
        link.state_changed().await;
    }
}

/// Sends the request before it waits. So two operations that begin one after the other are sent in that order.
async fn perform<L: Link>(link: Rc<L>, root: Rc<str>, op: Op) -> Answered {
    let asked = Line::text(format!("{op:?}: "));
    match answer(&*link, &root, &op).await {
        Ok((line, watch)) => (asked.and_line(line), watch),
        Err(fault) => (asked.and_fault(&fault), None),
    }
}

async fn answer<L: Link>(link: &L, root: &str, op: &Op) -> Result<Answered, Fault> {
    let at = |path: &str| format!("{root}{path}");
    let line = match op {
        Op::Create(path, kind) => {
            let created = link.create(&at(path), b"new", *kind).await?;
            Line::text(format!("number {}", created.sequence)).and_seen(created.seen)
        }
        Op::Delete(path) => {
            link.delete(&at(path)).await?;
            Line::text("done")
        }
        Op::Children(path) => Line::text(sorted(link.children(&at(path)).await?)),
        Op::ChildrenOf(paths) => {
            let paths: Vec<_> = paths.iter().map(|path| at(path)).collect();
            let lists = link.children_of(&paths.iter().map(String::as_str).collect::<Vec<_>>()).await?;
            let told = lists.into_iter().map(|list| list.map_or_else(|| "unread".to_owned(), sorted));
            Line::text(told.collect::<Vec<_>>().join(", "))
        }
        Op::Seen(path) => seen(link, &at(path)).await?,
        Op::Data(path) => {
            let (data, seen) = link.data(&at(path)).await?;
            Line::text(String::from_utf8_lossy(&data)).and_seen(seen)
        }
        Op::Watch(path) => {
            let watch = link.watch(&at(path)).await?;
            return Ok((Line::text("watching"), Some(Box::pin(watch))));
        }
        Op::WatchChildren(path) => {
            let (children, watch) = link.watch_children(&at(path)).await?;
            return Ok((Line::text(sorted(children)), Some(Box::pin(watch))));
        }
        Op::Sync(path) => {
            link.sync(&at(path)).await?;
            Line::text("done")
        }
        Op::Ephemerals(path) => {
            let paths = link.ephemerals(&at(path)).await?;
            Line::text(sorted(paths.iter().map(|path| relative(root, path)).collect()))
        }
        Op::Commit(changes) => commit(link, root, changes).await?,
    };
    Ok((line, None))
}

/// Looks at the new nodes as well: nodes of one transaction must have the same transaction number.
async fn commit<L: Link>(link: &L, root: &str, changes: &[Change]) -> Result<Line, Fault> {
    let paths: Vec<String> = changes.iter().map(|change| format!("{root}{}", change.path())).collect();
    let step = |(change, path)| match change {
        &Change::Check(_, version) => Step::Check { path, version },
        &Change::Create(_, kind) => Step::Create { path, data: b"made", kind },
        Change::Set(_) => Step::Set { path, data: b"set" },
        Change::Delete(_) => Step::Delete { path, version: None },
    };
    let steps: Vec<Step<'_>> = changes.iter().zip(paths.iter().map(String::as_str)).map(step).collect();
    let made = match link.commit(&steps).await {
        Ok(made) => made,
        Err(Failed { step, fault }) => {
            return Ok(Line::text(format!("failed in step {step:?}: ")).and_fault(&fault));
        }
    };
    let mut line = Line::text(format!("{} steps done", made.len()));
    for path in made.into_iter().flatten() {
        line = line.and(format!("; {} ", relative(root, &path))).and_line(seen(link, &path).await?);
    }
    Ok(line)
}

async fn seen<L: Link>(link: &L, path: &str) -> Result<Line, Fault> {
    let seen = link.seen(path).await?;
    Ok(seen.map_or_else(|| Line::text("is not"), |seen| Line::text("is").and_seen(seen)))
}

fn relative(root: &str, path: &str) -> String {
    path.strip_prefix(root).unwrap_or(path).to_owned()
}

/// Servers list children in any order.
fn sorted(mut names: Vec<String>) -> String {
    names.sort();
    format!("{names:?}")
}
