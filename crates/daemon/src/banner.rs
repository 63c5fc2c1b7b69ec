//! The first lines: the URLs, so that they can be clicked, and what is served.

use crate::listeners::Address;
use crate::logs::any_on_stdout;
use crate::source::Source;
use flatout_config::model::{Config, Handler, StepKind};
use flatout_net::server::Protocol;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Prints the lines; to standard error when a log has standard output for itself.
pub(crate) fn announce(source: &Source, config: &Config, addresses: &[Address], workers: usize) {
    let mut text = String::new();
    for address in addresses {
        let scheme = if address.protocol == Protocol::Tls { "https" } else { "http" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{scheme}://{}/", openable(address.bound));
    }
    let plural = if workers == 1 { "worker" } else { "workers" };
    let _ = writeln!(text, "serving {} with {workers} {plural}; Ctrl-C stops", what(source, config));
    // Nobody to read it is no reason not to serve.
    let _ = if any_on_stdout(config) {
        io::stderr().write_all(text.as_bytes())
    } else {
        io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush())
    };
}

/// An unspecified address is not one a browser can open; the loopback one is.
fn openable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// The folder, when flags name one; otherwise the configuration and how many sites it has.
fn what(source: &Source, config: &Config) -> String {
    if let Source::File(path) = source {
        let sites = config.sites.len();
        return format!("{sites} {} of {}", if sites == 1 { "site" } else { "sites" }, path.display());
    }
    let folder = config.sites.iter().flat_map(|site| &site.block).find_map(|step| match &step.kind {
        StepKind::Handler(Handler::Files(files)) => Some(&files.root),
        _ => None,
    });
    folder
        .map(|folder| folder.canonicalize().unwrap_or_else(|_| folder.clone()).display().to_string())
        .unwrap_or_default()
}
