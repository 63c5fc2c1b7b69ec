//! Reloads: nobody notices one that succeeds, and one that is refused changes nothing.

use super::cli::get;
use super::harness::{Folder, flatout, read_response, wait_until, worker_of};
use super::site::{Crowd, Site, TWO_PROCESSES, config, configure, files, prepare, rss_anon_kb};
use super::tls::Certificate;
use super::tool::{said, tool};
use crate::e2e::skip::skip;
use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::Output;

/// A number in h2load's summary line, `requests: 10 total, 10 started, …`.
fn number_before(text: &str, word: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with("requests: ")).unwrap_or_else(|| panic!("{text}"));
    let part = line.trim_start_matches("requests: ").split(", ").find(|part| part.ends_with(word)).unwrap();
    part.split(' ').next().unwrap().parse().unwrap()
}

/// The published claim: 200 reloads under 200 connections. The counts matter, not the time.
#[test]
fn two_hundred_reloads_under_two_hundred_connections_fail_nothing() {
    const RELOADS: u64 = 200;
    let folder = prepare("", "");
    let inside = |extra: &str| {
        let www = folder.path().join("www");
        format!("    listen \"127.0.0.1:0\" h2c=#true\n    {extra}\n    files \"{}\"", www.display())
    };
    let (one, two) = (inside("header \"X-Turn\" \"one\""), inside("header \"X-Turn\" \"two\""));
    configure(&folder, "workers 2", &one);
    let site = Site::run(folder);
    let (address, pid, worker) = (site.address(), site.pid(), worker_of(site.pid()));
    // HTTP/2 with a third-party client, in addition to the others.
    let http2 = |requests: u64| {
        let url = format!("http://{address}/");
        tool("h2load").args(["-n", &requests.to_string(), "-c", "40", "-m", "4", &url]).output().unwrap()
    };
    let reload = |count: u64| {
        for index in 0..count {
            configure(&site.folder, "workers 2", if index % 2 == 0 { &two } else { &one });
            let output = site.order(&["reload"]);
            assert!(output.status.success(), "{}", said(&output));
        }
    };
    // A first round, so that memory reaches its working size.
    Crowd::during(address, [100, 20, 40], true, |_| {
        for _ in 0..3 {
            assert!(http2(20_000).status.success());
        }
        reload(20);
    });
    let before_kb = rss_anon_kb(worker);
    let crowd = Crowd::during(address, [100, 20, 40], false, |_| {
        let (stop, is_stopped) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let streams = scope.spawn(move || {
                let mut succeeded = 0;
                while is_stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                    let output = http2(20_000);
                    let text = said(&output);
                    assert!(output.status.success(), "{text}");
                    for bad in ["failed", "errored", "timeout"] {
                        assert_eq!(number_before(&text, bad), 0, "{text}");
                    }
                    succeeded += number_before(&text, "succeeded");
                }
                succeeded
            });
            reload(RELOADS);
            drop(stop);
            let succeeded = streams.join().unwrap();
            println!("{succeeded} answers over HTTP/2");
        });
    });
    println!("{crowd:?}");
    // No reload closed a connection.
    assert_eq!(crowd.farewells.load(std::sync::atomic::Ordering::Relaxed), 0);
    assert_eq!((site.status("generation").as_u64().unwrap(), site.pid()), (1 + 20 + RELOADS, pid));
    wait_until("all clients have disconnected", || site.status("connections_open").as_u64() == Some(0));
    assert_eq!(worker_of(pid), worker);
    let after_kb = rss_anon_kb(worker);
    println!("RssAnon: {before_kb} kB before, {after_kb} kB after");
    assert!(after_kb <= before_kb + 2048, "{before_kb} kB before, {after_kb} kB after");
}

