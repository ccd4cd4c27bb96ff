//! The session as the gateway sees it: its own two traits, on the ensemble in memory.

use std::{future::Future, rc::Rc, time::Duration};

use fencegate_lock::session::link::{
    Connect, ConnectionState, Created, Failed, Fault, Kind, Link, Seen, Step,
};
use tokio::time::{sleep_until, timeout};

use super::{
    cable::Wire,
    conversation::Conversation,
    ensemble::Ensemble,
    request::{Answer, Request},
    watchers::Watch,
};

/// Makes sessions over one wire.
#[derive(Debug, Clone)]
pub struct Client {
    ensemble: Ensemble,
    wire: Rc<Wire>,
    asked: Duration,
}

/// One session. Dropping it closes it, as soon as there is a connection to say so.
#[derive(Debug)]
pub struct Session {
    id: i64,
    conversation: Rc<Conversation>,
}

impl Ensemble {
    /// A client that will ask for this session timeout.
    pub fn client(&self, wire: &Rc<Wire>, timeout: Duration) -> Client {
        Client { ensemble: self.clone(), wire: wire.clone(), asked: timeout }
    }
}

impl Client {
    async fn reached(&self) {
        while !(self.wire.is_open() && self.ensemble.is_serving()) {
            self.wire.mended().await;
        }
    }
}

impl Connect for Client {
    type Link = Session;

    async fn connect(&self) -> Result<Session, Fault> {
        let reached = async {
            self.reached().await;
            sleep_until(self.wire.arrival()).await;
            self.reached().await;
        };
        if timeout(self.asked, reached).await.is_err() {
            return Err(Fault::Refused("no server can be reached".to_owned()));
        }
        let granted = self.ensemble.negotiate(self.asked);
        let id = self.ensemble.open(granted);
        let conversation = Conversation::begin(self.ensemble.clone(), self.wire.clone(), id, granted);
        Ok(Session { id, conversation })
    }
}

impl Session {
    fn ask(&self, request: Request) -> impl Future<Output = Result<(Answer, Option<Watch>), Failed>> {
        let watches =
            matches!(request, Request::Data { watch: true, .. } | Request::Children { watch: true, .. });
        let refused = watches && self.conversation.refuses_this_watch();
        let asked = self.conversation.ask(request);
        async move {
            if refused {
                // After the server's answer, which says so.
                drop(asked.await);
                return Err(Failed { step: None, fault: Fault::Refused("throttled".into()) });
            }
            let heard = asked.await.unwrap_or(Err(Failed { step: None, fault: Fault::Over }));
            heard.map_err(|failed| match failed.fault {
                // Whatever is not known of a session that has ended cannot become known any more.
                Fault::Ambiguous(_) if self.state() == ConnectionState::Over => {
                    Failed { step: None, fault: Fault::Over }
                }
                _ => failed,
            })
        }
    }
}

/// Takes the one form that answers a request.
macro_rules! answered {
    ($asked:expr, $form:pat => $content:expr) => {
        match $asked.await {
            Ok($form) => Ok($content),
            Ok(other) => unreachable!("the server answered another request: {other:?}"),
            Err(failed) => Err(failed),
        }
    };
}

impl Link for Session {
    type Watch = Watch;

    fn id(&self) -> i64 {
        self.id
    }

    fn timeout(&self) -> Duration {
        self.conversation.timeout()
    }

    fn granted(&self) -> Option<Duration> {
        Some(self.conversation.timeout())
    }

    fn state(&self) -> ConnectionState {
        self.conversation.state()
    }

    fn reconnects(&self) -> u64 {
        self.conversation.changes()
    }

    async fn state_changed(&self) {
        self.conversation.changed().await;
    }

    // Each method below asks *before* it builds its future: that is when the request is sent.

