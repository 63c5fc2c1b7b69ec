//! Addresses to connect to: name resolution, and routes from the command line.

use crate::bench::BenchError;
use flatout_http::url::Url;
use flatout_os::socket::{is_local, read_listening};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// Maximum number of addresses that a run uses. A guess: more than any name has in practice.
const ADDRESSES_MAX: usize = 64;

/// The routes from the command line, which decide to which addresses the client connects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    /// Addresses of hosts, which replace name resolution (`--resolve`).
    pub resolved: Vec<ResolvedHost>,
    /// Hosts that replace other hosts (`--connect-to`). The first that applies is used.
    pub redirected: Vec<RedirectedHost>,
}

/// The addresses of a host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedHost {
    host: String,
    port: u16,
    addresses: Vec<IpAddr>,
}

/// A host and port to which the client connects instead of another host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectedHost {
    /// The host and the port of the URL; `None` for any.
    from: (Option<String>, Option<u16>),
    /// The host and the port to connect to; `None` for those of the URL.
    to: (Option<String>, Option<u16>),
}

impl ResolvedHost {
    /// Parses `HOST:PORT:ADDRESS[,ADDRESS…]`, as curl's `--resolve`.
    ///
    /// # Errors
    /// Returns a sentence with the valid syntax.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parsed = || {
            let (host, rest) = split_host(text)?;
            let (port, addresses) = rest.split_once(':')?;
            let address = |text: &str| text.trim_start_matches('[').trim_end_matches(']').parse().ok();
            let addresses: Vec<IpAddr> = addresses.split(',').map(address).collect::<Option<_>>()?;
            let is_valid = !host.is_empty() && addresses.len() <= ADDRESSES_MAX;
            is_valid.then_some(Self { host: host.to_ascii_lowercase(), port: port.parse().ok()?, addresses })
        };
        parsed().ok_or_else(|| format!("{text:?} does not have the form HOST:PORT:ADDRESS[,ADDRESS]"))
    }
}

impl RedirectedHost {
    /// Parses `HOST1:PORT1:HOST2:PORT2`, as curl's `--connect-to`. An empty part stands for any host or port, or for that
    /// of the URL.
    ///
    /// # Errors
    /// Returns a sentence with the valid syntax.
    pub fn parse(text: &str) -> Result<Self, String> {
        let port = |text: &str| if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) };
        let host = |text: &str| (!text.is_empty()).then(|| text.to_ascii_lowercase());
        let parsed = || {
            let (from, rest) = split_host(text)?;
            let (from_port, rest) = rest.split_once(':')?;
            let (to, to_port) = split_host(rest)?;
            Some(Self { from: (host(from), port(from_port)?), to: (host(to), port(to_port)?) })
        };
        parsed().ok_or_else(|| format!("{text:?} does not have the form HOST1:PORT1:HOST2:PORT2"))
    }

    fn applies_to(&self, host: &str, port: u16) -> bool {
        let (from_host, from_port) = &self.from;
        from_host.as_deref().is_none_or(|from| from.eq_ignore_ascii_case(host))
            && from_port.is_none_or(|from| from == port)
    }
}

/// Splits off a host, which is in brackets if it is an IPv6 address, and the colon after it.
fn split_host(text: &str) -> Option<(&str, &str)> {
    match text.strip_prefix('[') {
        Some(text) => text.split_once("]:"),
        None => text.split_once(':'),
    }
}

impl Routes {
    /// Returns whether any route applies to one of these URLs, or if there is no route.
    pub fn apply_to(&self, urls: &[&Url]) -> bool {
        let is_used = |url: &&Url| {
            let (host, port) = self.redirect(url);
            (host, port) != (&url.host, url.port) || self.addresses_of(host, port).is_some()
        };
        *self == Self::default() || urls.iter().any(is_used)
    }

    /// Returns the host and port to connect to.
    fn redirect<'a>(&'a self, url: &'a Url) -> (&'a str, u16) {
        let to = self.redirected.iter().find(|route| route.applies_to(&url.host, url.port)).map(|route| &route.to);
        let (host, port) = to.map_or((None, None), |(host, port)| (host.as_deref(), *port));
        (host.unwrap_or(&url.host), port.unwrap_or(url.port))
    }

    fn addresses_of(&self, host: &str, port: u16) -> Option<&[IpAddr]> {
        let is_host = |resolved: &&ResolvedHost| resolved.host.eq_ignore_ascii_case(host) && resolved.port == port;
        self.resolved.iter().find(is_host).map(|resolved| &*resolved.addresses)
    }

    /// Returns the addresses to connect to for a URL, at least one and all of the same family. If a name has addresses of
    /// both families, these are those of the family of the first address on this machine that has a listener
    /// (`localhost` has an address of each), else the IPv4 addresses. Addresses of this machine that have no listener are
    /// left out, if others have one.
    ///
    /// # Errors
    /// Returns [`BenchError::Unresolvable`] if there is no address.
    pub fn resolve(&self, url: &Url) -> Result<Vec<SocketAddr>, BenchError> {
        let (host, port) = self.redirect(url);
        if let Some(addresses) = self.addresses_of(host, port) {
            let is_ipv4 = addresses.iter().any(IpAddr::is_ipv4);
            let family = addresses.iter().filter(|address| address.is_ipv4() == is_ipv4);
            return Ok(family.map(|address| SocketAddr::new(*address, port)).collect());
        }
        let unresolvable = |cause: String| BenchError::Unresolvable { host: host.to_owned(), cause };
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in (host, port).to_socket_addrs().map_err(|error| unresolvable(error.to_string()))? {
            // The system may return an address several times.
            if !addresses.contains(&address) && addresses.len() < ADDRESSES_MAX {
                addresses.push(address);
            }
        }
        if addresses.len() > 1 {
            let sockets = read_listening().unwrap_or_default();
            let has_listener = |address: &SocketAddr| sockets.iter().any(|socket| socket.serves(*address));
            let is_served = |address: &SocketAddr| is_local(address.ip()) && has_listener(address);
            let first = addresses.iter().find(|address| is_served(address)).copied();
            let first = first.or_else(|| addresses.iter().copied().find(SocketAddr::is_ipv4));
            let is_ipv4 = first.is_some_and(|address| address.is_ipv4());
            addresses.retain(|address| address.is_ipv4() == is_ipv4);
            if first.as_ref().is_some_and(is_served) {
                addresses.retain(|address| !is_local(address.ip()) || has_listener(address));
            }
        }
        if addresses.is_empty() { Err(unresolvable("no address".to_owned())) } else { Ok(addresses) }
    }
}