#[test]
fn a_sighup_reloads_and_reports_the_changes() {
    let site = Site::start("");
    let body = "    listen \"127.0.0.1:0\"\n    respond 200 \"another\"";
    configure(&site.folder, "", body);
    site.running.signal("HUP");
    wait_until("the second generation", || site.running.stderr().contains("reloaded, generation 2\n"));
    wait_until("the new response", || get(site.address(), "/").body == b"another");
    // One more listener, and a setting that only a new process can change.
    configure(&site.folder, "workers 5", &format!("{body}\n    listen \"127.0.0.2:0\""));
    let output = site.order(&["reload"]);
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.starts_with("reloaded, generation 3\n  also listening on 127.0.0.2:"), "{text}");
    assert!(
        text.contains("\n  warning: workers: changed, but a reload cannot apply this change; use flatout upgrade\n"),
        "{text}"
    );
    let added = text.split("listening on ").nth(1).unwrap().split(['\n', ' ']).next().unwrap().parse().unwrap();
    assert_eq!(get(added, "/").body, b"another");
    configure(&site.folder, "", body);
    let text = said(&site.order(&["reload"]));
    assert!(text.contains("\n  no longer listening on 127.0.0.2:"), "{text}");
    wait_until("the listener is closed", || TcpStream::connect(added).is_err());
    assert_eq!(get(site.address(), "/").body, b"another");
}

#[test]
fn connections_of_a_listener_that_is_replaced_are_served() {
    let site = Site::start("");
    let listen = |settings: &str| format!("    listen \"127.0.0.1:0\"{settings}\n    respond 200 \"here\"");
    configure(&site.folder, "", &listen(""));
    assert!(site.order(&["reload"]).status.success());
    let mut stream = TcpStream::connect(site.address()).unwrap();
    let mut ask = || {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        read_response(&mut stream)
    };
    assert_eq!(ask().body, b"here");
    for settings in [" h2c=#true", " proxy-protocol=#true", ""] {
        configure(&site.folder, "", &listen(settings));
        assert!(site.order(&["reload"]).status.success());
        let response = ask();
        assert_eq!((response.status, &response.body[..]), (200, &b"here"[..]), "{settings}: {response:?}");
    }
    // A connection without TLS does not reach a site that requires it.
    let Certificate { chain, key, .. } = &Certificate::new();
    configure(&site.folder, "", &listen(&format!(" tls=#true\n    tls cert=\"{chain}\" key=\"{key}\"")));
    assert!(site.order(&["reload"]).status.success());
    assert_eq!(ask().status, 421);
}

/// Asserts that it was refused with exit code 2 and its reason, and that the old configuration still runs.
fn assert_refused(site: &Site, output: &Output, reason: &str) {
    let text = said(output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains(reason), "{text}");
    assert!(text.ends_with("the new configuration was rejected; the old one remains in use\n"), "{text}");
    assert_eq!(get(site.address(), "/").body, b"here");
    assert_eq!(site.status("generation").as_u64(), Some(1));
}

/// Asserts that the same configuration fails at startup with exit code 2 and the same reason.
fn assert_no_start(folder: &Folder, reason: &str) {
    // The admin socket belongs to the running process.
    let text = fs::read_to_string(config(folder)).unwrap();
    let (_, rest) = text.split_once('\n').unwrap();
    let start = folder.path().join("start.kdl");
    fs::write(&start, format!("admin off=#true\n{rest}")).unwrap();
    let output = flatout().arg("run").arg("-c").arg(&start).output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains(reason), "{text}");
}

/// A certificate for localhost and its key, created with OpenSSL.
pub(crate) fn make_certificate(folder: &Path, name: &str) -> (String, String) {
    let path = |ending: &str| folder.join(format!("{name}.{ending}")).display().to_string();
    let (certificate, key) = (path("crt"), path("key"));
    let mut command = tool("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
    command.args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]);
    let output = command.args(["-keyout", &key, "-out", &certificate]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    (certificate, key)
}

#[test]
fn an_invalid_configuration_is_refused_at_startup_and_on_reload() {
    let site = Site::start("");
    let usual = files(site.folder.path());
    let path = site.folder.path().display().to_string();
    let (certificate, _) = make_certificate(site.folder.path(), "one");
    let (_, key) = make_certificate(site.folder.path(), "two");
    fs::write(site.folder.path().join("empty.pem"), b"").unwrap();
    let tls = |chain: &str, key: &str| {
        format!(
            "    listen \"127.0.0.1:0\" tls=#true\n    tls cert=\"{chain}\" key=\"{key}\"\n    files \"{path}/www\""
        )
    };
    // A folder whose disk is full, and a read-only one.
    let cases = [
        (String::new(), format!("{usual}\n    file_servr"), "unknown setting `file_servr`".to_owned()),
        (String::new(), usual.replace("/www", "/nowhere"), format!("{path}/nowhere")),
        (String::new(), tls(&certificate, &key), "the private key belongs to another certificate".to_owned()),
        (String::new(), tls(&format!("{path}/none.pem"), &key), format!("cannot read {path}/none.pem")),
        (String::new(), tls(&format!("{path}/empty.pem"), &key), "no certificate in PEM".to_owned()),
        (format!("log \"{path}/none/log\""), usual.clone(), format!("cannot write the access log {path}/none/log")),
        (format!("log \"{path}/www\""), usual.clone(), format!("cannot write the access log {path}/www")),
        ("log \"/proc/log\"".to_owned(), usual.clone(), "cannot write the access log /proc/log".to_owned()),
        ("user \"no-such-user-here\"".to_owned(), usual.clone(), "no-such-user-here".to_owned()),
    ];
    for (global, inside, reason) in &cases {
        configure(&site.folder, global, inside);
        if !global.starts_with("user") {
            assert_refused(&site, &site.order(&["reload"]), reason);
        }
        assert_no_start(&site.folder, reason);
    }
    assert_eq!(site.status("reloads_refused").as_u64(), Some(cases.len() as u64 - 1));
    configure(&site.folder, "", &usual);
    assert!(site.order(&["reload"]).status.success());
    assert!(site.status("last_error").is_null());
}

