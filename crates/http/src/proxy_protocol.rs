//! The PROXY protocol, versions 1 and 2: a header at the beginning of a connection, in which a load balancer names the
//! client (HAProxy's specification, proxy-protocol.txt).
//!
//! The crate `proxy-header` parses and writes headers. This module bounds their size, and refuses a connection as soon as
//! its first bytes cannot be those of a header.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use proxy_header::{Error, ParseConfig, Protocol, ProxiedAddress, ProxyHeader as Parsed};

/// The maximum size of a header of version 1, in bytes (§2.1).
const V1_BYTES_MAX: usize = 107;

/// The maximum size of a header of version 2, in bytes. Addresses need at most 232 bytes; the rest is for extensions,
/// which are ignored. The same maximum as in nginx.
const V2_BYTES_MAX: usize = 4096;

/// The maximum size of a header, in bytes.
pub const PROXY_HEADER_BYTES_MAX: usize = V2_BYTES_MAX;

/// The first bytes of a header of version 1.
const V1_SIGNATURE: &[u8] = b"PROXY ";

/// The first bytes of a header of version 2 (§2.2). They are followed by the version and command, the address family,
/// and the length of the rest in two bytes.
const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Version 2, and the command LOCAL.
const V2_LOCAL: u8 = 0x20;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersion {
    /// Text.
    V1,
    /// Binary.
    V2,
}

/// The client in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyClient {
    /// No client: the sender opened the connection for itself, as for a health check (LOCAL).
    Sender,
    /// A client whose address the sender does not know or does not name (UNKNOWN), or that did not use TCP over IP.
    Hidden,
    /// A client at this address.
    At(SocketAddr),
}

/// A parsed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// The client that the header names, if any.
    pub client: ProxyClient,
    /// The size of the header, in bytes.
    pub bytes: usize,
}

/// The error that a connection does not begin with a valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no valid PROXY header")]
pub struct InvalidProxyHeader;

/// Parses the header at the beginning of `input`. Returns `None` if it is incomplete.
pub fn parse_proxy_header(input: &[u8]) -> Result<Option<ProxyHeader>, InvalidProxyHeader> {
    let begins = |signature: &[u8]| input.iter().zip(signature).all(|(byte, expected)| byte == expected);
    // A header is never longer than this.
    let bytes_max = if begins(V1_SIGNATURE) {
        V1_BYTES_MAX
    } else if begins(V2_SIGNATURE) {
        let rest_bytes = input.get(V2_SIGNATURE.len() + 2..).and_then(|length| length.first_chunk().copied());
        rest_bytes.map_or(V2_BYTES_MAX, |length| V2_SIGNATURE.len() + 4 + usize::from(u16::from_be_bytes(length)))
    } else {
        return Err(InvalidProxyHeader);
    };
    if bytes_max > V2_BYTES_MAX {
        return Err(InvalidProxyHeader);
    }
    // The rest of a LOCAL header must be ignored, even if its addresses are not valid (§2.2).
    if begins(V2_SIGNATURE) && input.get(V2_SIGNATURE.len()) == Some(&V2_LOCAL) {
        return Ok((input.len() >= bytes_max).then_some(ProxyHeader { client: ProxyClient::Sender, bytes: bytes_max }));
    }
    match Parsed::parse(&input[..input.len().min(bytes_max)], ParseConfig::default()) {
        Ok((parsed, bytes)) => {
            let address = parsed.proxied_address().filter(|address| address.protocol == Protocol::Stream);
            // The sender may have accepted the connection of an IPv4 client with an IPv6 socket.
            let client =
                address.map(|address| SocketAddr::new(address.source.ip().to_canonical(), address.source.port()));
            let client = client.filter(|client| !client.ip().is_unspecified());
            Ok(Some(ProxyHeader { client: client.map_or(ProxyClient::Hidden, ProxyClient::At), bytes }))
        }
        Err(Error::BufferTooShort) if input.len() < bytes_max => Ok(None),
        Err(_) => Err(InvalidProxyHeader),
    }
}

