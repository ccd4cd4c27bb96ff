//! The smallest proxy that hyper allows: one runtime and one pool of connections per core, and nothing else.
//!
//! `fencegate-bare UPSTREAM` prints its address to standard output, and runs until it is killed.

use std::{
    cell::RefCell,
    env,
    error::Error,
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    rc::Rc,
    thread,
};

use hyper::{Request, Response, body::Incoming, client::conn::http1 as client, server, service::service_fn};
use hyper_util::rt::TokioIo;
use socket2::{Domain, Socket, Type};
use tokio::{net::TcpStream, runtime, task};

type BoxResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The connections of one core that are idle, or that are in use and return to this pool.
type IdleConnections = Rc<RefCell<Vec<client::SendRequest<Incoming>>>>;

fn main() -> BoxResult<()> {
    let upstream = env::args().nth(1).ok_or("usage: fencegate-bare UPSTREAM")?.parse()?;
    let first = listener((Ipv4Addr::LOCALHOST, 0).into())?;
    let address = first.local_addr()?;
    let mut listeners = vec![first];
    for _ in 1..thread::available_parallelism()?.get() {
        listeners.push(listener(address)?);
    }
    println!("listening {address}");
    let workers = listeners.into_iter().map(|listener| thread::spawn(move || serve(listener, upstream)));
    let ends: Vec<_> = workers.collect::<Vec<_>>().into_iter().map(thread::JoinHandle::join).collect();
    Err(format!("nobody accepts any more: {ends:?}").into())
}

/// A listener that shares its address with other sockets. The kernel spreads connections over all of them.
fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}

fn serve(listener: TcpListener, upstream: SocketAddr) -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    let accepting = async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let pool = IdleConnections::default();
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let pool = pool.clone();
            let service = service_fn(move |request| forward(pool.clone(), upstream, request));
            // The result is ignored: an error of one connection must not end the others.
            task::spawn_local(
                server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    };
    task::LocalSet::new().block_on(&runtime, accepting)
}

async fn forward(
    pool: IdleConnections,
    upstream: SocketAddr,
    request: Request<Incoming>,
) -> BoxResult<Response<Incoming>> {
    let mut sender = match take_ready_connection(&pool) {
        Some(sender) => sender,
        None => connect(upstream).await?,
    };
    let answer = sender.send_request(request).await?;
    pool.borrow_mut().push(sender);
    Ok(answer)
}

/// The connection that was used last among the ready ones. Dead connections are removed only if no connection is
/// ready.
fn take_ready_connection(pool: &IdleConnections) -> Option<client::SendRequest<Incoming>> {
    let mut pool = pool.borrow_mut();
    let Some(found) = pool.iter().rposition(client::SendRequest::is_ready) else {
        pool.retain(|sender| !sender.is_closed());
        return None;
    };
    Some(pool.swap_remove(found))
}

async fn connect(upstream: SocketAddr) -> BoxResult<client::SendRequest<Incoming>> {
    let stream = TcpStream::connect(upstream).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = client::handshake(TokioIo::new(stream)).await?;
    task::spawn_local(connection);
    Ok(sender)
}
