//! TLS connections to the server under test: verification, resumption and handshake failures.

use flatout_net::tls::ClientTlsError;
use flatout_net::tls::client::client_config;
use flatout_net::tls::config::{ALPN_HTTP2, ALPN_HTTP11};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls_pki_types::ServerName;
use std::path::PathBuf;
use std::sync::Arc;

/// Settings of TLS connections to the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTlsSettings {
    /// The host of the URL, which the server's certificate must contain: a name or an address.
    pub server_name: String,
    /// True if the certificate is not verified.
    pub insecure: bool,
    /// File with trusted CA certificates in PEM; `None` for those of the system.
    pub authorities: Option<PathBuf>,
    /// True if TLS sessions are resumed.
    pub resumes: bool,
    /// True if ALPN offers only HTTP/2. QUIC offers HTTP/3 in any case.
    pub http2: bool,
}

/// The TLS configuration for connections to one server.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    resumes: bool,
}

impl ClientTls {
    /// Loads the CA certificates. This takes a while, so call it before the run starts.
    pub fn load(settings: &ClientTlsSettings) -> Result<Self, ClientTlsError> {
        let name = ServerName::try_from(settings.server_name.clone())
            .map_err(|_| ClientTlsError::ServerName(settings.server_name.clone()))?;
        let mut config = client_config(settings.insecure, settings.authorities.as_ref())?;
        config.alpn_protocols = vec![if settings.http2 { ALPN_HTTP2.to_vec() } else { ALPN_HTTP11.to_vec() }];
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config), name, resumes: settings.resumes })
    }

    /// Returns the configuration of one worker, which has its own session cache.
    pub(super) fn for_worker(&self) -> (Arc<ClientConfig>, ServerName<'static>) {
        let mut config = ClientConfig::clone(&self.config);
        if self.resumes {
            config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
        }
        (Arc::new(config), self.name.clone())
    }
}

/// Maximum number of servers whose sessions are cached. There is only one server, for which rustls stores several
/// tickets.
const SESSIONS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::{ClientTls, ClientTlsSettings};

    #[test]
    fn tls_accepts_names_and_addresses() {
        for (name, is_one) in [("localhost", true), ("127.0.0.1", true), ("::1", true), ("a b", false)] {
            let settings =
                ClientTlsSettings { server_name: name.to_owned(), insecure: true, ..ClientTlsSettings::default() };
            assert_eq!(ClientTls::load(&settings).is_ok(), is_one, "{name}");
        }
    }
}
