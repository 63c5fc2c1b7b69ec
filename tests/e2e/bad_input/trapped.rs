//! A site with secret files next to it, and every kind of name through which a secret could leak.

use crate::e2e::harness::Folder;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The content of every file that must never be sent.
pub(crate) const CANARY: &[u8] = b"canary 7f3a95: nobody may be sent this";

/// The content of every small file that may be sent.
pub(crate) const PAGE: &[u8] = b"<h1>A page that anybody may read</h1>\n";

/// Size of large.bin, which is too large to be cached in memory and is therefore sent with sendfile.
pub(crate) const LARGE_BYTES: usize = 200_000;

/// A site with traps.
pub(crate) struct TrappedSite {
    outer: Folder,
    /// Stays bound for as long as the site exists.
    _socket: UnixListener,
}

impl TrappedSite {
    pub(crate) fn new() -> Self {
        let outer = Folder::with(&[
            ("secret.txt", CANARY),
            ("site-other/secret.txt", CANARY),
            ("site/.env", CANARY),
            ("site/.git/config", CANARY),
            ("site/docs/.hidden", CANARY),
            ("site/.well-known/.hidden", CANARY),
            ("site/large.bin", &vec![b'L'; LARGE_BYTES]),
        ]);
        let site = outer.path().join("site");
        for name in [
            &b"index.html"[..],
            b"docs/index.html",
            b"docs/a b.txt",
            b"docs/end.",
            b".well-known/security.txt",
            b"-._~!$&'()*+,;=:@.txt",
            b"\xc3\xbc.txt",
            b"\xfc.txt",
            b"100%.txt",
            b"back\\slash.txt",
            b"line\nend.txt",
            b"a..b.txt",
        ] {
            fs::write(site.join(OsStr::from_bytes(name)), PAGE).unwrap();
        }
        for folder in ["empty", "index-link", "index-pipe", "index-folder/index.html"] {
            fs::create_dir_all(site.join(folder)).unwrap();
        }
        for (target, name) in [
            (Path::new("index.html"), "link-inside"),
            (Path::new("../index.html"), "docs/link-inside"),
            (Path::new("../secret.txt"), "link-up"),
            (Path::new("../../secret.txt"), "docs/link-up"),
            (&outer.path().join("secret.txt"), "link-absolute"),
            (Path::new(".."), "link-folder"),
            (Path::new("/proc/self/root"), "link-proc"),
            (Path::new("/proc/self/fd"), "link-descriptors"),
            (Path::new("link-circle"), "link-circle"),
            (Path::new("../../secret.txt"), "index-link/index.html"),
        ] {
            symlink(target, site.join(name)).unwrap();
        }
        for pipe in ["pipe", "index-pipe/index.html"] {
            mknodat(CWD, site.join(pipe), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
        }
        let socket = UnixListener::bind(site.join("socket")).unwrap();
        Self { outer, _socket: socket }
    }

    /// The folder to serve.
    pub(crate) fn path(&self) -> PathBuf {
        self.outer.path().join("site")
    }

    /// The folder around it, with files that must never be served.
    pub(crate) fn outer(&self) -> &Folder {
        &self.outer
    }

    /// The path of the access log.
    pub(crate) fn log_path(&self) -> PathBuf {
        self.outer.path().join("access.log")
    }
}
