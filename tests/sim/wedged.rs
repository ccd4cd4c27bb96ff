//! A client library whose task has ended without a word: it says that it is connected, and every operation fails at
//! once. The session is given up, and there is a next one.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use fencegate::admin::metrics::Metrics;
use fencegate_lock::{
    session::{
        link::{Connect, Created, Failed, Fault, Kind, Link, Seen, State, Step},
        live::{Current, View},
        nameplate::Nameplate,
        supervise::{Settings, supervise},
    },
    state::Memory,
    tenures::{
        keeper::{Keeper, Refused, Wish, keeper},
        slot::Waits,
        tenure::Tenure,
    },
};
use fencegate_policies::{
    key::KeyTemplate,
    plan::{Caching, Hold, Mode},
};
use fencegate_process::clock::{Boot, Clock, SharedClock};
use fencegate_tests::memory::{Dice, Ensemble, Session, Settings as Servers, Underway, Wire};
use tokio::{
    join,
    sync::watch,
    task::spawn_local,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{plan::plan, simulated};

const T: Duration = Duration::from_secs(2);

struct Library {
    ensemble: Ensemble,
    latest: Latest,
}

/// The session made last: whether its task is gone, and its own wire.
type Latest = Rc<RefCell<Option<(Rc<Cell<bool>>, Rc<Wire>)>>>;

/// From here on it says nothing to the server either, which ends the session when its time is over.
fn end_task(latest: &Latest) {
    let latest = latest.borrow();
    let (gone, wire) = latest.as_ref().expect("a session");
    gone.set(true);
    wire.disconnect(Underway::Lost);
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
        let wire = self.ensemble.wire();
        let session = self.ensemble.client(&wire, T).connect().await?;
        let gone = Rc::new(Cell::new(false));
        self.latest.replace(Some((gone.clone(), wire)));
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

fn settings(clock: SharedClock) -> Settings {
    let plan = plan("gw", ([127, 0, 0, 1], 1).into(), T);
    Settings {
        census: Arc::default(),
        policy: plan.zookeeper.clone(),
        gateway: "gw".to_owned(),
        member: Nameplate::of(&plan),
        init: true,
        complaints: Arc::default(),
        sequence_limit: fencegate_lock::recipe::rotate::SEQUENCE_LIMIT,
        memory: Arc::<Memory>::default(),
        clock,
        randomness: Arc::new(Dice::seeded(7)),
        metrics: Metrics::of_gateway(&plan).session(0),
    }
}

#[test]
fn a_session_that_answers_nothing_and_does_not_end_is_given_up() {
    simulated::run(async {
        let ensemble = Ensemble::start(Servers::default());
        let settings = settings(Arc::new(Simulated(Instant::now())));
        let latest = Latest::default();
        let library = Library { ensemble, latest: latest.clone() };
        let (view, mut seen) = watch::channel(View::Away("not yet".into()));
        let (current, stop) = (Rc::new(Current::default()), CancellationToken::new());
        spawn_local(supervise(library, Rc::new(settings), current, view, stop.clone()));
        let first = session(&mut seen).await;
        sleep(T * 3).await;
        assert_eq!(session(&mut seen).await, first, "a session that answers is kept");

        end_task(&latest);
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

#[test]
fn keys_of_a_session_that_was_given_up_are_served_under_the_next_one() {
    simulated::run(async {
        let ensemble = Ensemble::start(Servers::default());
        let clock: SharedClock = Arc::new(Simulated(Instant::now()));
        let (keeper, desks) = keeper(clock.clone(), 1);
        let (latest, stop) = (Latest::default(), CancellationToken::new());
        let library = Library { ensemble, latest: latest.clone() };
        let desk = desks.into_iter().next().expect("one session");
        let desk = spawn_local(desk.run(library, Rc::new(settings(clock)), stop.clone()));
        while !keeper.is_ready() {
            sleep(T / 10).await;
        }
        drop(acquire(&keeper, "kept/1", KEPT).await.expect("free"));
        let strict = acquire(&keeper, "strict/1", Hold::Strict).await.expect("free");

        end_task(&latest);
        drop(strict);
        let (kept, strict) =
            join!(acquire(&keeper, "kept/2", KEPT), acquire(&keeper, "strict/2", Hold::Strict));
        assert!(
            kept.is_ok() && strict.is_ok(),
            "asked for under the session that was gone: {kept:?}, {strict:?}"
        );
        let (kept, strict) =
            join!(acquire(&keeper, "kept/1", KEPT), acquire(&keeper, "strict/1", Hold::Strict));
        assert!(kept.is_ok() && strict.is_ok(), "held under it: {kept:?}, {strict:?}");
        drop((kept, strict));
        stop.cancel();
        timeout(T * 10, desk).await.expect("nothing of it goes on").expect("no panic");
    });
}

const KEPT: Hold = Hold::Cached(Caching {
    linger: Duration::from_millis(250),
    max_local: 64,
    max_hold: Duration::from_millis(100),
    max_tenure: Duration::from_secs(600),
});

async fn acquire(keeper: &Keeper, key: &str, hold: Hold) -> Result<Tenure, Refused> {
    let keys = [KeyTemplate::parse(key).expect("a literal").expand(&()).expect("short")];
    // Nobody may wait behind a request: what is left of one would refuse the next.
    let queue = if hold == Hold::Strict { 0 } else { 100 };
    let (mode, wait, waits) = (Mode::Exclusive, T * 10, Waits::Here);
    keeper.acquire(Wish { keys: &keys, mode, hold, wait, queue, waits, route: &"wedged".into() }).await
}
