//! The certificate and key of a site, parsed from PEM and validated before use.

use flatout_http::date::unix_seconds;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;

/// The certificate and key of a site, as the contents of PEM files.
#[derive(Clone, derive_more::Debug)]
pub struct SiteCertificate {
    /// Names for which the certificate is used: `a.example`, `*.example` for any name below it, or `*` for all names.
    pub names: Vec<String>,
    /// The certificate chain in PEM, the site's own certificate first.
    #[debug(skip)]
    pub chain_pem: Vec<u8>,
    /// The private key in PEM: PKCS #8, PKCS #1 or SEC 1.
    #[debug(skip)]
    pub key_pem: Vec<u8>,
    /// The name of the file, for messages.
    pub label: String,
}

/// The reason a certificate cannot be used. Contains the label of the certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// No certificate was given.
    #[error("TLS needs at least one certificate")]
    None,
    /// The certificate file contains no certificate in PEM format.
    #[error("{0}: the file contains no certificate in PEM format")]
    NoCertificate(String),
    /// The certificate file is not valid PEM, or its first certificate is malformed.
    #[error("{0}: the certificate is malformed")]
    CertificateMalformed(String),
    /// The key file contains no private key in PEM format.
    #[error("{0}: the key file contains no private key in PEM format")]
    NoKey(String),
    /// The key is malformed or unsupported. Supported keys are RSA with 2048 to 8192 bits, ECDSA on P-256, P-384 or
    /// P-521, and Ed25519.
    #[error("{0}: the private key is malformed, or is not RSA, ECDSA or Ed25519")]
    KeyUnsupported(String),
    /// The key belongs to a different certificate.
    #[error("{0}: the private key belongs to another certificate")]
    KeyMismatch(String),
}

impl CertificateError {
    /// Returns a stable name for messages.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::None => "no_certificates",
            Self::NoCertificate(_) => "no_certificate",
            Self::CertificateMalformed(_) => "certificate_malformed",
            Self::NoKey(_) => "no_key",
            Self::KeyUnsupported(_) => "key_unsupported",
            Self::KeyMismatch(_) => "key_mismatch",
        }
    }
}

/// A problem of a certificate that is used anyway.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
pub enum CertificateWarning {
    /// The certificate has expired, and clients will reject it.
    #[display("{_0}: the certificate has expired; clients will reject it")]
    Expired(String),
    /// The certificate is not valid yet, and clients will reject it.
    #[display("{_0}: the certificate is not valid yet; clients will reject it")]
    NotYetValid(String),
}

/// The validity of a certificate, in seconds since 1970. Both limits are inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Start of the validity, as a Unix time.
    pub not_before_s: i64,
    /// End of the validity, as a Unix time.
    pub not_after_s: i64,
}

/// Returns the validity of the first certificate in `chain_pem`, or `None` if there is no certificate or it is
/// malformed.
pub fn read_validity(chain_pem: &[u8]) -> Option<Validity> {
    let certificate = CertificateDer::pem_slice_iter(chain_pem).next()?.ok()?;
    parse_validity(&certificate)
}

/// Parses and validates the certificate and key of `site`.
pub(crate) fn read_certificate(
    site: &SiteCertificate,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, CertificateError> {
    let label = || site.label.clone();
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&site.chain_pem)
        .collect::<Result<_, _>>()
        .map_err(|_| CertificateError::CertificateMalformed(label()))?;
    if chain.is_empty() {
        return Err(CertificateError::NoCertificate(label()));
    }
    let key = PrivateKeyDer::from_pem_slice(&site.key_pem).map_err(|_| CertificateError::NoKey(label()))?;
    let key = provider.key_provider.load_private_key(key).map_err(|_| CertificateError::KeyUnsupported(label()))?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        // A key whose public half is not accessible may match.
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(Arc::new(certified)),
        Err(Error::InconsistentKeys(_)) => Err(CertificateError::KeyMismatch(label())),
        Err(_) => Err(CertificateError::CertificateMalformed(label())),
    }
}

/// Returns the warning that applies to `site` at the time `unix_s`, if any.
pub(crate) fn warn_of(site: &SiteCertificate, unix_s: i64) -> Option<CertificateWarning> {
    let validity = read_validity(&site.chain_pem)?;
    if unix_s > validity.not_after_s {
        return Some(CertificateWarning::Expired(site.label.clone()));
    }
    (unix_s < validity.not_before_s).then(|| CertificateWarning::NotYetValid(site.label.clone()))
}

/// Parses `Certificate → TBSCertificate → validity` (RFC 5280 §4.1): the fifth element, or the fourth if there is no
/// version.
fn parse_validity(certificate: &[u8]) -> Option<Validity> {
    const SEQUENCE: u8 = 0x30;
    const VERSION: u8 = 0xa0;
    let (tag, certificate, _) = parse_element(certificate)?;
    let (inner_tag, mut rest, _) = parse_element(certificate)?;
    if (tag, inner_tag) != (SEQUENCE, SEQUENCE) {
        return None;
    }
    if rest.first() == Some(&VERSION) {
        rest = parse_element(rest)?.2;
    }
    // Skip the serial number, signature algorithm and issuer.
    for _ in 0..3 {
        rest = parse_element(rest)?.2;
    }
    let (_, validity, _) = parse_element(rest)?;
    let (before_tag, not_before, rest) = parse_element(validity)?;
    let (after_tag, not_after, _) = parse_element(rest)?;
    Some(Validity { not_before_s: parse_time(before_tag, not_before)?, not_after_s: parse_time(after_tag, not_after)? })
}

/// Parses one DER element. Returns its tag, its content and the bytes after it.
fn parse_element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (digits.iter().fold(0, |value, &digit| value << 8 | usize::from(digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Parses a `UTCTime` (`YYMMDDhhmmssZ`) or `GeneralizedTime` (`YYYYMMDDhhmmssZ`) as defined in RFC 5280 §4.1.2.5.
fn parse_time(tag: u8, text: &[u8]) -> Option<i64> {
    let digits = text.strip_suffix(b"Z")?;
    let number = |range: std::ops::Range<usize>| {
        digits
            .get(range)?
            .iter()
            .try_fold(0_i64, |value, byte| byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0')))
    };
    let (year, at) = match (tag, digits.len()) {
        // RFC 5280 §4.1.2.5.1: years from 50 to 99 are in the 20th century.
        (0x17, 12) => (number(0..2).map(|year| if year < 50 { 2000 + year } else { 1900 + year })?, 2),
        (0x18, 14) => (number(0..4)?, 4),
        _ => return None,
    };
    unix_seconds(
        [year, number(at..at + 2)?, number(at + 2..at + 4)?],
        [number(at + 4..at + 6)?, number(at + 6..at + 8)?, number(at + 8..at + 10)?],
    )
}

#[cfg(test)]
mod tests;
