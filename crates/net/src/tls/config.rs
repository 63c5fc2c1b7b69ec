//! What all workers' TLS connections share: certificates by name, ticket keys, protocols and versions.

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
pub(crate) const ALPN_HTTP2: &[u8] = b"h2";

/// The name of HTTP/1.1 in ALPN (RFC 7301 §6). A client that offers nothing gets it, too.
pub(crate) const ALPN_HTTP11: &[u8] = b"http/1.1";

/// Tickets sent after a full handshake of TLS 1.3. A client uses each once and gets another with each resumption, and
/// whoever speaks HTTP/2 opens one connection, so one does; browsers that open several at once for HTTP/1.1 want two.
const TICKETS: usize = 2;

/// TLS for the listeners of all workers. Certificates can be replaced at any time: connections that are open keep
/// theirs, and tickets stay good.
pub struct TlsServer {
    config: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
    provider: Arc<CryptoProvider>,
}

impl TlsServer {
    /// A server that has no certificate yet, and refuses handshakes until it has.
    ///
    /// TLS 1.3 and 1.2 with the suites, groups and preference for post-quantum key exchange that rustls has by
    /// default, which Mozilla's intermediate profile contains. Ticket keys are this process's own, shared by its
    /// workers and replaced every six hours; nothing of a session is stored. Fails when the system has no random bytes.
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

    /// Shows these certificates from now on. Nothing changes when one of them cannot be used. Returns what is wrong
    /// with those that are used all the same, at `unix_s`.
    ///
    /// A client gets the certificate of the exact name it asks for, else that of the longest `*.` name above it, else
    /// that of `*`, else the first: so whoever asks for no name, or an unknown one, gets an answer that says which
    /// site is here. When two have one name, the first has it.
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

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

impl fmt::Debug for TlsServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TlsServer").field("certificates", &self.certificates).finish_non_exhaustive()
    }
}

/// The certificates at hand, swapped whole.
#[derive(Debug, Default)]
struct Certificates(ArcSwapOption<Table>);

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load().as_ref()?.find(hello.server_name())
    }
}

#[derive(Debug, Default)]
struct Table {
    /// By name, in lower case without a dot at the end.
    exact: HashMap<String, Arc<CertifiedKey>>,
    /// By what follows `*.`.
    below: HashMap<String, Arc<CertifiedKey>>,
    /// Of `*`.
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
