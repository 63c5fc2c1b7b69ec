//! Reloads: nobody notices one that succeeds, and nothing comes of one that is refused.

use super::cli::get;
use super::harness::{Folder, flatout, wait_until};
use super::site::{Crowd, Site, config, configure, files, prepare, rss_anon_kb};
use super::tool::{said, tool};
use crate::e2e::skip::skip;
use std::fs;
use std::path::Path;
use std::process::Output;

/// A number of h2load's summary line, `requests: 10 total, 10 started, …`.
fn number_before(text: &str, word: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with("requests: ")).unwrap_or_else(|| panic!("{text}"));
    let part = line.trim_start_matches("requests: ").split(", ").find(|part| part.ends_with(word)).unwrap();
    part.split(' ').next().unwrap().parse().unwrap()
}

/// What we promise: 200 reloads under 200 connections. Counts decide, not the time it takes.
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
    let (address, pid) = (site.address(), site.pid());
    // HTTP/2 by somebody else's client, beside the others.
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
    // Once, so that memory has its size.
    Crowd::during(address, [100, 20, 40], true, |_| {
        for _ in 0..3 {
            assert!(http2(20_000).status.success());
        }
        reload(20);
    });
    let before_kb = rss_anon_kb(pid);
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
    // No connection ended for a reload's sake.
    assert_eq!(crowd.farewells.load(std::sync::atomic::Ordering::Relaxed), 0);
    assert_eq!((site.status("generation").as_u64().unwrap(), site.pid()), (1 + 20 + RELOADS, pid));
    wait_until("the crowd has gone", || site.status("connections_open").as_u64() == Some(0));
    let after_kb = rss_anon_kb(pid);
    println!("RssAnon: {before_kb} kB before, {after_kb} kB after");
    assert!(after_kb <= before_kb + 2048, "{before_kb} kB before, {after_kb} kB after");
}

#[test]
fn a_sighup_reloads_and_what_changed_is_said() {
    let site = Site::start("");
    let body = "    listen \"127.0.0.1:0\"\n    respond 200 \"another\"";
    configure(&site.folder, "", body);
    site.running.signal("HUP");
    wait_until("the second generation", || site.running.stderr().contains("reloaded, generation 2\n"));
    wait_until("its answer", || get(site.address(), "/").body == b"another");
    // A listener more, and what only a new process can change.
    configure(&site.folder, "workers 5", &format!("{body}\n    listen \"127.0.0.2:0\""));
    let output = site.order(&["reload"]);
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.starts_with("reloaded, generation 3\n  listening on 127.0.0.2:"), "{text}");
    assert!(
        text.contains("\n  warning: workers: changed, but a reload cannot change that; flatout upgrade can\n"),
        "{text}"
    );
    let added = text.split("listening on ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert_eq!(get(added, "/").body, b"another");
    configure(&site.folder, "", body);
    let text = said(&site.order(&["reload"]));
    assert!(text.contains("\n  no longer listening on 127.0.0.2:"), "{text}");
    wait_until("it is closed", || std::net::TcpStream::connect(added).is_err());
    assert_eq!(get(site.address(), "/").body, b"another");
}

/// Refused: exit code 2 and its reason; and the old one goes on.
fn assert_refused(site: &Site, output: &Output, reason: &str) {
    let text = said(output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains(reason), "{text}");
    assert!(text.ends_with("the new configuration is refused; the old one stays in force\n"), "{text}");
    assert_eq!(get(site.address(), "/").body, b"here");
    assert_eq!(site.status("generation").as_u64(), Some(1));
}

/// The same configuration at the start: exit code 2 and the same reason.
fn assert_no_start(folder: &Folder, reason: &str) {
    // The running one has the admin socket.
    let text = fs::read_to_string(config(folder)).unwrap();
    let (_, rest) = text.split_once('\n').unwrap();
    let start = folder.path().join("start.kdl");
    fs::write(&start, format!("admin off=#true\n{rest}")).unwrap();
    let output = flatout().arg("run").arg("-c").arg(&start).output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains(reason), "{text}");
}

/// A certificate for localhost and its key, by OpenSSL.
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
fn what_is_wrong_is_refused_at_the_start_and_by_a_running_server() {
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
    // A folder whose disk takes no byte more, and one that takes no change at all.
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

/// Confined workers cannot be let out again.
#[test]
fn a_root_outside_the_sandbox_needs_a_new_process() {
    let site = Site::start("landlock #true");
    if site.status("landlock").as_bool() != Some(true) {
        skip("this kernel has no Landlock");
        return;
    }
    assert_eq!(get(site.address(), "/").body, b"here");
    let elsewhere = Folder::with(&[("index.html", b"elsewhere")]);
    let inside = format!("    listen \"127.0.0.1:0\"\n    files \"{}\"", elsewhere.path().display());
    configure(&site.folder, "landlock #true", &inside);
    assert_refused(&site, &site.order(&["reload"]), "is outside the folders to which the workers were confined");
    let output = site.order(&["upgrade"]);
    assert!(output.status.success(), "{}", said(&output));
    wait_until("the new process alone answers", || get(site.address(), "/").body == b"elsewhere");
}

#[test]
fn certificates_are_followed_and_a_mismatch_is_not() {
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
    // A new pair in its place; anyone who trusts the old one alone is not content any more.
    let old = format!("{path}/old.crt");
    fs::copy(&certificate, &old).unwrap();
    make_certificate(folder.path(), "site");
    running.signal("HUP");
    wait_until("the new pair", || fetch(&certificate).status.success());
    assert!(!fetch(&old).status.success());
    // Half a pair is refused, and what is shown stays.
    fs::copy(&certificate, &old).unwrap();
    let (stray, _) = make_certificate(folder.path(), "stray");
    fs::copy(stray, &certificate).unwrap();
    running.signal("HUP");
    wait_until("the refusal", || running.stderr().contains("the private key belongs to another certificate"));
    assert_eq!(fetch(&old).stdout, b"here");
}

/// A file system of its own, gone at the end.
struct Mount(Folder);

impl Mount {
    /// `None` when we may not.
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
fn a_log_folder_that_is_read_only_or_full_is_refused() {
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
    // Room for the file's name and for nothing in it: that shows when lines come, and costs lines only.
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
