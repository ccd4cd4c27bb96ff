//! One connection of the recording upstream: it reads a request, records it, and carries out its action.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    io::AsyncWriteExt,
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::sleep,
};

use super::{
    ATTEMPT, AccountEffect, AccountFault, OriginAction, OriginReply, ReceivedBytes, RequestRecord,
    ScriptedResponse, WORK,
    accounts::{Accounts, StaleTokenError},
    state::OriginState,
};
use crate::wire::{HttpWireMessage, MessageReader, MissingLengthMeaning};

/// Serves one connection until the client or the origin ends it.
pub(super) async fn serve_connection(
    shared: Arc<OriginState>,
    gateway: String,
    connection: usize,
    stream: TcpStream,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (input, output) = stream.into_split();
    let tap = {
        let shared = Arc::clone(&shared);
        let gateway = gateway.clone();
        move |bytes: &[u8]| {
            let piece = ReceivedBytes {
                gateway: gateway.clone(),
                connection,
                at: Instant::now(),
                bytes: bytes.to_vec(),
            };
            shared.log.send_modify(|log| log.pieces.push(piece));
        }
    };
    let mut talk = OriginConnection { shared, reader: MessageReader::new(input, tap), output, number: 0 };
    while talk.reader.wait_first_byte().await? {
        let arrived = Instant::now();
        let request = talk.reader.read_head().await?;
        let record = RequestRecord {
            gateway: gateway.clone(),
            connection,
            request: request.clone(),
            arrived,
            whole: None,
            ended: None,
            abandoned: None,
            effect: None,
            stale: false,
        };
        talk.number = talk.shared.open(record);
        if !talk.exchange(request).await? {
            break;
        }
    }
    Ok(())
}

struct OriginConnection {
    shared: Arc<OriginState>,
    reader: MessageReader<OwnedReadHalf>,
    output: OwnedWriteHalf,
    /// The index of the current request's record in the log.
    number: usize,
}

impl OriginConnection {
    /// Carries out the action of one request. Returns false if the connection is over.
    async fn exchange(&mut self, mut request: HttpWireMessage) -> io::Result<bool> {
        let path = request.word(1).to_owned();
        if let Some(response) = self.shared.next_response() {
            return self.respond(request, &response).await;
        }
        match self.shared.early_act(&path) {
            Some(OriginAction::ReadLater(latch)) => latch.wait_released().await,
            Some(OriginAction::ReadSlowly(pause)) => self.reader.set_read_pause(pause),
            Some(OriginAction::AnswerUnread(latch, reply)) => {
                self.answer(&reply).await?;
                latch.wait_released().await;
            }
            Some(OriginAction::BreakUnread(words)) => {
                self.close(words.as_bytes()).await?;
                self.output.shutdown().await?;
                self.reader.wait_end().await;
                return Ok(false);
            }
            Some(OriginAction::BeginUnread(words, latch)) => {
                self.output.write_all(words.as_bytes()).await?;
                latch.wait_released().await;
                return Ok(false);
            }
            _ => {}
        }
        self.reader.read_body(&mut request, MissingLengthMeaning::Empty).await?;
        self.edit_record(|record| {
            record.request = request;
            record.whole = Some(Instant::now());
        });
        let shared = Arc::clone(&self.shared);
        if let Some(accounts) = &shared.accounts
            && self.record().key().is_some()
        {
            return self.add_to_accounts(accounts).await;
        }
        if !self.shared.admit(self.number) {
            self.refuse().await?;
            return Ok(true);
        }
        match self.shared.next_act(&path) {
            OriginAction::Answer(work, reply) => {
                self.work(sleep(work)).await;
                self.answer(&reply).await?;
            }
            OriginAction::AnswerAndClose(reply) => {
                self.answer(&reply).await?;
                return Ok(false);
            }
            OriginAction::Hold(latch, reply) => {
                self.work(latch.wait_released()).await;
                self.answer(&reply).await?;
            }
            OriginAction::HoldInBody(latch, reply) => {
                let rest = reply.rest();
                let (first, second) = rest.split_at(rest.len() / 2);
                self.output.write_all(&[&reply.head(), first].concat()).await?;
                self.work(latch.wait_released()).await;
                self.finish(second).await?;
            }
            OriginAction::Reset => return self.reset(),
            OriginAction::ReadLater(_)
            | OriginAction::ReadSlowly(_)
            | OriginAction::AnswerUnread(..)
            | OriginAction::BreakUnread(_)
            | OriginAction::BeginUnread(..) => {
                unreachable!("played before the body")
            }
            OriginAction::CloseInHead => return self.close(b"HTTP/1.1 200 Scr").await,
            OriginAction::CloseInBody(reply) => {
                let rest = reply.rest();
                return self.close(&[&reply.head(), &rest[..rest.len() / 2]].concat()).await;
            }
        }
        Ok(true)
    }

