//! The first sentence of the page: the holder of the key, its request, its age, and the next waiter.

use fencegate_lock::manager::admin_query::LockQueueEntry;
use fencegate_metrics::request_tracker::ActiveRequest;
use hyper::header::HeaderValue;

use super::{key_facts::KeyFacts, waiters::node_age};
use crate::{models, page::layout::format_millis};

/// The holder and the waiters, as far as this gateway and ZooKeeper know.
pub(super) struct KeySummary<'a> {
    facts: &'a KeyFacts,
    gateway: &'a str,
    /// The id of the request that the reader asks about; empty for none.
    request: &'a str,
}

impl<'a> KeySummary<'a> {
    pub(super) fn new(known: &'a KeyFacts, gateway: &'a str, request: &'a str) -> Self {
        Self { facts: known, gateway, request }
    }

    /// One sentence that explains the state of the key.
    pub(super) fn headline(&self) -> String {
        let key = &self.facts.display_name;
        let behind = self.describe_waiters();
        match self.describe_holder() {
            Some(holder) => format!("The key {key} is held by {holder}; {behind}."),
            None => format!("{} {}.", self.describe_no_holder(), capitalize(&behind)),
        }
    }

    /// The state of the request that the reader asks about.
    pub(super) fn describe_queried_request(&self) -> Option<String> {
        if self.request.is_empty() {
            return None;
        }
        let request_id = self.request;
        let ours = |one: &&ActiveRequest| is_request(one.request.as_ref(), request_id);
        if let Some(staying) = self.facts.active.iter().find(ours) {
            return Some(match staying.works {
                Some(works) => {
                    format!(
                        "Your request {request_id} has the key, since {}.",
                        format_millis(models::millis(works.elapsed()))
                    )
                }
                None => {
                    let came = format_millis(models::millis(staying.came.elapsed()));
                    format!("Your request {request_id} waits here since {came}.")
                }
            });
        }
        if let Some(over) =
            self.facts.finished.iter().find(|one| is_request(one.request.as_ref(), request_id))
        {
            let status = over.status;
            let outcome = over.outcome.as_str();
            return Some(format!(
                "Your request {request_id} is over: it was answered with {status}, outcome {outcome}."
            ));
        }
        Some(format!(
            "Of request {request_id} nothing is known at {} for this key: it may have come in at another gateway, or be over for long.",
            self.gateway
        ))
    }

    fn describe_holder(&self) -> Option<String> {
        self.describe_lease().or_else(|| self.describe_holding_requests()).or_else(|| self.describe_node())
    }

    /// The text about a lease of this gateway that holds the key.
    fn describe_lease(&self) -> Option<String> {
        let lease = self.facts.leases.iter().find(|lease| lease.token.is_some())?;
        let principal = &lease.principal;
        let age = format_millis(lease.held_ms.unwrap_or_default());
        Some(format!("{} for the client {principal}, as lease {} since {age}", self.gateway, lease.reference))
    }

    /// The text about requests of this gateway that hold the key.
    fn describe_holding_requests(&self) -> Option<String> {
        let held = self.facts.local.as_ref()?.held.first()?;
        let since = format_millis(models::millis(held.since));
        let route = held.route.as_deref().unwrap_or("an earlier plan");
        let gateway = self.gateway;
        let working: Vec<&ActiveRequest> =
            self.facts.active.iter().filter(|staying| staying.works.is_some()).collect();
        Some(match (held.in_flight, &*working) {
            (0, _) => format!("{gateway} with nothing at work, since {since}"),
            (1, [one]) if one.request.is_some() => {
                let works = one.works.map_or(since, |works| format_millis(models::millis(works.elapsed())));
                format!("{gateway} for request {} of route {route} since {works}", request_name(one))
            }
            (1, _) => format!("{gateway} for one request of route {route} since {since}"),
            (many, _) => format!("{gateway} for {many} requests of route {route} since {since}"),
        })
    }

    /// The text about a node in ZooKeeper that holds the key for another process.
    fn describe_node(&self) -> Option<String> {
        let mut held = self.facts.line.as_deref().unwrap_or_default().iter().filter(|node| node.holds);
        let first = held.next()?;
        let others = match held.count() {
            0 => String::new(),
            more => format!(" and {} more", number_word(more)),
        };
        let most = node_age(first).map(|age| format!(" since {age} at most")).unwrap_or_default();
        Some(format!("{}{others}{most}", first.owner_name()))
    }

    /// The sentence that explains why the key has no holder.
    fn describe_no_holder(&self) -> String {
        let key = &self.facts.display_name;
        if let Some(rest) = self.facts.local.as_ref().and_then(|lock| lock.rest) {
            let rest = format_millis(models::millis(rest));
            return format!(
                "Nobody holds the key {key}: its last holder left without a word, and for {rest} yet what it sent may be at work."
            );
        }
        match &self.facts.line {
            Err(error) => format!("Nobody can say who holds the key {key}: {error}."),
            Ok(line) => match line.first() {
                Some(next) => {
                    format!("Nobody holds the key {key} at this moment: {} is next.", next.owner_name())
                }
                None => format!("Nobody holds the key {key}."),
            },
        }
    }

    /// The text about the waiters: those before the request that the reader asks about, or all of them.
    fn describe_waiters(&self) -> String {
        let waiting: Vec<&ActiveRequest> =
            self.facts.active.iter().filter(|staying| staying.works.is_none()).collect();
        let place = waiting.iter().position(|staying| is_request(staying.request.as_ref(), self.request));
        let place = place.filter(|_| !self.request.is_empty());
        let here = place.unwrap_or_else(|| self.facts.local.as_ref().map_or(0, |lock| lock.waiting));
        let line = self.facts.line.as_deref().unwrap_or_default();
        let others = line.iter().filter(|node| !node.holds);
        let of_others = |node: &&LockQueueEntry| node.gateway.as_deref() != Some(self.gateway);
        let nodes = match place {
            Some(_) => others.take_while(of_others).count(),
            None => others.filter(of_others).count(),
        };
        let requests = match here {
            0 => "no request".to_owned(),
            1 => "one request".to_owned(),
            many => format!("{} requests", number_word(many)),
        };
        let nodes = match nodes {
            0 => String::new(),
            1 => " and one node of another gateway".to_owned(),
            many => format!(" and {} nodes of other gateways", number_word(many)),
        };
        let verb = if here + usize::from(!nodes.is_empty()) > 1 { "wait" } else { "waits" };
        let whose = if place.is_some() { " before yours" } else { "" };
        format!("{requests}{nodes} {verb}{whose}")
    }
}

/// The id of a request, which its client can quote.
fn request_name(staying: &ActiveRequest) -> &str {
    staying.request.as_ref().and_then(|name| name.to_str().ok()).unwrap_or("without a name")
}

fn is_request(request: Option<&HeaderValue>, request_id: &str) -> bool {
    request.is_some_and(|request| request.as_bytes() == request_id.as_bytes())
}

/// The number as a word.
fn number_word(count: usize) -> String {
    const WORDS: [&str; 11] =
        ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
    WORDS.get(count).map_or_else(|| count.to_string(), |word| (*word).to_owned())
}

fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
