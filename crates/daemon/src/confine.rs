//! Confinement by Landlock: the files that may be opened, and the TCP ports that may be connected to.
//!
//! A worker process confines itself before it starts a thread, so that all of it is confined. In a process without a
//! supervisor, the worker threads are confined, and the control thread is not: it reads the configuration, certificates
//! and logs, and starts an upgrade.
//!
//! A confinement is permanent. A reload that needs more gets a new worker process. A rule belongs to a folder or file
//! and not to its name, so one that was replaced needs a new worker process as well.

use crate::channel::path_bytes;
use flatout_config::model::{Config, Handler, PhpAddress, StepKind};
use flatout_engine::spec::Spec;
use flatout_http::access::LogDestination;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, NetPort, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Files read by name resolution: the resolver's configuration, and the libraries of its modules.
const RESOLVER_FILES: [&str; 11] = [
    "/etc/hosts",
    RESOLVER_CONFIGURATION,
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/services",
    LIBRARY_CACHE,
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
];

/// The name servers.
const RESOLVER_CONFIGURATION: &str = "/etc/resolv.conf";

/// Where the dynamic linker has stored the paths of libraries.
const LIBRARY_CACHE: &str = "/etc/ld.so.cache";

/// Time zones, for dates in logs and pages, and random bytes for SQLite.
const COMMON_FILES: [&str; 3] = ["/etc/localtime", "/usr/share/zoneinfo", "/dev/urandom"];

/// Where distributions keep the certificate authorities that the machine trusts.
const AUTHORITY_FILES: [&str; 8] = [
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls",
    "/etc/pki/ca-trust/extracted",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
];

/// Port of name servers: long responses come over TCP.
const DNS_PORT: u16 = 53;

/// The permitted use of a folder and everything below it, or of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum PathUse {
    /// Read and list.
    Read,
    /// Read and write existing files, and create files without a name.
    Update,
    /// Append to, create, rename and delete files: logs.
    Log,
    /// Read, write, create and delete files: databases.
    Write,
    /// The same with folders: volumes.
    Own,
}

impl PathUse {
    fn access(self) -> BitFlags<AccessFs> {
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        let write = AccessFs::WriteFile | AccessFs::Truncate;
        let create = AccessFs::MakeReg | AccessFs::RemoveFile;
        match self {
            Self::Read => read,
            Self::Update => write | AccessFs::ReadFile,
            Self::Log => write | create | AccessFs::ReadDir,
            Self::Write => read | write | create,
            Self::Own => read | write | create | AccessFs::MakeDir | AccessFs::RemoveDir | AccessFs::Refer,
        }
    }
}

/// One folder or file that may be opened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct PathRule {
    /// The path without links.
    #[serde(with = "path_bytes")]
    path: PathBuf,
    used: PathUse,
    /// The path as configured, which may lead to another file later.
    #[serde(with = "path_bytes")]
    name: PathBuf,
    /// Device and inode, which the kernel's rule is about; `None` if there is no file yet, and so no rule.
    identity: Option<(u64, u64)>,
    is_folder: bool,
}

impl PathRule {
    /// The rule for the current folder or file at `name`, if there is one.
    fn new(name: &Path, used: PathUse) -> Self {
        let name = if name == Path::new("") { Path::new(".") } else { name };
        let found = name.canonicalize().and_then(|path| path.metadata().map(|metadata| (path, metadata)));
        let (path, identity, is_folder) = match found {
            Ok((path, metadata)) => (path, Some((metadata.dev(), metadata.ino())), metadata.is_dir()),
            Err(_) => (name.to_owned(), None, false),
        };
        Self { path, used, name: name.to_owned(), identity, is_folder }
    }

    /// The rule for another folder or file that the name now leads to; `None` if it is the same, or there is none.
    fn find_replacement(&self) -> Option<Self> {
        let now = Self::new(&self.name, self.used);
        (now.identity.is_some() && (&now.path, now.identity) != (&self.path, self.identity)).then_some(now)
    }

    fn covers(&self, wanted: &Self) -> bool {
        self.identity.is_some()
            && wanted.path.starts_with(&self.path)
            && self.used.access().contains(wanted.used.access())
            && (wanted.path != self.path || wanted.identity == self.identity)
            && self.find_replacement().is_none()
    }
}

