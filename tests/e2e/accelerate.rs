//! The commands of the accelerator: `flatout accelerate` and `flatout purge`, their output and errors, and the settings
//! that their flags stand for.

use super::cli::{Running, without_root_warning};
use super::harness::{Folder, Server, flatout};
use super::site::{Site, configure, files};
use super::tool::{said, tool};
use std::process::Output;

fn output(arguments: &[&str]) -> Output {
    flatout().args(arguments).output().unwrap()
}

/// The configuration that `accelerate` prints for these flags.
fn printed_configuration(flags: &[&str]) -> String {
    let output = output(&[&["accelerate", "--print-config"], flags].concat());
    assert!(output.status.success(), "{flags:?}: {}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn one_origin_is_the_only_required_argument() {
    let text = printed_configuration(&["http://127.0.0.1:3000"]);
    let expected = "site \"*\" {\n    listen \"127.0.0.1:8080\"\n    cache\n    proxy \"http://127.0.0.1:3000\"\n}\n";
    assert_eq!(text, expected);
    for origin in [":3000", "3000"] {
        assert_eq!(printed_configuration(&[origin]), text, "{origin}");
    }
    let several = printed_configuration(&["https://a.example", "http://[::1]:81", "--no-cache", "--listen", ":80"]);
    let expected = "site \"*\" {\n    listen \"0.0.0.0:80\"\n    listen \"[::]:80\"\n    \
        proxy \"https://a.example\" \"http://[::1]:81\"\n}\n";
    assert_eq!(several, expected);
}

#[test]
fn cache_and_server_flags_print_as_a_valid_configuration() {
    let flags = [
        &[
            "http://127.0.0.1:3000",
            "--memory",
            "1GiB",
            "--memory-objects",
            "5000",
            "--disk",
            "/a=10GiB",
            "--disk",
            "b=1GB",
        ][..],
        &[
            "--workers",
            "3",
            "--admin",
            "/x/admin",
            "--open-files",
            "1000",
            "--access-log",
            "log",
            "--idle-timeout",
            "5s",
        ],
        &["--tls", "internal", "--listen", "[::1]:443"],
    ]
    .concat();
    let text = printed_configuration(&flags);
    for line in [
        "workers 3",
        "open-files 1000",
        "admin \"/x/admin\"",
        "store memory=\"1GiB\" memory-objects=5000 {",
        "    disk \"/a\" \"10GiB\"",
        "    disk \"b\" \"1000000000B\"",
        "    listen \"[::1]:443\" tls=#true",
        "    tls \"internal\"",
        "    idle \"5s\"",
    ] {
        assert!(text.lines().any(|found| found == line || found == format!("    {line}")), "{line} is not in\n{text}");
    }
    let folder = Folder::with(&[("flatout.kdl", text.as_bytes())]);
    let checked = flatout().args(["validate"]).current_dir(folder.path()).output().unwrap();
    assert_eq!(said(&checked), "flatout.kdl is valid: 1 site\n");
}

#[test]
fn a_wrong_flag_is_a_usage_error_that_suggests_the_right_one() {
    for (arguments, hint) in [
        (&["accelerate"][..], "<ORIGIN>..."),
        (&["accelerate", "http://a/b"], "write http://a, and change paths with `rewrite`"),
        (&["accelerate", "unix:/run/app.sock"], "looks like a Unix socket"),
        (&["accelerate", "http://u:p@a"], "cannot contain a user name or a password"),
        (&["accelerate", ":3000", "http://127.0.0.1:3000"], "http://127.0.0.1:3000 occurs twice"),
        (&["accelerate", ":8080"], "this accelerator itself listens on"),
        (&["accelerate", "http://localhost:81", "--listen", ":81"], "this accelerator itself listens on"),
        (&["accelerate", ":1", "--memory", "256"], "a size is a number with a unit"),
        (&["accelerate", ":1", "--memory", "1KiB"], "it must be between 1MiB and 16TiB"),
        (
            &["accelerate", ":1", "--memory", "16TiB", "--listen", "127.0.0.1:0", "--admin", "off"],
            "the cache may use 16TiB of memory, but",
        ),
        (&["accelerate", ":1", "--memory-objects", "0"], "1..=1000000000"),
        (&["accelerate", ":1", "--disk", "/var/cache"], "DIR=10GiB"),
        (&["accelerate", ":1", "--disk", "=1GiB"], "folder before"),
        (&["accelerate", ":1", "--disk", "/a=1GiB", "--disk", "/a/b=1GiB"], "the volumes /a and /a/b must not overlap"),
        (&["accelerate", ":1", "--no-cache", "--memory", "1GiB"], "cannot be used with"),
        (&["accelerate", ":1", "--listen", "8080"], "write :8080 for all addresses, or 127.0.0.1:8080"),
        (&["accelarate", ":1"], "accelerate"),
        (&["purge"], "were not provided"),
        (&["purge", "/news"], "`/news` is not a URL; write the complete URL"),
        (&["purge", "ftp://a/"], "neither http nor https"),
        (&["purge", "--tag", "a b"], "is not a tag"),
        (&["purge", "--host", "a/b"], "is not a host"),
        (&["purge", "--all", "--tag", "a"], "cannot be used with"),
        (&["purge", "--prefix", "/blog/"], "`/blog/` is not a URL; write the complete URL"),
    ] {
        let output = output(arguments);
        let said = said(&output);
        assert!(output.status.code() == Some(2) && said.contains(hint), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn help_has_examples_for_both_commands() {
    for (verb, flags) in [
        (
            "accelerate",
            &["--listen", "--memory", "--memory-objects", "--disk", "--no-cache", "--print-config", "--tls"][..],
        ),
        ("purge", &["--tag", "--prefix", "--host", "--all", "--soft", "--dry-run", "--json"]),
    ] {
        let output = output(&[verb, "--help"]);
        let help = said(&output);
        assert!(output.status.success() && help.contains(&format!("Examples:\n  flatout {verb} ")), "{help}");
        for flag in flags {
            assert!(help.contains(flag), "{flag} is not in {help}");
        }
        assert!(stdout_of(&["--help"]).contains(verb));
        assert!(stdout_of(&["completions", "bash"]).contains(&format!("flatout__subcmd__{verb}")));
    }
}

fn stdout_of(arguments: &[&str]) -> String {
    said(&output(arguments))
}

/// Starts a cache on a free port, in front of an address where nothing listens.
fn accelerate(flags: &[&str]) -> Running {
    let mut command = flatout();
    command.args(["accelerate", "http://127.0.0.1:1", "--listen", "127.0.0.1:0", "--workers", "1"]).args(flags);
    let mut running = Running::spawn(command);
    assert!(running.addresses().is_some(), "{}", running.stderr());
    running
}

#[test]
fn the_first_lines_name_the_url_the_origin_and_the_cache_limits() {
    let running = accelerate(&["--admin", "off", "--memory", "64MiB", "--memory-objects", "1000"]);
    let stdout = running.stdout();
    let lines: Vec<&str> = stdout.lines().collect();
    assert!(lines[0].starts_with("http://127.0.0.1:") && lines[0].ends_with('/'), "{stdout}");
    let rest = [
        "forwarding to http://127.0.0.1:1",
        "caching up to 64MiB and 1000 objects in memory",
        "accelerating with 1 worker; press Ctrl-C to stop",
    ];
    assert_eq!(lines[1..], rest);
    assert_eq!(without_root_warning(&running.stderr()), "");
    let running = accelerate(&["--admin", "off", "--no-cache"]);
    assert!(
        running.stdout().contains("\ncaching nothing: every request is forwarded to the origin\n"),
        "{}",
        running.stdout()
    );
}

#[test]
fn an_admin_socket_is_opened_unless_the_default_one_is_in_use() {
    let folder = Folder::new();
    let socket = folder.path().join("flatout.sock");
    let start = || {
        let mut command = flatout();
        command.args(["accelerate", "http://127.0.0.1:1", "--listen", "127.0.0.1:0"]);
        command.env("RUNTIME_DIRECTORY", folder.path());
        let mut running = Running::spawn(command);
        assert!(running.addresses().is_some(), "{}", running.stderr());
        running
    };
    let first = start();
    assert_eq!(without_root_warning(&first.stderr()), "");
    let status = || output(&["status", "--admin", socket.to_str().unwrap()]);
    assert!(said(&status()).contains(&format!("process {}", first.pid())));
    // The second server runs too, and reports that it has no admin socket.
    let second = start();
    let words = second.stderr();
    let words = without_root_warning(&words);
    assert!(words.starts_with("warning: no admin socket: another flatout (process "), "{words}");
    assert!(words.ends_with("\n  try: --admin PATH, here and for flatout status and purge\n"), "{words}");
    assert!(said(&status()).contains(&format!("process {}", first.pid())));
}

#[test]
fn purge_fails_without_a_cache() {
    let folder = Folder::with(&[("index.html", b"here")]);
    let socket = folder.path().join("admin");
    let arguments = ["--admin", socket.to_str().unwrap()];
    let purge = |scope: &[&str]| output(&[&["purge"], scope, &arguments].concat());
    let nobody = purge(&["--all"]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(said(&nobody).starts_with("error: no flatout is running with an admin socket at "), "{}", said(&nobody));
    let server = Server::start(folder.path(), &arguments);
    for scope in [&["http://a.example/"][..], &["--tag", "a"], &["--prefix", "http://a/"], &["--host", "a"], &["--all"]]
    {
        let output = purge(&[scope, &["--soft", "--dry-run"]].concat());
        assert_eq!(output.status.code(), Some(2), "{scope:?}");
        assert_eq!(said(&output), "error: no cache is configured, so there is nothing to purge\n");
    }
    // The admin socket itself, queried by curl.
    let ask = |method: &str, target: &str| {
        let mut curl = tool("curl");
        curl.args(["--silent", "--show-error", "--write-out", "%{http_code}", "--request", method]);
        let url = format!("http://flatout{target}");
        String::from_utf8(curl.arg("--unix-socket").arg(&socket).arg(url).output().unwrap().stdout).unwrap()
    };
    assert!(ask("POST", "/purge?all").ends_with("409"));
    assert!(ask("GET", "/purge?all").ends_with("405"));
    assert!(ask("POST", "/purge?host=a&tag=b").starts_with("error: use only one of url, tag, prefix, host or all"));
    assert!(ask("POST", "/purge").ends_with("422"));
    drop(server);
}

#[test]
fn a_running_cache_can_be_purged_and_inspected() {
    let folder = Folder::new();
    let socket = folder.path().join("admin");
    let socket = socket.to_str().unwrap();
    let running = accelerate(&["--admin", socket, "--memory", "64MiB"]);
    let ask = |arguments: &[&str]| {
        let output = output(&[arguments, &["--admin", socket]].concat());
        (output.status.code(), said(&output))
    };
    assert_eq!(ask(&["purge", "--all"]), (Some(0), "0 objects purged\n".to_owned()));
    assert_eq!(ask(&["purge", "http://a.example/", "--soft"]), (Some(0), "0 objects marked as stale\n".to_owned()));
    let (code, json) = ask(&["purge", "--tag", "a", "--dry-run", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let expected =
        serde_json::json!({"schema": "flatout-purge/1", "objects": 0, "proxies": [], "soft": false, "dry_run": true});
    assert_eq!((code, json), (Some(0), expected));
    let (_, text) = ask(&["status"]);
    assert!(text.contains("\ncache        ") && text.contains("of 64.0 MiB"), "{text}");
    drop(running);
}

/// The limits of the store can change until the store is open. After that, they are fixed for the lifetime of the
/// process.
#[test]
fn a_reload_can_open_a_store_but_not_resize_it() {
    let site = Site::start("landlock #false\nstore memory=\"64MiB\"");
    let usual = files(site.folder.path());
    let purge = || site.order(&["purge", "--all"]);
    assert_eq!(purge().status.code(), Some(2));
    let cached = format!("{}\n    cache\n    proxy \"http://127.0.0.1:1\"", usual.lines().next().unwrap());
    let reload = |memory: &str, inside: &str| {
        configure(&site.folder, &format!("landlock #false\nstore memory=\"{memory}\""), inside);
        let output = site.order(&["reload"]);
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    };
    assert_eq!(reload("128MiB", &cached), "reloaded, generation 2\n");
    assert_eq!(said(&purge()), "0 objects purged\n");
    assert!(said(&site.order(&["status"])).contains("of 128 MiB"));
    let warning = "\n  warning: store: changed, but a reload cannot apply this change; use flatout upgrade\n";
    assert!(reload("256MiB", &cached).ends_with(warning));
    // Stored responses stay even without traffic.
    assert_eq!(reload("256MiB", &usual), "reloaded, generation 4\n");
    assert_eq!(said(&purge()), "0 objects purged\n");
}
