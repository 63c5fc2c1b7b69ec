//! Addresses to connect to: name resolution, and routes from the command line.

use crate::bench::BenchError;
use flatout_http::url::Url;
use flatout_os::socket::{is_local, read_listening};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// Maximum number of addresses that a run uses. A guess: more than any name has in practice.
const ADDRESSES_MAX: usize = 64;

/// Stands for any host that has no route of its own, as in curl's `--resolve`. No host has this name.
const ANY_HOST: &str = "*";

/// The routes from the command line, which decide to which addresses the client connects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    /// Addresses of hosts, which replace name resolution (`--resolve`).
    pub resolved: Vec<ResolvedHost>,
    /// Hosts that replace other hosts (`--connect-to`). The first that applies is used.
    pub redirected: Vec<RedirectedHost>,
}

/// The addresses of a host and port.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{text}")]
pub struct ResolvedHost {
    /// The route as written.
    text: String,
    /// The host, or [`ANY_HOST`].
    host: String,
    port: u16,
    /// At least one, and all of the same family.
    addresses: Vec<IpAddr>,
}

/// A host and port to which the client connects instead of another host and port.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{text}")]
pub struct RedirectedHost {
    /// The route as written.
    text: String,
    /// The host and the port of the URL; `None` for any.
    from: (Option<String>, Option<u16>),
    /// The host and the port to connect to; `None` for those of the URL.
    to: (Option<String>, Option<u16>),
}

