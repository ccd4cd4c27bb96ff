//! The socket between lock keeper and supervisor. It also carries the standard input of the command.

use std::{
    fmt::Display,
    io::{self, IoSlice, IoSliceMut, stdin},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, send, sendmsg,
};
use tokio::net::unix::OwnedWriteHalf;

/// The content of the message that carries the descriptor. Such a message needs at least one byte.
const HERE: [u8; 1] = *b"\n";

/// Sends at once or not at all, so that the sender never waits for a process that is stopped. The runtime's own
/// `try_write` would first wait for a report that the socket is writable.
pub(super) fn send_message(socket: &OwnedWriteHalf, what: impl Display) {
    let socket: &tokio::net::UnixStream = socket.as_ref();
    send(socket, what.to_string().as_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL).ok();
}

/// Sends our standard input to the supervisor, whose own standard input is the socket.
pub(super) fn send_stdin_fd(socket: impl AsFd) -> io::Result<()> {
    let input = stdin();
    let shown = [input.as_fd()];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut room);
    if !with.push(SendAncillaryMessage::ScmRights(&shown)) {
        return Err(io::Error::other("there is room for one"));
    }
    sendmsg(socket, &[IoSlice::new(&HERE)], &mut with, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Reads the socket from standard input, and the command's input from the socket.
pub(super) fn receive_socket_and_stdin() -> io::Result<(UnixStream, OwnedFd)> {
    let socket = UnixStream::from(stdin().as_fd().try_clone_to_owned()?);
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = RecvAncillaryBuffer::new(&mut room);
    recvmsg(&socket, &mut [IoSliceMut::new(&mut [0])], &mut with, RecvFlags::CMSG_CLOEXEC)?;
    let files = with.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let input = files.flatten().next().ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((socket, input))
}
