//! Plays a script on a ZooKeeper, and records the answers in terms that are the same on every ZooKeeper.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};

use fencegate_zookeeper::session::client::{
    MultiError, MultiOp, NodeCreateMode, ZkClient, ZkConnectionState, ZkConnector, ZkError,
};
use tokio::task::{JoinHandle, spawn_local, yield_now};

use super::{
    answer_line::{AnswerLine, render},
    script::{SESSIONS, ScriptStep, SessionOperation, TransactionStep},
};

/// A ZooKeeper whose connections can be cut.
pub(super) trait TestBackend {
    type Client: ZkConnector;
    /// The client of session `who`. Its connection is not cut.
    fn client(&self, who: usize, timeout: Duration) -> Self::Client;
    fn cut(&self, who: usize);
    fn plug(&self, who: usize);
}

/// Long enough that no session expires while its connection is cut.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Plays a script, and returns the answers in their order.
pub(super) async fn play<S: TestBackend>(site: &S, root: &str, script: &[ScriptStep]) -> Vec<String> {
    let mut stage = ScriptRunner {
        site,
        root: root.into(),
        links: [const { None }; SESSIONS],
        sessions: Vec::new(),
        lines: Vec::new(),
        watches: Vec::new(),
    };
    let made = stage.link(0).await.create(root, b"", NodeCreateMode::Persistent).await;
    made.expect("the root of a script is its own");
    for act in script {
        stage.run_step(act).await;
    }
    for who in 0..SESSIONS {
        stage.close(who).await;
    }
    render(&stage.lines, &stage.sessions)
}

struct ScriptRunner<'a, S: TestBackend> {
    site: &'a S,
    root: Rc<str>,
    links: [Option<Rc<<S::Client as ZkConnector>::Client>>; SESSIONS],
    /// The ids of the sessions, in the order in which the sessions were made.
    sessions: Vec<i64>,
    lines: Vec<AnswerLine>,
    /// The watches that have not fired yet.
    watches: Vec<PendingWatch>,
}

struct PendingWatch {
    /// The index of the script line in which the watch was set.
    set_in: usize,
    who: usize,
    fired: WatchFuture,
}

type WatchFuture = Pin<Box<dyn Future<Output = ()>>>;
type OperationAnswer = (AnswerLine, Option<WatchFuture>);

impl<S: TestBackend> ScriptRunner<'_, S> {
    async fn run_step(&mut self, act: &ScriptStep) {
        match act {
            ScriptStep::Do(who, op) => self.run_together(*who, std::slice::from_ref(op)).await,
            ScriptStep::Together(who, ops) => self.run_together(*who, ops).await,
            ScriptStep::Close(who) => self.close(*who).await,
            ScriptStep::Away { who, queued, meanwhile } => self.run_while_away(*who, queued, meanwhile).await,
        }
    }

    async fn run_together(&mut self, who: usize, ops: &[SessionOperation]) {
        let asked = self.send_all(who, ops).await;
        self.collect_answers(who, asked).await;
        self.look_at_watches(None).await;
    }

    async fn run_while_away(
        &mut self,
        who: usize,
        queued: &[SessionOperation],
        meanwhile: &[(usize, SessionOperation)],
    ) {
        let link = self.link(who).await;
        self.site.cut(who);
        wait_state(&*link, ZkConnectionState::Disconnected).await;
        let asked = self.send_all(who, queued).await;
        for (other, op) in meanwhile {
            let answers = self.send_all(*other, std::slice::from_ref(op)).await;
            self.collect_answers(*other, answers).await;
            self.look_at_watches(Some(who)).await;
        }
        self.site.plug(who);
        wait_state(&*link, ZkConnectionState::Connected).await;
        self.collect_answers(who, asked).await;
        self.look_at_watches(None).await;
    }

    async fn close(&mut self, who: usize) {
        if let Some(link) = self.links[who].take() {
            Rc::into_inner(link).expect("nobody else has a handle").close().await;
            self.look_at_watches(None).await;
        }
    }

    /// Sends all operations at once, without waiting for answers in between.
    async fn send_all(&mut self, who: usize, ops: &[SessionOperation]) -> Vec<JoinHandle<OperationAnswer>> {
        let link = self.link(who).await;
        let perform =
            |op: &SessionOperation| spawn_local(perform(link.clone(), self.root.clone(), op.clone()));
        let asked = ops.iter().map(perform).collect();
        // Let the tasks begin, in the order in which they were spawned. Each sends its request at once.
        yield_now().await;
        asked
    }

    async fn collect_answers(&mut self, who: usize, asked: Vec<JoinHandle<OperationAnswer>>) {
        for answer in asked {
            let (line, watch) = answer.await.expect("no panic");
            self.watches.extend(watch.map(|fired| PendingWatch { set_in: self.lines.len(), who, fired }));
            self.lines.push(line);
        }
    }

    /// Finds the watches that have fired. Each session first sends a request, because an event arrives before any
    /// later answer of its session.
    async fn look_at_watches(&mut self, away: Option<usize>) {
        let waits = |who| Some(who) != away && self.watches.iter().any(|watching| watching.who == who);
        let links = (0..SESSIONS).filter(|who| waits(*who)).filter_map(|who| self.links[who].as_ref());
        // `collect` calls `stat` for every session, which sends the request at once.
        let asked: Vec<_> = links.map(|link| link.stat(&self.root)).collect();
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
            self.lines.push(AnswerLine::text(format!("fired: {fired:?}")));
        }
    }

    async fn link(&mut self, who: usize) -> Rc<<S::Client as ZkConnector>::Client> {
        if self.links[who].is_none() {
            let link = self.site.client(who, TIMEOUT).connect().await.expect("a session");
            self.sessions.push(link.id());
            self.links[who] = Some(Rc::new(link));
        }
        self.links[who].clone().expect("made above")
    }
}

