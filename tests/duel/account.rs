//! The resource behind the locks: a service that reads a balance, works, writes the balance back, and keeps a book of
//! all executions.

use std::{
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use fencegate_policies::token::FencingToken;
use fencegate_testkit::wait::wait_until;
use http_body_util::Full;
use hyper::{
    HeaderMap, Request, Response, StatusCode, body::Incoming, server::conn::http1, service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpListener,
    sync::{Mutex as RowLock, watch},
    task::JoinHandle,
};

/// The duration of an execution.
const WORK: Duration = Duration::from_millis(5);
/// The duration of an execution whose sender is killed during it.
pub(crate) const LONG_WORK: Duration = Duration::from_millis(400);
/// The time that a client which will be frozen waits between its last check of its lock and its request.
const STAND: Duration = Duration::from_millis(600);

/// The header fields by which a lock holder names itself and the time of its grant. A gateway sends its token
/// instead.
const HOLDER: &str = "holder";
const HELD_SINCE: &str = "held-since";
const TOKEN: &str = "fencing-token";

/// Whether the service compares tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenCheck {
    /// The service executes every request, as most services do.
    Nothing,
    /// The service locks the row, compares the token, works and writes, all in one transaction.
    Tokens,
}

/// The record of all executions and refusals of one balance.
#[derive(Debug, Clone, Default)]
pub(crate) struct AccountHistory {
    pub(crate) balance: u64,
    /// In the order in which they began.
    pub(crate) executions: Vec<Execution>,
    /// The holder of each refused request, because a request of a newer holder had come before.
    pub(crate) refused: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Execution {
    pub(crate) holder: String,
    /// The order of grants: larger for a holder that was granted the lock later.
    pub(crate) since: u128,
    pub(crate) began: Instant,
    /// The time at which the balance was written; `None` while the execution runs.
    pub(crate) ended: Option<Instant>,
    pub(crate) work: Duration,
}

/// The service with the balance. It runs in this process, so that all times come from one clock. Dropping it closes
/// its listener.
pub(crate) struct AccountService {
    pub(crate) address: SocketAddr,
    shared: Arc<ServiceState>,
    open: JoinHandle<()>,
}

struct ServiceState {
    compares: TokenCheck,
    book: watch::Sender<AccountHistory>,
    /// The newest token. Its lock stands for the row lock of a database.
    row: RowLock<u128>,
    wishes: Mutex<NextRequestActions>,
}

/// The holders whose next request is answered with a pause or takes long.
#[derive(Debug, Default)]
struct NextRequestActions {
    stand: Option<String>,
    long_work: Vec<String>,
}

impl AccountService {
    pub(crate) async fn start(compares: TokenCheck) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(ServiceState {
            compares,
            book: watch::Sender::default(),
            row: RowLock::default(),
            wishes: Mutex::default(),
        });
        let served = shared.clone();
        let open = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = served.clone();
                let serve = service_fn(move |request| answer(shared.clone(), request));
                // An error of the connection is ignored: clients are frozen and killed on purpose.
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), serve));
            }
        });
        Ok(Self { address, shared, open })
    }

    /// Borrows the history. Do not keep the borrow over an await.
    pub(crate) fn history(&self) -> watch::Ref<'_, AccountHistory> {
        self.shared.book.borrow()
    }

    /// Waits until `find` finds something in the history.
    pub(crate) async fn wait_for<R>(&self, what: &str, find: impl Fn(&AccountHistory) -> Option<R>) -> R {
        let mut book = self.shared.book.subscribe();
        let found = async {
            loop {
                if let Some(found) = find(&book.borrow_and_update()) {
                    return found;
                }
                book.changed().await.expect("the account outlives its waiters");
            }
        };
        wait_until(what, found, || {
            self.history().executions.iter().rev().take(8).cloned().collect::<Vec<_>>()
        })
        .await
    }

    /// Waits until `count` further executions have begun.
    pub(crate) async fn wait_executions(&self, count: usize) {
        let before = self.history().executions.len();
        self.wait_for("further executions", |book| (book.executions.len() >= before + count).then_some(()))
            .await;
    }

    /// Makes the holder of this name wait between its last check of its lock and its request, the next time that it
    /// has the lock.
    pub(crate) fn pause_holder(&self, name: &str) {
        self.shared.pending_behavior().stand = Some(name.to_owned());
    }

    /// Makes the next execution of one of these holders take [`LONG_WORK`].
    pub(crate) fn delay_next_execution(&self, names: &[String]) {
        self.shared.pending_behavior().long_work = names.to_vec();
    }
}

impl Drop for AccountService {
    fn drop(&mut self) {
        self.open.abort();
    }
}

