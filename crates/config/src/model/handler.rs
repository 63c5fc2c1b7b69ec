//! Handlers: the steps that respond to requests.

use super::{Pages, Php, Proxy, Text, TextPart, TrustedProxy, Variable};
use flatout_http::encoding::ContentCoding;
use std::path::PathBuf;

/// A step that responds to requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handler {
    /// Serves the files below a folder.
    Files(Box<Files>),
    /// Responds with a redirect.
    Redirect(Redirect),
    /// Sends a fixed response.
    Respond(Respond),
    /// Sends the metrics, in Prometheus' text format.
    Metrics,
    /// Forwards requests to origins.
    Proxy(Box<Proxy>),
    /// Runs the active pages below a folder.
    Pages(Box<Pages>),
    /// Runs a single active page or script.
    Page(Box<Pages>),
    /// Runs scripts in an application server such as PHP-FPM.
    Php(Box<Php>),
}

impl Handler {
    /// The networks of the proxies that the handler trusts; `None` if it does not use what they say.
    pub(crate) const fn trusted_mut(&mut self) -> Option<&mut Vec<TrustedProxy>> {
        match self {
            Self::Proxy(proxy) => Some(&mut proxy.trusted),
            Self::Pages(pages) | Self::Page(pages) => Some(&mut pages.settings.trusted),
            Self::Php(php) => Some(&mut php.trusted),
            Self::Files(_) | Self::Redirect(_) | Self::Respond(_) | Self::Metrics => None,
        }
    }
}

/// Settings of `files`, which serves the files below a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// The folder; absolute, or relative to the folder in which the process was started.
    pub root: PathBuf,
    /// File names that serve as the index of a folder, in order of preference.
    pub index: Vec<String>,
    /// True if files whose names begin with a dot are served.
    pub hidden: bool,
    /// Absolute paths of folders outside the root that symbolic links may lead into.
    pub follow_links: Vec<PathBuf>,
    /// How a folder without an index file is listed; `None` if it is not listed.
    pub listing: Option<Listing>,
    /// Paths that are tried in this order, see [`split_tries`](Self::split_tries).
    pub try_targets: Vec<TryTarget>,
    /// Compression on the fly of compressible media types, in order of preference; empty if there is none.
    pub compress: Vec<Compression>,
    /// Content codings for which precompressed files next to the original are used (`.br`, `.zst`, `.gz`).
    pub precompressed: Vec<ContentCoding>,
    /// Files that are stored encoded, and sent as they are with Content-Encoding.
    pub encoded: Vec<EncodedExtension>,
    /// True if Repr-Digest and Content-Digest are sent to clients that request them.
    pub digest: bool,
    /// True if Repr-Digest (sha-256) is sent in every response.
    pub digest_always: bool,
    /// True if Content-MD5 is sent.
    pub content_md5: bool,
    /// Value of Cache-Control by media type (`text/html`), media range (`image/*`) or `*`. The first match applies.
    pub cache_control: Vec<(String, String)>,
    /// Value of Expires by media type, in seconds after the response. The first match applies.
    pub expires: Vec<(String, u32)>,
    /// True if a request for a missing file passes to the next step.
    pub pass: bool,
}

impl Files {
    /// Returns the try targets before the request path itself and those after it. Without the target `{path}`, the
    /// request path comes before all others.
    pub fn split_tries(&self) -> (&[TryTarget], &[TryTarget]) {
        match self.try_targets.iter().position(TryTarget::is_request_path) {
            Some(at) => (&self.try_targets[..at], &self.try_targets[at + 1..]),
            None => (&[], &self.try_targets),
        }
    }
}

/// An extension of files that are stored encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedExtension {
    /// One or more extensions without the first dot, in lowercase (`wasm.br`). The last one stands for the coding.
    pub extension: String,
    /// The coding of the files.
    pub coding: ContentCoding,
}

/// How a folder is listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The maximum number of entries shown.
    pub entries_max: u32,
}

/// A path to try, or the end of the attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TryTarget {
    /// The file with this path relative to the root.
    File(Text),
    /// A response with this status and its error page.
    Status(u16),
}

impl TryTarget {
    fn is_request_path(&self) -> bool {
        let Self::File(text) = self else { return false };
        let mut parts = text.parts.iter().filter(|part| !matches!(part, TextPart::Literal(text) if text == "/"));
        matches!((parts.next(), parts.next()), (Some(TextPart::Variable(Variable::Path)), None))
            && !matches!(text.parts.last(), Some(TextPart::Literal(_)))
    }
}

/// A content coding and the compression level to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Compression {
    /// The content coding to use (RFC 9110 §8.4.1).
    pub coding: ContentCoding,
    /// The compression level, on the scale of the coding.
    pub level: u8,
}

/// A redirect: a response with a Location field and a 3xx status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The value of the Location field.
    pub to: Text,
    /// The status code: 301, 302, 303, 307 or 308.
    pub status: u16,
}

/// A fixed response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Respond {
    /// The status code, from 200 to 599.
    pub status: u16,
    /// The content of the response.
    pub body: String,
    /// The media type of the content.
    pub content_type: String,
}