/// Appends a header that names `client`, for a connection to `server`. Without a client, the header is LOCAL, or UNKNOWN
/// in version 1. A receiver would take this server for the client then, so a hidden client has the address 0.0.0.0 and
/// the port 0 instead. Both addresses must be of one family, so if they are not, an IPv4 address of the server is mapped
/// to IPv6, and an IPv6 address is replaced with 0.0.0.0.
pub fn append_proxy_header(version: ProxyVersion, client: ProxyClient, server: SocketAddr, output: &mut Vec<u8>) {
    let client = match client {
        ProxyClient::Sender => None,
        ProxyClient::Hidden => Some(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0)),
        ProxyClient::At(client) => Some(SocketAddr::new(client.ip().to_canonical(), client.port())),
    };
    let header = client.map_or_else(Parsed::with_local, |client| {
        let to = match (client.ip(), server.ip().to_canonical()) {
            (IpAddr::V4(_), IpAddr::V6(_)) => Ipv4Addr::UNSPECIFIED.into(),
            (IpAddr::V6(_), IpAddr::V4(to)) => to.to_ipv6_mapped().into(),
            (_, to) => to,
        };
        Parsed::with_address(ProxiedAddress::stream(client, SocketAddr::new(to, server.port())))
    });
    let written = match version {
        ProxyVersion::V1 => header.encode_v1(output),
        ProxyVersion::V2 => header.encode_v2(output),
    };
    // Both addresses have the same family, and a Vec has room.
    debug_assert_eq!(written, Ok(()));
}

#[cfg(test)]
mod tests {
    use super::{
        InvalidProxyHeader, PROXY_HEADER_BYTES_MAX, ProxyClient, ProxyVersion, V2_SIGNATURE, append_proxy_header,
        parse_proxy_header,
    };
    use crate::feed::assert_three_ways;