    /// Sends an answer given byte for byte. Returns false if the connection is over.
    async fn respond(
        &mut self,
        mut request: HttpWireMessage,
        response: &ScriptedResponse,
    ) -> io::Result<bool> {
        let bytes = response.bytes_for(request.word(0));
        if response.early {
            self.output.write_all(&bytes).await?;
        }
        self.reader.read_body(&mut request, MissingLengthMeaning::Empty).await?;
        self.edit_record(|record| {
            record.request = request;
            record.whole = Some(Instant::now());
        });
        if !response.early {
            self.finish(&bytes).await?;
        }
        Ok(!response.closes)
    }

    /// Adds one to the accounts that the request names. Returns false if the connection is over.
    async fn add_to_accounts(&mut self, accounts: &Accounts) -> io::Result<bool> {
        let record = self.record();
        let mishap = accounts.next_fault();
        if mishap == Some(AccountFault::ResetBefore) {
            return self.reset();
        }
        let booking = match accounts.begin(&record).await {
            Ok(booking) => booking,
            Err(StaleTokenError) => {
                self.edit_record(|record| record.stale = true);
                self.refuse().await?;
                return Ok(true);
            }
        };
        let began = Instant::now();
        self.edit_record(|record| record.effect = Some(AccountEffect { began, ended: None }));
        let asked = record.request.field(WORK).and_then(|text| text.parse().ok()).unwrap_or_default();
        let longer = if let Some(AccountFault::Hangs(longer)) = mishap { longer } else { Duration::ZERO };
        self.work(sleep(Duration::from_millis(asked) + longer)).await;
        let shared = Arc::clone(&self.shared);
        let number = self.number;
        let written = move || {
            let effect = AccountEffect { began, ended: Some(Instant::now()) };
            shared.log.send_modify(|log| log.records[number].effect = Some(effect));
        };
        booking.end(written).await;
        let reply = OriginReply::with_body(record.request.field(ATTEMPT).unwrap_or("ok"));
        match mishap {
            Some(AccountFault::ResetAfter) => self.reset(),
            Some(AccountFault::InHead) => self.close(b"HTTP/1.1 200 Scr").await,
            Some(AccountFault::InBody) => {
                let rest = reply.rest();
                self.close(&[&reply.head(), &rest[..rest.len() / 2]].concat()).await
            }
            _ => self.answer(&reply).await.map(|()| true),
        }
    }

    async fn refuse(&mut self) -> io::Result<()> {
        self.answer(&OriginReply::with_body("stale").status(412).field("Fencing-Refusal", "stale")).await
    }

    fn record(&self) -> RequestRecord {
        self.shared.log.borrow().records[self.number].clone()
    }

    /// Works to the end even if the gateway closes the connection, because an execution cannot be called back.
    async fn work(&mut self, work: impl Future<Output = ()>) {
        let mut work = std::pin::pin!(work);
        tokio::select! {
            biased;
            () = &mut work => return,
            () = self.reader.wait_end() => {}
        }
        self.edit_record(|record| record.abandoned = Some(Instant::now()));
        work.await;
    }

    async fn answer(&mut self, reply: &OriginReply) -> io::Result<()> {
        self.finish(&[reply.head(), reply.rest()].concat()).await
    }

    async fn finish(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (most, last) = bytes.split_at(bytes.len().saturating_sub(1));
        let sent = self.output.write_all(most).await;
        self.record_end();
        sent?;
        self.output.write_all(last).await
    }

    async fn close(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let sent = self.output.write_all(bytes).await;
        self.record_end();
        sent.and(Ok(false))
    }

    fn reset(&mut self) -> io::Result<bool> {
        self.record_end();
        self.output.as_ref().set_zero_linger()?;
        Ok(false)
    }

    fn record_end(&self) {
        self.edit_record(|record| record.ended = Some(Instant::now()));
    }

    fn edit_record(&self, change: impl FnOnce(&mut RequestRecord)) {
        self.shared.log.send_modify(|log| change(&mut log.records[self.number]));
    }
}