/// A sandbox cannot be loosened, so a reload with another folder starts another worker process, which takes over.
#[test]
fn a_root_outside_the_sandbox_needs_a_new_worker_process() {
    let global = format!("workers 2\n{TWO_PROCESSES}");
    let site = Site::start(&global);
    if site.status("landlock").as_bool() != Some(true) {
        skip("this kernel has no Landlock");
        return;
    }
    let before = site.status("worker_pid");
    assert_eq!(get(site.address(), "/").body, b"here");
    let elsewhere = Folder::with(&[("index.html", b"here"), ("new", b"elsewhere")]);
    fs::copy(site.folder.path().join("www/large"), elsewhere.path().join("large")).unwrap();
    let inside = format!("    listen \"127.0.0.1:0\"\n    files \"{}\"", elsewhere.path().display());
    // No connection is refused, closed or reset, and waiting connections are served by the new process.
    let crowd = Crowd::during(site.address(), [40, 10, 20], false, |_| {
        configure(&site.folder, &global, &inside);
        let output = site.order(&["reload"]);
        let text = said(&output);
        assert!(output.status.success(), "{text}");
        assert!(text.starts_with("reloaded, generation 2\n  the worker process "), "{text}");
        assert!(
            text.contains(&format!("serves: the previous one may not open {}", elsewhere.path().display())),
            "{text}"
        );
        assert!(text.contains("\n  the counters start at zero; the previous worker process prints its own"), "{text}");
    });
    assert!(crowd.farewells.load(std::sync::atomic::Ordering::Relaxed) > 0, "{crowd:?}");
    assert_eq!(get(site.address(), "/new").body, b"elsewhere");
    let after = site.status("worker_pid");
    assert!(before != after, "{before} {after}");
    assert_eq!((site.pid(), site.status("generation").as_u64()), (site.running.pid(), Some(2)));
    // The next reload stays within this worker's sandbox.
    configure(&site.folder, &global, &format!("    header \"X-New\" \"1\"\n{inside}"));
    assert!(site.order(&["reload"]).status.success());
    assert_eq!((get(site.address(), "/new").field("x-new"), site.status("worker_pid")), (Some("1"), after));
}