    /// Parses `bytes`, and verifies that pieces and trailing bytes do not change the result.
    fn parse(bytes: &[u8]) -> Result<Option<(String, usize)>, InvalidProxyHeader> {
        assert_three_ways(bytes, |bytes| {
            parse_proxy_header(bytes).map(|found| found.map(|header| (header.client, header.bytes))).transpose()
        });
        let shown = |client: ProxyClient| match client {
            ProxyClient::Sender => "sender".to_owned(),
            ProxyClient::Hidden => "hidden".to_owned(),
            ProxyClient::At(client) => client.to_string(),
        };
        Ok(parse_proxy_header(bytes)?.map(|header| (shown(header.client), header.bytes)))
    }

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        [V2_SIGNATURE, &[command, family], &(rest.len() as u16).to_be_bytes(), rest].concat()
    }

    #[test]
    fn version_1() {
        for (line, client) in [
            ("PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n", "192.0.2.1:56324"),
            ("PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n", "[2001:db8::1]:1"),
            ("PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n", "192.0.2.1:1"),
            ("PROXY TCP4 0.0.0.0 198.51.100.1 0 443\r\n", "hidden"),
            ("PROXY UNKNOWN\r\n", "hidden"),
            ("PROXY UNKNOWN 2001:db8::1 2001:db8::2 56324 443\r\n", "hidden"),
        ] {
            assert_eq!(parse(line.as_bytes()), Ok(Some((client.to_owned(), line.len()))), "{line}");
            for bytes in 0..line.len() {
                assert_eq!(parse(&line.as_bytes()[..bytes]), Ok(None), "{line}: {bytes}");
            }
        }
        let longest = format!("PROXY UNKNOWN {}\r\n", "x".repeat(91));
        assert_eq!(parse(longest.as_bytes()), Ok(Some(("hidden".to_owned(), 107))));
        for bad in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "G",
            "proxy TCP4 192.0.2.1 198.51.100.1 56324 443\r\n",
            "PROXYTCP4 192.0.2.1 198.51.100.1 56324 443\r\n",
            "PROXY TCP5 192.0.2.1 198.51.100.1 56324 443\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.1 65536 443\r\n",
            "PROXY TCP4 192.0.2.256 198.51.100.1 56324 443\r\n",
            "PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n",
            // With a space in the place of version 2's command, as in LOCAL.
            "PROXY TCP4 - - - -\r\n",
            &format!("PROXY TCP4 1 {}", "x".repeat(100)),
            "PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\rx",
            &format!("PROXY UNKNOWN {}\r\n", "x".repeat(92)),
            &format!("PROXY TCP4 {}", "1".repeat(200)),
        ] {
            assert_eq!(parse(bad.as_bytes()), Err(InvalidProxyHeader), "{bad}");
        }
    }

    #[test]
    fn version_2() {
        let v4 = [192, 0, 2, 1, 198, 51, 100, 1, 0xdc, 4, 1, 0xbb];
        let mut v6 = [0; 36];
        v6[..16].copy_from_slice(&"2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
        v6[32..].copy_from_slice(&[0, 1, 0, 2]);
        let extended = [&v4[..], b"\x04\0\x02ab", &[0; 3]].concat();
        let longest = [&v4[..], &vec![0; PROXY_HEADER_BYTES_MAX - 16 - 12]].concat();
        for (command, family, rest, client) in [
            (0x21, 0x11, &v4[..], "192.0.2.1:56324"),
            (0x21, 0x21, &v6, "[2001:db8::1]:1"),
            // Extensions are ignored.
            (0x21, 0x11, &extended, "192.0.2.1:56324"),
            (0x21, 0x11, &longest, "192.0.2.1:56324"),
            // LOCAL, also with an address, which need not be valid.
            (0x20, 0, b"", "sender"),
            (0x20, 0x11, &v4, "sender"),
            (0x20, 0x11, b"", "sender"),
            (0x20, 0x21, &v4, "sender"),
            (0x20, 0x41, b"ab", "sender"),
            // No family, a Unix socket, a datagram, 0.0.0.0.
            (0x21, 0, b"", "hidden"),
            (0x21, 0x31, &[b'/'; 216], "hidden"),
            (0x21, 0x12, &v4, "hidden"),
            (0x21, 0x11, &[0; 12], "hidden"),
        ] {
            let header = v2(command, family, rest);
            assert_eq!(parse(&header), Ok(Some((client.to_owned(), header.len()))), "{header:?}");
            assert_eq!(parse(&header[..header.len() - 1]), Ok(None), "{header:?}");
        }
        let too_long = v2(0x21, 0x11, &vec![0; PROXY_HEADER_BYTES_MAX - 15]);
        for bad in [
            v2(0x11, 0x11, &v4),
            v2(0x22, 0x11, &v4),
            v2(0x21, 0x11, &v4[..11]),
            v2(0x21, 0x21, &v4),
            v2(0x21, 0x41, &v4),
            too_long[..16].to_vec(),
            b"\r\n\r\n\0\r\nQUIT\r".to_vec(),
            b"\r\n\r\nG".to_vec(),
        ] {
            assert_eq!(parse(&bad), Err(InvalidProxyHeader), "{bad:?}");
        }
    }

    #[test]
    fn written_headers() {
        let address = |text: &str| text.parse::<std::net::SocketAddr>().unwrap();
        for (client, server, line) in [
            ("192.0.2.1:5", "198.51.100.1:80", "PROXY TCP4 192.0.2.1 198.51.100.1 5 80\r\n"),
            ("[::ffff:192.0.2.1]:5", "[::ffff:127.0.0.1]:80", "PROXY TCP4 192.0.2.1 127.0.0.1 5 80\r\n"),
            ("192.0.2.1:5", "[2001:db8::2]:80", "PROXY TCP4 192.0.2.1 0.0.0.0 5 80\r\n"),
            ("[2001:db8::1]:5", "[2001:db8::2]:80", "PROXY TCP6 2001:db8::1 2001:db8::2 5 80\r\n"),
            ("[2001:db8::1]:5", "127.0.0.1:80", "PROXY TCP6 2001:db8::1 ::ffff:127.0.0.1 5 80\r\n"),
        ] {
            let (client, server) = (address(client), address(server));
            let mut text = Vec::new();
            append_proxy_header(ProxyVersion::V1, ProxyClient::At(client), server, &mut text);
            assert_eq!(String::from_utf8_lossy(&text), line);
            let mut binary = Vec::new();
            append_proxy_header(ProxyVersion::V2, ProxyClient::At(client), server, &mut binary);
            let parsed = parse_proxy_header(&binary).unwrap().unwrap();
            assert_eq!(
                (parsed.client, parsed.bytes),
                (parse_proxy_header(&text).unwrap().unwrap().client, binary.len())
            );
        }
        let (v1, v2_hidden) = (ProxyVersion::V1, [0, 0, 0, 0, 127, 0, 0, 1, 0, 0, 0, 80]);
        for (version, client, server, expected) in [
            (v1, ProxyClient::Sender, "127.0.0.1:80", b"PROXY UNKNOWN\r\n".to_vec()),
            (v1, ProxyClient::Hidden, "127.0.0.1:80", b"PROXY TCP4 0.0.0.0 127.0.0.1 0 80\r\n".to_vec()),
            (v1, ProxyClient::Hidden, "[::1]:80", b"PROXY TCP4 0.0.0.0 0.0.0.0 0 80\r\n".to_vec()),
            (ProxyVersion::V2, ProxyClient::Sender, "127.0.0.1:80", v2(0x20, 0, b"")),
            (ProxyVersion::V2, ProxyClient::Hidden, "127.0.0.1:80", v2(0x21, 0x11, &v2_hidden)),
        ] {
            let mut written = Vec::new();
            append_proxy_header(version, client, address(server), &mut written);
            assert_eq!(written, expected);
        }
    }
}
