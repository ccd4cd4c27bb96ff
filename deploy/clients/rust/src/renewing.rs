//! Looks after one lease in the background: asks for it, renews it, and gives it back.

use std::{cmp, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use tokio::{sync::oneshot, time::timeout};

use crate::{
    gateway_line::{Answer, Gateway, Line, Question, Unanswered},
    held_lease::{Lease, Releasing, Told},
    lease_clock::{Moment, SharedLeaseClock},
    not_leased::{NotLeased, NotReleased},
    standing_word::{Lost, Proven, StandingWord},
    told_lease::{AskedLease, ToldLease},
};

/// What somebody wants, of whom.
pub(crate) struct Applied {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) clock: SharedLeaseClock,
    pub(crate) asked: AskedLease,
    pub(crate) notice: Option<Duration>,
}

/// Whoever renews a lease.
struct Renewing {
    line: Line,
    clock: SharedLeaseClock,
    told: Told,
    notice: Option<Duration>,
    /// A third of what the gateway promised last.
    third: Duration,
    next: Moment,
}

/// What an answer says of the time.
struct Promise {
    proven: Proven,
    third: Duration,
}

/// Beside what a lease may wait for: for the gateway, and the ways.
const ANSWER: Duration = Duration::from_secs(5);
/// Nobody asks more often, however little is promised.
const SELDOM: Duration = Duration::from_millis(20);

/// From the question to the end. Whoever has the lease tells what becomes of it.
pub(crate) async fn lease(applied: Applied, mut told: oneshot::Sender<Result<Lease, NotLeased>>) {
    let mut line = Line::to(applied.gateway.clone());
    let granted = tokio::select! {
        // First: what was granted is not forgotten because nobody waits for it any more.
        biased;
        granted = applied.granted(&mut line) => granted,
        // The connection closes, and the gateway gives up the place in the line.
        () = told.closed() => return,
    };
    let begun = match granted {
        Ok((document, asked)) => applied.begin(line, document, asked).await,
        Err(not_leased) => Err(not_leased),
    };
    match begun {
        Ok((renewing, word)) => {
            let (back, wish) = oneshot::channel();
            let lease = Lease { word: word.clone(), told: renewing.told.clone(), back: Some(back) };
            // Where nobody waits for it, it is dropped here, which is a wish to give it back.
            drop(told.send(Ok(lease)));
            renewing.until_the_end(&word, wish).await;
        }
        Err(not_leased) => drop(told.send(Err(not_leased))),
    }
}

impl Applied {
    /// The lease as the gateway tells of it, and when it was asked for.
    async fn granted(&self, line: &mut Line) -> Result<(ToldLease, Moment), NotLeased> {
        let asked = self.clock.now();
        let body = serde_json::to_vec(&self.asked).expect("plain fields serialise").into();
        let question = Question { method: Method::POST, path: String::new(), lease: None, body };
        let longest = Duration::from_millis(self.asked.wait_ms).saturating_add(ANSWER);
        let answer = timeout(longest, line.ask(&question)).await;
        let answer = answer.unwrap_or_else(|late| Err(late.into())).map_err(NotLeased::Unanswered)?;
        match answer.status {
            StatusCode::CREATED => {
                answer.read().map(|document| (document, asked)).map_err(NotLeased::Unanswered)
            }
            StatusCode::LOCKED => Err(NotLeased::Locked { keys: self.asked.keys.clone() }),
            status => {
                let problem = answer.problem();
                let (status, reason) = (status.as_u16(), problem.reason);
                let detail = problem.detail.unwrap_or(problem.title);
                Err(NotLeased::Refused { status, reason, detail, retry_after: answer.retry_after })
            }
        }
    }

    /// The promised time counts from the question, and that one may have waited: then another one is asked first.
    async fn begin(
        self,
        line: Line,
        document: ToldLease,
        asked: Moment,
    ) -> Result<(Renewing, Arc<StandingWord>), NotLeased> {
        let Self { clock, notice, .. } = self;
        let mut promise = Promise::of(&document, asked, notice);
        let unreadable = || NotLeased::Unanswered("the gateway tells no id or no token of the lease".into());
        let told = Told::of(document).ok_or_else(unreadable)?;
        let mut renewing =
            Renewing { line, clock: clock.clone(), told, notice, third: promise.third, next: asked };
        if clock.now().until(promise.proven.until) <= promise.third {
            match renewing.asked_once(clock.now().after(ANSWER)).await {
                Ok(next) => promise = next,
                Err(Failed::Over) => return Err(NotLeased::TooLate(Lost::Over)),
                Err(Failed::Untold) => return Err(renewing.too_late().await),
            }
        }
        if clock.now() >= promise.proven.until {
            return Err(renewing.too_late().await);
        }
        (renewing.third, renewing.next) = (promise.third, clock.now().after(promise.third));
        Ok((renewing, Arc::new(StandingWord::of(promise.proven, clock))))
    }
}

