//! The certificates of the sites. They are read together with the configuration, checked for changes every few seconds,
//! and replaced when they change.
//!
//! Checking a file's times takes only one or two system calls every ten seconds. It needs neither a thread nor an
//! inotify watch, which would become invalid if a folder were renamed.

use crate::authority::{self, Authority, LEAF_DAYS, RENEW_DAYS};
use crate::failure::{Failure, say};
use crate::status::{CertificateStatus, unix_s};
use flatout_config::model::{Certificate, Config, Place, Protocol, Site};
use flatout_net::tls::certificate::read_validity;
use flatout_net::tls::{SiteCertificate, TlsServer};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Interval between checks of the files.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// Identifies a version of a file: device, inode, size, and change time. `None` if the file could not be accessed.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

/// Usable certificates, which have been parsed and match their keys.
pub(crate) struct Loaded {
    sites: Vec<SiteCertificate>,
    stamps: Vec<(PathBuf, Stamp)>,
    /// The path, version and content of each file.
    texts: Vec<(PathBuf, Stamp, Vec<u8>)>,
    pub(crate) shown: Vec<CertificateStatus>,
    /// Time at which a locally issued certificate must be renewed.
    renew_at_s: u64,
}

impl Loaded {
    /// Returns the certificates in the form that is sent to a worker process.
    pub(crate) fn parcel(&self) -> CertificateParcel {
        let sites = self.sites.iter().map(|site| ParcelSite {
            names: site.names.clone(),
            chain_pem: site.chain_pem.clone(),
            key_pem: site.key_pem.clone(),
            label: site.label.clone(),
        });
        CertificateParcel { sites: sites.collect(), shown: self.shown.clone() }
    }

    /// Creates the certificates that a worker process received. Returns `None` if no site needs a certificate. The
    /// supervisor has already verified the certificates, and checks their files for changes.
    pub(crate) fn received(parcel: CertificateParcel) -> Option<Self> {
        if parcel.sites.is_empty() {
            return None;
        }
        let sites = parcel.sites.into_iter().map(|site| SiteCertificate {
            names: site.names,
            chain_pem: site.chain_pem,
            key_pem: site.key_pem,
            label: site.label,
        });
        Some(Self {
            sites: sites.collect(),
            stamps: Vec::new(),
            texts: Vec::new(),
            shown: parcel.shown,
            renew_at_s: u64::MAX,
        })
    }

    /// The paths of the source files.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.stamps.iter().map(|(path, _)| path.as_path())
    }
}

/// The certificates of a configuration; `None` if no site needs a certificate.
pub(crate) struct CertificateSet(pub(crate) Option<Loaded>);

/// Certificates and their keys, in the form that is sent to a worker process.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct CertificateParcel {
    sites: Vec<ParcelSite>,
    shown: Vec<CertificateStatus>,
}

#[derive(Serialize, Deserialize)]
struct ParcelSite {
    names: Vec<String>,
    chain_pem: Vec<u8>,
    key_pem: Vec<u8>,
    label: String,
}

/// The certificates in use.
pub(crate) struct Certificates {
    server: Arc<TlsServer>,
    authority: Option<Authority>,
    /// The current certificates; `None` if no site uses https.
    loaded: Option<Loaded>,
}

impl Certificates {
    /// Creates an empty set of certificates.
    ///
    /// # Errors
    /// If the system cannot provide random bytes.
    pub(crate) fn new() -> Result<Self, Failure> {
        Ok(Self { server: new_server()?, authority: None, loaded: None })
    }

    /// Returns the certificates in use, in the form that is sent to a worker process.
    pub(crate) fn parcel(&self) -> CertificateParcel {
        self.loaded.as_ref().map(Loaded::parcel).unwrap_or_default()
    }

    /// Returns the TLS configuration for the workers.
    pub(crate) fn server(&self) -> Arc<TlsServer> {
        Arc::clone(&self.server)
    }

    /// Reads and validates the certificates of `config`. Returns `None` if no site needs a certificate.
    ///
    /// # Errors
    /// Returns an error for the first unusable certificate.
    pub(crate) fn load(&mut self, config: &Config) -> Result<Option<Loaded>, Failure> {
        let mut loaded = Loaded {
            sites: Vec::new(),
            stamps: Vec::new(),
            texts: Vec::new(),
            shown: Vec::new(),
            renew_at_s: u64::MAX,
        };
        for site in &config.sites {
            let secure = |&index: &usize| config.listeners.get(index).is_some_and(|on| on.protocol == Protocol::Tls);
            if site.listeners.iter().any(secure) {
                self.load_site(config, site, &mut loaded)?;
            }
        }
        if loaded.sites.is_empty() {
            return Ok(None);
        }
        // The certificates are validated with a separate TLS server, so that nothing changes if the rest of the
        // configuration is rejected.
        for warning in new_server()?.replace(&loaded.sites, now_s()).map_err(Failure::usage)? {
            say(&format!("warning: {warning}"));
        }
        Ok(Some(loaded))
    }

