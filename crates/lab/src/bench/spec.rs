//! The specification of a bench, and the requests that it prepares.

use super::BenchError;
use crate::request::{ConnectionUse, HttpVersion, Outline, OutlineError, RequestField};
use crate::resolve::Routes;
use flatout_client::{ClientTls, ClientTlsSettings, PreparedRequest, StreamRequest};
use flatout_http::url::Url;
use flatout_load::plan::{Plan, Visit};
use flatout_load::workload::{Address, EntryContent, Method, Replay, Workload, WorkloadEntry};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The requests of a bench, and how they are selected.
#[derive(Clone, Debug)]
pub enum BenchRequests {
    /// Entries of a workload, which are selected at random or in turn by the workload's own rule.
    Chosen(Arc<Workload>),
    /// The requests of a log, in order, one per visit.
    Replayed(Arc<Replay>),
}

impl BenchRequests {
    /// Creates the repeated request of one URL, given its target.
    pub fn one(target: &str) -> Option<Self> {
        let entry = WorkloadEntry::get(Address { origin: None, target: target.into() });
        let mut workload = Workload::in_turn("one URL", vec![entry])?;
        workload.parameters.clear();
        Some(Self::Chosen(Arc::new(workload)))
    }

    /// Returns the workload with the entries and classes.
    pub fn workload(&self) -> &Workload {
        match self {
            Self::Chosen(workload) => workload,
            Self::Replayed(replay) => &replay.workload,
        }
    }
}

/// The protocol options of the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Speech {
    /// The HTTP version, with the number of streams per connection.
    pub version: HttpVersion,
    /// True if the client resumes TLS sessions.
    pub resumes: bool,
    /// True if the client does not verify certificates.
    pub insecure: bool,
    /// File with trusted CA certificates in PEM; `None` for those of the system.
    pub authorities: Option<PathBuf>,
}

/// The specification of a bench.
#[derive(Clone, Debug)]
pub struct BenchSpec {
    /// The server's URL. Its target is the request of a bench with a single URL.
    pub url: Url,
    /// The requests and how they are selected.
    pub work: BenchRequests,
    /// Load levels in order, at least one.
    pub plans: Vec<Plan>,
    /// Requested number of client threads, at least 1.
    pub threads: u32,
    /// Timeout for connecting, and for a response, in nanoseconds.
    pub request_timeout_ns: u64,
    /// Method that replaces the methods of the entries, if any.
    pub method: Option<String>,
    /// Content of every request; empty if requests have no content.
    pub content: Arc<[u8]>,
    /// Additional header fields, or replacements for default fields.
    pub fields: Vec<RequestField>,
    /// True if placeholders in targets, values of fields and contents are filled; see [`flatout_load::template`].
    pub fill: bool,
    /// The protocol options of the client.
    pub speech: Speech,
    /// The addresses to connect to, if they are not those of the URL's host.
    pub routes: Routes,
    /// Path of the server's Unix socket, if connections are over one instead of to an address.
    pub unix_socket: Option<Arc<Path>>,
    /// Server name for TLS, if it is not the URL's host.
    pub server_name: Option<String>,
    /// Number of source addresses, if specified.
    pub sources: Option<u32>,
    /// Share of failed requests above which the run stops, 0 to 1, if specified.
    pub stop_when: Option<f64>,
    /// Share of responses whose digest is computed, 0 to 1.
    pub digest_share: f64,
    /// True if the bare loop is measured alongside the run.
    pub with_limit: bool,
    /// True if the run intentionally exceeds the server's capacity.
    pub overload: bool,
    /// The share of the plans that this process runs: index, from 0, and number of shares; (0, 1) for all of them.
    pub share: (u32, u32),
    /// Start of the first level, in nanoseconds on the monotonic clock. If `None`, the level starts immediately.
    pub begin_at_ns: Option<u64>,
}

impl BenchSpec {
    /// Creates the specification of one URL with a plan, and defaults for everything else.
    pub fn new(url: Url, plan: Plan) -> Result<Self, BenchError> {
        let work = BenchRequests::one(&url.target).ok_or(BenchError::NothingToAsk)?;
        Ok(Self {
            url,
            work,
            plans: vec![plan],
            threads: 1,
            request_timeout_ns: 10_000_000_000,
            method: None,
            content: Arc::from([]),
            fields: Vec::new(),
            fill: false,
            speech: Speech { resumes: true, ..Speech::default() },
            routes: Routes::default(),
            unix_socket: None,
            server_name: None,
            sources: None,
            stop_when: None,
            digest_share: 0.0,
            with_limit: false,
            overload: false,
            share: (0, 1),
            begin_at_ns: None,
        })
    }