/// Returns the addresses as text, separated by commas.
pub(crate) fn list_addresses(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::{RedirectedHost, ResolvedHost, Routes};
    use crate::bench::BenchError;
    use flatout_http::url::Url;
    use std::net::SocketAddr;

    fn routes(resolved: &[&str], redirected: &[&str]) -> Routes {
        Routes {
            resolved: resolved.iter().map(|text| ResolvedHost::parse(text).unwrap()).collect(),
            redirected: redirected.iter().map(|text| RedirectedHost::parse(text).unwrap()).collect(),
        }
    }

    fn resolve(routes: &Routes, url: &str) -> Result<Vec<SocketAddr>, BenchError> {
        routes.resolve(&Url::parse(url).unwrap())
    }

    fn addresses(all: &[&str]) -> Vec<SocketAddr> {
        all.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[test]
    fn names_and_addresses_are_resolved() {
        let none = Routes::default();
        assert_eq!(resolve(&none, "http://127.0.0.1:8/").unwrap(), addresses(&["127.0.0.1:8"]));
        assert_eq!(resolve(&none, "http://[::1]:8/").unwrap(), addresses(&["[::1]:8"]));
        // RFC 2606 keeps .invalid free of addresses.
        assert!(matches!(resolve(&none, "http://no.such.host.invalid/"), Err(BenchError::Unresolvable { .. })));
    }

    #[test]
    fn routes_replace_hosts_ports_and_addresses() {
        let here = routes(&["x.invalid:80:127.0.0.1,127.0.0.2", "y.invalid:8080:[::1]"], &[":443:y.invalid:8080"]);
        assert_eq!(resolve(&here, "http://X.invalid/").unwrap(), addresses(&["127.0.0.1:80", "127.0.0.2:80"]));
        assert_eq!(resolve(&here, "https://z.invalid/").unwrap(), addresses(&["[::1]:8080"]));
        assert!(resolve(&here, "http://x.invalid:81/").is_err(), "another port has its own addresses");
        let here = routes(&[], &["x.invalid::127.0.0.3:", "[::1]:1:127.0.0.4:2"]);
        assert_eq!(resolve(&here, "http://x.invalid:5/").unwrap(), addresses(&["127.0.0.3:5"]));
        assert_eq!(resolve(&here, "http://[::1]:1/").unwrap(), addresses(&["127.0.0.4:2"]));
        // Connections use addresses of one family.
        let here = routes(&["x.invalid:80:::1,127.0.0.1"], &[]);
        assert_eq!(resolve(&here, "http://x.invalid/").unwrap(), addresses(&["127.0.0.1:80"]));
    }

    #[test]
    fn routes_that_apply_to_no_url_are_known() {
        let url = |text| Url::parse(text).unwrap();
        let (x, y) = (url("http://x.invalid/"), url("http://y.invalid/"));
        assert!(Routes::default().apply_to(&[&x]));
        let here = routes(&["x.invalid:80:127.0.0.1"], &[]);
        assert_eq!((here.apply_to(&[&y, &x]), here.apply_to(&[&y])), (true, false));
        assert!(!routes(&["x.invalid:81:127.0.0.1"], &[]).apply_to(&[&x]));
        assert!(routes(&[], &["::127.0.0.1:1"]).apply_to(&[&x]));
    }

    #[test]
    fn malformed_routes_are_refused() {
        for text in ["", "x", "x:80", "x:80:", "x:80:y", "x:y:127.0.0.1", ":80:127.0.0.1", "x:80:127.0.0.1,"] {
            assert!(ResolvedHost::parse(text).unwrap_err().contains("HOST:PORT:ADDRESS"), "{text}");
        }
        for text in ["", "x", "x:80", "x:80:y", "x:y:z:1", "x:80:y:z"] {
            assert!(RedirectedHost::parse(text).unwrap_err().contains("HOST1:PORT1"), "{text}");
        }
    }
}
