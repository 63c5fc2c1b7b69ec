//! TLS verification of https origins.

use super::failure::OriginFailure;
use crate::tls::config::{ALPN_HTTP2, ALPN_HTTP11};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::version::{TLS12, TLS13};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// TLS settings towards origins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginTlsSettings {
    /// True if certificate verification is skipped. For tests.
    pub insecure: bool,
    /// File of CA certificates in PEM; `None` for the system's.
    pub authorities: Option<PathBuf>,
    /// The name in the certificate; `None` for the origin's host.
    pub server_name: Option<String>,
}

/// TLS for connections to origins, shared by all workers. Sessions are resumed.
#[derive(Debug)]
pub struct OriginTls {
    pub(super) config: Arc<ClientConfig>,
    /// The configuration that offers HTTP/2 by ALPN.
    pub(super) offering_http2: Arc<ClientConfig>,
    pub(super) server_name: Option<ServerName<'static>>,
}

/// Why TLS cannot be configured.
#[derive(Debug)]
pub enum OriginTlsError {
    /// The file of CA certificates cannot be read.
    Unreadable(PathBuf, io::Error),
    /// The file of CA certificates contains none, or is not valid PEM.
    NoAuthority(PathBuf),
    /// The system has no CA certificates.
    NoSystemAuthority,
    /// The name is not a valid host name.
    ServerName(String),
    /// The TLS library reported an internal error.
    Internal(Error),
}

impl fmt::Display for OriginTlsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => write!(formatter, "{} cannot be read: {error}", path.display()),
            Self::NoAuthority(path) => write!(formatter, "{} contains no certificate in PEM", path.display()),
            Self::NoSystemAuthority => formatter.write_str("the system has no certificates of authorities"),
            Self::ServerName(name) => write!(formatter, "{name:?} is not a host name"),
            Self::Internal(error) => write!(formatter, "TLS cannot be set up: {error}"),
        }
    }
}

impl std::error::Error for OriginTlsError {}

impl OriginTls {
    /// Loads the CA certificates. This takes a while, so call it at startup, not on a worker.
    pub fn load(settings: &OriginTlsSettings) -> Result<Arc<Self>, OriginTlsError> {
        let server_name = match &settings.server_name {
            None => None,
            Some(name) => {
                let parsed = ServerName::try_from(name.clone());
                Some(parsed.map_err(|_| OriginTlsError::ServerName(name.clone()))?)
            }
        };
        let mut config = client_config(settings.insecure, settings.authorities.as_ref())?;
        let mut offering_http2 = config.clone();
        config.alpn_protocols = vec![ALPN_HTTP11.to_vec()];
        offering_http2.alpn_protocols = vec![ALPN_HTTP2.to_vec(), ALPN_HTTP11.to_vec()];
        Ok(Arc::new(Self { config: Arc::new(config), offering_http2: Arc::new(offering_http2), server_name }))
    }
}

/// A client's configuration: TLS 1.2 and 1.3, verification by these authorities unless `insecure`.
pub(crate) fn client_config(insecure: bool, authorities: Option<&PathBuf>) -> Result<ClientConfig, OriginTlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(OriginTlsError::Internal)?;
    let builder = if insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(BelieveAll(provider)))
    } else {
        builder.with_root_certificates(read_authorities(authorities)?)
    };
    Ok(builder.with_no_client_auth())
}

/// The CA certificates of a PEM file, or the system's.
fn read_authorities(authorities: Option<&PathBuf>) -> Result<RootCertStore, OriginTlsError> {
    let mut roots = RootCertStore::empty();
    let Some(path) = authorities else {
        // Unreadable or malformed ones are skipped, as is common: without them, fewer certificates are trusted.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return if roots.is_empty() { Err(OriginTlsError::NoSystemAuthority) } else { Ok(roots) };
    };
    let pem = std::fs::read(path).map_err(|error| OriginTlsError::Unreadable(path.clone(), error))?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let added = certificate.ok().and_then(|certificate| roots.add(certificate).ok());
        added.ok_or_else(|| OriginTlsError::NoAuthority(path.clone()))?;
    }
    if roots.is_empty() { Err(OriginTlsError::NoAuthority(path.clone())) } else { Ok(roots) }
}

/// The failure in a handshake's error.
pub(crate) fn name_tls_error(error: &io::Error) -> OriginFailure {
    let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else {
        return OriginFailure::TlsFailed;
    };
    match error {
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => OriginFailure::TlsName,
        Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => OriginFailure::TlsExpired,
        Error::InvalidCertificate(_) => OriginFailure::TlsUntrusted,
        _ => OriginFailure::TlsFailed,
    }
}

/// A verifier that accepts any certificate, but still checks that the peer has its key.
#[derive(Debug)]
struct BelieveAll(pub(crate) Arc<CryptoProvider>);

impl ServerCertVerifier for BelieveAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
