//! The TLS of a QUIC server, which knows whether a session was resumed: rustls knows, but `quinn_proto` does not pass it
//! on.

use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::crypto::{
    ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, ServerConfig, Session, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side, TransportError};
use std::any::Any;
use std::sync::Arc;

/// The handshake message CertificateVerify (RFC 8446 §4). A server that resumes a session does not send it, with or
/// without certificate compression.
const CERTIFICATE_VERIFY: u8 = 15;

/// The configuration of a server's sessions.
#[derive(derive_more::Debug)]
#[debug("QuicTls")]
pub(super) struct QuicTls(Arc<QuicServerConfig>);

impl QuicTls {
    pub(super) const fn new(config: Arc<QuicServerConfig>) -> Self {
        Self(config)
    }
}

impl ServerConfig for QuicTls {
    fn initial_keys(&self, version: u32, dst_cid: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.0.initial_keys(version, dst_cid)
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.0.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(self: Arc<Self>, version: u32, params: &TransportParameters) -> Box<dyn Session> {
        let session = Arc::clone(&self.0).start_session(version, params);
        Box::new(QuicTlsSession { session, is_resumed: true })
    }
}

/// The result of a handshake of a server, as [`Session::handshake_data`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HandshakeData {
    /// The client has resumed a session. Known when the handshake is complete.
    pub(super) is_resumed: bool,
}

/// A session, as `quinn_proto` implements it.
struct QuicTlsSession {
    session: Box<dyn Session>,
    is_resumed: bool,
}

impl Session for QuicTlsSession {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.session.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.session.handshake_data()?;
        Some(Box::new(HandshakeData { is_resumed: self.is_resumed }))
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.session.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.session.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.session.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.session.read_handshake(buf)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.session.transport_parameters()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let at = buf.len();
        let keys = self.session.write_handshake(buf);
        self.is_resumed &= !has_message(&buf[at..], CERTIFICATE_VERIFY);
        keys
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.session.next_1rtt_keys()
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.session.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.session.export_keying_material(output, label, context)
    }
}

/// Returns whether one of `messages` is of this type. Each has a type, a length of three bytes, and its content (RFC
/// 8446 §4); in QUIC, they are not in records (RFC 9001 §4.1.3).
fn has_message(mut messages: &[u8], wanted: u8) -> bool {
    while let [kind, high, middle, low, rest @ ..] = messages {
        if *kind == wanted {
            return true;
        }
        let bytes = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
        messages = rest.get(bytes..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{CERTIFICATE_VERIFY, has_message};

    fn message(kind: u8, bytes: usize) -> Vec<u8> {
        let length = u32::try_from(bytes).unwrap().to_be_bytes();
        // The content must not be mistaken for a message.
        [&[kind], &length[1..], &vec![CERTIFICATE_VERIFY; bytes][..]].concat()
    }

    #[test]
    fn the_flight_of_a_resumed_session_lacks_the_signature() {
        let (extensions, certificate, verify, finished) =
            (message(8, 100), message(11, 70_000), message(CERTIFICATE_VERIFY, 80), message(20, 48));
        assert!(has_message(&[&extensions[..], &certificate, &verify, &finished].concat(), CERTIFICATE_VERIFY));
        assert!(!has_message(&[&extensions[..], &finished].concat(), CERTIFICATE_VERIFY));
        // The ServerHello, an empty turn, and what is cut.
        for bytes in [&message(2, 90)[..], &[], &extensions[..50], &[8, 0]] {
            assert!(!has_message(bytes, CERTIFICATE_VERIFY), "{bytes:?}");
        }
    }
}
