//! TLS for clients: trusted certification authorities, verification, and the reasons for failures.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::version::{TLS12, TLS13};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The reason TLS cannot be configured.
#[derive(Debug, thiserror::Error)]
pub enum ClientTlsError {
    /// The file of CA certificates cannot be read.
    #[error("{0} cannot be read: {1}")]
    Unreadable(PathBuf, io::Error),
    /// The file of CA certificates contains no certificate or is not valid PEM.
    #[error("{0} contains no certificate in PEM format")]
    NoAuthority(PathBuf),
    /// The system has no CA certificates.
    #[error("the system has no CA certificates")]
    NoSystemAuthority,
    /// The name is not a valid host name.
    #[error("{0:?} is not a host name")]
    ServerName(String),
    /// The TLS library reported an internal error.
    #[error("TLS cannot be set up: {0}")]
    Internal(Error),
}

/// Creates a client configuration for TLS 1.2 and 1.3. Certificates are verified with the CA certificates in the file
/// `authorities`, or with those of the system, unless `insecure`.
pub fn client_config(insecure: bool, authorities: Option<&PathBuf>) -> Result<ClientConfig, ClientTlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(ClientTlsError::Internal)?;
    let builder = if insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAll(provider)))
    } else if let Some(path) = authorities {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Trusted::read(path, provider)?))
    } else {
        // Unreadable or malformed system certificates are skipped, as is common: without them, fewer certificates are
        // trusted.
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(ClientTlsError::NoSystemAuthority);
        }
        builder.with_root_certificates(roots)
    };
    Ok(builder.with_no_client_auth())
}

/// A verifier that trusts the certificates of a file: those that they signed and, as curl does, they themselves.
/// `openssl req -x509` makes a self-signed certificate an authority, which webpki does not accept from a server.
#[derive(Debug)]
struct Trusted {
    verifier: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

impl Trusted {
    fn read(path: &PathBuf, provider: Arc<CryptoProvider>) -> Result<Self, ClientTlsError> {
        let unusable = || ClientTlsError::NoAuthority(path.clone());
        let pem = std::fs::read(path).map_err(|error| ClientTlsError::Unreadable(path.clone(), error))?;
        let certificates = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
        let certificates = certificates.map_err(|_| unusable())?;
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            roots.add(certificate.clone()).map_err(|_| unusable())?;
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        Ok(Self { verifier: verifier.map_err(|_| unusable())?, certificates })
    }
}

/// webpki's error for a certificate of an authority that a server uses as its own. webpki finds it after it has checked
/// the dates.
const CA_USED_AS_END_ENTITY: &str = "CaUsedAsEndEntity";

impl ServerCertVerifier for Trusted {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.verifier.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(Error::InvalidCertificate(CertificateError::Other(why)))
                if why.0.to_string() == CA_USED_AS_END_ENTITY && self.certificates.contains(certificate) =>
            {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// A verifier that accepts any certificate, but still checks that the peer has the certificate's key.
#[derive(Debug)]
struct AcceptAll(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAll {
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

flatout_reason::reasons! {
    /// The reason a TLS session with a server failed.
    #[derive(PartialOrd, Ord, thiserror::Error)]
    #[error("{}", self.text())]
    pub enum ClientTlsFailure { name, text, }
    Name,      "tls-name",      "the certificate is not valid for the host in the URL";
    Expired,   "tls-expired",   "the certificate is not valid at this time";
    Untrusted, "tls-untrusted", "no trusted authority has signed the certificate (use --cacert or --insecure)";
    Handshake, "tls-handshake", "the TLS handshake failed, or the server does not speak TLS";
}

impl ClientTlsFailure {
    /// Returns the TLS failure behind an error of a TLS stream, or `None` if the socket failed.
    pub fn of(error: &io::Error) -> Option<Self> {
        match error.kind() {
            io::ErrorKind::InvalidData => {}
            _ if error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Error>) => {}
            _ => return None,
        }
        Some(match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Self::Name,
            Some(Error::InvalidCertificate(
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. },
            )) => Self::Expired,
            Some(Error::InvalidCertificate(_)) => Self::Untrusted,
            _ => Self::Handshake,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::ClientTlsFailure;
    use rustls::{CertificateError, Error};
    use std::io;

    #[test]
    fn errors_of_a_handshake_have_names_and_those_of_a_socket_do_not() {
        let wrong_name = Error::InvalidCertificate(CertificateError::NotValidForName);
        for (error, failure) in [
            (io::Error::new(io::ErrorKind::InvalidData, wrong_name), Some(ClientTlsFailure::Name)),
            (
                io::Error::new(io::ErrorKind::InvalidData, Error::InvalidCertificate(CertificateError::UnknownIssuer)),
                Some(ClientTlsFailure::Untrusted),
            ),
            (io::Error::new(io::ErrorKind::InvalidData, Error::DecryptError), Some(ClientTlsFailure::Handshake)),
            (io::Error::from_raw_os_error(104), None),
        ] {
            assert_eq!(ClientTlsFailure::of(&error), failure, "{error}");
        }
    }
}
