//! The specification of a bench, and its table of requests.

use super::BenchError;
use crate::request::{ConnectionUse, HttpVersion, Outline, RequestField};
use flatout_client::{ClientTls, ClientTlsSettings, Http2Request, PreparedRequest};
use flatout_http::url::Url;
use flatout_load::plan::{Plan, Visit};
use flatout_load::workload::{Address, Method, Replay, Workload, WorkloadEntry};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// The requests, and their selection.
#[derive(Clone, Debug)]
pub enum BenchRequests {
    /// Entries selected at random or in turn by their own rule.
    Chosen(Arc<Workload>),
    /// The requests of a log in order, one per visit.
    Replayed(Arc<Replay>),
}

impl BenchRequests {
    /// The target of one URL, repeated.
    pub fn one(target: &str) -> Option<Self> {
        let entry = WorkloadEntry::get(Address { origin: None, target: target.into() });
        let mut workload = Workload::in_turn("one URL", vec![entry])?;
        workload.parameters.clear();
        Some(Self::Chosen(Arc::new(workload)))
    }

    /// The entries and classes.
    pub fn workload(&self) -> &Workload {
        match self {
            Self::Chosen(workload) => workload,
            Self::Replayed(replay) => &replay.workload,
        }
    }
}

/// How the client communicates with the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Speech {
    /// The HTTP version.
    pub version: HttpVersion,
    /// True if TLS sessions are resumed.
    pub resumes: bool,
    /// True if certificate verification is skipped.
    pub insecure: bool,
    /// File of CA certificates in PEM; `None` for the system's.
    pub authorities: Option<PathBuf>,
}

/// The specification of a bench.
#[derive(Clone, Debug)]
pub struct BenchSpec {
    /// The server's URL, and the target of a single-URL bench.
    pub url: Url,
    /// The requests.
    pub work: BenchRequests,
    /// Load levels in order, at least one.
    pub plans: Vec<Plan>,
    /// Requested client threads, at least 1.
    pub threads: u32,
    /// Timeout for a connection and for a response, in nanoseconds.
    pub request_timeout_ns: u64,
    /// Method that replaces the entries' own.
    pub method: Option<String>,
    /// Content of every request; empty for none.
    pub content: Arc<[u8]>,
    /// Additional fields, or replacements of default ones.
    pub fields: Vec<RequestField>,
    /// How the client communicates with the server.
    pub speech: Speech,
    /// Number of source addresses, if specified.
    pub sources: Option<u32>,
    /// Share of responses whose digest is computed, 0 to 1.
    pub digest_share: f64,
    /// True to measure the bare loop beside the run.
    pub with_limit: bool,
    /// True if the run exceeds the server's capacity intentionally.
    pub overload: bool,
    /// The share of the plans to run here: index, from 0, and count; (0, 1) for all.
    pub share: (u32, u32),
    /// Start of the first level, in nanoseconds of the monotonic clock; immediately by default.
    pub begin_at_ns: Option<u64>,
}

impl BenchSpec {
    /// One URL with a plan, and defaults for everything else.
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
            speech: Speech { resumes: true, ..Speech::default() },
            sources: None,
            digest_share: 0.0,
            with_limit: false,
            overload: false,
            share: (0, 1),
            begin_at_ns: None,
        })
    }

    /// All requests in prepared form.
    pub(super) fn table(&self) -> Result<Arc<[PreparedRequest]>, BenchError> {
        let host = self.url.authority();
        self.work.workload().entries.iter().map(|entry| self.prepare(entry, &host)).collect()
    }

    fn prepare(&self, entry: &WorkloadEntry, host: &str) -> Result<PreparedRequest, BenchError> {
        if let Some(origin) = &entry.address.origin
            && (origin.secure, &*origin.host, origin.port) != (self.url.secure, self.url.host.as_str(), self.url.port)
        {
            return Err(BenchError::OtherServer(origin.authority()));
        }
        let method = self.method.as_deref().unwrap_or(entry.method.name());
        let outline = Outline {
            method,
            target: &entry.address.target,
            host: entry.host.as_deref().unwrap_or(host),
            fields: &self.fields,
            content: &self.content,
        };
        let version = self.speech.version;
        let http2 = match version {
            HttpVersion::Http2 { .. } => {
                let refused = |name| BenchError::Request(format!("HTTP/2 has no field `{name}`; remove it"));
                let block = outline.encode_http2(self.url.secure).map_err(refused)?;
                Some(Http2Request { block: block.into(), content: self.content.to_vec().into() })
            }
            HttpVersion::Http10 | HttpVersion::Http11 => None,
        };
        let kept: Arc<[u8]> = outline.encode(version, ConnectionUse::Kept).into();
        let last =
            if http2.is_some() { Arc::clone(&kept) } else { outline.encode(version, ConnectionUse::Last).into() };
        let digest = OnceLock::new();
        if let Some(known) = entry.sha256 {
            let _ = digest.set(known);
        }
        // With another method than the list's, responses differ.
        let is_known = self.method.is_none() || method == Method::Get.name();
        Ok(PreparedRequest {
            kept,
            last,
            is_head: method == "HEAD",
            http2,
            body_bytes: entry.body_bytes.filter(|_| is_known),
            digest,
        })
    }

    /// TLS, if the URL requires it.
    pub(super) fn tls(&self) -> Result<Option<ClientTls>, BenchError> {
        if !self.url.secure {
            return Ok(None);
        }
        let settings = ClientTlsSettings {
            server_name: self.url.host.clone(),
            insecure: self.speech.insecure,
            authorities: self.speech.authorities.clone(),
            resumes: self.speech.resumes,
            http2: matches!(self.speech.version, HttpVersion::Http2 { .. }),
        };
        ClientTls::load(&settings).map(Some).map_err(|error| BenchError::Tls(error.to_string()))
    }

    /// The interval of responses whose digest is computed.
    pub(super) fn digest_every(&self) -> u32 {
        if self.digest_share > 0.0 {
            (1.0 / self.digest_share).round().clamp(1.0, f64::from(u32::MAX)) as u32
        } else {
            0
        }
    }

    /// HTTP version and transport, for display.
    pub fn protocol(&self) -> String {
        let version = match self.speech.version {
            HttpVersion::Http10 => "HTTP/1.0",
            HttpVersion::Http11 => "HTTP/1.1",
            HttpVersion::Http2 { .. } => "HTTP/2",
        };
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