    fn load_site(&mut self, config: &Config, site: &Site, loaded: &mut Loaded) -> Result<(), Failure> {
        let certificate = match &site.certificate {
            Some(Certificate::Files { chain, key, place }) => {
                let [chain_pem, key_pem] = [self.read(chain, place, loaded), self.read(key, place, loaded)];
                SiteCertificate {
                    names: site.hosts.clone(),
                    chain_pem: chain_pem?,
                    key_pem: key_pem?,
                    label: chain.display().to_string(),
                }
            }
            Some(Certificate::Internal) => {
                let now = unix_s();
                loaded.renew_at_s = now + (LEAF_DAYS - RENEW_DAYS) * 86_400;
                self.authority(config)?.certify(&site.hosts, &internal_names(config, site), now)?
            }
            None => {
                let host = site.hosts.first().map_or("*", String::as_str);
                return Err(Failure::usage(format!("the site {host} has an https listener but no certificate")));
            }
        };
        loaded.shown.push(CertificateStatus {
            hosts: site.hosts.clone(),
            source: certificate.label.clone(),
            not_after_unix_s: read_validity(&certificate.chain_pem).map(|validity| validity.not_after_s),
            days_left: None,
        });
        loaded.sites.push(certificate);
        Ok(())
    }

    /// Reads a file. If only root can read the file, the content that was read before privileges were dropped is used,
    /// provided that the version is unchanged.
    fn read(&self, path: &Path, place: &Place, loaded: &mut Loaded) -> Result<Vec<u8>, Failure> {
        // The version is read first, so that a change while the file is being read is noticed at the next check.
        let stamp = stamp(path);
        loaded.stamps.push((path.to_owned(), stamp));
        let text = fs::read(path).or_else(|error| {
            let mut texts = self.loaded.iter().flat_map(|loaded| &loaded.texts);
            let is_same = |known: &&(PathBuf, Stamp, Vec<u8>)| known.0 == path && stamp.is_some() && known.1 == stamp;
            let known = texts.find(is_same).filter(|_| error.kind() == ErrorKind::PermissionDenied);
            known.map(|(_, _, text)| text.clone()).ok_or_else(|| cannot_read(path, place, &error))
        })?;
        loaded.texts.push((path.to_owned(), stamp, text.clone()));
        Ok(text)
    }

    /// Returns the local authority. It stays open, because its files may be unreadable after privileges have been
    /// dropped.
    fn authority(&mut self, config: &Config) -> Result<&Authority, Failure> {
        if self.authority.is_none() {
            let folder = authority::folder(config.state.as_deref()).ok_or_else(|| {
                Failure::usage(
                    "no folder is set for the local certificate authority\n  \
                     try: state \"/var/lib/flatout\" in the configuration",
                )
            })?;
            self.authority = Some(Authority::open(&folder, unix_s())?);
        }
        self.authority.as_ref().ok_or_else(|| Failure::runtime("the local certificate authority is missing"))
    }

    /// Puts the loaded certificates into use, and returns the status of each certificate.
    pub(crate) fn show(&mut self, loaded: Option<Loaded>) -> Vec<CertificateStatus> {
        if let Some(loaded) = &loaded {
            // The certificates were validated when they were loaded, so this cannot fail.
            let _ = self.server.replace(&loaded.sites, now_s());
        }
        self.loaded = loaded;
        self.loaded.as_ref().map(|loaded| loaded.shown.clone()).unwrap_or_default()
    }

    /// The path of the root certificate that clients must trust, if the local authority is in use.
    pub(crate) fn root_path(&self) -> Option<&Path> {
        self.authority.as_ref().map(Authority::root_path)
    }

    /// Returns whether anything must be checked periodically.
    pub(crate) fn any(&self) -> bool {
        self.loaded.as_ref().is_some_and(|loaded| !loaded.stamps.is_empty() || loaded.renew_at_s != u64::MAX)
    }

