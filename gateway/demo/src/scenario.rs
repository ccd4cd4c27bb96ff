//! The story: calm, the accident, calm again, and the ledger's record of it all.

use fencegate_http_client::json_client::JsonClient;
use fencegate_testkit::child::Signal;
use tokio::time::{Instant, timeout};

use super::{
    audit::{AccountStatement, Balances, PaymentAudit, sample_tokens},
    clients::{PayingClients, Payment, PaymentOutcome, PaymentResult, pay, send_payment},
    cluster::DemoCluster,
    error::DemoError,
    late_write::{DemoTokenChecker, find_late_write},
    options::DemoFenceLevel,
    policy,
    report::{DemoReporter, DemoSummary},
};
use crate::status_queries::{
    SOON, count_lost_sessions, fetch_executions, get, wait_for_client_disconnect, wait_ready,
};

/// The account with the accident.
const VICTIM: &str = "alice";
const OTHERS: [&str; 3] = ["bob", "carol", "dave"];

pub(super) async fn play(
    cluster: &DemoCluster,
    level: DemoFenceLevel,
    tell: &DemoReporter,
) -> Result<DemoSummary, DemoError> {
    for gateway in &cluster.gateways {
        wait_ready(gateway.admin).await?;
    }
    if let Some(guard) = &cluster.guard {
        let quarantine = policy::QUARANTINE.as_secs();
        tell.print_step(&format!(
            "the guard is new: for {quarantine} s it lets nothing in (quarantine), for an older one could have sent something"
        ));
        wait_ready(guard.admin).await?;
    }
    let everyone = [&[VICTIM], &OTHERS[..]].concat();
    let over_both = PayingClients {
        gateways: &cluster.gateway_public_addresses(),
        accounts: &everyone,
        clients: 40,
        payments: 6,
    };

    tell.print_chapter("Calm");
    let mut receipts = over_both.pay().await;
    tell.report_payments(&receipts, "over both gateways, 40 at a time, on 4 accounts");

    tell.print_chapter("The accident");
    receipts.extend(play_accident(cluster, level, tell).await?);

    tell.print_chapter("Calm again");
    wait_ready(cluster.gateways[0].admin).await?;
    tell.print_step("gateway-1 has a new ZooKeeper session and grants locks again");
    let once_more = PayingClients { payments: 3, ..over_both }.pay().await;
    tell.report_payments(&once_more, "over both gateways");
    receipts.extend(once_more);

    tell.print_chapter("The audit: the ledger's own record against what the clients were told");
    examine_result(cluster, level, &receipts, &everyone).await
}

/// A gateway freezes while a payment is on its way. The client repeats the payment at the other gateway. Then the old
/// bytes arrive.
async fn play_accident(
    cluster: &DemoCluster,
    level: DemoFenceLevel,
    tell: &DemoReporter,
) -> Result<Vec<PaymentResult>, DemoError> {
    let [frozen, healthy] = &cluster.gateways;
    let mut ledger = JsonClient::new(cluster.ledger.address);
    let payment = Payment::new(VICTIM, -2_500);
    let operation = payment.operation.clone();

    let hold = cluster.relay.hold_containing(operation.as_str());
    let mut first_client = JsonClient::new(frozen.public);
    let first = payment.clone();
    let mut first = Some(tokio::spawn(async move {
        PaymentOutcome::from_response(send_payment(&mut first_client, &first).await)
    }));
    timeout(SOON, hold.wait_captured()).await.map_err(|_| DemoError::Late("the dispatch of the payment"))?;
    let locked = match level {
        DemoFenceLevel::Unfenced => "takes no lock",
        DemoFenceLevel::None | DemoFenceLevel::Guard | DemoFenceLevel::Upstream => {
            "has the lock of account/alice"
        }
    };
    tell.print_step(&format!("gateway-1 {locked} and sends debit {operation} of 25.00 of {VICTIM}"));
    tell.print_step("the network is slow: the bytes have left gateway-1 and have not reached the ledger");

    if cluster.guard.is_some() {
        // A gateway sends a refused request again for a client that still waits. So the client hangs up first,
        // and sends the request to the other gateway.
        first.take().expect("not hung up yet").abort();
        wait_for_client_disconnect(frozen.admin).await?;
        tell.print_step("the client has waited long enough, and hangs up");
    }
    frozen.process.signal(Signal::STOP)?;
    let stopped = Instant::now();
    let session = policy::SESSION.as_secs();
    tell.print_step(&format!("gateway-1 freezes (SIGSTOP); its ZooKeeper session lasts {session} s"));

    tell.print_step(match level {
        DemoFenceLevel::Unfenced => "the client sends the same debit through gateway-2",
        DemoFenceLevel::None | DemoFenceLevel::Guard | DemoFenceLevel::Upstream => {
            "the client sends the same debit through gateway-2, which waits for the lock"
        }
    });
    let elsewhere =
        PayingClients { gateways: &[healthy.public], accounts: &OTHERS, clients: 8, payments: 10 };
    let mut second_client = JsonClient::new(healthy.public);
    let (receipt, mut receipts) = tokio::join!(
        async {
            let receipt = pay(&mut second_client, payment).await;
            tell.report_takeover(level, &receipt, stopped.elapsed());
            receipt
        },
        elsewhere.pay()
    );
    tell.report_payments(&receipts, "meanwhile on the other accounts, through gateway-2");
    receipts.push(receipt);

    hold.release();
    let mut guard = cluster.guard.as_ref().map(|guard| JsonClient::new(guard.admin));
    let judge = match &mut guard {
        Some(guard) => DemoTokenChecker::Guard { guard, account: VICTIM },
        None => DemoTokenChecker::Ledger,
    };
    let late = find_late_write(judge, &mut ledger, &operation).await?;
    tell.report_late_write(level, &late);
    frozen.process.signal(Signal::CONT)?;
    match first {
        Some(first) => {
            let result = timeout(SOON, first).await;
            let result = result.map_err(|_| DemoError::Late("the answer of the woken gateway"))?;
            tell.report_wakeup(&result.expect("the attempt neither panics nor is cancelled"));
        }
        None => tell.print_step("gateway-1 wakes up, and learns that the lock is no longer its own"),
    }
    Ok(receipts)
}

async fn examine_result(
    cluster: &DemoCluster,
    level: DemoFenceLevel,
    receipts: &[PaymentResult],
    accounts: &[&str],
) -> Result<DemoSummary, DemoError> {
    let mut ledger = JsonClient::new(cluster.ledger.address);
    let executions = fetch_executions(&mut ledger).await?;
    let mut balances = Balances::new();
    for account in accounts {
        let account_state = get(&mut ledger, &format!("/v1/accounts/{account}")).await?;
        balances.insert((*account).to_owned(), account_state["balance"].as_i64().unwrap_or_default());
    }
    let refusals = match &cluster.guard {
        Some(guard) => get(&mut JsonClient::new(guard.admin), "/api/v1/refusals").await?,
        None => get(&mut ledger, "/v1/refusals").await?,
    };
    Ok(DemoSummary {
        level,
        findings: PaymentAudit::new(&executions, receipts, &balances),
        accounts: AccountStatement::for_all_accounts(&executions, receipts, &balances),
        sessions_lost: count_lost_sessions(cluster).await?,
        stale_refused: refusals["stale"].as_u64().unwrap_or_default(),
        tokens: sample_tokens(&executions, &format!("account/{VICTIM}")),
        zookeeper: cluster.version.clone(),
    })
}
