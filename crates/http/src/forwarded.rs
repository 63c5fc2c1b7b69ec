//! Client information from proxies: Forwarded (RFC 7239), X-Forwarded-For and related fields.
//!
//! Any client can send these fields, so they are read only from a trusted peer. Each proxy appends the address of its
//! peer, so a chain is read from the end: while an address is trusted, the element before it came from a trusted proxy.
//! The first untrusted address is the client; everything before it was sent by that client.
//!
//! X-Forwarded-For takes precedence over Forwarded because more proxies send it. A proxy that writes only one of the
//! two fields must remove the other.

use crate::head::Fields;
use crate::host::check_host;
use crate::token::{parse_decimal, trim};
use core::net::{IpAddr, SocketAddr};

/// Fields other than X-Forwarded-For and Forwarded that name a client's address, of nginx, Squid, IBM, Envoy, Akamai,
/// Cloudflare, Fastly, Azure and others.
pub const ADDRESS_FIELDS: [&str; 15] = [
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-remote-ip",
    "x-remote-addr",
    "x-originating-ip",
    "x-original-forwarded-for",
    "client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "fastly-client-ip",
    "x-envoy-external-address",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-proxyuser-ip",
];

/// Prefixes of fields that describe the request of a client, and its user: of many proxies, oauth2-proxy, Grafana,
/// authentik, Vouch, Pomerium, Google Cloud, AWS and Azure.
pub const CLAIM_PREFIXES: [&str; 10] = [
    "x-forwarded-",
    "x-ssl-client-",
    "x-auth-request-",
    "x-webauth-",
    "x-authentik-",
    "x-vouch-",
    "x-pomerium-",
    "x-goog-authenticated-user-",
    "x-amzn-oidc-",
    "x-ms-client-principal",
];

/// Other such fields: of IIS, Azure, nginx's ingress controller, Fastly, Cloudflare and CloudFront for the scheme, and of
/// Authelia, nginx's ingress controller, Apache httpd, Cloudflare and Tailscale for the user.
pub const CLAIM_FIELDS: [&str; 22] = [
    "front-end-https",
    "x-arr-ssl",
    "x-scheme",
    "fastly-ssl",
    "cf-visitor",
    "cloudfront-forwarded-proto",
    "remote-user",
    "remote-groups",
    "remote-name",
    "remote-email",
    "x-remote-user",
    "x-remote-group",
    "x-arr-clientcert",
    "ssl-client-cert",
    "ssl-client-verify",
    "ssl-client-subject-dn",
    "ssl-client-issuer-dn",
    "ssl-client-s-dn",
    "ssl-client-i-dn",
    "cf-access-authenticated-user-email",
    "tailscale-user-login",
    "tailscale-user-name",
];

/// Properties of a request's client, as claimed by trusted proxies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim<'a> {
    /// The client's address.
    pub client: ClientClaim,
    /// True if the client used TLS, or `None` if no proxy says so.
    pub secure: Option<bool>,
    /// The host that the client requested, with its port if given.
    pub host: Option<&'a [u8]>,
    /// The port to which the client connected, if known.
    pub port: Option<u16>,
}

/// The client's address according to trusted proxies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientClaim {
    /// No proxy names a client, so the peer is the client.
    #[default]
    Nothing,
    /// A client other than the peer, with an unknown address (`unknown`, `_hidden`, or an invalid value).
    Unknown,
    /// The client's address. The port is 0 if unknown.
    At(SocketAddr),
}

/// The sender of a request, as a list of trusted proxies can name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A client with this address.
    Ip(IpAddr),
    /// The peer of a connection to a Unix socket.
    Unix,
    /// A client whose address is unknown.
    Unknown,
}

impl Sender {
    /// Returns the address of the sender, if it has one.
    pub const fn ip(self) -> Option<IpAddr> {
        match self {
            Self::Ip(address) => Some(address),
            Self::Unix | Self::Unknown => None,
        }
    }
}