impl ServiceState {
    fn pending_behavior(&self) -> MutexGuard<'_, NextRequestActions> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes or refuses a request. The response body is the number of milliseconds that the client must wait
    /// before its request, the next time that it has the lock.
    async fn pay(&self, holder: String, since: u128) -> (StatusCode, String) {
        match self.compares {
            TokenCheck::Nothing => self.execute(&holder, since).await,
            TokenCheck::Tokens => {
                let mut newest = self.row.lock().await;
                if since <= *newest {
                    self.book.send_modify(|book| book.refused.push(holder));
                    return (StatusCode::PRECONDITION_FAILED, String::new());
                }
                *newest = since;
                self.execute(&holder, since).await;
            }
        }
        let stands = self.pending_behavior().stand.take_if(|name| *name == holder).is_some();
        let millis = if stands { STAND.as_millis() } else { 0 };
        (StatusCode::OK, millis.to_string())
    }

    async fn execute(&self, holder: &str, since: u128) {
        let long = {
            let mut wishes = self.pending_behavior();
            let long = wishes.long_work.iter().any(|name| name == holder);
            if long {
                wishes.long_work.clear();
            }
            long
        };
        let work = if long { LONG_WORK } else { WORK };
        let mut number = 0;
        let mut read = 0;
        self.book.send_modify(|book| {
            (number, read) = (book.executions.len(), book.balance);
            let began = Instant::now();
            book.executions.push(Execution { holder: holder.to_owned(), since, began, ended: None, work });
        });
        tokio::time::sleep(work).await;
        self.book.send_modify(|book| {
            book.balance = read + 1;
            book.executions[number].ended = Some(Instant::now());
        });
    }
}

async fn answer(
    shared: Arc<ServiceState>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let holder = text(HOLDER).to_owned();
    let since = token_order(request.headers());
    // Spawned, so that an execution which has begun ends even if its connection breaks.
    let executed = tokio::spawn(async move { shared.pay(holder, since).await });
    let (status, told) = executed.await.expect("no panic");
    let answer = Response::builder().status(status);
    let answer = if status.is_success() { answer } else { answer.header("Fencing-Refusal", "stale") };
    Ok(answer.body(Full::from(told)).expect("our own fields"))
}

/// The order of grants as one number: the three numbers of the token, or the time of the grant that a client states.
fn token_order(fields: &HeaderMap) -> u128 {
    let text = |name| fields.get(name).and_then(|value| value.to_str().ok());
    match text(TOKEN).and_then(|token| FencingToken::parse(token).ok()) {
        Some(token) => {
            u128::from(token.number()) << 64
                | u128::from(token.sequence()) << 32
                | u128::from(token.dispatch())
        }
        None => text(HELD_SINCE).and_then(|since| since.parse().ok()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use fencegate_tests::client::{ClientResponse, TestRequest};

    use super::*;

    async fn send_payment(account: &AccountService, holder: &str, epoch: u64) -> ClientResponse {
        let token = format!("v1-{epoch:016x}-00000000-00000001");
        let ask = TestRequest::post("/pay/7").field(HOLDER, holder).field(TOKEN, &token);
        ask.send_to(account.address).await.expect("answered")
    }

    #[tokio::test]
    async fn concurrent_writes_lose_update_without_comparison() {
        let account = AccountService::start(TokenCheck::Nothing).await.expect("a free port");
        tokio::join!(send_payment(&account, "a", 2), send_payment(&account, "b", 1));
        let book = account.history();
        assert_eq!((book.balance, book.executions.len()), (1, 2));
    }

    /// A service that compares tokens takes requests one after the other, and refuses an older token.
    #[tokio::test]
    async fn comparing_service_refuses_older_token() {
        let account = AccountService::start(TokenCheck::Tokens).await.expect("a free port");
        assert_eq!(send_payment(&account, "a", 2).await.status, 200);
        assert_eq!(send_payment(&account, "b", 1).await.status, 412);
        assert_eq!(send_payment(&account, "a", 3).await.status, 200);
        let book = account.history();
        assert_eq!((book.balance, book.refused.as_slice()), (2, &["b".to_owned()][..]));
    }

    /// A pause or long work requested for a holder applies to its next execution, and to no other.
    #[tokio::test]
    async fn pause_applies_to_next_execution() {
        let account = AccountService::start(TokenCheck::Nothing).await.expect("a free port");
        account.pause_holder("b");
        account.delay_next_execution(&["b".to_owned()]);
        let mut told = Vec::new();
        for holder in ["a", "b", "b"] {
            told.push(send_payment(&account, holder, 1).await.body);
        }
        assert_eq!(told, ["0", "600", "0"]);
        let works: Vec<_> = account.history().executions.iter().map(|execution| execution.work).collect();
        assert_eq!(works, [WORK, LONG_WORK, WORK]);
    }
}
