//! No two executions of a key overlap and none is stale under load, with gateways that retry, hang up and overtake each
//! other, and with guards that are killed.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use fencegate_tests::{
    client::{ClientResponse, FencingOutcome},
    guard::{Guard, GuardFixture, StampedRequest},
    history::{ATTEMPT, Execution, History},
};

/// Sends tenures of three keys from many clients at once: some late, some twice, some hung up on.
async fn send_storm(guard: &Guard, epochs: &AtomicU64, rounds: u64) -> Vec<(String, Option<ClientResponse>)> {
    let mut answers = Vec::new();
    for _ in 0..rounds {
        let mut pending = Vec::new();
        for n in 0..16 {
            let epoch = epochs.fetch_add(1, Ordering::Relaxed);
            // One request in four has a token of an earlier tenure.
            let epoch = if n % 4 == 3 { epoch - 20 } else { epoch };
            let key = ["a", "b", "a, b", "c"][(epoch % 4) as usize];
            let dispatch = StampedRequest::new(key, epoch).with_dispatch(u32::try_from(n).expect("small"));
            let dispatch = if n % 5 == 0 { dispatch.shared() } else { dispatch };
            for twin in 0..=u64::from(n % 7 == 0) {
                let id = format!("{epoch}-{n}-{twin}");
                let request = guard.begin(dispatch.post("/x").field(ATTEMPT, &id));
                if n % 6 == 5 {
                    tokio::time::sleep(Duration::from_micros(epoch % 10 * 200)).await;
                    request.hang_up();
                } else {
                    pending.push((id, request));
                }
            }
        }
        for (id, request) in pending {
            answers.push((id, request.result().await.ok()));
        }
    }
    answers
}

/// Splits each execution of a set of keys into one execution for each key.
fn per_key(history: History) -> History {
    let executions = history.executions.into_iter().flat_map(|execution| {
        let keys: Vec<String> = execution.key.split(", ").map(str::to_owned).collect();
        // Only the first of them keeps the attempt, so that the attempt is counted once.
        keys.into_iter().enumerate().map(move |(n, key)| {
            let attempt = execution.attempt.clone().filter(|_| n == 0);
            Execution { key, attempt, ..execution.clone() }
        })
    });
    History { executions: executions.collect(), ..history }
}

/// Under load no two executions of a key overlap, and none is stale.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn executions_never_overlap_under_load() {
    let fixture = GuardFixture::new().await;
    fixture.origin.set_work_time(Duration::from_millis(2));
    let guard = fixture.launch().await.with("/settle", "3s").start().await;
    let epochs = AtomicU64::new(100);
    let answers = send_storm(&guard, &epochs, 25).await;
    let mut history = History::from_log(&fixture.origin.log());
    for (id, answer) in &answers {
        history.record_answer(id, answer.as_ref());
    }
    let history = per_key(history);
    history.assert_holds();
    let count = |outcome| {
        answers
            .iter()
            .filter(|(_, answer)| answer.as_ref().and_then(ClientResponse::outcome) == Some(outcome))
            .count()
    };
    let done = count(FencingOutcome::Done);
    let refused = count(FencingOutcome::NotDispatched);
    assert!(done > 50 && refused > 50, "not exercised: {done} done, {refused} refused");
    guard.wait_gauge("fencegate_guard_in_flight", 0.0).await;
    guard.wait_gauge("fencegate_guard_in_doubt", 0.0).await;
}

/// Guards that are killed under load let no two executions of a key overlap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_guards_under_load_keep_exclusion() {
    let fixture = GuardFixture::new().await;
    fixture.origin.set_work_time(Duration::from_millis(5));
    let launch = fixture.launch().await.with("/settle", "300ms").with("/max_execution", "500ms");
    let mut launch = launch.with("/send_within", "200ms").with("/upstream/response_timeout", "300ms");
    let epochs = AtomicU64::new(100);
    let mut all = Vec::new();
    for round in 0..3 {
        let guard = launch.start().await;
        guard.wait_ready().await;
        let so_far = fixture.origin.log().records.len();
        let (answers, ()) = tokio::join!(send_storm(&guard, &epochs, 6), async {
            let enough =
                |log: &fencegate_tests::origin::OriginLog| log.records.get(so_far + 10 + round).map(drop);
            fixture.origin.wait_for("some executions", enough).await;
            guard.signal(fencegate_testkit::child::Signal::KILL);
        });
        all.extend(answers);
        launch = guard.kill().await;
    }
    let mut history = History::from_log(&fixture.origin.log());
    for (id, answer) in &all {
        history.record_answer(id, answer.as_ref());
    }
    per_key(history).assert_holds();
    assert!(all.iter().any(|(_, answer)| answer.is_none()), "not exercised: nobody lost an answer");
}