/// The operator learns the same as when the process that serves puts a configuration in force, and what is lost.
#[test]
fn a_reload_by_a_new_worker_process_says_all_that_has_changed() {
    let folder = prepare("", "");
    let own = folder.path().display().to_string();
    for name in ["migrations", "pages"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    let inside = format!("    route \"/p/*\" {{ cache; proxy \"http://127.0.0.1:1\"; }}\n{}", files(folder.path()));
    configure(&folder, TWO_PROCESSES, &inside);
    let site = Site::run(folder);
    if site.status("landlock").as_bool() != Some(true) {
        skip("this kernel has no Landlock");
        return;
    }
    fs::write(site.folder.path().join("migrations/001_start.sql"), "CREATE TABLE t (x);").unwrap();
    let pages = format!("pages \"{own}/pages\" {{ database \"{own}/data.db\" migrations=\"{own}/migrations\"; }}");
    let inside = format!("    listen \"127.0.0.2:0\"\n    route \"/pages/*\" {{ {pages} }}\n{inside}");
    configure(&site.folder, &format!("{TWO_PROCESSES}\nuser \"root\""), &inside);
    let output = site.order(&["reload"]);
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    for line in [
        "serves: the previous one may not open /".to_owned(),
        format!("\n  migrations applied to {own}/data.db: 001_start.sql\n"),
        "\n  also listening on 127.0.0.2:".to_owned(),
        "\n  warning: user: changed, but a reload cannot apply this change; use flatout upgrade\n".to_owned(),
        "\n  responses stored in memory are lost, and the counters start at zero; ".to_owned(),
    ] {
        assert!(text.contains(&line), "{line} {text}");
        assert!(site.running.stderr().contains(line.trim_end()), "{line}");
    }
    assert_eq!(site.running.stderr().matches("migrations applied").count(), 1);
}

#[test]
fn renewed_certificates_are_used_and_mismatched_ones_refused() {
    let folder = prepare("", "");
    let path = folder.path().display().to_string();
    let (certificate, key) = make_certificate(folder.path(), "site");
    let inside = format!(
        "    listen \"127.0.0.1:0\" tls=#true\n    tls cert=\"{certificate}\" key=\"{key}\"\n    files \"{path}/www\""
    );
    configure(&folder, "", &inside);
    let mut command = flatout();
    command.arg("run").arg("-c").arg(config(&folder));
    let mut running = super::cli::Running::spawn(command);
    running.addresses();
    let url = running.stdout().lines().next().unwrap_or_default().to_owned();
    assert!(url.starts_with("https://127.0.0.1:"), "{} {}", running.stdout(), running.stderr());
    let fetch =
        |trusted: &str| tool("curl").args(["--silent", "--show-error", "--cacert", trusted, &url]).output().unwrap();
    assert_eq!(fetch(&certificate).stdout, b"here");
    // A new pair replaces it, so a client that trusts only the old certificate fails.
    let old = format!("{path}/old.crt");
    fs::copy(&certificate, &old).unwrap();
    make_certificate(folder.path(), "site");
    running.signal("HUP");
    wait_until("the new pair", || fetch(&certificate).status.success());
    assert!(!fetch(&old).status.success());
    // Half a pair is refused, and the certificate in use stays.
    fs::copy(&certificate, &old).unwrap();
    let (stray, _) = make_certificate(folder.path(), "stray");
    fs::copy(stray, &certificate).unwrap();
    running.signal("HUP");
    wait_until("the refusal", || running.stderr().contains("the private key belongs to another certificate"));
    assert_eq!(fetch(&old).stdout, b"here");
}

/// A separate file system, unmounted when dropped.
struct Mount(Folder);

impl Mount {
    /// Returns `None` if the user may not mount.
    fn new(options: &str) -> Option<Self> {
        let folder = Folder::new();
        let mounted = tool("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(folder.path()).output().unwrap();
        if !mounted.status.success() {
            skip(&format!("no file system may be mounted here: {}", said(&mounted)));
            return None;
        }
        Some(Self(folder))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = tool("umount").arg(self.0.path()).output();
    }
}

#[test]
fn a_read_only_or_full_log_folder_is_refused() {
    let site = Site::start("");
    let usual = files(site.folder.path());
    for (options, reason) in
        [("ro,size=64k", "Read-only file system"), ("size=64k,nr_inodes=1", "No space left on device")]
    {
        let Some(mount) = Mount::new(options) else { return };
        let log = mount.0.path().join("log");
        configure(&site.folder, &format!("log \"{}\"", log.display()), &usual);
        let reason = format!("cannot write the access log {}: {reason}", log.display());
        assert_refused(&site, &site.order(&["reload"]), &reason);
        assert_no_start(&site.folder, &reason);
    }
    // Room for the file's name but not for content: this shows only when lines are written, and loses only lines.
    let Some(mount) = Mount::new("size=64k") else { return };
    let _ = fs::write(mount.0.path().join("filler"), vec![b'x'; 128 * 1024]);
    configure(&site.folder, &format!("log \"{}/log\"", mount.0.path().display()), &usual);
    let output = site.order(&["reload"]);
    if output.status.success() {
        for _ in 0..50 {
            assert_eq!(get(site.address(), "/").body, b"here");
        }
        wait_until("the lost lines are counted", || site.status("log_lines_lost").as_u64() > Some(0));
    } else {
        assert_refused(&site, &output, "No space left on device");
    }
    configure(&site.folder, "", &usual);
    assert!(site.order(&["reload"]).status.success());
}
