//! Reads the header of the PROXY protocol, versions 1 and 2, in which a proxy names its client.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use bytes::BytesMut;
use ppp::{HeaderResult, PartialResult, v1, v2};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::detect::PrefixedIo;

/// The reason for which a connection without a valid PROXY header is closed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProxyProtocolError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the proxy closed the connection before its PROXY header was complete")]
    Gone,
    #[error("the connection does not begin with a PROXY header")]
    Absent,
    #[error("the PROXY header cannot be read")]
    Malformed,
}

impl ProxyProtocolError {
    /// The label of this error in metrics.
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Io(_) | Self::Gone => "gone",
            Self::Absent => "absent",
            Self::Malformed => "malformed",
        }
    }

    /// True if the proxy has sent something that is no header. False if it has only closed the connection.
    pub(super) fn has_sent_bytes(&self) -> bool {
        matches!(self, Self::Absent | Self::Malformed)
    }
}

/// Reads the header, and leaves the bytes after it to the next reader. The address is `None` if the proxy connects for
/// itself (a health check), or cannot name its client.
pub(super) async fn read_header<I: AsyncRead + Unpin>(
    mut stream: I,
) -> Result<(Option<SocketAddr>, PrefixedIo<I>), ProxyProtocolError> {
    let mut read = BytesMut::with_capacity(LARGEST);
    loop {
        if stream.read_buf(&mut read).await? == 0 {
            return Err(ProxyProtocolError::Gone);
        }
        if !may_be_proxy_header_prefix(&read) {
            return Err(ProxyProtocolError::Absent);
        }
        if let Some((length, client)) = parse(&read)? {
            let behind = read.split_off(length);
            return Ok((client, PrefixedIo::with_prefix(behind.freeze(), stream)));
        }
        if read.len() >= LARGEST {
            return Err(ProxyProtocolError::Malformed);
        }
    }
}

/// The longest header that is accepted. In version 2 long data may follow the addresses, such as the names of a
/// certificate; they are ignored.
const LARGEST: usize = 4096;
const VERSION_1: &[u8] = b"PROXY ";
const VERSION_2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn may_be_proxy_header_prefix(read: &[u8]) -> bool {
    [VERSION_1, VERSION_2].iter().any(|prefix| {
        let length = read.len().min(prefix.len());
        read[..length] == prefix[..length]
    })
}

/// Returns the length of the header, and the client that it names; `None` if the header is not complete yet.
fn parse(read: &[u8]) -> Result<Option<(usize, Option<SocketAddr>)>, ProxyProtocolError> {
    let is_line = read.starts_with(VERSION_1);
    let whole = if is_line { v1_line(read)? } else { Some(read) };
    let Some(whole) = whole else { return Ok(None) };
    let result = HeaderResult::parse(whole);
    // The line of version 1 is complete here, even if the parser asks for more bytes.
    if result.is_incomplete() && !is_line {
        return Ok(None);
    }
    match result {
        HeaderResult::V1(Ok(header)) => Ok(Some((header.header.len(), v1_address(&header)))),
        HeaderResult::V2(Ok(header)) => Ok(Some((header.len(), v2_address(&header)))),
        HeaderResult::V1(Err(_)) | HeaderResult::V2(Err(_)) => Err(ProxyProtocolError::Malformed),
    }
}

/// Returns the header of version 1 up to its CRLF; `None` if the CRLF has not come yet. The parser gets only this line,
/// because it might take bytes after a bare LF for part of the line.
fn v1_line(read: &[u8]) -> Result<Option<&[u8]>, ProxyProtocolError> {
    match read.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') {
        Some(end) if read[..end].ends_with(b"\r") => Ok(Some(&read[..=end])),
        None if read.len() < LONGEST_LINE => Ok(None),
        _ => Err(ProxyProtocolError::Malformed),
    }
}

/// The longest header of version 1 with its CRLF, according to the specification of the protocol.
const LONGEST_LINE: usize = 107;

fn v1_address(header: &v1::Header<'_>) -> Option<SocketAddr> {
    match header.addresses {
        v1::Addresses::Tcp4(of) => Some(socket_addr(of.source_address, of.source_port)),
        v1::Addresses::Tcp6(of) => Some(socket_addr(of.source_address, of.source_port)),
        v1::Addresses::Unknown => None,
    }
}

