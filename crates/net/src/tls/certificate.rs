//! A site's certificate and key: read from PEM, and checked before anything uses them.

use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::sync::Arc;

/// What a site has to show. The bytes are a file's; who read them names them in `label`.
#[derive(Clone)]
pub struct SiteCertificate {
    /// Names that it is shown for: `a.example`, `*.example` for any name below it, or `*` for all.
    pub names: Vec<String>,
    /// The certificate and what leads to its authority, in PEM, the site's own first.
    pub chain_pem: Vec<u8>,
    /// The private key in PEM: PKCS #8, PKCS #1 or SEC 1.
    pub key_pem: Vec<u8>,
    /// What messages call it: the file's name.
    pub label: String,
}

impl fmt::Debug for SiteCertificate {
    /// Without the key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SiteCertificate")
            .field("names", &self.names)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}

/// Why a certificate cannot be used. Each holds the label of the one at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateError {
    /// None was given at all.
    None,
    /// The chain's file holds no certificate in PEM.
    NoCertificate(String),
    /// The chain's file is not what PEM should be, or its first certificate is malformed.
    CertificateMalformed(String),
    /// The key's file holds no private key in PEM.
    NoKey(String),
    /// The key is malformed, or of a kind that is not supported: RSA of 2048 to 8192 bits, ECDSA on P-256, P-384 or
    /// P-521 and Ed25519 are.
    KeyUnsupported(String),
    /// The key belongs to another certificate.
    KeyMismatch(String),
}

impl CertificateError {
    /// The stable name, as messages show it.
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
            Self::NoCertificate(label) => write!(formatter, "{label}: no certificate in PEM is in the file"),
            Self::CertificateMalformed(label) => write!(formatter, "{label}: the certificate is malformed"),
            Self::NoKey(label) => write!(formatter, "{label}: no private key in PEM is in the key's file"),
            Self::KeyUnsupported(label) => {
                write!(formatter, "{label}: the private key is malformed, or neither RSA, ECDSA nor Ed25519")
            }
            Self::KeyMismatch(label) => write!(formatter, "{label}: the private key belongs to another certificate"),
        }
    }
}

impl std::error::Error for CertificateError {}

/// What is wrong with a certificate that is used all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateWarning {
    /// Its time is over; clients will refuse it.
    Expired(String),
    /// Its time has not begun; clients will refuse it.
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

/// The span in which a certificate is valid, in seconds since 1970, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// From then.
    pub not_before_s: i64,
    /// Until then.
    pub not_after_s: i64,
}

/// The validity of the first certificate in `chain_pem`; `None` when there is none, or it cannot be read.
pub fn read_validity(chain_pem: &[u8]) -> Option<Validity> {
    let certificate = CertificateDer::pem_slice_iter(chain_pem).next()?.ok()?;
    parse_validity(&certificate)
}

/// Reads and checks `site` and its key.
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
        // A key that cannot say what its public half is may fit.
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(Arc::new(certified)),
        Err(Error::InconsistentKeys(_)) => Err(CertificateError::KeyMismatch(label())),
        Err(_) => Err(CertificateError::CertificateMalformed(label())),
    }
}

/// What `site` should be warned of at `unix_s`.
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

/// One element of DER: its tag, its content and what follows it.
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

/// `UTCTime` (`YYMMDDhhmmssZ`) or `GeneralizedTime` (`YYYYMMDDhhmmssZ`), as RFC 5280 §4.1.2.5 has them.
fn parse_time(tag: u8, text: &[u8]) -> Option<i64> {
    let digits = text.strip_suffix(b"Z")?;
    let number = |range: std::ops::Range<usize>| {
        digits
            .get(range)?
            .iter()
            .try_fold(0_i64, |value, byte| byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0')))
    };
    let (year, at) = match (tag, digits.len()) {
        // RFC 5280 §4.1.2.5.1: from 50 on it is the last century.
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

/// Days from 1970-01-01 in the Gregorian calendar; a year that begins in March has its leap day last.
const fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // Months from March on: 31, 30, 31, 30, 31, and again.
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests;