/// Reads client information from the `fields` of a request that a trusted peer sent. `is_trusted` returns whether an
/// address belongs to a trusted proxy.
pub fn read_claim(fields: Fields<'_>, is_trusted: impl Fn(IpAddr) -> bool) -> Claim<'_> {
    let nodes: Vec<ClientClaim> = elements(fields, "x-forwarded-for").map(parse_node).collect();
    let mut chain = Vec::new();
    if nodes.is_empty() {
        for line in fields.all("forwarded") {
            let before = chain.len();
            if parse_line(line, &mut chain).is_none() {
                // A quote that the client left open has swallowed an element written by a proxy.
                chain.truncate(before);
                chain.push(Element { node: ClientClaim::Unknown, ..Element::default() });
            }
        }
    } else {
        chain.extend(nodes.into_iter().map(|node| Element { node, ..Element::default() }));
    }
    let (client, back) = find_client(&chain, is_trusted);
    let said = chain.iter().nth_back(back).copied().unwrap_or_default();
    let beside = |name| beside(fields, name, chain.len(), back);
    Claim {
        client,
        secure: said.proto.or_else(|| beside("x-forwarded-proto")).and_then(parse_scheme),
        host: said.host.or_else(|| beside("x-forwarded-host")).filter(|host| check_host(host).is_ok()),
        port: beside("x-forwarded-port")
            .and_then(parse_decimal)
            .and_then(|port| u16::try_from(port).ok())
            .filter(|&port| port != 0),
    }
}

/// An element of the chain, written by one proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Element<'a> {
    node: ClientClaim,
    proto: Option<&'a [u8]>,
    host: Option<&'a [u8]>,
}

/// Returns the client, and its index counted from the end of the chain.
fn find_client(chain: &[Element<'_>], is_trusted: impl Fn(IpAddr) -> bool) -> (ClientClaim, usize) {
    let mut found = (ClientClaim::Nothing, 0);
    for (back, element) in chain.iter().rev().enumerate() {
        match element.node {
            ClientClaim::Nothing => break,
            ClientClaim::Unknown => return (ClientClaim::Unknown, back),
            ClientClaim::At(address) => {
                found = (element.node, back);
                if !is_trusted(address.ip()) {
                    break;
                }
            }
        }
    }
    found
}

/// Returns the value of the field `name` that belongs to the element at index `back` from the end of a chain of `count`
/// elements. Values correspond to elements only if there are `count` of them; otherwise the last value is returned,
/// since most proxies write a single value.
fn beside<'a>(fields: Fields<'a>, name: &'static str, count: usize, back: usize) -> Option<&'a [u8]> {
    let values: Vec<&[u8]> = elements(fields, name).collect();
    let back = if values.len() == count { back } else { 0 };
    values.iter().nth_back(back).copied()
}

/// Returns the elements of a comma-separated list without quoted strings, across all its lines.
fn elements<'a>(fields: Fields<'a>, name: &'static str) -> impl Iterator<Item = &'a [u8]> {
    fields.all(name).flat_map(|value| value.split(|&byte| byte == b',')).map(trim).filter(|element| !element.is_empty())
}

fn parse_scheme(scheme: &[u8]) -> Option<bool> {
    let is = |one: &str| scheme.eq_ignore_ascii_case(one.as_bytes());
    if is("https") || is("wss") { Some(true) } else { (is("http") || is("ws")).then_some(false) }
}

/// Parses an address with an optional port. Brackets around an IPv6 address are optional. A port that is not a number
/// counts as unknown (RFC 7239 §6.2).
fn parse_node(node: &[u8]) -> ClientClaim {
    let parse = || {
        let text = core::str::from_utf8(node).ok()?;
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']')?;
                (host, if rest.is_empty() { rest } else { rest.strip_prefix(':')? })
            }
            None if text.matches(':').count() == 1 => text.split_once(':')?,
            None => (text, ""),
        };
        let port = parse_decimal(port.as_bytes()).and_then(|port| u16::try_from(port).ok()).unwrap_or(0);
        // A proxy may have accepted the connection of an IPv4 client with an IPv6 socket.
        let host: IpAddr = host.parse().ok()?;
        Some(SocketAddr::new(host.to_canonical(), port))
    };
    parse().map_or(ClientClaim::Unknown, ClientClaim::At)
}

/// Appends the elements of one Forwarded line (RFC 7239 §4) to `chain`. Returns `None` if the line is invalid.
fn parse_line<'a>(line: &'a [u8], chain: &mut Vec<Element<'a>>) -> Option<()> {
    let mut rest = Some(line);
    while let Some(elements) = rest {
        let element;
        (element, rest) = split(elements, b',')?;
        if !trim(element).is_empty() {
            chain.push(parse_element(element)?);
        }
    }
    Some(())
}