    /// Returns the addresses to connect to; none if the server is at a Unix socket.
    ///
    /// # Errors
    /// Returns [`BenchError::Unresolvable`] if there is no address.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, BenchError> {
        if self.unix_socket.is_some() { Ok(Vec::new()) } else { self.routes.resolve(&self.url) }
    }

    /// Returns all requests in prepared form.
    pub(super) fn table(&self) -> Result<Arc<[PreparedRequest]>, BenchError> {
        let host = self.url.authority();
        let entries = self.work.workload().entries.iter();
        let table: Arc<[_]> = entries.map(|entry| self.prepare(entry, &host)).collect::<Result<_, _>>()?;
        let is_filled = |request: &PreparedRequest| request.template.as_ref().is_some_and(|it| it.has_placeholder());
        if self.fill && !table.iter().any(is_filled) {
            return Err(BenchError::NothingToFill);
        }
        Ok(table)
    }

    fn prepare(&self, entry: &WorkloadEntry, host: &str) -> Result<PreparedRequest, BenchError> {
        if let Some(origin) = &entry.address.origin
            && (origin.secure, &*origin.host, origin.port) != (self.url.secure, self.url.host.as_str(), self.url.port)
        {
            return Err(BenchError::OtherServer(origin.authority()));
        }
        let content: &[u8] = match &entry.content {
            Some(EntryContent::Bytes(content)) => content,
            Some(EntryContent::File(name)) => {
                return Err(BenchError::Request(format!("the content of a request was not read from {name}")));
            }
            None => &self.content,
        };
        let method = self.method_of(entry, content);
        let outline = Outline {
            method,
            target: &entry.address.target,
            host: entry.host.as_deref().unwrap_or(host),
            fields: &self.fields,
            content,
        };
        let version = self.speech.version;
        let invalid = |error: OutlineError| BenchError::Request(error.to_string());
        let template = if self.fill { outline.template(version, self.url.secure).map_err(invalid)? } else { None };
        let streamed = match version.streams() {
            Some(streams) => {
                let refused =
                    |name| BenchError::Request(format!("{} has no field `{name}`; remove it", version.name()));
                let block = outline.encode_streamed(streams.version, self.url.secure).map_err(refused)?;
                Some(StreamRequest { block: block.into(), content: content.into() })
            }
            None => None,
        };
        let kept = outline.encode(version, ConnectionUse::Kept);
        let prepared = if streamed.is_some() {
            PreparedRequest::plain(kept)
        } else {
            PreparedRequest::new(kept, outline.encode(version, ConnectionUse::Last))
        };
        let digest = OnceLock::new();
        if let Some(known) = entry.sha256 {
            let _ = digest.set(known);
        }
        // With a different method from the list's, responses differ.
        let is_known = self.method.is_none() || method == Method::Get.name();
        Ok(PreparedRequest {
            is_head: method == "HEAD",
            streamed,
            body_bytes: entry.body_bytes.filter(|_| is_known),
            digest,
            template: template.map(Box::new),
            ..prepared
        })
    }

    /// Returns the method of a request with this content: that of the command line, that of the list or the log, or
    /// POST for a request with content for which they say GET or nothing.
    pub(crate) fn method_of<'a>(&'a self, entry: &'a WorkloadEntry, content: &[u8]) -> &'a str {
        match (&self.method, &entry.own_method) {
            (Some(method), _) => method,
            (None, Some(method)) => method,
            (None, None) if !content.is_empty() && entry.method == Method::Get => "POST",
            (None, None) => entry.method.name(),
        }
    }

    /// Returns the TLS configuration, if the URL requires TLS.
    pub(super) fn tls(&self) -> Result<Option<ClientTls>, BenchError> {
        if !self.url.secure {
            return Ok(None);
        }
        let settings = ClientTlsSettings {
            server_name: self.server_name.as_ref().unwrap_or(&self.url.host).clone(),
            insecure: self.speech.insecure,
            authorities: self.speech.authorities.clone(),
            resumes: self.speech.resumes,
            http2: matches!(self.speech.version, HttpVersion::Http2 { .. }),
        };
        ClientTls::load(&settings).map(Some).map_err(|error| BenchError::Tls(error.to_string()))
    }

    /// Returns the interval, in responses, at which the digest of a response is computed.
    pub(super) fn digest_every(&self) -> u32 {
        if self.digest_share > 0.0 {
            (1.0 / self.digest_share).round().clamp(1.0, f64::from(u32::MAX)) as u32
        } else {
            0
        }
    }

    /// Returns HTTP version and transport, for display.
    pub fn protocol(&self) -> String {
        let version = self.speech.version.name();
        match (self.url.secure, self.speech.resumes) {
            (false, _) => version.to_owned(),
            (true, true) => format!("{version} over TLS, sessions resumed"),
            (true, false) => format!("{version} over TLS, no session resumed"),
        }
    }
}

/// Returns whether a visit uses a new connection.
pub(super) const fn connects(visit: &Visit) -> bool {
    matches!(visit, Visit::Connection { .. } | Visit::Session { .. })
}