    /// Updates the certificates if a file has changed or a locally issued certificate is due for renewal. If new
    /// certificates are unusable, this is reported once, and the previous certificates remain in use. Returns the
    /// certificates if they have changed.
    pub(crate) fn look(&mut self, config: &Config) -> Option<Vec<CertificateStatus>> {
        let loaded = self.loaded.as_mut()?;
        let mut changed = unix_s() >= loaded.renew_at_s;
        for (path, known) in &mut loaded.stamps {
            let now = stamp(path);
            changed |= now != *known;
            *known = now;
        }
        if !changed {
            return None;
        }
        match self.load(config) {
            Ok(loaded) => {
                say("the certificates have changed: new connections use the new ones");
                Some(self.show(loaded))
            }
            Err(failure) => {
                say(&format!("warning: the new certificates are invalid; the old ones remain in use: {failure}"));
                None
            }
        }
    }
}

fn new_server() -> Result<Arc<TlsServer>, Failure> {
    TlsServer::new().map_err(|error| Failure::runtime(format!("cannot set up TLS: {error}")))
}

fn now_s() -> i64 {
    i64::try_from(unix_s()).unwrap_or(i64::MAX)
}

fn stamp(path: &Path) -> Stamp {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.size(), metadata.ctime(), metadata.ctime_nsec()))
}

fn cannot_read(path: &Path, place: &Place, error: &io::Error) -> Failure {
    let at = if place.line == 0 { String::new() } else { format!("{}:{}:{}: ", place.file, place.line, place.column) };
    let advice = match error.kind() {
        ErrorKind::PermissionDenied => "\n  try: give the process's user read access, for example through its group",
        _ => "",
    };
    Failure::usage(format!("{at}cannot read {}: {error}{advice}", path.display()))
}

/// Returns the names in a locally issued certificate: the names of the site, the names of this machine, and the
/// addresses on which the site is served.
fn internal_names(config: &Config, site: &Site) -> Vec<String> {
    let mut names: Vec<String> = site.hosts.iter().filter(|host| *host != "*").cloned().collect();
    let own = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let addresses = site.listeners.iter().filter_map(|&index| config.listeners.get(index));
    let addresses = addresses.map(|listener| listener.address.ip()).filter(|ip| !ip.is_unspecified());
    for name in own.into_iter().chain(addresses.map(|ip| ip.to_string())) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::Certificates;
    use crate::authority::Authority;
    use flatout_config::model::{Certificate, Config, Listener, Place, Protocol, Site};
    use std::fs;

    #[test]
    fn files_that_change_are_shown_and_those_that_do_not_match_are_not() {
        let folder = std::env::temp_dir().join(format!("flatout-certificates-{}", std::process::id()));
        let authority = Authority::open(&folder, 1_800_000_000).unwrap();
        let (chain, key) = (folder.join("chain.pem"), folder.join("key.pem"));
        let write = |which: &str| {
            let made = authority.certify(&["a.test".to_owned()], &["a.test".to_owned()], 1_800_000_000).unwrap();
            if which != "key" {
                fs::write(&chain, made.chain_pem).unwrap();
            }
            if which != "chain" {
                fs::write(&key, made.key_pem).unwrap();
            }
        };
        write("both");
        let listener = Listener {
            place: Place::default(),
            address: "127.0.0.1:443".parse().unwrap(),
            protocol: Protocol::Tls,
            http2_cleartext: false,
            redirect_https_port: None,
            http3: None,
        };
        let certificate = Certificate::Files { chain: chain.clone(), key: key.clone(), place: Place::default() };
        let site = Site {
            hosts: vec!["a.test".to_owned()],
            listeners: vec![0],
            certificate: Some(certificate),
            ..Site::default()
        };
        let config = Config { listeners: vec![listener], sites: vec![site], ..Config::default() };
        let mut certificates = Certificates::new().unwrap();
        let loaded = certificates.load(&config).unwrap();
        assert_eq!(certificates.show(loaded).len(), 1);
        assert!(certificates.look(&config).is_none(), "nothing has changed");
        write("both");
        assert!(certificates.look(&config).is_some());
        // A changed chain without its key is ignored until the key has changed too.
        write("chain");
        assert!(certificates.look(&config).is_none());
        assert!(certificates.look(&config).is_none());
        write("both");
        assert!(certificates.look(&config).is_some());
        fs::remove_file(&key).unwrap();
        assert!(certificates.look(&config).is_none() && certificates.any());
        fs::remove_dir_all(folder).unwrap();
    }
}
