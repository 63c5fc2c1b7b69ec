//! TLS with rustls: certificates by name for servers, verification for clients, and named failures.
//!
//! | file | content |
//! |---|---|
//! | [`certificate`] | a site's certificate and key, parsed and validated |
//! | [`config`] | configuration shared by all workers: certificates by name, ticket keys, protocols |
//! | [`failure`] | failures of handshakes and records in sessions with clients |
//! | [`client`] | sessions with servers: authorities, verification, failures |
//!
//! Absent by design: reading and watching files, requesting certificates from a CA, client certificates, and early
//! data, which can be replayed.

pub mod certificate;
pub mod client;
pub mod config;
pub mod failure;

pub use certificate::{CertificateError, CertificateWarning, SiteCertificate};
pub use client::{ClientTlsError, ClientTlsFailure};
pub use config::TlsServer;
pub use failure::TlsFailure;
