//! Third-party programs: clients that we serve, tools that measure us, and a site to serve.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Programs that `make test` installs, each with the Debian package that provides it.
const PACKAGES: &[(&str, &str)] = &[
    ("ab", "apache2-utils"),
    ("apache2", "apache2-bin"),
    ("aria2c", "aria2"),
    ("callgrind_control", "valgrind"),
    ("chromium", "chromium"),
    ("curl", "curl"),
    ("dpkg", "dpkg"),
    ("go", "golang-go"),
    ("h2load", "nghttp2-client"),
    ("hey", "hey"),
    ("httperf", "httperf"),
    ("man", "man-db"),
    ("mount", "mount"),
    ("nghttp", "nghttp2-client"),
    ("nginx", "nginx"),
    ("nice", "coreutils"),
    ("node", "nodejs"),
    ("openssl", "openssl"),
    ("prlimit", "util-linux"),
    ("python3", "python3"),
    ("renice", "bsdutils"),
    ("script", "bsdutils"),
    ("setpriv", "util-linux"),
    ("sha256sum", "coreutils"),
    ("slowhttptest", "slowhttptest"),
    ("strace", "strace"),
    ("systemd-analyze", "systemd"),
    ("umount", "mount"),
    ("valgrind", "valgrind"),
    ("varnishd", "varnish"),
    ("wget", "wget"),
    ("wrk", "wrk"),
];

/// Returns a command for `program`, which must be installed.
///
/// # Panics
/// If it is not installed. The message says how to install it.
pub(crate) fn tool(program: &str) -> Command {
    let found = find_program(program).unwrap_or_else(|| {
        panic!("{program} is not installed; please run: apt-get install {} (or `make test`)", package_of(program))
    });
    Command::new(found)
}

/// Chromium under any of its names. Ubuntu's own package is a snap, so there it may be Google's.
pub(crate) fn chromium() -> Command {
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    names.into_iter().find_map(find_program).map_or_else(|| tool("chromium"), Command::new)
}

/// A program that `tools/setup.sh test` installs below target/tools if no system package provides it, or a program of
/// that name in PATH.
pub(crate) fn test_tool(name: &str, below: &str) -> Command {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools");
    let file = folder.join(below).join(name);
    let found = if file.is_file() { Some(file) } else { find_program(name) };
    Command::new(found.unwrap_or_else(|| panic!("{name} is not installed; please run: tools/setup.sh test")))
}

/// Go, from where its own archive installs it if it is not in PATH.
pub(crate) fn go() -> Command {
    let own = Path::new("/usr/local/go/bin/go");
    find_program("go").or_else(|| own.is_file().then(|| own.to_owned())).map_or_else(|| tool("go"), Command::new)
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    // Debian installs servers in sbin, which is not in every user's PATH.
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn package_of(program: &str) -> &'static str {
    PACKAGES.iter().find(|(known, _)| *known == program).map_or("that", |(_, package)| package)
}

/// Runs `command`, which must succeed, and returns its output.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = said(&output);
    assert!(output.status.success(), "{command:?} ended with {}:\n{text}", output.status);
    text
}

/// Standard output, then standard error.
pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The HTML documentation in Debian's package python3-doc: a real site that none of us wrote.
pub(crate) fn python_docs() -> PathBuf {
    let list = tool("dpkg").args(["--listfiles", "python3-doc"]).output().unwrap();
    let folder = String::from_utf8_lossy(&list.stdout)
        .lines()
        .filter(|line| line.ends_with("/html"))
        .filter_map(|line| Path::new(line).canonicalize().ok())
        .find(|folder| folder.join("index.html").is_file());
    folder.unwrap_or_else(|| {
        panic!("the documentation of Python is not completely installed; please run: apt-get install python3-doc (or `make test`)")
    })
}