fn parse_element(element: &[u8]) -> Option<Element<'_>> {
    let (mut node, mut proto, mut host) = (None, None, None);
    let mut rest = Some(element);
    while let Some(pairs) = rest {
        let pair;
        (pair, rest) = split(pairs, b';')?;
        let pair = trim(pair);
        if pair.is_empty() {
            continue;
        }
        let equals = pair.iter().position(|&byte| byte == b'=')?;
        let (name, value) = (trim(&pair[..equals]), unquote(trim(&pair[equals + 1..]))?);
        let place = match name.to_ascii_lowercase().as_slice() {
            b"for" => &mut node,
            b"proto" => &mut proto,
            b"host" => &mut host,
            _ => continue,
        };
        // Each parameter may occur once per element.
        if place.replace(value).is_some() {
            return None;
        }
    }
    Some(Element { node: node.map_or(ClientClaim::Nothing, parse_node), proto, host })
}

/// Splits `bytes` at the first `separator` outside quotes. The second part is `None` if there is no separator. Returns
/// `None` if a quote is not closed.
fn split(bytes: &[u8], separator: u8) -> Option<(&[u8], Option<&[u8]>)> {
    let (mut quoted, mut at) = (false, 0);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => quoted = !quoted,
            b'\\' if quoted => at += 1,
            _ if byte == separator && !quoted => return Some((&bytes[..at], Some(&bytes[at + 1..]))),
            _ => {}
        }
        at += 1;
    }
    (!quoted).then_some((bytes, None))
}

/// Removes the quotes around a value. No relevant value needs an escape, so a value with an escape is invalid.
fn unquote(value: &[u8]) -> Option<&[u8]> {
    let bare = if let [b'"', bare @ .., b'"'] = value { bare } else { value };
    (!bare.iter().any(|byte| matches!(byte, b'"' | b'\\'))).then_some(bare)
}

#[cfg(test)]
mod tests {
    use super::{Claim, ClientClaim, read_claim};
    use crate::head::{Fields, Header};
    use core::net::IpAddr;

