//! Transport settings of QUIC, and TLS for HTTP/3.

use super::handshake::QuicTls;
use super::ids::{IdCipher, Owner, QuicSecrets, generator};
use flatout_os::random;
use quinn_proto::crypto::rustls::{NoInitialCipherSuite, QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    ClientConfig, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, ServerConfig, TransportConfig, VarInt,
};
use std::sync::Arc;
use std::time::Duration;

/// The ALPN name of HTTP/3 (RFC 9114 §3.1).
pub const ALPN_HTTP3: &[u8] = b"h3";

/// Maximum unidirectional streams that a peer may open. HTTP/3 needs three, and extensions need some more (RFC 9114
/// §6.2).
const UNIDIRECTIONAL_STREAMS: u32 = 8;

/// Maximum bytes of a handshake that may arrive out of order. A ClientHello with a post-quantum key has 1.8 KB.
const CRYPTO_BYTES_MAX: usize = 16 * 1024;

/// Maximum bytes of datagrams that are stored until their connection is accepted, for one connection and for all
/// connections.
const INCOMING_BYTES_MAX: u64 = 16 * 1024;
const INCOMING_BYTES_TOTAL: u64 = 1024 * 1024;

/// Maximum new connections at one endpoint that wait to be accepted or refused. Both happen immediately, so few ever
/// wait.
const INCOMING_MAX: usize = 1024;

/// How long an address validation token is valid. A client uses it immediately.
const RETRY_LIFETIME: Duration = Duration::from_secs(15);

/// Minimum interval between stateless resets of one endpoint, because they are sent to addresses that may be forged.
const RESET_INTERVAL: Duration = Duration::from_millis(5);

/// Limits of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum concurrent requests of the peer.
    pub streams_max: u32,
    /// Maximum bytes of one stream that the peer may send before they are read.
    pub stream_window: u32,
    /// Maximum bytes of all streams that the peer may send before they are read.
    pub connection_window: u32,
    /// Maximum sent bytes that a connection stores until they are acknowledged.
    pub send_window: u64,
    /// Time without datagrams after which the connection is discarded, in milliseconds.
    pub idle_timeout_ms: u64,
}

impl Bounds {
    fn transport(&self) -> TransportConfig {
        let mut transport = TransportConfig::default();
        let idle_timeout = VarInt::from_u64(self.idle_timeout_ms).unwrap_or(VarInt::MAX);
        let mut discovery = MtuDiscoveryConfig::default();
        discovery.interval(Duration::from_mins(10));
        transport
            .max_concurrent_bidi_streams(self.streams_max.into())
            .max_concurrent_uni_streams(UNIDIRECTIONAL_STREAMS.into())
            .max_idle_timeout(Some(IdleTimeout::from(idle_timeout)))
            .stream_receive_window(self.stream_window.into())
            .receive_window(self.connection_window.into())
            .send_window(self.send_window)
            // Each packet begins with data of the most urgent stream. Otherwise, QUIC would first send all stored data
            // of the stream that it has begun, and lost data of an urgent stream would wait until a large stream ends.
            .send_fairness(true)
            .crypto_buffer_size(CRYPTO_BYTES_MAX)
            .datagram_receive_buffer_size(None)
            .mtu_discovery_config(Some(discovery));
        transport
    }
}

/// Returns the settings of the endpoint of `owner`.
pub fn endpoint_config(secrets: &QuicSecrets, cipher: &Arc<IdCipher>, owner: Owner) -> Arc<EndpointConfig> {
    let mut config = EndpointConfig::new(Arc::new(secrets.reset_key()));
    let cipher = Arc::clone(cipher);
    config.cid_generator(move || generator(&cipher, owner)).min_reset_interval(RESET_INTERVAL);
    config.rng_seed(random::bytes().ok());
    Arc::new(config)
}

/// Returns the settings of a server with `tls`. Clients may change their address (RFC 9000 §9).
pub fn server_config(tls: &Arc<QuicServerConfig>, secrets: &QuicSecrets, bounds: &Bounds) -> Arc<ServerConfig> {
    let tls = QuicTls::new(Arc::clone(tls));
    let mut config = ServerConfig::new(Arc::new(tls), Arc::new(secrets.token_key()));
    config
        .transport_config(Arc::new(bounds.transport()))
        .retry_token_lifetime(RETRY_LIFETIME)
        .max_incoming(INCOMING_MAX)
        .incoming_buffer_size(INCOMING_BYTES_MAX)
        .incoming_buffer_size_total(INCOMING_BYTES_TOTAL);
    Arc::new(config)
}

/// Returns the settings of an HTTP/3 client with `tls`.
///
/// # Errors
/// `tls` does not offer TLS 1.3 with AES-128-GCM.
pub fn client_config(mut tls: rustls::ClientConfig, bounds: &Bounds) -> Result<ClientConfig, NoInitialCipherSuite> {
    tls.alpn_protocols = vec![ALPN_HTTP3.to_vec()];
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    config.transport_config(Arc::new(bounds.transport()));
    Ok(config)
}

/// Returns the settings of a client's endpoint, or `None` if the system cannot provide random bytes.
pub fn client_endpoint_config() -> Option<Arc<EndpointConfig>> {
    let secrets = QuicSecrets::generate()?;
    let cipher = Arc::new(secrets.id_cipher());
    Some(endpoint_config(&secrets, &cipher, Owner::default()))
}
