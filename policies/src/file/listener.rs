//! Reads the public listener, with its limits and timeouts.

use std::time::Duration;

use ipnet::IpNet;

use super::{bind::bind, cors::cors, diagnostics::Diagnostics, mapping::MappingReader, scalar, served_tls};
use crate::{
    diagnostics::{Diagnostic, DiagnosticCode, SourceSpan},
    host::{HostMatcher, HostPattern},
    plan::{
        ListenerLimits, ListenerProtocols, ListenerSettings, ListenerTimeouts, ListenerTls,
        ProxyProtocolMode, Upstream, buffer_limits,
    },
    trusted_proxies::{self, TrustedProxies},
};

/// A listener, with the places of the fields that later checks report.
pub(super) struct ParsedListener {
    pub(super) listener: ListenerSettings,
    /// The place of `limits.buffered`, which may be that of `limits`.
    memory: SourceSpan,
    /// The place of `timeouts.drain`; `None` if the field is absent.
    drain: Option<SourceSpan>,
}

/// Reads the only entry of `listeners`.
pub(super) fn listener(policy: &mut MappingReader) -> Option<ParsedListener> {
    policy.require("listeners", "listeners: {public: {address: 0.0.0.0:8080}}");
    let faults = policy.faults();
    let entries = policy.entries("listeners");
    let mut listeners = entries.iter().map(|(key, node)| {
        let name = scalar::name(&key.text).map_err(|fault| faults.push(fault.at(key.place))).ok();
        let what = format!("listener `{}`", key.text);
        MappingReader::read(Some(node), what, key.place, faults, |block| {
            let cors = cors(block);
            let tls = served_tls::tls_with_client_names;
            let mut parsed = parse_listener(block, name, TrustedProxies::default(), tls)?;
            parsed.listener.cors = cors;
            Some(parsed)
        })?
    });
    let first = listeners.next().flatten();
    // The other listeners are read as well, so that one run reports all mistakes.
    let more = listeners.count();
    if more > 0 || entries.is_empty() && policy.is_mapping("listeners") {
        let message = format!("there are {} listeners, where one is needed", entries.len());
        let fault = Diagnostic::new(DiagnosticCode::Listeners, message);
        policy.report(
            "listeners",
            match more {
                0 => fault.with_remedy("add one: `public: {address: 0.0.0.0:8080}`"),
                _ => fault.with_remedy(
                    "keep one; for a second port, such as 80 beside 443, run a second gateway or a balancer in front",
                ),
            },
        );
    }
    first
}

/// Reads the listener of a guard, which needs no name. Its clients are gateways that forward requests of their own
/// clients, so all peers are trusted by default.
pub(super) fn single_listener(file: &mut MappingReader, name: &str) -> Option<ParsedListener> {
    file.require("listener", "listener: {address: 0.0.0.0:8080}");
    file.is_present("listener")
        .then(|| {
            file.read_inner("listener", |block| {
                parse_listener(block, Some(name.into()), TrustedProxies::trust_all(), served_tls::tls)
            })
        })
        .flatten()?
}

fn parse_listener(
    block: &mut MappingReader,
    name: Option<String>,
    speaking: TrustedProxies,
    tls: fn(&mut MappingReader) -> Option<ListenerTls>,
) -> Option<ParsedListener> {
    let address = bind(block);
    let protocols = protocols(block);
    let tls = tls(block);
    let limits = block.read_inner("limits", |block| (limits(block), block.place_of("buffered")));
    let (limits, memory) = limits.unzip();
    let timeouts = block.read_inner("timeouts", |block| {
        (timeouts(block), block.is_present("drain").then(|| block.place_of("drain")))
    });
    let (timeouts, drain) = timeouts.unzip();
    let trusted = block.values("trusted_peers", network).map_or(speaking, TrustedProxies::new);
    let proxy_protocol = proxy_protocol(block, &trusted);
    let hosts = hosts(block);
    let listener = ListenerSettings {
        name: name?,
        address: address?,
        protocols,
        tls,
        proxy_protocol,
        trusted,
        hosts,
        // Only the listener of a gateway has `cors`, because browsers do not connect to guards.
        cors: None,
        limits: limits?,
        timeouts: timeouts?,
    };
    Some(ParsedListener { listener, memory: memory?, drain: drain? })
}

fn network(text: &str) -> Result<IpNet, Diagnostic> {
    trusted_proxies::parse_network(text).map_err(|bad| {
        let remedy = "write `10.0.0.0/8`, `2001:db8::/32`, or one address";
        Diagnostic::new(DiagnosticCode::BadNetwork, format!("`{text}` is {bad}")).with_remedy(remedy)
    })
}

pub(super) fn served(text: &str) -> Result<HostPattern, Diagnostic> {
    HostPattern::parse(text).map_err(|bad| {
        let remedy = "write `pay.example`, or `*.pay.example` for all below it; ports do not count";
        Diagnostic::new(DiagnosticCode::BadHosts, format!("`{text}` is {bad}")).with_remedy(remedy)
    })
}

pub(super) fn hosts(block: &mut MappingReader) -> HostMatcher {
    let served = block.values("hosts", served);
    if served.as_ref().is_some_and(Vec::is_empty) {
        let fault = Diagnostic::new(DiagnosticCode::BadHosts, "an empty list of hosts refuses everything");
        block.report("hosts", fault.with_remedy("leave the field out, and every host is served"));
    }
    served.map_or(HostMatcher::Any, HostMatcher::Only)
}

