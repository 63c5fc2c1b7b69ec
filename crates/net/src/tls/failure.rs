//! All TLS failures of a server, in one table with name and meaning.

use rustls::{AlertDescription, Error, PeerIncompatible};

flatout_reason::reasons! {
    /// The reason a TLS session with a client failed.
    pub enum TlsFailure { name, text, }
    HandshakeAborted, "handshake_aborted", "The client closed or reset the connection before the handshake was complete.";
    NoCommonVersion, "no_common_version", "The client supports neither TLS 1.2 nor 1.3: it offers neither version, or lists no signature algorithms.";
    NoCommonCipher, "no_common_cipher", "The client offers no cipher suite that this server supports.";
    NoCommonGroup, "no_common_group", "The client offers no key exchange group that this server supports.";
    NoCommonSignature, "no_common_signature", "The client supports no signature algorithm that works with the site's key.";
    NoCommonProtocol, "no_common_protocol", "The client offers only protocols (ALPN) that this server does not support.";
    Incompatible, "incompatible", "The client lacks another feature that this server requires.";
    CertificateRefused, "certificate_refused", "The client's alert says that it does not trust the certificate.";
    ClientAlert, "client_alert", "The client sent another fatal alert.";
    InvalidMessage, "invalid_message", "The received data is not a TLS message.";
    BadRecord, "bad_record", "A record could not be decrypted: it was altered in transit, or the keys differ.";
    OversizedRecord, "oversized_record", "A record is larger than TLS allows.";
    Misbehaved, "misbehaved", "The client violated the protocol.";
    OutOfOrder, "out_of_order", "A message arrived out of order.";
    Internal, "internal", "An internal server error: the system cannot provide random bytes, or there is a bug.";
}

impl TlsFailure {
    /// Returns the failure that corresponds to an error of rustls.
    pub fn of(error: &Error) -> Self {
        match error {
            Error::PeerIncompatible(why) => match why {
                PeerIncompatible::NoCipherSuitesInCommon => Self::NoCommonCipher,
                PeerIncompatible::NoKxGroupsInCommon
                | PeerIncompatible::NamedGroupsExtensionRequired
                | PeerIncompatible::NoEcPointFormatsInCommon => Self::NoCommonGroup,
                PeerIncompatible::NoSignatureSchemesInCommon => Self::NoCommonSignature,
                PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled
                | PeerIncompatible::SignatureAlgorithmsExtensionRequired
                | PeerIncompatible::SupportedVersionsExtensionRequired => Self::NoCommonVersion,
                _ => Self::Incompatible,
            },
            Error::AlertReceived(
                AlertDescription::BadCertificate
                | AlertDescription::CertificateUnknown
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateRevoked
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::UnknownCA,
            ) => Self::CertificateRefused,
            Error::AlertReceived(_) => Self::ClientAlert,
            Error::InvalidMessage(_) => Self::InvalidMessage,
            Error::DecryptError => Self::BadRecord,
            Error::PeerSentOversizedRecord => Self::OversizedRecord,
            Error::PeerMisbehaved(_) | Error::NoCertificatesPresented | Error::InvalidCertificate(_) => {
                Self::Misbehaved
            }
            Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => Self::OutOfOrder,
            Error::NoApplicationProtocol => Self::NoCommonProtocol,
            _ => Self::Internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TlsFailure;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique() {
        let names: HashSet<_> = TlsFailure::ALL.iter().map(|failure| failure.name()).collect();
        assert_eq!(names.len(), TlsFailure::ALL.len());
        assert!(TlsFailure::ALL.iter().all(|failure| failure.text().ends_with('.')));
    }
}
