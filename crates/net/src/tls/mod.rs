//! TLS for the server, by rustls: certificates by name, sessions over non-blocking sockets, and named failures.
//!
//! | file | content |
//! |---|---|
//! | [`certificate`] | a site's certificate and key, parsed and validated |
//! | [`config`] | shared by all workers: certificates by name, ticket keys, protocols |
//! | `session` | one connection's session over a non-blocking socket |
//! | [`failure`] | failures of handshakes and records |
//!
//! Absent by design: reading and watching files, requesting certificates from a CA, client certificates, and early
//! data, which can be replayed.

pub mod certificate;
pub mod config;
pub mod failure;
pub(crate) mod session;

pub use certificate::{CertificateError, CertificateWarning, SiteCertificate};
pub use config::TlsServer;
pub use failure::TlsFailure;
