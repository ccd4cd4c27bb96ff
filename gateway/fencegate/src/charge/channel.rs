//! The socket between keeper and watchman, and how the input of the command gets through it.

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

/// One byte, because a message needs one.
const HERE: [u8; 1] = *b"\n";

/// Says it at once, or not at all: nothing waits for an end that is stopped. The runtime's own `try_write` would wait to be told
/// that there is room, which it is not before its first look.
pub(super) fn say(socket: &OwnedWriteHalf, what: impl Display) {
    let socket: &tokio::net::UnixStream = socket.as_ref();
    send(socket, what.to_string().as_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL).ok();
}

/// The watchman's standard input is the socket, so our own goes through it.
pub(super) fn hand_over_input(socket: impl AsFd) -> io::Result<()> {
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

/// The socket that is our standard input, and what the command is to read.
pub(super) fn taken_over() -> io::Result<(UnixStream, OwnedFd)> {
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
