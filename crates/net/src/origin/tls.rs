//! How origins of https are believed.

use rustls::ClientConfig;
use std::path::PathBuf;
use std::sync::Arc;

/// Whom we believe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginTlsSettings {
    /// Whether any certificate will do. For tests.
    pub insecure: bool,
    /// Authorities in PEM; `None`: the system's.
    pub authorities: Option<PathBuf>,
    /// The name in the certificate; `None`: the origin's host.
    pub server_name: Option<String>,
    /// Whether HTTP/2 is offered by ALPN.
    pub http2: bool,
}

/// TLS for connections to origins, shared by all workers.
#[derive(Debug)]
pub struct OriginTls {
    pub(super) config: Arc<ClientConfig>,
    pub(super) server_name: Option<String>,
}

/// Why there can be no TLS.
#[derive(Debug)]
pub enum OriginTlsError {
    /// A file of authorities cannot be read.
    Unreadable(PathBuf, std::io::Error),
    /// A file of authorities contains none, or something that is not PEM.
    NoAuthority(PathBuf),
    /// The system has no authorities.
    NoSystemAuthority,
    /// The name is no host name.
    ServerName(String),
    /// The system has no random bytes, or a defect.
    Internal(rustls::Error),
}

impl OriginTls {
    /// Reads the authorities. Slow: call it once, not on a worker's loop.
    pub fn load(settings: &OriginTlsSettings) -> Result<Arc<Self>, OriginTlsError> {
        unimplemented!("{settings:?}")
    }
}
