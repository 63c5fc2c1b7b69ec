//! What to bench and how, and the table of requests that follows from it.

use super::BenchError;
use crate::request::{ConnectionUse, Field, HttpVersion, Outline};
use crate::url::Url;
use flatout_load::plan::{Plan, Visit};
use flatout_load::workload::{Address, Entry, Method, Replay, Workload};
use flatout_net::client::{ClientTls, ClientTlsSettings, Http2Request, PreparedRequest};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// What is asked for, by whom and in which order.
#[derive(Clone, Debug)]
pub enum Work {
    /// Entries, chosen by their own rule for each request.
    Chosen(Arc<Workload>),
    /// A log's requests in their order: one for each visit.
    Replayed(Arc<Replay>),
}

impl Work {
    /// One URL's target, over and over.
    pub fn one(target: &str) -> Option<Self> {
        let entry = Entry::get(Address { origin: None, target: target.into() });
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

/// How the server is spoken to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Speech {
    /// The version of HTTP.
    pub version: HttpVersion,
    /// Whether TLS sessions are resumed.
    pub resumes: bool,
    /// Whether any certificate will do.
    pub insecure: bool,
    /// Authorities in PEM; `None`: the system's.
    pub authorities: Option<PathBuf>,
}

/// What to bench and how.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Where, and what a lone URL asks for.
    pub url: Url,
    /// What is asked for.
    pub work: Work,
    /// Load levels, at least one, run one after another.
    pub plans: Vec<Plan>,
    /// Client threads wished for, at least 1.
    pub threads: u32,
    /// Longest wait for a connection and for an answer, in nanoseconds.
    pub request_timeout_ns: u64,
    /// Method in place of the entries' own.
    pub method: Option<String>,
    /// Content sent with every request; empty for none.
    pub content: Arc<[u8]>,
    /// Fields to send besides, or instead of, our own.
    pub fields: Vec<Field>,
    /// How the server is spoken to.
    pub speech: Speech,
    /// Source addresses, where they are given.
    pub sources: Option<u32>,
    /// Share of answers whose digest is taken, 0 to 1.
    pub digest_share: f64,
    /// Whether to measure the bare loop beside the run.
    pub with_limit: bool,
    /// Whether the run is past the knee on purpose.
    pub overload: bool,
    /// Which share of the plans is made here, from 0, of how many; (0, 1) for all of it.
    pub share: (u32, u32),
    /// When the first level begins, in nanoseconds of the monotonic clock; at once where nothing is said.
    pub begin_at_ns: Option<u64>,
}

impl Ask {
    /// One URL in the way of a plan; everything else as it is when nothing is said.
    pub fn new(url: Url, plan: Plan) -> Result<Self, BenchError> {
        let work = Work::one(&url.target).ok_or(BenchError::NothingToAsk)?;
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

    /// Every request that may be sent, ready-made.
    pub(super) fn table(&self) -> Result<Arc<[PreparedRequest]>, BenchError> {
        let host = self.url.authority();
        self.work.workload().entries.iter().map(|entry| self.prepare(entry, &host)).collect()
    }

    fn prepare(&self, entry: &Entry, host: &str) -> Result<PreparedRequest, BenchError> {
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
                let head = outline.head(self.url.secure).map_err(|error| BenchError::Request(error.to_string()))?;
                Some(Http2Request { head, content: self.content.to_vec().into() })
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
        // Another method than the list's has other answers.
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

    /// TLS, where the URL wants it.
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

    /// One answer in so many has its digest taken.
    pub(super) fn digest_every(&self) -> u32 {
        if self.digest_share > 0.0 {
            (1.0 / self.digest_share).round().clamp(1.0, f64::from(u32::MAX)) as u32
        } else {
            0
        }
    }

    /// HTTP version and transport, for people.
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

/// Whether a visit takes a connection of its own.
pub(super) const fn connects(visit: &Visit) -> bool {
    matches!(visit, Visit::Connection { .. } | Visit::Session { .. })
}
