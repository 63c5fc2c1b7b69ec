//! Explains how a request is handled, step by step: the site, which routes match, which files exist, and which step
//! sets each response field.
//!
//! It decides, performs and records the same actions as for a real request, so it reports exactly what would happen.
//! However, passwords are assumed to be correct, and no counters change.

mod question;
mod text;

pub use question::Question;

use crate::engine::Engine;
use crate::error::show_place;
use crate::spec::{ListenerSpec, Spec};
use crate::walk::{Effect, Recorder, answer};
use flatout_config::model::{FieldOp, ListenAddress, Place, TrustedProxy};
use flatout_handler::content::Offers;
use flatout_handler::response::Response;
use flatout_handler::{Reply, Request};
use flatout_http::head::{Fields, Header};
use flatout_http::limits::Limits;
use flatout_http::request::assemble_request_head;
use flatout_http::url::split_port;
use flatout_os::clock::Now;
use flatout_proxy::CacheExplanation;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// Address of the client unless the operator names one.
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Remark about the listener if a proxy in front of it must terminate TLS.
const FORWARDED_PLAINLY: &str = "no listener has the URL's scheme; a trusted proxy is assumed to terminate TLS, and to \
    forward the request to the first one that has the site, with X-Forwarded-Proto: https";

/// A step that the request reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepExplanation {
    /// Place of the step in the configuration.
    pub place: Place,
    /// Number of routes that enclose the step.
    pub depth: usize,
    /// The step in configuration syntax, without secrets.
    pub written: String,
    /// Effect of the step on the request.
    pub(crate) effect: Effect,
}

impl StepExplanation {
    /// Returns whether the step is a route that does not match.
    pub(crate) const fn is_skipped(&self) -> bool {
        matches!(self.effect, Effect::NotMatched(_))
    }
}

/// A response field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTold {
    /// Name and value of the field.
    pub line: (String, String),
    /// Place of the step that set the field, or `None` if the handler set it.
    pub place: Option<Place>,
}

/// The upstream request that would be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyExplanation {
    /// URLs of the origins, separated by commas.
    pub origins: String,
    /// The health and load of each origin, in the order of the configuration. Empty unless the process that serves was
    /// asked.
    pub states: Vec<String>,
    /// Description of the balancing policy, or `None` if there is only one origin.
    pub balance: Option<String>,
    /// The realm, which separates stored responses from those of other sites, `proxy` steps and `cache` steps.
    pub realm: String,
    /// The reason why responses are not stored, and the suggested remedy; `None` if they are stored.
    pub refusal: Option<(&'static str, &'static str)>,
    /// The state of the store for this request, or `None` if it was not queried.
    pub kept: Option<CacheExplanation>,
    /// The reason why `kept` and `states` are unknown, if they are.
    pub unknown: Option<String>,
    /// Place of the `proxy` step.
    pub place: Place,
    /// Path and query of the upstream request, after rewriting.
    pub target: String,
}

/// The application server that would run a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhpExplanation {
    /// Its address.
    pub server: String,
    /// Description of how it responds, and of its load; `None` unless the process that serves was asked.
    pub state: Option<String>,
    /// The reason why `state` is unknown, if it is.
    pub unknown: Option<String>,
}

