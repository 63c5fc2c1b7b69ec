//! The local certificate authority, which signs certificates for names that no public authority certifies: `localhost`,
//! and internal machine names. The root certificate is stored in a folder and survives restarts, so it must be trusted
//! only once. Issued certificates exist only in memory.

use crate::failure::Failure;
use flatout_net::tls::SiteCertificate;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const DAY_S: u64 = 86_400;

/// Lifetime of the root certificate, in days.
const ROOT_DAYS: u64 = 3652;

/// Lifetime of an issued certificate, in days. Browsers accept at most 398.
pub(crate) const LEAF_DAYS: u64 = 90;

/// Remaining lifetime at which an issued certificate is renewed, in days.
pub(crate) const RENEW_DAYS: u64 = 30;

/// How far the start of a certificate's validity is in the past, in seconds. This tolerates clock differences.
const SKEW_S: u64 = 3600;

/// The name of the issuer. It must never change, because it must match the name in the stored root certificate.
const NAME: &str = "flatout local authority";

/// The local certificate authority, whose key signs certificates for names of this machine.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    root_pem: String,
    root_path: PathBuf,
}

/// Returns the authority's folder: a subfolder of `state`, or else of the user's data folder.
pub(crate) fn folder(state: Option<&Path>) -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = || {
        let data = variable("XDG_DATA_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/share")));
        data.map(|data| data.join("flatout"))
    };
    state.map(Path::to_owned).or_else(data).map(|folder| folder.join("authority"))
}

impl Authority {
    /// Opens the authority in `folder`, or creates a new one there.
    ///
    /// # Errors
    /// If the files of the authority cannot be read, used or written.
    pub(crate) fn open(folder: &Path, unix_s: u64) -> Result<Self, Failure> {
        let (root_path, key_path) = (folder.join("root.pem"), folder.join("root.key"));
        let failed = |what: &str, path: &Path, error: &dyn std::fmt::Display| {
            Failure::runtime(format!("cannot {what} {} of the local certificate authority: {error}", path.display()))
        };
        let stored = match (fs::read_to_string(&root_path), fs::read_to_string(&key_path)) {
            (Ok(root), Ok(key)) => Some((root, key)),
            (Err(root), Err(key)) if root.kind() == io::ErrorKind::NotFound && key.kind() == root.kind() => None,
            // One of the two files is missing. A new authority is not created, because clients would not trust it.
            (Err(error), _) => return Err(failed("read", &root_path, &error)),
            (_, Err(error)) => return Err(failed("read", &key_path, &error)),
        };
        let (root_pem, key) = if let Some((root_pem, key_pem)) = stored {
            (root_pem, KeyPair::from_pem(&key_pem).map_err(|error| failed("use", &key_path, &error))?)
        } else {
            let key = KeyPair::generate().map_err(|error| failed("make", &key_path, &error))?;
            let root = root_params(unix_s).self_signed(&key).map_err(|error| failed("make", &root_path, &error))?;
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(0o700).create(folder).map_err(|error| failed("make", folder, &error))?;
            write(&key_path, key.serialize_pem().as_bytes()).map_err(|error| failed("write", &key_path, &error))?;
            write(&root_path, root.pem().as_bytes()).map_err(|error| failed("write", &root_path, &error))?;
            (root.pem(), key)
        };
        Ok(Self { issuer: Issuer::new(root_params(unix_s), key), root_pem, root_path })
    }

    /// Issues a certificate for `names`, which may be IP addresses. It is used for `hosts`.
    ///
    /// # Errors
    /// If a name is not valid in a certificate.
    pub(crate) fn certify(&self, hosts: &[String], names: &[String], unix_s: u64) -> Result<SiteCertificate, Failure> {
        let shown = names.join(", ");
        let failed = |error: rcgen::Error| Failure::usage(format!("cannot create a certificate for {shown}: {error}"));
        let mut params = CertificateParams::new(names.to_vec()).map_err(failed)?;
        params.distinguished_name.push(DnType::CommonName, names.first().map_or(NAME, String::as_str));
        let from_s = unix_s.saturating_sub(SKEW_S);
        set_validity(&mut params, from_s, from_s + LEAF_DAYS * DAY_S);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().map_err(failed)?;
        let leaf = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(SiteCertificate {
            names: hosts.to_vec(),
            chain_pem: format!("{}{}", leaf.pem(), self.root_pem).into_bytes(),
            key_pem: key.serialize_pem().into_bytes(),
            label: "internal".to_owned(),
        })
    }

    /// The path of the root certificate, which clients must trust.
    pub(crate) fn root_path(&self) -> &Path {
        &self.root_path
    }
}

fn root_params(unix_s: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, NAME);
    set_validity(&mut params, unix_s.saturating_sub(SKEW_S), unix_s + ROOT_DAYS * DAY_S);
    // The root may issue site certificates, but not certificates of intermediate authorities.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn set_validity(params: &mut CertificateParams, from_s: u64, until_s: u64) {
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(from_s);
    params.not_after = epoch + Duration::from_secs(until_s);
}

/// Writes a file atomically, with permissions for its owner only.
fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let aside = path.with_extension("new");
    let _ = fs::remove_file(&aside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(aside, path)
}

#[cfg(test)]
mod tests {
    use super::{Authority, LEAF_DAYS};
    use flatout_net::tls::TlsServer;
    use flatout_net::tls::certificate::read_validity;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn it_outlives_a_restart_and_signs_what_tls_takes() {
        let folder = std::env::temp_dir().join(format!("flatout-authority-{}", std::process::id()));
        let first = Authority::open(&folder, NOW).unwrap();
        let mode = fs::metadata(folder.join("root.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let second = Authority::open(&folder, NOW + 1).unwrap();
        assert_eq!(first.root_pem, second.root_pem);
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "*.test".to_owned()];
        let certificate = second.certify(&["*".to_owned()], &names, NOW).unwrap();
        let validity = read_validity(&certificate.chain_pem).unwrap();
        assert!(validity.not_after_s - validity.not_before_s <= (LEAF_DAYS * 86_400).cast_signed());
        let server = TlsServer::new().unwrap();
        assert_eq!(server.replace(&[certificate], NOW.cast_signed()).unwrap(), []);
        // Half an authority is not replaced.
        fs::remove_file(folder.join("root.key")).unwrap();
        assert!(Authority::open(&folder, NOW).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
