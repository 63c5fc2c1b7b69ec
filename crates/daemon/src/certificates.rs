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

/// Interval between attempts to renew a locally issued certificate.
const RENEW_INTERVAL_S: u64 = 3600;

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
        Some(Self { sites: sites.collect(), shown: parcel.shown, ..Self::default() })
    }

    /// The paths of the source files.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.stamps.iter().map(|(path, _)| path.as_path())
    }
}

impl Default for Loaded {
    fn default() -> Self {
        Self { sites: Vec::new(), stamps: Vec::new(), texts: Vec::new(), shown: Vec::new(), renew_at_s: u64::MAX }
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
        let mut loaded = Loaded::default();
        for site in secure_sites(config) {
            self.load_site(config, site, &mut loaded)?;
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

    /// Reads the certificates of `config` again. A site whose new certificate is unusable keeps the old one, which is
    /// reported; the other sites do not wait for it. `old` are the certificates in use, of the same sites.
    fn load_again(&mut self, config: &Config, old: &[(SiteCertificate, CertificateStatus)]) -> Result<Loaded, Failure> {
        let mut loaded = Loaded::default();
        for (site, (in_use, shown)) in secure_sites(config).zip(old) {
            let count = loaded.sites.len();
            let read = self.load_site(config, site, &mut loaded).and_then(|()| match loaded.sites.last() {
                Some(new) if !is_same(new, in_use) => {
                    new_server()?.replace(std::slice::from_ref(new), now_s()).map(|_| ()).map_err(Failure::usage)
                }
                _ => Ok(()),
            });
            if let Err(failure) = read {
                say(&format!("warning: a new certificate is invalid; the old one remains in use: {failure}"));
                self.keep_texts(site, &mut loaded);
                loaded.sites.truncate(count);
                loaded.shown.truncate(count);
                loaded.sites.push(in_use.clone());
                loaded.shown.push(shown.clone());
                if matches!(site.certificate, Some(Certificate::Internal)) {
                    loaded.renew_at_s = loaded.renew_at_s.min(unix_s() + RENEW_INTERVAL_S);
                }
            }
        }
        for warning in new_server()?.replace(&loaded.sites, now_s()).map_err(Failure::usage)? {
            say(&format!("warning: {warning}"));
        }
        Ok(loaded)
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
                let certificate = self.authority(config)?.certify(&site.hosts, &internal_names(config, site), now)?;
                loaded.renew_at_s = loaded.renew_at_s.min(now + (LEAF_DAYS - RENEW_DAYS) * 86_400);
                certificate
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

    /// Keeps the content of the site's files that were read before, in case only root can read them.
    fn keep_texts(&self, site: &Site, loaded: &mut Loaded) {
        let Some(Certificate::Files { chain, key, .. }) = &site.certificate else { return };
        for known in self.loaded.iter().flat_map(|loaded| &loaded.texts) {
            let is_own = known.0 == *chain || known.0 == *key;
            if is_own && !loaded.texts.iter().any(|(path, ..)| *path == known.0) {
                loaded.texts.push(known.clone());
            }
        }
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

    /// Updates the certificates if a file has changed or a locally issued certificate is due for renewal. If the new
    /// certificate of a site is unusable, this is reported once for each change, and the previous one remains in use.
    /// Returns the certificates if any is new.
    pub(crate) fn look(&mut self, config: &Config) -> Option<Vec<CertificateStatus>> {
        let loaded = self.loaded.as_ref()?;
        let is_due = unix_s() >= loaded.renew_at_s;
        if !is_due && loaded.stamps.iter().all(|(path, known)| stamp(path) == *known) {
            return None;
        }
        let old: Vec<_> = loaded.sites.iter().cloned().zip(loaded.shown.iter().cloned()).collect();
        match self.load_again(config, &old) {
            Ok(loaded) => {
                let is_new = loaded.sites.iter().zip(&old).any(|(new, (old, _))| !is_same(new, old));
                let shown = self.show(Some(loaded));
                if !is_new {
                    return None;
                }
                say("the certificates have changed: new connections use the new ones");
                Some(shown)
            }
            Err(failure) => {
                say(&format!("warning: the new certificates cannot be used; the old ones remain in use: {failure}"));
                None
            }
        }
    }
}

/// The sites of `config` that need a certificate.
fn secure_sites(config: &Config) -> impl Iterator<Item = &Site> {
    let is_secure = |&index: &usize| config.listeners.get(index).is_some_and(|on| on.protocol == Protocol::Tls);
    config.sites.iter().filter(move |site| site.listeners.iter().any(is_secure))
}

fn is_same(one: &SiteCertificate, other: &SiteCertificate) -> bool {
    one.chain_pem == other.chain_pem && one.key_pem == other.key_pem
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
    let addresses = addresses.filter_map(|on| Some(on.address.ip()?.ip())).filter(|ip| !ip.is_unspecified());
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
    use flatout_config::model::{Certificate, Config, Listener, Place, Protocol, Site, SocketAccess};
    use std::fs;
    use std::path::PathBuf;

    /// A folder with an authority and the certificate files of sites.
    struct Sites {
        folder: PathBuf,
        authority: Authority,
        config: Config,
    }

    impl Sites {
        fn new(name: &str, hosts: &[&str]) -> Self {
            let folder = std::env::temp_dir().join(format!("flatout-certificates-{name}-{}", std::process::id()));
            let authority = Authority::open(&folder, 1_800_000_000).unwrap();
            let listener = Listener {
                place: Place::default(),
                address: "127.0.0.1:443".parse().unwrap(),
                access: SocketAccess::default(),
                protocol: Protocol::Tls,
                http2_cleartext: false,
                redirect_https_port: None,
                http3: None,
                proxy_protocol: None,
            };
            let site = |host: &&str| Site {
                hosts: vec![(*host).to_owned()],
                listeners: vec![0],
                certificate: Some(Certificate::Files {
                    chain: folder.join(format!("{host}.chain")),
                    key: folder.join(format!("{host}.key")),
                    place: Place::default(),
                }),
                ..Site::default()
            };
            let sites = hosts.iter().map(site).collect();
            let config = Config { listeners: vec![listener], sites, ..Config::default() };
            let sites = Self { folder, authority, config };
            for host in hosts {
                sites.write(host, &["chain", "key"]);
            }
            sites
        }

        /// Writes a new certificate for `host`, or only its `parts`.
        fn write(&self, host: &str, parts: &[&str]) {
            let made = self.authority.certify(&[host.to_owned()], &[host.to_owned()], 1_800_000_000).unwrap();
            for part in parts {
                let pem = if *part == "key" { &made.key_pem } else { &made.chain_pem };
                fs::write(self.folder.join(format!("{host}.{part}")), pem).unwrap();
            }
        }

        fn remove(&self, name: &str) {
            fs::remove_file(self.folder.join(name)).unwrap();
        }
    }

    impl Drop for Sites {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    #[test]
    fn files_that_change_are_shown_and_those_that_do_not_match_are_not() {
        let sites = Sites::new("one", &["a.test"]);
        let config = &sites.config;
        let mut certificates = Certificates::new().unwrap();
        let loaded = certificates.load(config).unwrap();
        assert_eq!(certificates.show(loaded).len(), 1);
        assert!(certificates.look(config).is_none(), "nothing has changed");
        sites.write("a.test", &["chain", "key"]);
        assert!(certificates.look(config).is_some());
        // A changed chain without its key is ignored until the key has changed too.
        sites.write("a.test", &["chain"]);
        assert!(certificates.look(config).is_none());
        assert!(certificates.look(config).is_none());
        sites.write("a.test", &["chain", "key"]);
        assert!(certificates.look(config).is_some());
        sites.remove("a.test.key");
        assert!(certificates.look(config).is_none() && certificates.any());
    }

    #[test]
    fn an_unusable_certificate_does_not_keep_others_from_being_renewed() {
        let sites = Sites::new("two", &["a.test", "b.test"]);
        let config = &sites.config;
        let mut certificates = Certificates::new().unwrap();
        let loaded = certificates.load(config).unwrap();
        assert_eq!(certificates.show(loaded).len(), 2);
        let in_use = |certificates: &Certificates| {
            let loaded = certificates.loaded.as_ref().unwrap();
            loaded.sites.iter().map(|site| site.chain_pem.clone()).collect::<Vec<_>>()
        };
        let first = in_use(&certificates);
        // One is gone and the other is new, whichever is noticed first.
        sites.remove("a.test.chain");
        assert!(certificates.look(config).is_none());
        sites.write("b.test", &["chain", "key"]);
        assert_eq!(certificates.look(config).unwrap().len(), 2);
        let second = in_use(&certificates);
        assert!(second[0] == first[0] && second[1] != first[1]);
        // A mismatched pair does not delay other sites either.
        sites.write("b.test", &["key"]);
        sites.write("a.test", &["chain", "key"]);
        assert!(certificates.look(config).is_some());
        let third = in_use(&certificates);
        assert!(third[0] != second[0] && third[1] == second[1]);
        sites.write("b.test", &["chain", "key"]);
        assert!(certificates.look(config).is_some());
        assert!(in_use(&certificates)[1] != third[1]);
    }
}