/// Something that a confinement does not permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outside {
    /// To open this file, or files in this folder.
    Path(PathBuf),
    /// To connect to this TCP port.
    Port(u16),
}

impl fmt::Display for Outside {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(formatter, "open {}", path.display()),
            Self::Port(port) => write!(formatter, "connect to port {port}"),
        }
    }
}

/// The files that may be opened, and the ports that may be connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confinement {
    rules: BTreeSet<PathRule>,
    /// TCP ports; `None` if all are permitted, as the kernel may have no rules for ports.
    ports: Option<BTreeSet<u16>>,
}

impl Confinement {
    /// The confinement of a worker thread: the folders that requests may reach.
    pub(crate) fn of_thread(spec: &Spec) -> Self {
        let mut rules = BTreeSet::new();
        let mut add = |path: &Path, used| {
            rules.insert(PathRule::new(path, used));
        };
        spec.folders().for_each(|path| add(path, PathUse::Read));
        spec.written_folders().for_each(|path| add(&path, PathUse::Write));
        // Threads for name resolution are started by workers, and read the resolver's files.
        for path in RESOLVER_FILES.iter().filter(|_| spec.asks_by_name()) {
            add(Path::new(path), PathUse::Read);
        }
        if let Some(folder) = resolver_folder(Path::new(RESOLVER_CONFIGURATION)).filter(|_| spec.asks_by_name()) {
            add(&folder, PathUse::Read);
        }
        Self { rules, ports: None }
    }

    /// The confinement of a whole worker process: also what its other threads read and write, and the ports of origins.
    pub(crate) fn of_process(spec: &Spec, config: &Config) -> Self {
        let mut all = Self::of_thread(spec);
        let mut add = |path: &Path, used| {
            all.rules.insert(PathRule::new(path, used));
        };
        for path in COMMON_FILES {
            add(Path::new(path), PathUse::Read);
        }
        config.store.disks.iter().for_each(|(path, _)| add(path, PathUse::Own));
        if let Some(file) = config.state.as_deref().map(digest_file) {
            add(&file, PathUse::Update);
        }
        for log in &config.logs {
            let LogDestination::File(path) = &log.settings.target else { continue };
            let real = path.canonicalize().unwrap_or_else(|_| path.clone());
            // A pipe or a terminal stays where it is.
            let is_special = real.metadata().is_ok_and(|metadata| {
                let kind = metadata.file_type();
                kind.is_fifo() || kind.is_char_device()
            });
            match real.parent().filter(|_| !is_special) {
                Some(folder) => add(folder, PathUse::Log),
                None => add(&real, PathUse::Update),
            }
        }
        let mut ports = BTreeSet::new();
        let mut has_temporary_files = false;
        let mut trusts_system = false;
        for step in config.steps() {
            match &step.kind {
                StepKind::Handler(Handler::Proxy(proxy)) => {
                    ports.extend(proxy.origins.iter().map(|origin| origin.port));
                    if let Some(path) = &proxy.tls.authorities {
                        add(path, PathUse::Read);
                    }
                    trusts_system |= proxy.origins.iter().any(|origin| origin.secure);
                    // Request content may be buffered even without `buffer-requests`.
                    has_temporary_files = true;
                }
                StepKind::Handler(Handler::Php(php)) => {
                    has_temporary_files = true;
                    if let PhpAddress::Tcp(_, port) = &php.address {
                        ports.insert(*port);
                    }
                }
                StepKind::Handler(Handler::Pages(pages) | Handler::Page(pages)) => {
                    has_temporary_files = true;
                    let settings = &pages.settings;
                    ports.extend(settings.upstreams.iter().map(|(_, origin)| origin.port));
                    trusts_system |= settings.upstreams.iter().any(|(_, origin)| origin.secure);
                    let migrations = settings.database.as_ref().and_then(|database| database.migrations.as_deref());
                    migrations.into_iter().chain(settings.secret.as_deref()).for_each(|path| add(path, PathUse::Read));
                }
                _ => {}
            }
        }
        if has_temporary_files {
            add(&std::env::temp_dir(), PathUse::Update);
        }
        if trusts_system {
            for path in AUTHORITY_FILES {
                add(Path::new(path), PathUse::Read);
            }
            for name in ["SSL_CERT_FILE", "SSL_CERT_DIR"] {
                if let Some(path) = std::env::var_os(name) {
                    add(Path::new(&path), PathUse::Read);
                }
            }
        }
        if spec.asks_by_name() {
            ports.insert(DNS_PORT);
        }
        Self { ports: restricts_ports().then_some(ports), ..all }
    }

