//! Accepts connections to the admin listener, and limits the resources of each.

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::{IpAddr, TcpListener},
    sync::Arc,
    thread,
    time::Duration,
};

use axum::{Router, body::Body, extract::DefaultBodyLimit, http::Request, middleware};
use bytes::Bytes;
use fencegate_config::bearer::ExpectedBearerToken;
use fencegate_http::listen::{
    certificates::{ListenerCertificates, TlsHandshakeResult, handshake},
    linger::write_and_linger,
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::{sleep, timeout},
};
use tower::ServiceExt as _;
use tracing::{debug, warn};

use super::{
    auth::{self, AdminAuth, AdminConnectionInfo},
    connection_limit::{AdminConnectionLimiter, AdminConnectionSlot},
};

/// The longest life of a connection. Afterwards a client connects again.
const LONGEST: Duration = Duration::from_secs(600);
/// The longest time for the head of a request, and from a response to the next head.
const HEAD: Duration = Duration::from_secs(30);
const HANDSHAKE: Duration = Duration::from_secs(5);
const HEAD_BYTES: usize = 16 * 1024;
const HEAD_FIELDS: usize = 64;
const BODY_BYTES: usize = 16 * 1024;

/// Serves the admin listener on a thread of its own as long as the process lives, so it also responds during the
/// drain and while the workers are busy. `meanwhile` runs on the same thread.
pub fn start_admin_thread(
    listener: TcpListener,
    routes: Router,
    admin_auth: AdminAuth,
    certificates: Option<Arc<ListenerCertificates>>,
    meanwhile: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let bearer = admin_auth.bearer.clone();
    let routes = routes
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .layer(middleware::from_fn_with_state(admin_auth, auth::authenticate));
    thread::Builder::new().name("admin".into()).spawn(move || {
        runtime.block_on(async {
            drop(tokio::spawn(meanwhile));
            if let Some(bearer) = bearer {
                drop(tokio::spawn(ExpectedBearerToken::watch_token_file(bearer)));
            }
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => run_accept_loop(&listener, &routes, certificates).await,
                Err(error) => warn!(%error, "the admin listener ended"),
            }
        });
    })?;
    Ok(())
}

async fn run_accept_loop(
    listener: &tokio::net::TcpListener,
    routes: &Router,
    certificates: Option<Arc<ListenerCertificates>>,
) {
    let places = AdminConnectionLimiter::default();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let certificates = certificates.clone();
                let routes = routes.clone();
                let address = peer.ip().to_canonical();
                let place = Arc::new(places.acquire(address));
                drop(tokio::spawn(async move {
                    let certificates = certificates.as_deref();
                    tokio::select! {
                        () = open_connection(stream, address, certificates, routes, place.clone()) => {}
                        () = place.wait_evicted() => debug!(%address, "admin: hung up on"),
                    }
                }));
            }
            Err(error) => {
                // No file descriptor was left, or the connection ended before it was accepted.
                warn!(%error, "admin: a connection could not be accepted");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Serves a new connection, after its TLS handshake if the listener has certificates. A listener with TLS
/// accepts no plain text.
async fn open_connection(
    stream: TcpStream,
    address: IpAddr,
    certificates: Option<&ListenerCertificates>,
    routes: Router,
    place: Arc<AdminConnectionSlot>,
) {
    let Some(certificates) = certificates else {
        let caller = AdminConnectionInfo { address, certificate: None, secured: false };
        return serve_admin_connection(stream, caller, routes, place).await;
    };
    match timeout(HANDSHAKE, handshake(certificates, stream)).await {
        Ok(Ok(TlsHandshakeResult::Secured(stream, secured, _))) => {
            let certificate = secured.client.map(|client| {
                let named: Vec<String> = [client.subject].into_iter().chain(client.names).collect();
                format!("{} ({})", named.join(" "), &client.fingerprint[..FINGERPRINT]).into()
            });
            serve_admin_connection(
                stream,
                AdminConnectionInfo { address, certificate, secured: true },
                routes,
                place,
            )
            .await;
        }
        Ok(Ok(TlsHandshakeResult::Failed(error, stream))) => {
            debug!(%address, %error, "admin: handshake");
            write_and_linger(stream, Bytes::new()).await;
        }
        Ok(Ok(TlsHandshakeResult::Plain(_) | TlsHandshakeResult::Closed)) => {
            debug!(%address, "admin: no TLS")
        }
        Ok(Err(error)) => debug!(%address, %error, "admin: handshake"),
        Err(_elapsed) => debug!(%address, "admin: handshake took too long"),
    }
}

/// The number of digits of a certificate's fingerprint that are logged.
const FINGERPRINT: usize = 16;

const PAUSE: Duration = Duration::from_millis(50);

async fn serve_admin_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    caller: AdminConnectionInfo,
    routes: Router,
    place: Arc<AdminConnectionSlot>,
) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(caller.clone());
        let answered = routes.clone().oneshot(request.map(Body::new));
        let place = place.clone();
        place.mark_active();
        async move {
            let answer = answered.await.unwrap_or_else(|never| match never {});
            place.mark_idle();
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEAD_FIELDS)
        .serve_connection(TokioIo::new(stream), service);
    // There is no receiver for the result, however the connection ended.
    drop(timeout(LONGEST, connection).await);
}
