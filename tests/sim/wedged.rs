//! A client library whose task has ended without a word: it says that it is connected, and every operation fails at
//! once. The session is given up, and there is a next one.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use fencegate::{
    admin::metrics::Metrics,
    session::{
        clock::{Boot, Clock},
        link::{Connect, Created, Failed, Fault, Kind, Link, Seen, State, Step},
        live::{Current, View},
        nameplate::Nameplate,
        supervise::{Settings, supervise},
    },
    state::Memory,
};
use fencegate_tests::memory::{Client, Dice, Ensemble, Session, Settings as Servers};
use tokio::{
    sync::watch,
    task::spawn_local,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{plan::plan, simulated};

const T: Duration = Duration::from_secs(2);

struct Library {
    client: Client,
    /// Of the session made last.
    gone: Rc<RefCell<Rc<Cell<bool>>>>,
}

struct Handle {
    session: Session,
    gone: Rc<Cell<bool>>,
}

impl Handle {
    fn here(&self) -> Result<&Session, Fault> {
        if self.gone.get() { Err(Fault::Ambiguous("nobody listens".into())) } else { Ok(&self.session) }
    }
}

impl Connect for Library {
    type Link = Handle;

    async fn connect(&self) -> Result<Handle, Fault> {
        let session = self.client.connect().await?;
        let gone = Rc::new(Cell::new(false));
        self.gone.replace(gone.clone());
        Ok(Handle { session, gone })
    }
}

impl Link for Handle {
    type Watch = <Session as Link>::Watch;

    fn id(&self) -> i64 {
        self.session.id()
    }
    fn timeout(&self) -> Duration {
        self.session.timeout()
    }
    fn granted(&self) -> Option<Duration> {
        self.session.granted()
    }
    fn state(&self) -> State {
        if self.gone.get() { State::Connected } else { self.session.state() }
    }
    fn reconnects(&self) -> u64 {
        self.session.reconnects()
    }
    async fn state_changed(&self) {
        self.session.state_changed().await;
        if self.gone.get() {
            std::future::pending().await
        }
    }
    async fn create<'a>(&'a self, path: &'a str, data: &[u8], kind: Kind) -> Result<Created, Fault> {
        self.here()?.create(path, data, kind).await
    }
    async fn delete(&self, path: &str) -> Result<(), Fault> {
        self.here()?.delete(path).await
    }
    async fn children(&self, path: &str) -> Result<Vec<String>, Fault> {
        self.here()?.children(path).await
    }
    async fn seen(&self, path: &str) -> Result<Option<Seen>, Fault> {
        self.here()?.seen(path).await
    }
    async fn data(&self, path: &str) -> Result<(Vec<u8>, Seen), Fault> {
        self.here()?.data(path).await
    }
    async fn watch(&self, path: &str) -> Result<Self::Watch, Fault> {
        self.here()?.watch(path).await
    }
    async fn watch_children(&self, path: &str) -> Result<(Vec<String>, Self::Watch), Fault> {
        self.here()?.watch_children(path).await
    }
    async fn sync(&self, path: &str) -> Result<(), Fault> {
        self.here()?.sync(path).await
    }
    async fn commit(&self, steps: &[Step<'_>]) -> Result<Vec<Option<String>>, Failed> {
        match self.here() {
            Ok(session) => session.commit(steps).await,
            Err(fault) => Err(Failed { step: None, fault }),
        }
    }
    async fn ephemerals(&self, path: &str) -> Result<Vec<String>, Fault> {
        self.here()?.ephemerals(path).await
    }
    async fn close(self) {
        self.session.close().await;
    }
}

#[derive(Debug)]
struct Simulated(Instant);

impl Clock for Simulated {
    fn now(&self) -> Boot {
        Boot::from_nanos(0) + Duration::from_secs(1000) + self.0.elapsed()
    }
}

#[test]
fn a_session_that_answers_nothing_and_does_not_end_is_given_up() {
    simulated::run(async {
        let ensemble = Ensemble::start(Servers::default());
        let plan = plan("gw", ([127, 0, 0, 1], 1).into(), T);
        let settings = Settings {
            census: Arc::default(),
            policy: plan.zookeeper.clone(),
            gateway: "gw".to_owned(),
            member: Nameplate::of(&plan),
            init: true,
            complaints: Arc::default(),
            sequence_limit: fencegate::lock::rotate::SEQUENCE_LIMIT,
            memory: Arc::<Memory>::default(),
            clock: Arc::new(Simulated(Instant::now())),
            randomness: Arc::new(Dice::seeded(7)),
            metrics: Metrics::of_gateway(&plan).session(0),
        };
        let client = ensemble.client(&ensemble.wire(), T);
        let latest = Rc::<RefCell<Rc<Cell<bool>>>>::default();
        let library = Library { client, gone: latest.clone() };
        let (view, mut seen) = watch::channel(View::Away("not yet".into()));
        let (current, stop) = (Rc::new(Current::default()), CancellationToken::new());
        spawn_local(supervise(library, Rc::new(settings), current, view, stop.clone()));
        let first = session(&mut seen).await;
        sleep(T * 3).await;
        assert_eq!(session(&mut seen).await, first, "a session that answers is kept");

        latest.borrow().set(true);
        let gone = Instant::now();
        let next = async {
            loop {
                seen.changed().await.expect("supervised");
                let next = session(&mut seen).await;
                if next != first {
                    return;
                }
            }
        };
        timeout(T * 10, next).await.expect("another session");
        assert!(gone.elapsed() < T * 5, "after {:?}", gone.elapsed());
        stop.cancel();
    });
}

async fn session(seen: &mut watch::Receiver<View>) -> i64 {
    let live = seen.wait_for(|view| matches!(view, View::Live { .. })).await.expect("supervised");
    match &*live {
        View::Live { proof, .. } => proof.session(),
        _ => unreachable!("waited for"),
    }
}