    /// The first folder, file or port in `wanted` that lies outside.
    pub(crate) fn find_outside(&self, wanted: &Self) -> Option<Outside> {
        let is_inside = |wanted: &PathRule| self.rules.iter().any(|rule| rule.covers(wanted));
        // What does not exist is not opened.
        let mut existing = wanted.rules.iter().filter(|rule| rule.identity.is_some());
        let path = existing.find(|rule| !is_inside(rule)).map(|rule| Outside::Path(rule.path.clone()));
        let is_closed = |port: &&u16| self.ports.as_ref().is_some_and(|ports| !ports.contains(*port));
        path.or_else(|| wanted.ports.iter().flatten().find(is_closed).copied().map(Outside::Port))
    }

    /// The first file whose name leads to another file since the confinement was decided, or to the first one: it cannot
    /// be opened.
    pub(crate) fn find_replaced(&self) -> Option<&Path> {
        // Below a folder that may be opened, a new file can be opened as well.
        let is_open = |now: &PathRule| self.rules.iter().any(|other| other.is_folder && other.covers(now));
        let is_lost = |rule: &&PathRule| rule.find_replacement().is_some_and(|now| !is_open(&now));
        // Every installation of a package replaces the cache, without which libraries are found as well.
        let is_followed = |rule: &&PathRule| !rule.is_folder && rule.name != Path::new(LIBRARY_CACHE);
        self.rules.iter().filter(is_followed).find(is_lost).map(|rule| rule.name.as_path())
    }

    /// The confinement for the folders and files that now have the same names.
    pub(crate) fn renewed(&self) -> Self {
        let rules = self.rules.iter().map(|rule| PathRule::new(&rule.name, rule.used)).collect();
        Self { rules, ports: self.ports.clone() }
    }

    /// Confines this thread, and those that it starts, permanently. Returns whether the kernel supports it.
    ///
    /// # Errors
    /// If the kernel has Landlock but refuses.
    pub(crate) fn enter(&self) -> io::Result<bool> {
        // The latest version known here; the crate omits anything that the kernel does not support.
        const KNOWN: ABI = ABI::V6;
        let confine = || -> Result<RulesetStatus, RulesetError> {
            let mut ruleset = Ruleset::default().handle_access(AccessFs::from_all(KNOWN))?;
            if self.ports.is_some() {
                ruleset = ruleset
                    .handle_access(AccessNet::from_all(KNOWN))?
                    .scope(Scope::Signal | Scope::AbstractUnixSocket)?;
            }
            let mut created = ruleset.create()?;
            for used in [PathUse::Read, PathUse::Update, PathUse::Log, PathUse::Write, PathUse::Own] {
                let rules = self.rules.iter().filter(|rule| rule.used == used && rule.identity.is_some());
                let paths = rules.map(|rule| &rule.path);
                created = created.add_rules(path_beneath_rules(paths, used.access()))?;
            }
            let ports = self.ports.iter().flatten();
            let created = created.add_rules(
                ports.map(|port| -> Result<_, RulesetError> { Ok(NetPort::new(*port, AccessNet::ConnectTcp)) }),
            )?;
            Ok(created.restrict_self()?.ruleset)
        };
        confine().map(|status| status != RulesetStatus::NotEnforced).map_err(io::Error::other)
    }
}

/// Returns whether the kernel supports Landlock, but not its rules for ports: Linux 5.13 to 6.6.
pub(crate) fn lacks_port_rules() -> bool {
    let has_files = strict_ruleset().handle_access(AccessFs::from_all(ABI::V1)).is_ok();
    has_files && !restricts_ports()
}

/// Returns whether the kernel has rules for ports.
fn restricts_ports() -> bool {
    strict_ruleset().handle_access(AccessNet::from_all(ABI::V4)).is_ok()
}

