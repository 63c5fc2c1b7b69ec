//! TLS towards the server under test: verification, resumption, and handshake failures.

use crate::origin::tls::{client_config, name_tls_error};
use crate::origin::{OriginFailure, OriginTlsError};
use crate::tls::config::{ALPN_HTTP2, ALPN_HTTP11};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls_pki_types::ServerName;
use std::fmt;
use std::io;
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
    pub fn load(settings: &ClientTlsSettings) -> Result<Self, OriginTlsError> {
        let name = ServerName::try_from(settings.server_name.clone())
            .map_err(|_| OriginTlsError::ServerName(settings.server_name.clone()))?;
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

flatout_reason::reasons! {
    /// Why a TLS session failed.
    #[derive(PartialOrd, Ord)]
    pub enum TlsFailure { name, text, }
    Name,      "tls-name",      "the certificate is not valid for the host in the URL";
    Expired,   "tls-expired",   "the certificate is not valid at this time";
    Untrusted, "tls-untrusted", "no trusted authority has signed the certificate (use --cacert or --insecure)";
    Handshake, "tls-handshake", "the TLS handshake failed, or the server does not speak TLS";
}

impl TlsFailure {
    /// The TLS failure in an error of a TLS stream; `None` if the socket failed.
    pub(crate) fn of(error: &io::Error) -> Option<Self> {
        match error.kind() {
            io::ErrorKind::InvalidData => {}
            _ if error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>) => {}
            _ => return None,
        }
        Some(match name_tls_error(error) {
            OriginFailure::TlsName => Self::Name,
            OriginFailure::TlsExpired => Self::Expired,
            OriginFailure::TlsUntrusted => Self::Untrusted,
            _ => Self::Handshake,
        })
    }
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientTls, ClientTlsSettings, TlsFailure};
    use rustls::{CertificateError, Error};
    use std::io;

    #[test]
    fn errors_of_a_handshake_have_names_and_those_of_a_socket_do_not() {
        let wrong_name = Error::InvalidCertificate(CertificateError::NotValidForName);
        for (error, failure) in [
            (io::Error::new(io::ErrorKind::InvalidData, wrong_name), Some(TlsFailure::Name)),
            (
                io::Error::new(io::ErrorKind::InvalidData, Error::InvalidCertificate(CertificateError::UnknownIssuer)),
                Some(TlsFailure::Untrusted),
            ),
            (io::Error::new(io::ErrorKind::InvalidData, Error::DecryptError), Some(TlsFailure::Handshake)),
            (io::Error::from_raw_os_error(104), None),
        ] {
            assert_eq!(TlsFailure::of(&error), failure, "{error}");
        }
    }

    #[test]
    fn names_and_addresses_are_names() {
        for (name, is_one) in [("localhost", true), ("127.0.0.1", true), ("::1", true), ("a b", false)] {
            let settings =
                ClientTlsSettings { server_name: name.to_owned(), insecure: true, ..ClientTlsSettings::default() };
            assert_eq!(ClientTls::load(&settings).is_ok(), is_one, "{name}");
        }
    }
}
