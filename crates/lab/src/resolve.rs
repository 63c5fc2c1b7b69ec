//! Name resolution for a bench.

use crate::bench::BenchError;
use flatout_http::url::Url;
use flatout_os::socket::{is_local, read_listening};
use std::net::{SocketAddr, ToSocketAddrs};

/// Returns an address of the URL's host. If there are several (`localhost` has two), chooses the first on this machine
/// that has a listener, else the first IPv4 address, else the first address.
///
/// # Errors
/// Returns [`BenchError::Unresolvable`] if there is no address.
pub fn resolve(url: &Url) -> Result<SocketAddr, BenchError> {
    let unresolvable = |cause: String| BenchError::Unresolvable { host: url.host.clone(), cause };
    let addresses: Vec<SocketAddr> =
        (url.host.as_str(), url.port).to_socket_addrs().map_err(|error| unresolvable(error.to_string()))?.collect();
    let listening = || {
        let sockets = read_listening().unwrap_or_default();
        addresses
            .iter()
            .copied()
            .find(|address| is_local(address.ip()) && sockets.iter().any(|socket| socket.serves(*address)))
    };
    let chosen = if addresses.len() > 1 { listening() } else { None };
    chosen
        .or_else(|| addresses.iter().copied().find(SocketAddr::is_ipv4))
        .or_else(|| addresses.first().copied())
        .ok_or_else(|| unresolvable("no address".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::resolve;
    use crate::bench::BenchError;
    use flatout_http::url::Url;

    #[test]
    fn names_and_addresses_are_resolved() {
        let resolve = |text: &str| resolve(&Url::parse(text).unwrap());
        assert_eq!(resolve("http://127.0.0.1:8/").unwrap(), "127.0.0.1:8".parse().unwrap());
        assert_eq!(resolve("http://[::1]:8/").unwrap(), "[::1]:8".parse().unwrap());
        // RFC 2606 keeps .invalid free of addresses.
        assert!(matches!(resolve("http://no.such.host.invalid/"), Err(BenchError::Unresolvable { .. })));
    }
}