/// A ruleset that fails if the kernel lacks something.
fn strict_ruleset() -> Ruleset {
    Ruleset::default().set_compatibility(CompatLevel::HardRequirement)
}

/// The folder of the file that `link` leads to, if it is another one: systemd-resolved and others keep their file in a
/// folder of their own, and replace it whenever the network changes. A rule for the folder is for the new file as well.
fn resolver_folder(link: &Path) -> Option<PathBuf> {
    let file = link.canonicalize().ok()?;
    let folder = file.parent()?;
    // The file of a container or of `/etc` has neighbours that are not for the resolver.
    (link.parent() != Some(folder) && folder.components().count() > 2).then(|| folder.to_owned())
}

/// The store of digests in a state folder. The folder also contains the key of the local certificate authority, which
/// worker processes may not read.
pub(crate) fn digest_file(state: &Path) -> PathBuf {
    state.join(flatout_serve::DIGEST_FILE_NAME)
}

#[cfg(test)]
mod tests {
    use super::{Confinement, Outside, PathRule, PathUse};
    use crate::receive::confine_process;
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::io::{self, ErrorKind, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::process::Command;

    fn confinement(paths: &[&Path]) -> Confinement {
        let rules = paths.iter().map(|path| PathRule::new(path, PathUse::Read)).collect();
        Confinement { rules, ports: None }
    }

    #[test]
    fn a_linked_configuration_of_the_resolver_may_be_replaced() {
        let own = std::env::temp_dir().join(format!("flatout-resolver-{}", std::process::id()));
        fs::create_dir_all(own.join("run/resolve")).unwrap();
        fs::create_dir(own.join("etc")).unwrap();
        let own = own.canonicalize().unwrap();
        let link = own.join("etc/resolv.conf");
        assert_eq!(super::resolver_folder(&link), None);
        fs::write(&link, "").unwrap();
        assert_eq!(super::resolver_folder(&link), None);
        fs::remove_file(&link).unwrap();
        fs::write(own.join("run/resolve/stub"), "one").unwrap();
        symlink("../run/resolve/stub", &link).unwrap();
        let folder = super::resolver_folder(&link).unwrap();
        assert_eq!(folder, own.join("run/resolve"));
        let confinement = confinement(&[&link, &folder]);
        fs::write(own.join("run/resolve/new"), "two").unwrap();
        fs::rename(own.join("run/resolve/new"), own.join("run/resolve/stub")).unwrap();
        assert_eq!(confinement.find_replaced(), None);
        fs::remove_dir_all(own).unwrap();
    }

    #[test]
    fn a_folder_contains_what_is_below_it_and_not_its_neighbours() {
        let own = std::env::temp_dir().join(format!("flatout-confinement-{}", std::process::id()));
        for folder in ["www/a/b", "www2"] {
            fs::create_dir_all(own.join(folder)).unwrap();
        }
        let allowed = confinement(&[&own.join("www")]);
        for (path, inside) in [("www", true), ("www/a/b", true), ("www2", false), (".", false), ("/", false)] {
            let wanted = confinement(&[&own.join(path)]);
            assert_eq!(allowed.find_outside(&wanted).is_none(), inside, "{path}");
        }
        // To read is not to write.
        let written = PathRule::new(&own.join("www"), PathUse::Write);
        assert!(allowed.find_outside(&Confinement { rules: [written].into(), ports: None }).is_some());
        // The rule is for the folder, not for the name.
        let before = confinement(&[&own.join("www")]);
        assert_eq!(before.find_outside(&allowed), None);
        fs::rename(own.join("www"), own.join("old")).unwrap();
        fs::create_dir(own.join("www")).unwrap();
        assert!(before.find_outside(&confinement(&[&own.join("www")])).is_some());
        // A file that was replaced, unless its folder may be read.
        fs::write(own.join("file"), "1").unwrap();
        let (of_file, of_folder) = (confinement(&[&own.join("file")]), confinement(&[&own, &own.join("file")]));
        assert_eq!(of_file.find_replaced(), None);
        fs::write(own.join("new"), "2").unwrap();
        fs::rename(own.join("new"), own.join("file")).unwrap();
        assert_eq!(of_file.find_replaced().map(|path| path.ends_with("file")), Some(true));
        assert_eq!((of_folder.find_replaced(), of_file.renewed().find_replaced()), (None, None));
        fs::remove_dir_all(own).unwrap();
    }

    #[test]
    fn a_name_that_leads_to_another_file_or_to_the_first_one_is_noticed() {
        let own = std::env::temp_dir().join(format!("flatout-names-{}", std::process::id()));
        fs::create_dir_all(own.join("folder")).unwrap();
        let [one, two, link, late] = ["one", "two", "link", "late"].map(|name| own.join(name));
        fs::write(&one, "1").unwrap();
        fs::write(&two, "2").unwrap();
        symlink(&one, &link).unwrap();
        let before = confinement(&[&link, &late]);
        assert_eq!(before.find_replaced(), None);
        // A missing file is no reason for another process, and one that disappears is none either.
        assert_eq!(confinement(&[&one]).find_outside(&confinement(&[&late])), None);
        fs::remove_file(&link).unwrap();
        assert_eq!(before.find_replaced(), None);
        // The file that the link led to is still the same.
        symlink(&two, &link).unwrap();
        assert_eq!(before.find_replaced(), Some(link.as_path()));
        assert_eq!(before.find_outside(&confinement(&[&link])), Some(Outside::Path(two.canonicalize().unwrap())));
        let between = before.renewed();
        assert_eq!(between.find_replaced(), None);
        fs::write(&late, "3").unwrap();
        assert_eq!(between.find_replaced(), Some(late.as_path()));
        assert!(between.find_outside(&confinement(&[&late])).is_some());
        assert_eq!(between.renewed().find_replaced(), None);
        // Unless both are in a folder that may be read.
        let with_folder = confinement(&[&own, &link]);
        fs::remove_file(&link).unwrap();
        symlink(&one, &link).unwrap();
        assert_eq!(with_folder.find_replaced(), None);
        fs::remove_dir_all(own).unwrap();
    }

    #[test]
    fn ports_are_those_of_origins() {
        let with =
            |ports: &[u16]| Confinement { ports: Some(ports.iter().copied().collect()), ..Confinement::default() };
        assert_eq!(with(&[80, 443]).find_outside(&with(&[443])), None);
        assert_eq!(with(&[80]).find_outside(&with(&[80, 443])), Some(Outside::Port(443)));
    }

    #[test]
    fn a_confined_thread_reads_its_folder_and_nothing_else() {
        const NAME: &str = "confine::tests::a_confined_thread_reads_its_folder_and_nothing_else";
        let folder = std::env::temp_dir().join(format!("flatout-confine-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("page"), b"here").unwrap();
        let allowed = confinement(&[&folder]);
        let thread = std::thread::spawn({
            let folder = folder.clone();
            move || {
                if !allowed.enter().unwrap() {
                    // Written directly: the test harness withholds what `println!` prints in a test that passes.
                    let _ = writeln!(io::stderr(), "SKIPPED {NAME}: this kernel has no Landlock");
                    return;
                }
                assert_eq!(fs::read(folder.join("page")).unwrap(), b"here");
                let denied = |result: io::Result<()>| result.unwrap_err().kind();
                assert_eq!(denied(fs::read("/etc/passwd").map(|_| ())), ErrorKind::PermissionDenied);
                assert_eq!(denied(fs::write(folder.join("page"), b"")), ErrorKind::PermissionDenied);
            }
        });
        thread.join().unwrap();
        // Other threads are not.
        assert!(fs::read("/etc/passwd").is_ok());
        fs::remove_dir_all(folder).unwrap();
    }

    /// Environment variable of the process that makes the attempts: its confinement, and the ports it is to try.
    const ATTEMPTS: &str = "FLATOUT_TEST_ATTEMPTS";

    /// The errors of what an attacker would try first, by name; 0 for a success.
    type Errors = BTreeMap<String, i32>;

    /// Makes the attempts, confined as `how` says.
    fn attempt(how: &str, origin_port: u16, other_port: u16) -> Errors {
        rustix::thread::set_no_new_privs(true).unwrap();
        let supervisor = std::os::unix::process::parent_id();
        let confinement = Confinement { ports: Some(BTreeSet::from([origin_port])), ..Confinement::default() };
        match how {
            "free" => {}
            "landlock" => assert!(confine_process(false, Some(&confinement)).unwrap()),
            _ => assert!(confine_process(true, Some(&confinement)).unwrap()),
        }
        let parent = rustix::process::Pid::from_raw(supervisor.cast_signed()).unwrap();
        let tried: [(&str, io::Result<()>); 8] = [
            ("open /etc/shadow", fs::File::open("/etc/shadow").map(drop)),
            ("open the supervisor's memory", fs::File::open(format!("/proc/{supervisor}/mem")).map(drop)),
            ("create a file", fs::File::create(std::env::temp_dir().join(format!("flatout-attempt-{how}"))).map(drop)),
            ("execve", Command::new("/bin/true").status().map(drop)),
            ("ptrace", flatout_os::testing::trace(supervisor)),
            ("signal", rustix::process::test_kill_process(parent).map_err(Into::into)),
            ("connect to another port", TcpStream::connect(("127.0.0.1", other_port)).map(drop)),
            ("connect to an origin", TcpStream::connect(("127.0.0.1", origin_port)).map(drop)),
        ];
        let errno = |result: io::Result<()>| result.err().map_or(0, |error| error.raw_os_error().unwrap_or(-1));
        tried.into_iter().map(|(name, result)| (name.to_owned(), errno(result))).collect()
    }

    /// Each attempt fails with its error in a worker process, and succeeds without confinement.
    #[test]
    fn a_worker_process_cannot_do_what_an_attacker_would_try_first() {
        const NAME: &str = "confine::tests::a_worker_process_cannot_do_what_an_attacker_would_try_first";
        if let Ok(how) = std::env::var(ATTEMPTS) {
            let mut words = how.split(' ');
            let (how, mut port) = (words.next().unwrap().to_owned(), || words.next().unwrap().parse().unwrap());
            let errors = attempt(&how, port(), port());
            println!("\nattempted {}", serde_json::to_string(&errors).unwrap());
            return;
        }
        let is_root = rustix::process::geteuid().is_root();
        let supported = std::thread::spawn(|| confinement(&[]).enter().unwrap()).join().unwrap();
        if !supported {
            let _ = writeln!(io::stderr(), "SKIPPED {NAME}: this kernel has no Landlock");
            return;
        }
        // Where the kernel lets processes trace only their children, unless they agree. Fails where that is not known.
        let _ = rustix::process::set_ptracer(rustix::process::PTracer::Any);
        let (origin, other) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        let errors_of = |how: &str| -> Errors {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", NAME, "--nocapture"]);
            command.env(ATTEMPTS, format!("{how} {} {}", port(&origin), port(&other)));
            let output = command.output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let line = text.lines().find_map(|line| line.strip_prefix("attempted "));
            serde_json::from_str(line.unwrap_or_else(|| panic!("{output:?}"))).unwrap()
        };
        let expect = |how: &str, expected: [(&str, i32); 8]| {
            let expected: Errors = expected.map(|(name, errno)| (name.to_owned(), errno)).into();
            assert_eq!(errors_of(how), expected, "{how}");
        };
        let (denied, forbidden) = (libc::EACCES, libc::EPERM);
        let names = [
            "open /etc/shadow",
            "open the supervisor's memory",
            "create a file",
            "execve",
            "ptrace",
            "signal",
            "connect to another port",
            "connect to an origin",
        ];
        let with = |errnos: [i32; 8]| std::array::from_fn(|index| (names[index], errnos[index]));
        expect("process", with([denied, denied, denied, forbidden, forbidden, forbidden, denied, 0]));
        // Landlock alone lets it call exec, but nothing can be opened for it, and protects the supervisor as well.
        expect("landlock", with([denied, denied, denied, denied, forbidden, forbidden, denied, 0]));
        // Only root may read the file in any case.
        let free = with([if is_root { 0 } else { denied }, 0, 0, 0, 0, 0, 0, 0]);
        expect("free", free);
        let _ = fs::remove_file(std::env::temp_dir().join("flatout-attempt-free"));
    }
}
