//! Explains one request step by step: the site, the routes that match or not, the kernel's view of the file, and the
//! origin of each response field.
//!
//! It decides and performs the same actions as a request and records them, so it reports exactly what would happen. But
//! passwords count as correct, and nothing is counted.

mod question;
mod text;

pub use question::Question;

use crate::engine::Engine;
use crate::error::show_place;
use crate::spec::Spec;
use crate::walk::{Effect, Recorder, answer};
use flatout_config::model::{FieldOp, Place};
use flatout_handler::content::Offers;
use flatout_handler::response::Response;
use flatout_handler::{Reply, Request};
use flatout_http::head::{Fields, Header};
use flatout_http::limits::Limits;
use flatout_http::request::assemble_request_head;
use flatout_os::clock::Now;
use flatout_proxy::CacheExplanation;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;

/// A step that the request reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepTold {
    /// Its place in the configuration.
    pub place: Place,
    /// Number of enclosing routes.
    pub depth: usize,
    /// Its text in the configuration, without secrets.
    pub written: String,
    /// Its effect on the request.
    pub(crate) effect: Effect,
}

impl StepTold {
    /// Returns whether it is a route that does not match.
    pub(crate) const fn is_skipped(&self) -> bool {
        matches!(self.effect, Effect::NotMatched(_))
    }
}

/// A response field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTold {
    /// Its name and value.
    pub line: (String, String),
    /// The step that set it; `None` for the handler.
    pub place: Option<Place>,
}

/// The upstream request that would be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyTold {
    /// The origins.
    pub origins: String,
    /// The balancing policy; `None` for a single origin.
    pub balance: Option<String>,
    /// The realm that separates its stored responses from others.
    pub realm: String,
    /// Why responses are not stored, and the suggested remedy; `None` if they are.
    pub refusal: Option<(&'static str, &'static str)>,
    /// The state of the store for this request; `None` if it was not queried.
    pub kept: Option<CacheExplanation>,
    /// Why the stored responses are unknown.
    pub unknown: Option<String>,
    /// The place of the `proxy` step.
    pub place: Place,
    /// Path and query of the upstream request, after rewriting.
    pub target: String,
}

/// The explanation of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// The request in one line.
    pub request: String,
    /// The listener, and a remark if the URL matches none.
    pub listener: Option<(String, Option<&'static str>)>,
    /// The site's name, why it was selected, and its place.
    pub site: Option<(String, &'static str, Place)>,
    /// Steps in the order in which they were reached.
    pub steps: Vec<StepTold>,
    /// Files that were looked up, and the kernel's result for each name.
    pub files: Vec<(String, String)>,
    /// The error page of the response.
    pub page: Option<(String, Place)>,
    /// The status.
    pub status: u16,
    /// The outcome's name and meaning.
    pub outcome: (&'static str, &'static str),
    /// Fields of the response except Date.
    pub fields: Vec<FieldTold>,
    /// Bytes of content in the response to a GET.
    pub body_bytes: u64,
    /// True if a page or a script responds; there is no status then, as its code decides.
    pub runs: bool,
    /// Set if an origin responds; there is no status and no outcome then.
    pub proxy: Option<ProxyTold>,
}

impl Spec {
    /// Explains the current handling of a request. Opens files as a request would, without network access.
    pub fn explain(self: &Arc<Self>, question: &Question) -> Explanation {
        let (listener, remark) = self.choose_listener(question);
        self.explain_at(question, listener, remark)
    }

    /// Explains a request that arrives at the listener with the index `listener`, regardless of the URL's port.
    pub fn explain_at(
        self: &Arc<Self>,
        question: &Question,
        listener: u32,
        remark: Option<&'static str>,
    ) -> Explanation {
        let request = format!("{} {}", question.method, question.url());
        let mut explanation = Explanation { request, ..Explanation::default() };
        if let Some(chosen) = self.listeners.get(listener as usize) {
            let address = chosen.address.map_or_else(String::new, |address| address.to_string());
            explanation.listener =
                Some((format!("{address} ({})", if chosen.secure { "https" } else { "http" }), remark));
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
        let client = Some(SocketAddr::new(question.client, 0));
        let request = Request { head: &head, client, secure: question.secure, listener, offers: &Offers::new() };
        let engine = Engine::apart(Arc::clone(self));
        let live = engine.live();
        let mut recorder = Recorder { explanation, changes: Vec::new() };
        let reply = answer(&live, &request, Now::read(), Some(&mut recorder), None);
        let Recorder { mut explanation, changes } = recorder;
        match reply {
            // The recorder describes the origin or the program already.
            Reply::Later(_) if explanation.runs || explanation.proxy.is_some() => {}
            Reply::Now(response) => explanation.set_answer(&response, &changes),
            Reply::Later(_) => {
                explanation.outcome = ("later", "The response would be created outside the event loop.");
            }
        }
        explanation
    }

    /// The listener with the URL's scheme and port, or the closest one.
    fn choose_listener(&self, question: &Question) -> (u32, Option<&'static str>) {
        let fits = |scheme: bool, port: bool, host: bool| {
            self.listeners.iter().position(|listener| {
                (!scheme || listener.secure == question.secure)
                    && (!port || listener.address.is_some_and(|address| address.port() == question.port))
                    && (!host || listener.hosts.find(Some(question.host.as_bytes())).is_some())
            })
        };
        let fitting = fits(true, true, true).or_else(|| fits(true, true, false));
        if let Some(listener) = fitting {
            return (listener as u32, None);
        }
        if let Some(listener) = fits(true, false, true).or_else(|| fits(true, false, false)) {
            return (listener as u32, Some("no listener has the URL's port; this is the first of its scheme"));
        }
        let listener = fits(false, false, true).unwrap_or(0);
        (listener as u32, Some("no listener has the URL's scheme; this is the first that has the site"))
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
                let set = changes.iter().rev().find(|(_, change)| match change {
                    FieldOp::Set(other, set) | FieldOp::Add(other, set) => {
                        other.eq_ignore_ascii_case(name) && set == value
                    }
                    FieldOp::Remove(_) => false,
                });
                let place = set.map(|(place, _)| place.clone());
                FieldTold { line: (name.to_owned(), value.to_owned()), place }
            })
            .collect();
    }

    /// The explanation as JSON, including the schema's version.
    pub fn to_json(&self) -> Value {
        let place = |place: &Place| show_place(place);
        let answers = self.proxy.is_none();
        json!({
            "schema": "flatout-explain/1",
            "request": self.request,
            "listener": self.listener.as_ref().map(|(name, remark)| json!({ "name": name, "remark": remark })),
            "site": self.site.as_ref().map(|(name, why, at)| json!({ "name": name, "why": why, "place": place(at) })),
            "steps": self.steps.iter().map(|step| json!({
                "place": place(&step.place),
                "depth": step.depth,
                "written": step.written,
                "matched": !step.is_skipped(),
                "verdict": step.effect.to_string(),
            })).collect::<Vec<_>>(),
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
            "proxy": self.proxy.as_ref().map(|proxy| json!({
                "origins": proxy.origins,
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