/// Why a renewal proves nothing.
enum Failed {
    /// The lease is over.
    Over,
    /// Nobody has answered, or without an answer to the question.
    Untold,
}

impl Renewing {
    async fn until_the_end(mut self, word: &StandingWord, mut wish: oneshot::Receiver<Releasing>) {
        let wish = tokio::select! {
            biased;
            wish = &mut wish => wish,
            lost = self.renews(word) => {
                word.ends(lost);
                // Whoever worked under it may need the time of the notice to stop, and says when it is done with it. Nobody
                // renews it until then.
                wish.await
            }
        };
        word.ends(Lost::Released);
        let given_back = self.gives_back().await;
        if let Ok(releasing) = wish {
            // Nobody waits for the answer any more, perhaps.
            releasing.send(given_back).ok();
        }
    }

    /// For as long as the lease is held.
    async fn renews(&mut self, word: &StandingWord) -> Lost {
        loop {
            self.clock.reaches(cmp::min(self.next, word.until())).await;
            if let Err(lost) = word.remaining() {
                return lost;
            }
            let asked = self.clock.now();
            // No answer within a third: another connection may have one, and there is time for that.
            let limit = cmp::min(asked.after(self.third), word.until());
            let pause = match self.asked_once(limit).await {
                Ok(Promise { proven, third }) => {
                    if let Err(lost) = word.is_proven(proven) {
                        return lost;
                    }
                    self.third = third;
                    third
                }
                Err(Failed::Over) => return Lost::Over,
                Err(Failed::Untold) => self.third / 4,
            };
            self.next = self.clock.now().after(pause.max(SELDOM));
        }
    }

    /// Renews it; no later answer than at `limit` is waited for.
    async fn asked_once(&mut self, limit: Moment) -> Result<Promise, Failed> {
        let asked = self.clock.now();
        let path = format!("/{}/renew", self.told.reference);
        let id = self.told.id.clone();
        let question = Question { method: Method::POST, path, lease: Some(&id), body: Bytes::new() };
        let answer = tokio::select! {
            biased;
            answer = self.line.ask(&question) => answer.map_err(|_| Failed::Untold)?,
            () = self.clock.reaches(limit) => return Err(Failed::Untold),
        };
        match answer.status {
            StatusCode::OK => {
                let document: ToldLease = answer.read().map_err(|_| Failed::Untold)?;
                if document.is_held() {
                    Ok(Promise::of(&document, asked, self.notice))
                } else {
                    Err(Failed::Over)
                }
            }
            StatusCode::PRECONDITION_FAILED => Err(Failed::Over),
            // A gateway that starts, or a balancer: another one may know.
            _ => Err(Failed::Untold),
        }
    }

    async fn gives_back(&mut self) -> Result<(), NotReleased> {
        let path = format!("/{}", self.told.reference);
        let id = self.told.id.clone();
        let question = Question { method: Method::DELETE, path, lease: Some(&id), body: Bytes::new() };
        let answer = timeout(ANSWER, self.line.ask(&question)).await;
        let answer: Result<Answer, Unanswered> = answer.unwrap_or_else(|late| Err(late.into()));
        let answer = answer.map_err(NotReleased::Unanswered)?;
        if answer.status.is_success() {
            return Ok(());
        }
        Err(NotReleased::Refused { status: answer.status.as_u16(), reason: answer.problem().reason })
    }

    /// Nobody has used it.
    async fn too_late(&mut self) -> NotLeased {
        drop(self.gives_back().await);
        NotLeased::TooLate(Lost::Unproven)
    }
}

impl Told {
    fn of(document: ToldLease) -> Option<Self> {
        let mut id = HeaderValue::from_str(&document.lease?).ok()?;
        id.set_sensitive(true);
        let (reference, token) = (document.reference.into(), document.token?.into());
        Some(Self { reference, id, token, number: document.number?, permit: document.permit })
    }
}

impl Promise {
    /// `asked`: before the question was sent.
    fn of(document: &ToldLease, asked: Moment, notice: Option<Duration>) -> Self {
        let held_for = Duration::from_millis(document.held_for_ms.unwrap_or_default());
        let notice = notice.unwrap_or(held_for / 10).min(held_for / 2);
        let [revocation, ticket] =
            [&document.revocation, &document.ticket].map(|text| text.as_deref().map(Arc::from));
        let until = asked.after(held_for - notice);
        Self { proven: Proven { until, revocation, ticket }, third: held_for / 3 }
    }
}

#[cfg(test)]
mod tests;
