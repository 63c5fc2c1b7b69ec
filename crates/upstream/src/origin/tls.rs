//! TLS configuration for https origins.

use flatout_net::tls::ClientTlsError;
use flatout_net::tls::client::client_config;
use flatout_net::tls::config::{ALPN_HTTP2, ALPN_HTTP11};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use std::path::PathBuf;
use std::sync::Arc;

/// TLS settings for connections to origins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginTlsSettings {
    /// True to skip certificate verification. For tests.
    pub insecure: bool,
    /// File of CA certificates in PEM format, or `None` for the system's CA certificates.
    pub authorities: Option<PathBuf>,
    /// The name that the certificate must be valid for, or `None` for the origin's host.
    pub server_name: Option<String>,
}

/// TLS configuration for connections to origins, shared by all workers. Sessions are resumed.
#[derive(Debug)]
pub struct OriginTls {
    pub(super) config: Arc<ClientConfig>,
    /// The configuration that offers HTTP/2 by ALPN.
    pub(super) offering_http2: Arc<ClientConfig>,
    pub(super) server_name: Option<ServerName<'static>>,
}

impl OriginTls {
    /// Loads the CA certificates. This is slow, so call it at startup and not on a worker.
    pub fn load(settings: &OriginTlsSettings) -> Result<Arc<Self>, ClientTlsError> {
        let server_name = match &settings.server_name {
            None => None,
            Some(name) => {
                let parsed = ServerName::try_from(name.clone());
                Some(parsed.map_err(|_| ClientTlsError::ServerName(name.clone()))?)
            }
        };
        let mut config = client_config(settings.insecure, settings.authorities.as_ref())?;
        let mut offering_http2 = config.clone();
        config.alpn_protocols = vec![ALPN_HTTP11.to_vec()];
        offering_http2.alpn_protocols = vec![ALPN_HTTP2.to_vec(), ALPN_HTTP11.to_vec()];
        Ok(Arc::new(Self { config: Arc::new(config), offering_http2: Arc::new(offering_http2), server_name }))
    }
}