    fn create<'a>(
        &'a self,
        path: &'a str,
        data: &[u8],
        kind: Kind,
    ) -> impl Future<Output = Result<Created, Fault>> {
        let asked = self.ask(Request::Create { path: path.to_owned(), data: data.to_owned(), kind });
        async { answered!(asked, (Answer::Created(created), _) => created).map_err(fault) }
    }

    /// The rights of the node above are read first, so that node has to be there.
    async fn create_like(&self, path: &str, above: &str, kind: Kind) -> Result<(), Fault> {
        match self.seen(above).await? {
            Some(_) => self.create(path, b"", kind).await.map(drop),
            None => Err(Fault::NoNode),
        }
    }

    fn delete(&self, path: &str) -> impl Future<Output = Result<(), Fault>> {
        let asked = self.ask(Request::Delete { path: path.to_owned() });
        async { answered!(asked, (Answer::Done, _) => ()).map_err(fault) }
    }

    fn children(&self, path: &str) -> impl Future<Output = Result<Vec<String>, Fault>> {
        let asked = self.ask(Request::Children { path: path.to_owned(), watch: false });
        async { answered!(asked, (Answer::Children(children), _) => children).map_err(fault) }
    }

    fn children_of(&self, paths: &[&str]) -> impl Future<Output = Result<Vec<Option<Vec<String>>>, Fault>> {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        let asked = self.ask(Request::ChildrenOf { paths });
        async { answered!(asked, (Answer::ChildrenOf(lists), _) => lists).map_err(fault) }
    }

    fn seen(&self, path: &str) -> impl Future<Output = Result<Option<Seen>, Fault>> {
        let asked = self.ask(Request::Seen { path: path.to_owned() });
        async { answered!(asked, (Answer::Seen(seen), _) => seen).map_err(fault) }
    }

    fn data(&self, path: &str) -> impl Future<Output = Result<(Vec<u8>, Seen), Fault>> {
        let asked = self.ask(Request::Data { path: path.to_owned(), watch: false });
        async { answered!(asked, (Answer::Data(data, seen), _) => (data, seen)).map_err(fault) }
    }

    fn watch(&self, path: &str) -> impl Future<Output = Result<Self::Watch, Fault>> {
        let asked = self.ask(Request::Data { path: path.to_owned(), watch: true });
        async { answered!(asked, (Answer::Data(..), Some(watch)) => watch).map_err(fault) }
    }

    fn watch_children(&self, path: &str) -> impl Future<Output = Result<(Vec<String>, Self::Watch), Fault>> {
        let asked = self.ask(Request::Children { path: path.to_owned(), watch: true });
        async {
            answered!(asked, (Answer::Children(children), Some(watch)) => (children, watch)).map_err(fault)
        }
    }

    fn sync(&self, path: &str) -> impl Future<Output = Result<(), Fault>> {
        let asked = self.ask(Request::Sync { path: path.to_owned() });
        async { answered!(asked, (Answer::Done, _) => ()).map_err(fault) }
    }

    fn commit(&self, steps: &[Step<'_>]) -> impl Future<Output = Result<Vec<Option<String>>, Failed>> {
        let asked = self.ask(Request::Commit { steps: steps.iter().map(Into::into).collect() });
        async { answered!(asked, (Answer::Committed(made), _) => made) }
    }

    fn ephemerals(&self, path: &str) -> impl Future<Output = Result<Vec<String>, Fault>> {
        let asked = self.ask(Request::Ephemerals { prefix: path.to_owned() });
        async { answered!(asked, (Answer::Ephemerals(paths), _) => paths).map_err(fault) }
    }

    async fn close(self) {
        let conversation = self.conversation.clone();
        drop(self);
        let closed = async {
            while conversation.state() != ConnectionState::Over {
                conversation.changed().await;
            }
        };
        // A server that does not answer ends the session by its timeout all the same.
        timeout(CLOSING, closed).await.ok();
    }
}

/// How long the gateway's real session waits for the farewell.
const CLOSING: Duration = Duration::from_secs(2);

fn fault(failed: Failed) -> Fault {
    failed.fault
}

impl Drop for Session {
    fn drop(&mut self) {
        self.conversation.part();
    }
}