impl ResolvedHost {
    /// Parses `HOST:PORT:ADDRESS[,ADDRESS…]`, as curl's `--resolve`. `*` stands for any host. The addresses must be of
    /// the same family.
    ///
    /// # Errors
    /// Returns a sentence with the valid syntax, or with the problem.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parsed = || {
            let (host, rest) = split_host(text)?;
            let (port, addresses) = rest.split_once(':')?;
            let address = |text: &str| text.trim_start_matches('[').trim_end_matches(']').parse().ok();
            let addresses: Vec<IpAddr> = addresses.split(',').map(address).collect::<Option<_>>()?;
            let is_valid = !host.is_empty() && addresses.len() <= ADDRESSES_MAX;
            let (host, port) = (host.to_ascii_lowercase(), port.parse().ok()?);
            is_valid.then_some(Self { text: text.to_owned(), host, port, addresses })
        };
        let route = parsed().ok_or_else(|| format!("{text:?} does not have the form HOST:PORT:ADDRESS[,ADDRESS]"))?;
        if route.addresses.windows(2).any(|pair| pair[0].is_ipv4() != pair[1].is_ipv4()) {
            return Err(format!("{text:?} has IPv4 and IPv6 addresses, but a run uses only one of the two"));
        }
        Ok(route)
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
            let (from, to) = ((host(from), port(from_port)?), (host(to), port(to_port)?));
            Some(Self { text: text.to_owned(), from, to })
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
    /// Returns the flag and the value of the first route that none of these URLs uses.
    pub fn first_unused(&self, urls: &[&Url]) -> Option<(&'static str, String)> {
        let is_same =
            |one: Option<&RedirectedHost>, other: &RedirectedHost| one.is_some_and(|one| std::ptr::eq(one, other));
        let redirected =
            self.redirected.iter().find(|route| !urls.iter().any(|url| is_same(self.redirection(url), route)));
        if let Some(route) = redirected {
            return Some(("--connect-to", route.to_string()));
        }
        let is_used = |route: &ResolvedHost| {
            let mut targets = urls.iter().map(|url| self.redirect(url));
            targets.any(|(host, port)| self.resolution(host, port).is_some_and(|used| std::ptr::eq(used, route)))
        };
        self.resolved.iter().find(|route| !is_used(route)).map(|route| ("--resolve", route.to_string()))
    }

    fn redirection(&self, url: &Url) -> Option<&RedirectedHost> {
        self.redirected.iter().find(|route| route.applies_to(&url.host, url.port))
    }

    /// Returns the host and port to connect to.
    fn redirect<'a>(&'a self, url: &'a Url) -> (&'a str, u16) {
        let to = self.redirection(url).map(|route| &route.to);
        let (host, port) = to.map_or((None, None), |(host, port)| (host.as_deref(), *port));
        (host.unwrap_or(&url.host), port.unwrap_or(url.port))
    }

    fn resolution(&self, host: &str, port: u16) -> Option<&ResolvedHost> {
        let of = |host: &str| {
            self.resolved.iter().find(|resolved| resolved.host.eq_ignore_ascii_case(host) && resolved.port == port)
        };
        of(host).or_else(|| of(ANY_HOST))
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
        if let Some(resolved) = self.resolution(host, port) {
            return Ok(resolved.addresses.iter().map(|address| SocketAddr::new(*address, port)).collect());
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
        let here = routes(&["*:80:127.0.0.5", "x.invalid:80:127.0.0.1"], &[]);
        assert_eq!(resolve(&here, "http://x.invalid/").unwrap(), addresses(&["127.0.0.1:80"]), "any host comes last");
        assert_eq!(resolve(&here, "http://z.invalid/").unwrap(), addresses(&["127.0.0.5:80"]));
        assert!(resolve(&here, "http://z.invalid:81/").is_err());
        let here = routes(&[], &["x.invalid::127.0.0.3:", "[::1]:1:127.0.0.4:2"]);
        assert_eq!(resolve(&here, "http://x.invalid:5/").unwrap(), addresses(&["127.0.0.3:5"]));
        assert_eq!(resolve(&here, "http://[::1]:1/").unwrap(), addresses(&["127.0.0.4:2"]));
    }

    #[test]
    fn each_route_that_no_url_uses_is_known() {
        let url = |text| Url::parse(text).unwrap();
        let (x, y) = (url("http://x.invalid/"), url("http://y.invalid/"));
        assert_eq!(Routes::default().first_unused(&[&x]), None);
        let unused = |resolved: &[&str], redirected: &[&str], urls: &[&Url]| {
            routes(resolved, redirected).first_unused(urls).map(|(flag, route)| format!("{flag} {route}"))
        };
        let (to_x, to_y) = ("x.invalid:80:127.0.0.1", "y.invalid:80:127.0.0.2");
        assert_eq!(unused(&[to_x], &[], &[&y, &x]), None);
        assert_eq!(unused(&[to_x], &[], &[&y]).unwrap(), "--resolve x.invalid:80:127.0.0.1");
        assert_eq!(unused(&["x.invalid:81:127.0.0.1"], &[], &[&x]).unwrap(), "--resolve x.invalid:81:127.0.0.1");
        // Another route that applies does not make up for it.
        assert_eq!(unused(&[to_x, to_y], &[], &[&x]).unwrap(), "--resolve y.invalid:80:127.0.0.2");
        assert_eq!(unused(&[to_x, to_x], &[], &[&x]).unwrap(), "--resolve x.invalid:80:127.0.0.1");
        assert_eq!(unused(&[to_y], &["x.invalid::y.invalid:"], &[&x]), None);
        let to_any = "*:80:127.0.0.3";
        assert_eq!(unused(&[to_any], &[], &[&x]), None);
        assert_eq!(unused(&[to_x, to_any], &[], &[&x, &y]), None);
        assert_eq!(unused(&[to_x, to_any], &[], &[&x]).unwrap(), "--resolve *:80:127.0.0.3");
        assert_eq!(unused(&["*:81:127.0.0.3"], &[], &[&x]).unwrap(), "--resolve *:81:127.0.0.3");
        assert_eq!(unused(&[], &["::127.0.0.1:1"], &[&x]), None);
        let hidden = "x.invalid::127.0.0.1:2";
        assert_eq!(unused(&[], &["::127.0.0.1:1", hidden], &[&x]).unwrap(), format!("--connect-to {hidden}"));
        assert_eq!(unused(&[to_x], &["::127.0.0.1:1"], &[&x]).unwrap(), "--resolve x.invalid:80:127.0.0.1");
    }

    #[test]
    fn malformed_routes_are_refused() {
        for text in ["", "x", "x:80", "x:80:", "x:80:y", "x:y:127.0.0.1", ":80:127.0.0.1", "x:80:127.0.0.1,"] {
            assert!(ResolvedHost::parse(text).unwrap_err().contains("HOST:PORT:ADDRESS"), "{text}");
        }
        assert!(ResolvedHost::parse("x:80:::1,127.0.0.1").unwrap_err().contains("only one of the two"));
        for text in ["", "x", "x:80", "x:80:y", "x:y:z:1", "x:80:y:z"] {
            assert!(RedirectedHost::parse(text).unwrap_err().contains("HOST1:PORT1"), "{text}");
        }
    }
}
