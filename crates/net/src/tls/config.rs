//! TLS configuration shared by all workers: certificates by name, ticket keys, protocols and versions.

use super::certificate::{CertificateError, CertificateWarning, SiteCertificate, read_certificate, warn_of};
use arc_swap::ArcSwapOption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, ServerConfig};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The name of HTTP/2 in ALPN (RFC 9113 §3.2).
pub const ALPN_HTTP2: &[u8] = b"h2";

/// The name of HTTP/1.1 in ALPN (RFC 7301 §6). Also used for clients that offer nothing.
pub const ALPN_HTTP11: &[u8] = b"http/1.1";

/// Tickets sent after a full TLS 1.3 handshake. A client uses each once and receives another with each resumption. An
/// HTTP/2 client opens one connection and needs one; browsers that open several at once for HTTP/1.1 need two.
const TICKETS: usize = 2;

/// TLS for the listeners of all workers. Certificates can be replaced at any time: open connections keep theirs, and
/// tickets stay valid.
pub struct TlsServer {
    config: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
    provider: Arc<CryptoProvider>,
}

impl TlsServer {
    /// A server without certificates, which refuses handshakes until it has one.
    ///
    /// TLS 1.3 and 1.2 with the default suites, groups and post-quantum preference of rustls, a subset of Mozilla's
    /// intermediate profile. Ticket keys belong to this process, are shared by its workers and replaced every six
    /// hours; no session state is stored. Fails if the system has no random bytes.
    pub fn new() -> Result<Arc<Self>, rustls::Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let certificates = Arc::new(Certificates::default());
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13, &TLS12])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&certificates) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![ALPN_HTTP2.to_vec(), ALPN_HTTP11.to_vec()];
        config.ticketer = aws_lc_rs::Ticketer::new()?;
        config.send_tls13_tickets = TICKETS;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Arc::new(Self { config: Arc::new(config), certificates, provider }))
    }

    /// Replaces the certificates. If one of them cannot be used, nothing changes. Returns warnings about usable ones
    /// at `unix_s`.
    ///
    /// The certificate of a handshake is the one for the exact server name, else that of the longest matching `*.`
    /// name, else that of `*`, else the first: so a client that sends no name, or an unknown one, still receives a
    /// response that identifies the site. If two certificates have the same name, the first is used.
    pub fn replace(&self, sites: &[SiteCertificate], unix_s: i64) -> Result<Vec<CertificateWarning>, CertificateError> {
        let mut table = Table::default();
        for site in sites {
            let certified = read_certificate(site, &self.provider)?;
            for name in &site.names {
                table.add(name, &certified);
            }
            table.fallback.get_or_insert(certified);
        }
        if table.fallback.is_none() {
            return Err(CertificateError::None);
        }
        self.certificates.0.store(Some(Arc::new(table)));
        Ok(sites.iter().filter_map(|site| warn_of(site, unix_s)).collect())
    }

    /// The configuration of a new session.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

impl fmt::Debug for TlsServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TlsServer").field("certificates", &self.certificates).finish_non_exhaustive()
    }
}

/// The current certificates, swapped as a whole.
#[derive(Debug, Default)]
struct Certificates(ArcSwapOption<Table>);

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load().as_ref()?.find(hello.server_name())
    }
}

#[derive(Debug, Default)]
struct Table {
    /// By name, in lower case without a trailing dot.
    exact: HashMap<String, Arc<CertifiedKey>>,
    /// By the part after `*.`.
    below: HashMap<String, Arc<CertifiedKey>>,
    /// For `*`.
    any: Option<Arc<CertifiedKey>>,
    /// The first of all.
    fallback: Option<Arc<CertifiedKey>>,
}

impl Table {
    fn add(&mut self, name: &str, certified: &Arc<CertifiedKey>) {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        if name == "*" {
            self.any.get_or_insert_with(|| Arc::clone(certified));
        } else if let Some(parent) = name.strip_prefix("*.") {
            self.below.entry(parent.to_owned()).or_insert_with(|| Arc::clone(certified));
        } else {
            self.exact.entry(name).or_insert_with(|| Arc::clone(certified));
        }
    }

    fn find(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        name.and_then(|name| self.find_named(name)).or(self.any.as_ref()).or(self.fallback.as_ref()).map(Arc::clone)
    }

    fn find_named(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        if let Some(certified) = self.exact.get(&name) {
            return Some(certified);
        }
        let mut parents = name.as_str();
        while let Some((_, parent)) = parents.split_once('.') {
            if let Some(certified) = self.below.get(parent) {
                return Some(certified);
            }
            parents = parent;
        }
        None
    }
}

#[cfg(test)]
mod tests;