fn proxy_protocol(block: &mut MappingReader, trusted: &TrustedProxies) -> ProxyProtocolMode {
    let written = block.keyword("proxy_protocol", ProxyProtocolMode::WORDS).unwrap_or(ProxyProtocolMode::Off);
    if written == ProxyProtocolMode::Require && trusted.is_empty() && !block.is_present("trusted_peers") {
        let fault = Diagnostic::new(
            DiagnosticCode::MissingField,
            "`proxy_protocol` is required, and no peer is trusted to use it, so nobody can connect",
        );
        block.report(
            "proxy_protocol",
            fault.with_remedy("add `trusted_peers: [10.0.0.0/8]`, the networks of the proxies"),
        );
    }
    written
}

fn protocols(block: &mut MappingReader) -> ListenerProtocols {
    let Some(spoken) = block.values("protocols", protocol) else { return ListenerProtocols::Both };
    if spoken.is_empty() {
        let fault = Diagnostic::new(DiagnosticCode::MissingField, "the list of protocols is empty");
        block.report("protocols", fault.with_remedy("write `[http1, http2]`, or leave it out"));
    }
    // An empty list was reported as a mistake, so the value returned here is never used.
    spoken
        .into_iter()
        .reduce(|one, other| if one == other { one } else { ListenerProtocols::Both })
        .unwrap_or(ListenerProtocols::Both)
}

fn protocol(text: &str) -> Result<ListenerProtocols, Diagnostic> {
    let known = ListenerProtocols::WORDS.map(|(word, _)| word);
    let found = ListenerProtocols::WORDS.into_iter().find(|(word, _)| *word == text);
    found.map(|(_, protocol)| protocol).ok_or_else(|| {
        let message = format!("`{text}` is not a value of `protocols`");
        Diagnostic::new(DiagnosticCode::UnknownValue, message).suggest(text, &known, str::to_owned)
    })
}

fn limits(block: &mut MappingReader) -> ListenerLimits {
    ListenerLimits {
        connections: block.value("connections", scalar::limit).unwrap_or(4000),
        connections_per_client: block.value("connections_per_client", scalar::limit),
        in_flight: block.value("in_flight", scalar::limit).unwrap_or(10_000),
        per_client: block.value("per_client", scalar::limit),
        streams: block.value("streams", scalar::limit).unwrap_or(100),
        max_header: block.value("max_header", scalar::head_size).unwrap_or(64 << 10),
        max_fields: block.value("max_fields", scalar::limit).unwrap_or(100),
        max_body: block.value("max_body", scalar::size).unwrap_or(1 << 20),
        buffered: block.value("buffered", scalar::memory),
    }
}

impl ParsedListener {
    /// Reports a memory limit that is too small for a body of `max_body`, which would then always be refused. Only for
    /// processes that buffer bodies in full.
    pub(super) fn check_max_body_fits_memory(&self, faults: &Diagnostics) {
        let ListenerLimits { max_body, buffered: Some(buffered), .. } = self.listener.limits else { return };
        let largest = buffer_limits::max_body(buffered);
        let least = buffer_limits::min_memory(max_body);
        if largest < max_body {
            let message = format!(
                "a body that `max_body` lets come never finds room: it may have {max_body} bytes, and one body takes at most \
                 {largest} of this memory"
            );
            let remedy = format!("write `{}KiB` or more, or lower `max_body`", least.div_ceil(1024));
            faults.push(
                Diagnostic::new(DiagnosticCode::SmallMemory, message).at(self.memory).with_remedy(remedy),
            );
        }
    }

    /// Warns if a stopping process does not wait as long as its fenced requests may take. `upstreams`: the upstreams
    /// with fenced requests, each with the place of its response timeout.
    pub(super) fn warn_short_drain<'u>(
        &self,
        upstreams: impl Iterator<Item = (&'u Upstream, SourceSpan)>,
        faults: &Diagnostics,
    ) {
        let drain = self.listener.timeouts.drain;
        let longest = upstreams.max_by_key(|(upstream, _)| upstream.response_timeout);
        let Some((upstream, place)) = longest.filter(|(upstream, _)| upstream.response_timeout > drain)
        else {
            return;
        };
        let patience = scalar::format_duration(upstream.response_timeout);
        let message = format!(
            "a process that stops gives up its requests to `{}` after {}, and they may be answered after {patience}",
            upstream.name,
            scalar::format_duration(drain),
        );
        let remedy = format!(
            "write `timeouts: {{drain: {patience}}}` or more on the listener, and let whoever stops the process wait for longer \
             than that; or lower `response_timeout`"
        );
        faults.push(
            Diagnostic::new(DiagnosticCode::ShortDrain, message)
                .at(self.drain.unwrap_or(place))
                .with_remedy(remedy),
        );
    }
}

fn timeouts(block: &mut MappingReader) -> ListenerTimeouts {
    let mut limit =
        |name, seconds| block.value(name, scalar::time_limit).unwrap_or(Duration::from_secs(seconds));
    ListenerTimeouts {
        tls_handshake: limit("tls_handshake", 5),
        detect: limit("detect", 5),
        request_headers: limit("request_headers", 10),
        // Longer than balancers keep an idle connection (nginx and AWS: 60 s), and longer than gateways keep one to a
        // guard (30 s). Otherwise one of them may send on a connection that is being closed.
        idle: limit("idle", 75),
        request_body: limit("request_body", 10),
        response_write: limit("response_write", 30),
        // `drain: 0s` is allowed; the process then stops at once. The default is the longest default of a
        // `response_timeout`.
        drain: block.value("drain", scalar::duration).unwrap_or(Duration::from_secs(45)),
    }
}
