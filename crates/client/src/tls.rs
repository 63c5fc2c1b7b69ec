//! TLS towards the server under test: verification, resumption, and handshake failures.

use flatout_net::tls::ClientTlsError;
use flatout_net::tls::client::client_config;
use flatout_net::tls::config::{ALPN_HTTP2, ALPN_HTTP11};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls_pki_types::ServerName;
use std::path::PathBuf;
use std::sync::Arc;

/// TLS settings towards the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTlsSettings {
    /// The name in its certificate: the host of the URL, a name or an address.
    pub server_name: String,
    /// True if certificate verification is skipped.
    pub insecure: bool,
    /// File of CA certificates in PEM; `None` for the system's.
    pub authorities: Option<PathBuf>,
    /// True if sessions are resumed.
    pub resumes: bool,
    /// True if ALPN offers HTTP/2 only.
    pub http2: bool,
}

/// TLS for connections to one server.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    resumes: bool,
}

impl ClientTls {
    /// Loads the CA certificates. This takes a while, so call it before the run.
    pub fn load(settings: &ClientTlsSettings) -> Result<Self, ClientTlsError> {
        let name = ServerName::try_from(settings.server_name.clone())
            .map_err(|_| ClientTlsError::ServerName(settings.server_name.clone()))?;
        let mut config = client_config(settings.insecure, settings.authorities.as_ref())?;
        config.alpn_protocols = vec![if settings.http2 { ALPN_HTTP2.to_vec() } else { ALPN_HTTP11.to_vec() }];
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config), name, resumes: settings.resumes })
    }

    /// The configuration of one worker, with a session cache of its own.
    pub(super) fn for_worker(&self) -> (Arc<ClientConfig>, ServerName<'static>) {
        let mut config = ClientConfig::clone(&self.config);
        if self.resumes {
            config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
        }
        (Arc::new(config), self.name.clone())
    }
}

/// Servers whose sessions are cached; there is one, for which rustls stores several tickets.
const SESSIONS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::{ClientTls, ClientTlsSettings};

    #[test]
    fn names_and_addresses_are_names() {
        for (name, is_one) in [("localhost", true), ("127.0.0.1", true), ("::1", true), ("a b", false)] {
            let settings =
                ClientTlsSettings { server_name: name.to_owned(), insecure: true, ..ClientTlsSettings::default() };
            assert_eq!(ClientTls::load(&settings).is_ok(), is_one, "{name}");
        }
    }
}
