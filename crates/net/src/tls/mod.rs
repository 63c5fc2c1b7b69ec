//! TLS for the server, by rustls: certificates by name, sessions over non-blocking sockets, and names for failures.
//!
//! | file | what it knows |
//! |---|---|
//! | [`certificate`] | a site's certificate and key, read and checked |
//! | [`config`] | what all workers share: certificates by name, ticket keys, protocols |
//! | `session` | one connection's session over a socket that never waits |
//! | [`failure`] | every reason for which a handshake or a record fails |
//!
//! Absent by design: reading and watching files, asking an authority for certificates, client certificates, and early
//! data, which anyone may replay.

pub mod certificate;
pub mod config;
pub mod failure;
pub(crate) mod session;

pub use certificate::{CertificateError, CertificateWarning, SiteCertificate};
pub use config::TlsServer;
pub use failure::TlsFailure;