/// Explanation of how a request is handled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// The request as one line.
    pub request: String,
    /// The listener, and a remark if no listener matches the URL.
    pub listener: Option<(String, Option<&'static str>)>,
    /// The DNS record that makes browsers use HTTP/3 from their first request on, if the listener supports HTTP/3.
    pub dns_record: Option<String>,
    /// The site's name, the reason why it was selected, and its place.
    pub site: Option<(String, &'static str, Place)>,
    /// The steps that the request reached, in order.
    pub steps: Vec<StepExplanation>,
    /// The folders in which files were looked up although their paths name others now, each with the reason. Empty
    /// unless the process that serves was asked.
    pub replaced: Vec<(String, String)>,
    /// The files that were looked up, each with a description of the result.
    pub files: Vec<(String, String)>,
    /// The error page that is used, and its place.
    pub page: Option<(String, Place)>,
    /// Status code that the client receives.
    pub status: u16,
    /// Name and meaning of the outcome.
    pub outcome: (&'static str, &'static str),
    /// Fields of the response, except Date.
    pub fields: Vec<FieldTold>,
    /// Length in bytes of the content of the response to a GET.
    pub body_bytes: u64,
    /// True if an active page or a script responds. The status is unknown then, because the code determines it.
    pub runs: bool,
    /// Present if a script responds.
    pub php: Option<PhpExplanation>,
    /// Present if an origin would respond. The status and outcome are unknown then.
    pub proxy: Option<ProxyExplanation>,
}

impl Spec {
    /// Explains how a request is handled at present. Opens files like a real request, but does not access the network.
    pub fn explain(self: &Arc<Self>, question: &Question) -> Explanation {
        let (listener, remark) = self.choose_listener(question);
        let ends_tls_before =
            question.secure && self.listeners.get(listener as usize).is_some_and(|chosen| !chosen.secure);
        match ends_tls_before.then(|| self.forward_plainly(question, listener)).flatten() {
            Some(forwarded) => Explanation {
                request: describe_request(question),
                ..self.explain_at(&forwarded, listener, Some(FORWARDED_PLAINLY))
            },
            None => self.explain_at(question, listener, remark),
        }
    }

    /// Explains how a request that arrives at the listener with the index `listener` is handled, regardless of the
    /// URL's port.
    pub fn explain_at(
        self: &Arc<Self>,
        question: &Question,
        listener: u32,
        remark: Option<&'static str>,
    ) -> Explanation {
        let mut explanation = Explanation { request: describe_request(question), ..Explanation::default() };
        if let Some(chosen) = self.listeners.get(listener as usize) {
            let address = chosen.address.as_ref().map_or_else(String::new, ToString::to_string);
            explanation.listener =
                Some((format!("{address} ({})", if chosen.secure { "https" } else { "http" }), remark));
            let port = chosen.address.as_ref().and_then(ListenAddress::port).unwrap_or(0);
            let (host, _) = split_port(&question.host);
            let is_name = host.trim_matches(['[', ']']).parse::<IpAddr>().is_err();
            explanation.dns_record = (chosen.http3 && is_name).then(|| dns_record(host, port));
        }
        let lines: Vec<Header<'_>> = question
            .fields
            .iter()
            .map(|(name, value)| Header { name: name.as_str(), value: value.trim().as_bytes() })
            .collect();
        let head = assemble_request_head(
            question.method.as_bytes(),
            question.target.as_bytes(),
            Some(question.host.as_bytes()),
            Fields::from_lines(&lines),
            &Limits::DEFAULT,
        );
        let head = match head {
            Ok(head) => head,
            Err(refusal) => {
                explanation.status = refusal.status();
                explanation.outcome = (refusal.name(), refusal.text());
                return explanation;
            }
        };
        let chosen = self.listeners.get(listener as usize);
        // A listener without the URL's scheme gets the request in its own.
        let secure = chosen.map_or(question.secure, |chosen| chosen.secure);
        let is_unix = chosen.is_some_and(ListenerSpec::is_unix);
        let unix = is_unix && question.client.is_none();
        let client = (!unix).then(|| SocketAddr::new(question.client.unwrap_or(LOCAL), 0));
        let request = Request { head: &head, client, unix, secure, listener, offers: &Offers::new() };
        let engine = Engine::apart(Arc::clone(self));
        let live = engine.live();
        let mut recorder = Recorder { explanation, changes: Vec::new() };
        let reply = answer(&live, &request, Now::read(), Some(&mut recorder), None);
        let Recorder { mut explanation, changes } = recorder;
        match reply {
            // The recorder has described the origin or the program.
            Reply::Later(_) if explanation.runs || explanation.proxy.is_some() => {}
            Reply::Now(response) => explanation.set_answer(&response, &changes),
            Reply::Later(_) => {
                explanation.outcome = ("later", "The response would be created outside the event loop.");
            }
        }
        explanation
    }

    /// Returns the request in which a trusted proxy that terminates TLS forwards `question`, which is for an https URL, to
    /// the listener with the index `listener`; `None` if no setting trusts a peer of that listener.
    fn forward_plainly(&self, question: &Question, listener: u32) -> Option<Question> {
        let is_unix = self.listeners.get(listener as usize)?.is_unix();
        // The operator may have named the proxy itself.
        let named = question.client.filter(|client| self.trusts(*client));
        let peer = match named {
            Some(_) => named,
            None => self.trust_lists().flatten().find_map(|trusted| match trusted {
                TrustedProxy::Network(network) => (!is_unix).then_some(Some(network.address)),
                TrustedProxy::Unix => is_unix.then_some(None),
            })?,
        };
        let is_given = |name: &str| question.fields.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        let mut fields = question.fields.clone();
        let mut claim = |name: &str, value: String| {
            if !is_given(name) && !is_given("Forwarded") {
                fields.push((name.to_owned(), value));
            }
        };
        claim("X-Forwarded-Proto", "https".to_owned());
        if let (None, Some(client)) = (named, question.client.or((!is_unix).then_some(LOCAL))) {
            claim("X-Forwarded-For", client.to_string());
        }
        Some(Question { secure: false, client: peer, fields, ..question.clone() })
    }

    /// Returns the listener with the URL's scheme and port or, failing that, the most similar listener and a remark.
    fn choose_listener(&self, question: &Question) -> (u32, Option<&'static str>) {
        let fits = |scheme: bool, port: fn(&ListenerSpec, u16) -> bool, host: bool| {
            self.listeners.iter().position(|listener| {
                (!scheme || listener.secure == question.secure)
                    && port(listener, question.port)
                    && (!host || listener.hosts.find(Some(question.host.as_bytes())).is_some())
            })
        };
        let same =
            |listener: &ListenerSpec, port| listener.address.as_ref().and_then(ListenAddress::port) == Some(port);
        let fitting = fits(true, same, true).or_else(|| fits(true, same, false));
        if let Some(listener) = fitting {
            return (listener as u32, None);
        }
        if let Some(listener) = fits(true, |listener, _| listener.is_unix(), true) {
            return (listener as u32, Some("no listener has the URL's port; a Unix socket serves any"));
        }
        if let Some(listener) = fits(true, |_, _| true, true).or_else(|| fits(true, |_, _| true, false)) {
            return (listener as u32, Some("no listener has the URL's port; this is the first one with its scheme"));
        }
        let listener = fits(false, |_, _| true, true).unwrap_or(0);
        (listener as u32, Some("no listener has the URL's scheme; this is the first one that has the site"))
    }
}

fn describe_request(question: &Question) -> String {
    format!("{} {}", question.method, question.url())
}

/// Returns the DNS HTTPS record for `host` (RFC 9460 §9.1), for a server on `port`.
fn dns_record(host: &str, port: u16) -> String {
    let host = host.trim_end_matches('.');
    if port == 443 {
        format!("{host}. HTTPS 1 . alpn=\"h3,h2\"")
    } else {
        format!("_{port}._https.{host}. HTTPS 1 {host}. alpn=\"h3,h2\" port={port}")
    }
}

impl Explanation {
    fn set_answer(&mut self, response: &Response, changes: &[(Place, FieldOp)]) {
        self.status = response.status;
        self.outcome = (response.outcome.name(), response.outcome.text());
        self.body_bytes = response.body.len();
        let mut head = Vec::new();
        response.head.append_to(&mut head, b"Thu, 01 Jan 1970 00:00:00 GMT", response.extra_lines(), None);
        let head = String::from_utf8_lossy(&head);
        let lines = head.lines().skip(1).filter_map(|line| line.split_once(": ")).filter(|(name, _)| *name != "Date");
        self.fields = lines
            .map(|(name, value)| {
                let set = changes
                    .iter()
                    .rev()
                    .find(|(_, change)| change.name().eq_ignore_ascii_case(name) && change.value() == Some(value));
                let place = set.map(|(place, _)| place.clone());
                FieldTold { line: (name.to_owned(), value.to_owned()), place }
            })
            .collect();
    }

    /// Returns the explanation as JSON, including the version of the schema.
    pub fn to_json(&self) -> Value {
        let place = |place: &Place| show_place(place);
        let answers = self.proxy.is_none();
        json!({
            "schema": "flatout-explain/1",
            "request": self.request,
            "listener": self.listener.as_ref().map(|(name, remark)| json!({ "name": name, "remark": remark })),
            "dns_record": self.dns_record,
            "site": self.site.as_ref().map(|(name, why, at)| json!({ "name": name, "why": why, "place": place(at) })),
            "steps": self.steps.iter().map(|step| json!({
                "place": place(&step.place),
                "depth": step.depth,
                "written": step.written,
                "matched": !step.is_skipped(),
                "verdict": step.effect.to_string(),
            })).collect::<Vec<_>>(),
            "replaced": self.replaced.iter().map(|(name, is)| json!({ "name": name, "is": is })).collect::<Vec<_>>(),
            "files": self.files.iter().map(|(name, is)| json!({ "name": name, "is": is })).collect::<Vec<_>>(),
            "error_page": self.page.as_ref().map(|(name, at)| json!({ "name": name, "place": place(at) })),
            "status": (answers && !self.runs).then_some(self.status),
            "outcome": answers.then_some(self.outcome.0),
            "why": answers.then_some(self.outcome.1),
            "body_bytes": self.body_bytes,
            "fields": self.fields.iter().map(|field| json!({
                "name": field.line.0,
                "value": field.line.1,
                "place": field.place.as_ref().map(place),
            })).collect::<Vec<_>>(),
            "php": self.php.as_ref().map(|php| json!({
                "server": php.server,
                "state": php.state,
                "state_unknown": php.unknown,
            })),
            "proxy": self.proxy.as_ref().map(|proxy| json!({
                "origins": proxy.origins,
                "states": proxy.states,
                "balance": proxy.balance,
                "realm": proxy.realm,
                "cached": proxy.refusal.is_none(),
                "cache": proxy.kept,
                "cache_unknown": proxy.unknown,
            })),
        })
    }
}

#[cfg(test)]
mod tests;