pub(super) async fn wait_state(link: &impl ZkClient, state: ZkConnectionState) {
    while link.state() != state {
        link.state_changed().await;
    }
}

/// Performs an operation. It sends the request before it waits, so operations that begin one after the other are
/// sent in that order.
async fn perform<L: ZkClient>(link: Rc<L>, root: Rc<str>, op: SessionOperation) -> OperationAnswer {
    let asked = AnswerLine::text(format!("{op:?}: "));
    match answer(&*link, &root, &op).await {
        Ok((line, watch)) => (asked.with_line(line), watch),
        Err(fault) => (asked.with_fault(&fault), None),
    }
}

async fn answer<L: ZkClient>(
    link: &L,
    root: &str,
    op: &SessionOperation,
) -> Result<OperationAnswer, ZkError> {
    let at = |path: &str| format!("{root}{path}");
    let line = match op {
        SessionOperation::Create(path, kind) => {
            let created = link.create(&at(path), b"new", *kind).await?;
            AnswerLine::text(format!("number {}", created.sequence)).with_stat(created.stat)
        }
        SessionOperation::Delete(path) => {
            link.delete(&at(path)).await?;
            AnswerLine::text("done")
        }
        SessionOperation::Children(path) => AnswerLine::text(sorted(link.children(&at(path)).await?)),
        SessionOperation::ChildrenOf(paths) => {
            let paths: Vec<_> = paths.iter().map(|path| at(path)).collect();
            let lists = link.children_of(&paths.iter().map(String::as_str).collect::<Vec<_>>()).await?;
            let told = lists.into_iter().map(|list| list.map_or_else(|| "unread".to_owned(), sorted));
            AnswerLine::text(told.collect::<Vec<_>>().join(", "))
        }
        SessionOperation::Seen(path) => stat_line(link, &at(path)).await?,
        SessionOperation::Data(path) => {
            let (data, seen) = link.data(&at(path)).await?;
            AnswerLine::text(String::from_utf8_lossy(&data)).with_stat(seen)
        }
        SessionOperation::Watch(path) => {
            let watch = link.watch(&at(path)).await?;
            return Ok((AnswerLine::text("watching"), Some(Box::pin(watch))));
        }
        SessionOperation::WatchChildren(path) => {
            let (children, watch) = link.watch_children(&at(path)).await?;
            return Ok((AnswerLine::text(sorted(children)), Some(Box::pin(watch))));
        }
        SessionOperation::Sync(path) => {
            link.sync(&at(path)).await?;
            AnswerLine::text("done")
        }
        SessionOperation::Ephemerals(path) => {
            let paths = link.ephemerals(&at(path)).await?;
            AnswerLine::text(sorted(paths.iter().map(|path| relative(root, path)).collect()))
        }
        SessionOperation::Commit(changes) => commit(link, root, changes).await?,
    };
    Ok((line, None))
}

/// Commits a transaction, and reads the nodes that it created: all must have the same transaction number.
async fn commit<L: ZkClient>(
    link: &L,
    root: &str,
    changes: &[TransactionStep],
) -> Result<AnswerLine, ZkError> {
    let paths: Vec<String> = changes.iter().map(|change| format!("{root}{}", change.path())).collect();
    let step = |(change, path)| match change {
        &TransactionStep::Check(_, version) => MultiOp::Check { path, version },
        &TransactionStep::Create(_, kind) => MultiOp::Create { path, data: b"made", kind },
        TransactionStep::Set(_) => MultiOp::Set { path, data: b"set" },
        TransactionStep::Delete(_) => MultiOp::Delete { path, version: None },
    };
    let steps: Vec<MultiOp<'_>> = changes.iter().zip(paths.iter().map(String::as_str)).map(step).collect();
    let made = match link.commit(&steps).await {
        Ok(made) => made,
        Err(MultiError { step, fault }) => {
            return Ok(AnswerLine::text(format!("failed in step {step:?}: ")).with_fault(&fault));
        }
    };
    let mut line = AnswerLine::text(format!("{} steps done", made.len()));
    for path in made.into_iter().flatten() {
        line =
            line.with_text(format!("; {} ", relative(root, &path))).with_line(stat_line(link, &path).await?);
    }
    Ok(line)
}

async fn stat_line<L: ZkClient>(link: &L, path: &str) -> Result<AnswerLine, ZkError> {
    let seen = link.stat(path).await?;
    Ok(seen.map_or_else(|| AnswerLine::text("is not"), |seen| AnswerLine::text("is").with_stat(seen)))
}

fn relative(root: &str, path: &str) -> String {
    path.strip_prefix(root).unwrap_or(path).to_owned()
}

/// Servers list children in any order.
fn sorted(mut names: Vec<String>) -> String {
    names.sort();
    format!("{names:?}")
}
