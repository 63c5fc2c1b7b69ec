//! Balancing keys of requests, for consistent hashing.

use super::hash_key;
use flatout_config::model::{Balance, HashKey};
use flatout_handler::Request;
use flatout_http::cookie::cookies;
use std::net::IpAddr;

/// Separator between the parts of a key, which no part contains.
const APART: u8 = b'\n';

/// Returns the hash of the balancing key of a request from `client`, or `None` if the policy does not use one or the request has none:
/// neither the configured field or cookie, nor a known client address. Such requests are distributed by load. Their
/// client's address is no substitute for the field or the cookie, because all visitors behind one proxy share it.
pub fn hash_request(balance: &Balance, request: &Request<'_>, client: Option<IpAddr>) -> Option<u64> {
    let Balance::ConsistentHash(key) = balance else { return None };
    match key {
        HashKey::Client => client.map(hash_client),
        HashKey::Uri => {
            let host = request.head.host.unwrap_or_default();
            let mut hash = super::rendezvous::Hash::new();
            // Hosts are case-insensitive (RFC 3986 §6.2.2.1).
            hash.add(host.iter().map(u8::to_ascii_lowercase));
            hash.add([APART].into_iter());
            hash.add(origin_form(request).iter().copied());
            Some(hash.finish())
        }
        HashKey::Header(name) => {
            let mut lines = request.head.fields.iter().filter(|(line, _)| line.eq_ignore_ascii_case(name));
            lines.next().map(|(_, value)| hash_key(value))
        }
        HashKey::Cookie(name) => find_cookie(request, name).map(hash_key),
    }
}

fn hash_client(client: IpAddr) -> u64 {
    match client.to_canonical() {
        IpAddr::V4(address) => hash_key(&address.octets()),
        IpAddr::V6(address) => hash_key(&address.octets()),
    }
}

/// Returns the target without scheme and authority, so that both forms of a target have the same key.
fn origin_form<'a>(request: &Request<'a>) -> &'a [u8] {
    let target = request.head.target_text;
    if target.starts_with(b"/") {
        return target;
    }
    let after_scheme = target.windows(3).position(|window| window == b"://").map_or(0, |at| at + 3);
    let rest = &target[after_scheme..];
    rest.iter().position(|&byte| matches!(byte, b'/' | b'?')).map_or(b"/", |at| &rest[at..])
}

/// Returns the value of the first cookie called `name` (RFC 6265 §4.2.1).
fn find_cookie<'a>(request: &Request<'a>, name: &str) -> Option<&'a [u8]> {
    cookies(request.head.fields.all("cookie")).find(|(other, _)| *other == name.as_bytes()).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::hash_request;
    use flatout_config::model::{Balance, HashKey};
    use flatout_handler::Request;
    use flatout_handler::content::Offers;
    use flatout_http::head::FieldStorage;
    use flatout_http::limits::Limits;
    use flatout_http::request::parse_request_head;
    use std::net::SocketAddr;

    fn hash(key: &HashKey, target: &str, lines: &str, client: &str) -> Option<u64> {
        let host = if target.starts_with('/') { "Host: a.example\r\n" } else { "" };
        let text = format!("GET {target} HTTP/1.0\r\n{host}{lines}\r\n");
        let mut storage = FieldStorage::new();
        let head = parse_request_head(text.as_bytes(), &Limits::DEFAULT, &mut storage).unwrap().unwrap();
        let offers = Offers::new();
        let client: Option<SocketAddr> = client.parse().ok();
        let request = Request { head: &head, client, unix: false, secure: false, listener: 0, offers: &offers };
        hash_request(&Balance::ConsistentHash(key.clone()), &request, client.map(|client| client.ip()))
    }

    #[test]
    fn the_key_alone_decides() {
        let uri = |target| hash(&HashKey::Uri, target, "X: y\r\n", "");
        assert_eq!(uri("/a?b"), uri("http://A.example/a?b"));
        assert_eq!(uri("/"), uri("http://a.example"));
        assert!(uri("/a?b") != uri("/a?c") && uri("/a") != uri("http://b.example/a"));

        let client = |client| hash(&HashKey::Client, "/", "", client);
        assert_eq!(client("192.0.2.1:1"), client("[::ffff:192.0.2.1]:2"));
        assert_ne!(client("192.0.2.1:1"), client("192.0.2.2:1"));

        let header = |lines| hash(&HashKey::Header("X-User".to_owned()), "/", lines, "192.0.2.1:1");
        assert_eq!(header("x-user: a\r\n"), header("B: c\r\nX-USER: a\r\nX-User: d\r\n"));
        assert_ne!(header("x-user: a\r\n"), header("x-user: b\r\n"));
        assert_eq!(header(""), None);

        let cookie = |lines| hash(&HashKey::Cookie("id".to_owned()), "/", lines, "192.0.2.1:1");
        assert_eq!(cookie("Cookie: id=7\r\n"), cookie("Cookie: a=b; xid=8; id=7; id=9\r\n"));
        assert_ne!(cookie("Cookie: id=7\r\n"), cookie("Cookie: id=8\r\n"));
        assert_eq!(cookie("Cookie: ID=7; idx=8\r\n"), None);
    }

    #[test]
    fn other_balances_do_not_ask() {
        let mut storage = FieldStorage::new();
        let text = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let head = parse_request_head(text, &Limits::DEFAULT, &mut storage).unwrap().unwrap();
        let offers = Offers::new();
        let request = Request { head: &head, client: None, unix: false, secure: false, listener: 0, offers: &offers };
        assert_eq!(hash_request(&Balance::RoundRobin, &request, None), None);
    }
}