fn v2_address(header: &v2::Header<'_>) -> Option<SocketAddr> {
    match (&header.command, &header.addresses) {
        (v2::Command::Proxy, v2::Addresses::IPv4(of)) => Some(socket_addr(of.source_address, of.source_port)),
        (v2::Command::Proxy, v2::Addresses::IPv6(of)) => Some(socket_addr(of.source_address, of.source_port)),
        (v2::Command::Local, _) | (_, v2::Addresses::Unix(_) | v2::Addresses::Unspecified) => None,
    }
}

fn socket_addr(ip: impl Into<IpAddr>, port: u16) -> SocketAddr {
    SocketAddr::new(ip.into().to_canonical(), port)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;
    use tokio::runtime;

    use super::*;

    async fn read_from_chunks(chunks: &[&[u8]]) -> Result<(Option<String>, Vec<u8>), String> {
        let (mut client, server) = tokio::io::duplex(8192);
        let write = async {
            for chunk in chunks {
                if tokio::io::AsyncWriteExt::write_all(&mut client, chunk).await.is_err() {
                    // The write fails once the reader has read enough and was dropped.
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(client);
        };
        let (told, ()) = tokio::join!(read_header(server), write);
        let (client, mut stream) = told.map_err(|bad| bad.to_string())?;
        let mut behind = Vec::new();
        stream.read_to_end(&mut behind).await.expect("no error");
        Ok((client.map(|client| client.to_string()), behind))
    }

    fn version_2(command: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
        let length = u16::try_from(addresses.len()).expect("short").to_be_bytes();
        [VERSION_2, &[0x20 | command, family], &length, addresses].concat()
    }

    const IPV4: [u8; 12] = [203, 0, 113, 7, 192, 0, 2, 1, 0x1f, 0x90, 0, 80];

    /// Both versions of the header name the client, and no byte after the header is lost.
    #[tokio::test]
    async fn both_versions_name_client() {
        let mut with_more = IPV4.to_vec();
        with_more.extend([4, 0, 3, 1, 2, 3]);
        let ipv6 = [&[0x20, 1, 0xd, 0xb8][..], &[0; 11], &[7], &[0; 16], &[0x1f, 0x90, 0, 80]].concat();
        for (said, client) in [
            (b"PROXY TCP4 203.0.113.7 192.0.2.1 8080 80\r\n".to_vec(), Some("203.0.113.7:8080")),
            (b"PROXY TCP6 2001:db8::7 2001:db8::1 8080 80\r\n".to_vec(), Some("[2001:db8::7]:8080")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            // Everything between `UNKNOWN` and the CRLF is ignored.
            (b"PROXY UNKNOWN ff::1 ff::2 1 2\r\n".to_vec(), None),
            (version_2(1, 0x11, &IPV4), Some("203.0.113.7:8080")),
            (version_2(1, 0x11, &with_more), Some("203.0.113.7:8080")),
            (version_2(1, 0x21, &ipv6), Some("[2001:db8::7]:8080")),
            (version_2(0, 0x11, &IPV4), None),
            (version_2(0, 0, &[]), None),
        ] {
            let whole = [&said[..], b"\x16GET /\r\n"].concat();
            let bytes: Vec<&[u8]> = whole.chunks(1).collect();
            for chunks in [&[&whole[..]][..], &bytes] {
                let wanted = (client.map(str::to_owned), b"\x16GET /\r\n".to_vec());
                assert_eq!(read_from_chunks(chunks).await, Ok(wanted), "{}", said.escape_ascii());
            }
        }
    }

    /// A missing header, a malformed one and a proxy that has gone are reported differently.
    #[tokio::test]
    async fn missing_and_malformed_header_differ() {
        let long = [b"PROXY TCP4 ".to_vec(), vec![b'1'; 200]].concat();
        let huge = version_2(1, 0x11, &[0; 5000]);
        for (said, expected) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "the connection does not begin with a PROXY header"),
            (b"PROXX", "the connection does not begin with a PROXY header"),
            (b"", "the proxy closed the connection before its PROXY header was complete"),
            (
                b"PROXY TCP4 203.0.113.7",
                "the proxy closed the connection before its PROXY header was complete",
            ),
            (b"PROXY TCP4 203.0.113.777 192.0.2.1 8080 80\r\n", "the PROXY header cannot be read"),
            (&long, "the PROXY header cannot be read"),
            // The line must end with CRLF. Otherwise it would depend on the arrival of the bytes whether those after a
            // bare LF are part of it.
            (b"PROXY UNKNOWN a \n ", "the PROXY header cannot be read"),
            (b"PROXY UNKNOWN\n", "the PROXY header cannot be read"),
            (
                b"PROXY TCP4 203.0.113.7 192.0.2.1 8080 80\nGET / HTTP/1.1\r\n",
                "the PROXY header cannot be read",
            ),
            (&huge, "the PROXY header cannot be read"),
            (&version_2(3, 0x11, &IPV4), "the PROXY header cannot be read"),
            (&version_2(1, 0x11, &IPV4[..5]), "the PROXY header cannot be read"),
        ] {
            assert_eq!(read_from_chunks(&[said]).await, Err(expected.to_owned()), "{}", said.escape_ascii());
        }
    }

    /// Reads these bytes in chunks of `every` bytes, and returns the result.
    fn read_in_pieces_of(bytes: &[u8], every: usize) -> Result<(Option<String>, Vec<u8>), String> {
        let chunks: Vec<&[u8]> = bytes.chunks(every).collect();
        let runtime =
            runtime::Builder::new_current_thread().build().expect("nothing of the system is needed");
        runtime.block_on(read_from_chunks(&chunks))
    }

    fn write_header(version: u8, client: SocketAddr) -> Vec<u8> {
        let port = client.port();
        match (version, client.ip()) {
            (1, IpAddr::V4(ip)) => format!("PROXY TCP4 {ip} 192.0.2.1 {port} 80\r\n").into(),
            (1, IpAddr::V6(ip)) => format!("PROXY TCP6 {ip} 2001:db8::1 {port} 80\r\n").into(),
            (_, IpAddr::V4(ip)) => {
                let ports = [port.to_be_bytes(), 80_u16.to_be_bytes()].concat();
                version_2(1, 0x11, &[&ip.octets()[..], &[192, 0, 2, 1], &ports].concat())
            }
            (_, IpAddr::V6(ip)) => {
                let ports = [port.to_be_bytes(), 80_u16.to_be_bytes()].concat();
                version_2(1, 0x21, &[&ip.octets()[..], &[0; 16], &ports].concat())
            }
        }
    }

    fn any_client() -> impl Strategy<Value = SocketAddr> {
        let v4 = any::<u32>().prop_map(|bits| IpAddr::from(Ipv4Addr::from(bits)));
        // Half of the addresses are IPv4-mapped ones.
        let v6 = any::<(bool, u128)>().prop_map(|(mapped, bits)| match mapped {
            true => Ipv6Addr::from(0xffff_0000_0000 | bits & 0xffff_ffff),
            false => Ipv6Addr::from(bits),
        });
        (prop_oneof![v4, v6.prop_map(IpAddr::from)], any::<u16>()).prop_map(SocketAddr::from)
    }

    proptest! {
        /// The client that a header names is read, in both versions, however the header is split into chunks.
        #[test]
        fn chunked_header_names_any_client(
            client in any_client(),
            version in 1_u8..=2,
            behind in prop::collection::vec(any::<u8>(), 0..40),
            every in 1_usize..60,
        ) {
            let wanted = SocketAddr::new(client.ip().to_canonical(), client.port()).to_string();
            let bytes = [write_header(version, client), behind.clone()].concat();
            prop_assert_eq!(read_in_pieces_of(&bytes, every), Ok((Some(wanted), behind)));
        }

        /// The result does not depend on the chunks: no byte after a header is read as part of it, and no byte of the
        /// header is left.
        #[test]
        fn chunking_does_not_change_result(
            begins in prop::sample::select(vec![&b""[..], VERSION_1, VERSION_2, b"PROXY TCP4 1.2.3.4 ", b"PROXY UNKNOWN"]),
            bytes in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..80),
                "[0-9a-f:. \r\nTCP46]{0,120}".prop_map(String::into_bytes),
            ],
            every in 1_usize..60,
        ) {
            let bytes = [begins, &bytes].concat();
            let cut = read_in_pieces_of(&bytes, every);
            let whole = read_in_pieces_of(&bytes, usize::MAX);
            prop_assert_eq!(&cut, &whole);
            if let Ok((_, behind)) = whole {
                prop_assert!(behind.len() < bytes.len() && bytes.ends_with(&behind));
            }
        }
    }
}
