//! TLS configuration shared by all workers: certificates by name, ticket keys, protocols and versions.

use super::certificate::{CertificateError, CertificateWarning, SiteCertificate, read_certificate, warn_of};
use crate::quic::settings::ALPN_HTTP3;
use arc_swap::ArcSwapOption;
use flatout_os::random::HashState;
use quinn_proto::crypto::rustls::QuicServerConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, ServerConfig};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// The ALPN name of HTTP/2 (RFC 9113 §3.2).
pub const ALPN_HTTP2: &[u8] = b"h2";

/// The ALPN name of HTTP/1.1 (RFC 7301 §6). HTTP/1.1 is also used for clients that offer no protocol.
pub const ALPN_HTTP11: &[u8] = b"http/1.1";

/// Number of tickets sent after a full TLS 1.3 handshake. A client uses each ticket once and receives another with each
/// resumption. An HTTP/2 client opens one connection and needs one ticket; browsers that open several HTTP/1.1
/// connections at once need two.
const TICKETS: usize = 2;

/// Number of tickets sent on an HTTP/3 connection. A client opens one connection for all its requests.
const TICKETS_QUIC: usize = 1;

/// The TLS configuration for the listeners of all workers. Certificates can be replaced at any time: open connections
/// keep the old ones, and tickets stay valid.
#[derive(derive_more::Debug)]
#[debug("TlsServer({certificates:?})")]
pub struct TlsServer {
    config: Arc<ServerConfig>,
    /// The configuration for HTTP/3, created when first needed. Contains `None` if that failed.
    quic: OnceLock<Option<Arc<QuicServerConfig>>>,
    certificates: Arc<Certificates>,
    provider: Arc<CryptoProvider>,
}

impl TlsServer {
    /// Creates a configuration without certificates, which refuses handshakes until it has a certificate.
    ///
    /// Supports TLS 1.3 and 1.2 with the default suites, groups and post-quantum preference of rustls, which are a
    /// subset of Mozilla's intermediate profile. Ticket keys belong to this process, are shared by its workers and are
    /// replaced every six hours; no session state is stored. Fails if the system cannot provide random bytes.
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
        Ok(Arc::new(Self { config: Arc::new(config), quic: OnceLock::new(), certificates, provider }))
    }

    /// Replaces the certificates. If any certificate cannot be used, nothing changes. Returns warnings that apply to
    /// usable certificates at the time `unix_s`.
    ///
    /// A handshake uses the certificate for the exact server name, or else that of the longest matching `*.` name, or
    /// else that of `*`, or else the first certificate. A client that sends no name or an unknown name therefore still
    /// receives a response that identifies the site. If two certificates have the same name, the first is used.
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

    /// Returns the configuration of HTTP/3 connections, with the same certificates, or `None` if the system cannot
    /// provide random bytes. Requests before the end of the handshake (0-RTT) are not accepted.
    pub fn quic(&self) -> Option<Arc<QuicServerConfig>> {
        self.quic.get_or_init(|| self.build_quic()).clone()
    }

    fn build_quic(&self) -> Option<Arc<QuicServerConfig>> {
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&TLS13])
            .ok()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&self.certificates) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![ALPN_HTTP3.to_vec()];
        // HTTP/3 tickets contain transport parameters, so tickets of other protocols must not be mistaken for them.
        config.ticketer = aws_lc_rs::Ticketer::new().ok()?;
        config.send_tls13_tickets = TICKETS_QUIC;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        QuicServerConfig::try_from(config).ok().map(Arc::new)
    }

    /// Returns the configuration for a new session.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

/// The current certificates, replaced as a whole.
#[derive(Debug, Default)]
struct Certificates(ArcSwapOption<Table>);

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load().as_ref()?.find(hello.server_name())
    }
}

#[derive(Debug, Default)]
struct Table {
    /// Certificates by exact name, in lower case and without a trailing dot.
    exact: HashMap<String, Arc<CertifiedKey>, HashState>,
    /// Certificates for `*.` names, by the part after `*.`.
    below: HashMap<String, Arc<CertifiedKey>, HashState>,
    /// The certificate for `*`.
    any: Option<Arc<CertifiedKey>>,
    /// The first certificate, for clients that send no name or an unknown name.
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