    /// Reads the claim in `lines`, with 10.0.0.0/8 as trusted proxies.
    fn read<T>(lines: &[(&str, &str)], look: impl FnOnce(Claim<'_>) -> T) -> T {
        let lines: Vec<Header<'_>> =
            lines.iter().map(|(name, value)| Header { name, value: value.as_bytes() }).collect();
        let is_trusted = |address: IpAddr| matches!(address, IpAddr::V4(address) if address.octets()[0] == 10);
        look(read_claim(Fields::from_lines(&lines), is_trusted))
    }

    fn client(lines: &[(&str, &str)]) -> String {
        read(lines, |claim| match claim.client {
            ClientClaim::Nothing => "nothing".to_owned(),
            ClientClaim::Unknown => "unknown".to_owned(),
            ClientClaim::At(address) if address.port() == 0 => address.ip().to_string(),
            ClientClaim::At(address) => address.to_string(),
        })
    }

    #[test]
    fn the_client_is_the_last_untrusted_address() {
        for (value, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            ("198.51.100.9, 192.0.2.1", "192.0.2.1"),
            ("198.51.100.9, 192.0.2.1, 10.0.0.7", "192.0.2.1"),
            ("10.0.0.8, 10.0.0.7", "10.0.0.8"),
            (" , 192.0.2.1 ,,", "192.0.2.1"),
            ("192.0.2.1:4711", "192.0.2.1:4711"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]:4711", "[2001:db8::1]:4711"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("192.0.2.1, unknown", "unknown"),
            ("192.0.2.1, x", "unknown"),
            ("192.0.2.1, [2001:db8::1", "unknown"),
            ("", "nothing"),
        ] {
            assert_eq!(client(&[("X-Forwarded-For", value)]), expected, "{value}");
        }
        assert_eq!(client(&[("X-Forwarded-For", "192.0.2.1"), ("x-forwarded-for", "192.0.2.2")]), "192.0.2.2");
        assert_eq!(client(&[("Forwarded", "for=192.0.2.9"), ("X-Forwarded-For", "192.0.2.1")]), "192.0.2.1");
        assert_eq!(client(&[]), "nothing");
    }

    #[test]
    fn the_standard_field() {
        for (value, expected) in [
            ("for=192.0.2.1", "192.0.2.1"),
            ("For=\"[2001:db8:cafe::17]:4711\"", "[2001:db8:cafe::17]:4711"),
            ("for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
            ("for=192.0.2.43, for=198.51.100.17;by=\"a,b;c\", for=10.1.1.1", "198.51.100.17"),
            ("for=unknown", "unknown"),
            ("for=_hidden", "unknown"),
            ("for=\"192.0.2.1:_x\"", "192.0.2.1"),
            ("proto=https", "nothing"),
            ("proto=https, for=10.0.0.1", "10.0.0.1"),
            // The client wrote what precedes the proxy's element, and opened a quote that the proxy's quote closes or
            // that stays open.
            ("for=\"192.0.2.9, for=192.0.2.1", "unknown"),
            ("for=\", for=\"[2001:db8::1]\"", "unknown"),
            ("for=\"\\, for=192.0.2.1;host=\"a:81\"", "unknown"),
            ("for=192.0.2.1;for=192.0.2.2", "unknown"),
            ("for", "unknown"),
        ] {
            assert_eq!(client(&[("Forwarded", value)]), expected, "{value}");
        }
        // An invalid line of the client does not affect a line that a proxy added.
        assert_eq!(client(&[("Forwarded", "for=\""), ("Forwarded", "for=192.0.2.1")]), "192.0.2.1");
    }

    #[test]
    fn scheme_host_and_port() {
        let secure = |lines: &[(&str, &str)]| read(lines, |claim| claim.secure);
        assert_eq!(secure(&[("X-Forwarded-Proto", "https")]), Some(true));
        assert_eq!(secure(&[("X-Forwarded-Proto", "HTTP")]), Some(false));
        assert_eq!(secure(&[("X-Forwarded-Proto", "gopher")]), None);
        assert_eq!(secure(&[("X-Forwarded-Proto", "https, http")]), Some(false));
        let chain = ("X-Forwarded-For", "192.0.2.1, 10.0.0.7");
        assert_eq!(secure(&[chain, ("X-Forwarded-Proto", "https, http")]), Some(true));
        assert_eq!(secure(&[chain, ("X-Forwarded-Proto", "https")]), Some(true));
        assert_eq!(secure(&[chain, ("X-Forwarded-Proto", "http, https, http")]), Some(false));
        assert_eq!(secure(&[("Forwarded", "for=192.0.2.1;proto=https, for=10.0.0.7;proto=http")]), Some(true));
        assert_eq!(secure(&[("Forwarded", "for=192.0.2.1"), ("X-Forwarded-Proto", "https")]), Some(true));
        assert_eq!(secure(&[]), None);

        let host = |lines: &[(&str, &str)]| read(lines, |claim| claim.host.map(<[u8]>::to_vec));
        assert_eq!(host(&[("X-Forwarded-Host", "a.example:81")]).as_deref(), Some(&b"a.example:81"[..]));
        assert_eq!(host(&[("X-Forwarded-Host", "a/b")]), None);
        assert_eq!(
            host(&[("Forwarded", "for=192.0.2.1;host=\"b.example:81\"")]).as_deref(),
            Some(&b"b.example:81"[..])
        );

        let port = |value: &str| read(&[("X-Forwarded-Port", value)], |claim| claim.port);
        assert_eq!(
            [port("443"), port("0"), port("65536"), port("x"), port("80, 8443")],
            [Some(443), None, None, None, Some(8443)]
        );
    }

    #[test]
    fn whatever_is_sent_is_read() {
        let alphabet = b"\",;=\\ []:.1af\xffor";
        let mut state = 1_u32;
        for _ in 0..20_000 {
            let value: Vec<u8> = (0..state % 24)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    alphabet[(state >> 16) as usize % alphabet.len()]
                })
                .collect();
            state = state.wrapping_add(1);
            for name in ["Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Port"] {
                let lines = [Header { name, value: &value }];
                let claim = read_claim(Fields::from_lines(&lines), |_| true);
                assert!(claim.host.is_none_or(|host| crate::host::check_host(host).is_ok()));
            }
        }
    }
}
