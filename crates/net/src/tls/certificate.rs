//! A site's certificate and key: parsed from PEM, and validated before use.

use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::sync::Arc;

/// The certificate of a site, as the contents of files; `label` names them in messages.
#[derive(Clone)]
pub struct SiteCertificate {
    /// Names that it is used for: `a.example`, `*.example` for any name below it, or `*` for all.
    pub names: Vec<String>,
    /// The certificate chain in PEM, the site's own certificate first.
    pub chain_pem: Vec<u8>,
    /// The private key in PEM: PKCS #8, PKCS #1 or SEC 1.
    pub key_pem: Vec<u8>,
    /// The file's name, for messages.
    pub label: String,
}

impl fmt::Debug for SiteCertificate {
    /// Omits the key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SiteCertificate")
            .field("names", &self.names)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}

/// Why a certificate cannot be used. Each contains the label of the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateError {
    /// No certificate was given.
    None,
    /// The chain's file contains no certificate in PEM.
    NoCertificate(String),
    /// The chain's file is not valid PEM, or its first certificate is malformed.
    CertificateMalformed(String),
    /// The key's file contains no private key in PEM.
    NoKey(String),
    /// The key is malformed or unsupported. Supported are RSA of 2048 to 8192 bits, ECDSA on P-256, P-384 or P-521,
    /// and Ed25519.
    KeyUnsupported(String),
    /// The key belongs to another certificate.
    KeyMismatch(String),
}

impl CertificateError {
    /// The stable name for messages.
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

impl fmt::Display for CertificateError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => formatter.write_str("TLS needs at least one certificate"),
            Self::NoCertificate(label) => write!(formatter, "{label}: the file contains no certificate in PEM"),
            Self::CertificateMalformed(label) => write!(formatter, "{label}: the certificate is malformed"),
            Self::NoKey(label) => write!(formatter, "{label}: the key's file contains no private key in PEM"),
            Self::KeyUnsupported(label) => {
                write!(formatter, "{label}: the private key is malformed, or neither RSA, ECDSA nor Ed25519")
            }
            Self::KeyMismatch(label) => write!(formatter, "{label}: the private key belongs to another certificate"),
        }
    }
}

impl std::error::Error for CertificateError {}

/// A problem of a certificate that is used nevertheless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateWarning {
    /// It has expired; clients will reject it.
    Expired(String),
    /// It is not valid yet; clients will reject it.
    NotYetValid(String),
}

impl fmt::Display for CertificateWarning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired(label) => write!(formatter, "{label}: the certificate has expired; clients will refuse it"),
            Self::NotYetValid(label) => {
                write!(formatter, "{label}: the certificate is not valid yet; clients will refuse it")
            }
        }
    }
}

/// The validity of a certificate, in seconds since 1970, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Start of the validity.
    pub not_before_s: i64,
    /// End of the validity.
    pub not_after_s: i64,
}

/// The validity of the first certificate in `chain_pem`; `None` if there is none or it is malformed.
pub fn read_validity(chain_pem: &[u8]) -> Option<Validity> {
    let certificate = CertificateDer::pem_slice_iter(chain_pem).next()?.ok()?;
    parse_validity(&certificate)
}

/// Parses and validates `site` and its key.
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
        // A key without access to its public half may match.
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(Arc::new(certified)),
        Err(Error::InconsistentKeys(_)) => Err(CertificateError::KeyMismatch(label())),
        Err(_) => Err(CertificateError::CertificateMalformed(label())),
    }
}

/// The warning about `site` at `unix_s`, if any.
pub(crate) fn warn_of(site: &SiteCertificate, unix_s: i64) -> Option<CertificateWarning> {
    let validity = read_validity(&site.chain_pem)?;
    if unix_s > validity.not_after_s {
        return Some(CertificateWarning::Expired(site.label.clone()));
    }
    (unix_s < validity.not_before_s).then(|| CertificateWarning::NotYetValid(site.label.clone()))
}

/// `Certificate → TBSCertificate → validity` (RFC 5280 §4.1): the fifth element, or the fourth without a version.
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
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        rest = parse_element(rest)?.2;
    }
    let (_, validity, _) = parse_element(rest)?;
    let (before_tag, not_before, rest) = parse_element(validity)?;
    let (after_tag, not_after, _) = parse_element(rest)?;
    Some(Validity { not_before_s: parse_time(before_tag, not_before)?, not_after_s: parse_time(after_tag, not_after)? })
}

/// One DER element: its tag, its content and the bytes after it.
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

/// `UTCTime` (`YYMMDDhhmmssZ`) or `GeneralizedTime` (`YYYYMMDDhhmmssZ`), as defined in RFC 5280 §4.1.2.5.
fn parse_time(tag: u8, text: &[u8]) -> Option<i64> {
    let digits = text.strip_suffix(b"Z")?;
    let number = |range: std::ops::Range<usize>| {
        digits
            .get(range)?
            .iter()
            .try_fold(0_i64, |value, byte| byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0')))
    };
    let (year, at) = match (tag, digits.len()) {
        // RFC 5280 §4.1.2.5.1: 50 and above are in the 20th century.
        (0x17, 12) => (number(0..2).map(|year| if year < 50 { 2000 + year } else { 1900 + year })?, 2),
        (0x18, 14) => (number(0..4)?, 4),
        _ => return None,
    };
    let (month, day) = (number(at..at + 2)?, number(at + 2..at + 4)?);
    let (hour, minute, second) = (number(at + 4..at + 6)?, number(at + 6..at + 8)?, number(at + 8..at + 10)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    Some(days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Days since 1970-01-01 in the Gregorian calendar; with March as the first month, the leap day is a year's last.
const fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // Lengths of months from March on: 31, 30, 31, 30, 31, repeated.
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests;
