//! Handlers: what answers.

use super::{Pages, Php, Proxy, Text};
use std::path::PathBuf;

/// The handler that responds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handler {
    /// Files below a folder.
    Files(Box<Files>),
    /// Elsewhere.
    Redirect(Redirect),
    /// A text.
    Respond(Respond),
    /// The counters, for Prometheus.
    Metrics,
    /// Other servers.
    Proxy(Box<Proxy>),
    /// Active pages below a folder.
    Pages(Box<Pages>),
    /// One active page, or one script.
    Page(Box<Pages>),
    /// Scripts, run by an application server.
    Php(Box<Php>),
}

/// Files below a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// The folder, absolute or relative to where the process was started.
    pub root: PathBuf,
    /// Names looked for in a folder, in this order.
    pub index: Vec<String>,
    /// True if names that begin with a dot are served.
    pub hidden: bool,
    /// Folders outside the root that symbolic links may lead into, by absolute paths.
    pub follow_links: Vec<PathBuf>,
    /// True if a folder without index is listed.
    pub listing: Option<Listing>,
    /// Fallbacks to try, in this order, if no file has the path's name.
    pub try_targets: Vec<TryTarget>,
    /// Codings for what compresses well, the server's favourite first; empty: none on the fly.
    pub compress: Vec<Coding>,
    /// Codings of files that lie beside the file (`.br`, `.zst`, `.gz`).
    pub precompressed: Vec<Coding>,
    /// True if Repr-Digest and Content-Digest are sent: to clients that want them, or with `digest_always` to all.
    pub digest: bool,
    /// True if Repr-Digest (sha-256) is sent unasked.
    pub digest_always: bool,
    /// True if Content-MD5 is sent.
    pub content_md5: bool,
    /// Cache-Control by type: a media type (`text/html`), a family (`image/*`) or `*`; the first that matches.
    pub cache_control: Vec<(String, String)>,
    /// Expires by type, in seconds from the moment of the answer; the first that matches.
    pub expires: Vec<(String, u32)>,
    /// True if a request for what is not here goes on to the steps that follow.
    pub pass: bool,
}

/// How folders are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Entries shown at most.
    pub entries_max: u32,
}

/// A try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TryTarget {
    /// The file with this path below the root.
    File(Text),
    /// An answer without content but an error page.
    Status(u16),
}

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// `br` (RFC 7932).
    Brotli,
    /// `zstd` (RFC 8878).
    Zstd,
    /// `gzip` (RFC 1952).
    Gzip,
}

impl Coding {
    /// All, the smallest result first.
    pub const ALL: [Self; 3] = [Self::Brotli, Self::Zstd, Self::Gzip];

    /// The name in Accept-Encoding.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }
}

/// Elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// Where.
    pub to: Text,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}

/// A text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Respond {
    /// The status, 200 to 599.
    pub status: u16,
    /// The content.
    pub body: String,
    /// Its type.
    pub content_type: String,
}
