//! Authentication of controller and agents: a dedicated certificate authority, and one certificate for each of the two
//! roles.
//!
//! `flatout agent init DIR` creates the certificates. The folder is copied to every participating machine. Its files
//! authorise both giving and taking work, so only their owner can read them. Host names are irrelevant: an agent trusts
//! exactly the controller's certificate, whichever machine uses it.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt::Display;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The host name in the controller's certificate, which agents verify.
pub const CONTROLLER: &str = "controller.flatout.internal";

/// The host name in the agents' certificate.
const AGENT: &str = "agent.flatout.internal";

/// Validity period of all certificates, in days.
const DAYS: u64 = 365;

const DAY_S: u64 = 86_400;

/// Time between the start of each certificate's validity and its creation, in seconds, to tolerate clock differences.
const SKEW_S: u64 = 3600;

/// The files in the folder.
pub const FILES: [&str; 5] = ["authority.pem", "controller.pem", "controller.key", "agent.pem", "agent.key"];

/// Creates the folder and its files.
///
/// # Errors
/// Fails if the folder exists and is not empty, or cannot be written. Existing files are never replaced, because
/// machines with the old certificates would then be locked out.
pub fn init(folder: &Path, unix_s: u64) -> io::Result<()> {
    let made = |error: rcgen::Error| io::Error::other(format!("cannot create a certificate: {error}"));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    if fs::read_dir(folder)?.next().is_some() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the folder is not empty"));
    }
    let mut authority = params("flatout agents", unix_s).map_err(made)?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority_key = KeyPair::generate().map_err(made)?;
    let root = authority.self_signed(&authority_key).map_err(made)?;
    // The authority's key signs the two certificates and is then dropped, so that nothing more can be signed.
    let issuer = Issuer::new(authority, authority_key);
    let mut files = vec![("authority.pem", root.pem())];
    for (name, role, purpose) in [
        (CONTROLLER, ("controller.pem", "controller.key"), ExtendedKeyUsagePurpose::ServerAuth),
        (AGENT, ("agent.pem", "agent.key"), ExtendedKeyUsagePurpose::ClientAuth),
    ] {
        let mut leaf = params(name, unix_s).map_err(made)?;
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![purpose];
        leaf.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(made)?;
        let signed = leaf.signed_by(&key, &issuer).map_err(made)?;
        files.extend([(role.0, signed.pem()), (role.1, key.serialize_pem())]);
    }
    for (name, content) in files {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join(name))?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
    }
    Ok(())
}

fn params(name: &str, unix_s: u64) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(if name.contains(' ') { vec![] } else { vec![name.to_owned()] })?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(unix_s.saturating_sub(SKEW_S));
    params.not_after = epoch + Duration::from_secs(unix_s + DAYS * DAY_S);
    Ok(params)
}

/// Returns the TLS configuration of a controller.
///
/// # Errors
/// Fails if the folder lacks a file that [`init`] writes.
pub fn controller_config(folder: &Path) -> io::Result<Arc<ServerConfig>> {
    let provider = provider();
    let roots = Arc::new(roots(folder)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)).build().map_err(unfit)?;
    let (chain, key) = role(folder, "controller")?;
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]).map_err(unfit)?;
    builder.with_client_cert_verifier(verifier).with_single_cert(chain, key).map(Arc::new).map_err(unfit)
}

/// Returns the TLS configuration of an agent.
///
/// # Errors
/// Fails in the same cases as [`controller_config`].
pub fn agent_config(folder: &Path) -> io::Result<Arc<ClientConfig>> {
    let (chain, key) = role(folder, "agent")?;
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]).map_err(unfit)?;
    let builder = builder.with_root_certificates(roots(folder)?);
    builder.with_client_auth_cert(chain, key).map(Arc::new).map_err(unfit)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn roots(folder: &Path) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(folder, "authority.pem")? {
        roots.add(certificate).map_err(unfit)?;
    }
    Ok(roots)
}

fn role(folder: &Path, role: &str) -> io::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let name = format!("{role}.key");
    let key =
        PrivateKeyDer::from_pem_slice(&read(folder, &name)?).map_err(|error| unreadable(folder, &name, &error))?;
    Ok((certificates(folder, &format!("{role}.pem"))?, key))
}

fn certificates(folder: &Path, name: &str) -> io::Result<Vec<CertificateDer<'static>>> {
    let pem = read(folder, name)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(unreadable(folder, name, &"it contains no certificate")),
        Err(error) => Err(unreadable(folder, name, &error)),
    }
}

fn read(folder: &Path, name: &str) -> io::Result<Vec<u8>> {
    fs::read(folder.join(name)).map_err(|error| unreadable(folder, name, &error))
}

fn unreadable(folder: &Path, name: &str, error: &dyn Display) -> io::Error {
    let path = folder.join(name);
    io::Error::other(format!("{}: {error}; `flatout agent init DIR` creates such a folder", path.display()))
}

fn unfit(error: impl Display) -> io::Error {
    io::Error::other(format!("cannot use the certificates: {error}"))
}

#[cfg(test)]
mod tests {
    use super::{FILES, agent_config, controller_config, init};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::SystemTime;

    #[test]
    fn a_folder_is_made_once_for_its_owner_alone_and_serves_both_roles() {
        let folder = std::env::temp_dir().join(format!("flatout-trust-{}", std::process::id()));
        let unix_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        init(&folder, unix_s).unwrap();
        let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        assert!(FILES.iter().all(|name| mode(&folder.join(name)) == 0o600));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), FILES.len());
        assert!(controller_config(&folder).is_ok() && agent_config(&folder).is_ok());
        let again = init(&folder, unix_s).unwrap_err();
        assert!(again.to_string().contains("not empty"), "{again}");
        fs::write(folder.join("authority.pem"), "nonsense").unwrap();
        for error in [controller_config(&folder).unwrap_err(), agent_config(&folder).unwrap_err()] {
            assert!(error.to_string().contains("authority.pem: it contains no certificate"), "{error}");
        }
        fs::remove_dir_all(&folder).unwrap();
        assert!(agent_config(&folder).unwrap_err().to_string().contains("flatout agent init"));
    }
}
