//! What one worker answers with.

use crate::accelerator::Accelerator;
use crate::outcome::Outcome;
use crate::step::{CacheStep, ProxyStep};
use flatout_config::model::FieldOp;
use flatout_net::clock::Now;
use flatout_net::handler::Request;
use flatout_net::response::Response;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

/// Changes of the answer's fields that header steps make.
#[derive(Clone, Copy, Debug)]
pub struct Changes<'a> {
    /// Their number, unique among combinations of steps on this worker.
    pub id: u32,
    /// The changes, in the order to make them.
    pub fields: &'a Rc<[FieldOp]>,
}

/// A request for an origin.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// The request.
    pub request: &'a Request<'a>,
    /// Its path as it is after rewriting, encoded.
    pub path: &'a [u8],
    /// Its query after rewriting.
    pub query: Option<&'a [u8]>,
    /// What header steps change of the answer.
    pub changes: Changes<'a>,
    /// Now.
    pub now: Now,
}

/// Why there is no answer, for whoever makes error pages.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The status.
    pub status: u16,
    /// One sentence for the visitor.
    pub text: &'static str,
    /// Fields for the page.
    pub fields: Vec<(&'static str, String)>,
    /// The reason.
    pub outcome: Outcome,
}

/// An answer that is being made.
pub type Making = Pin<Box<dyn Future<Output = Result<Response, Refused>>>>;

/// What became of a request.
pub enum Handled {
    /// The answer.
    Reply(Response),
    /// The answer, later.
    Later(Making),
    /// None.
    Refused(Refused),
}

/// One worker's part of the accelerator.
#[derive(Debug)]
pub struct ProxyWorker {}

impl ProxyWorker {
    /// A worker's part of `accelerator`. `base` is added to the outcomes of its answers.
    pub fn new(_accelerator: &Arc<Accelerator>, _base: u8) -> Rc<Self> {
        Rc::new(Self {})
    }

    /// These proxies are in force from now on: has their origins looked after. To be called within the runtime.
    pub fn watch(&self, _steps: &[Arc<ProxyStep>]) {}

    /// Answers `asking`.
    pub fn handle(&self, _step: &Arc<ProxyStep>, _cache: Option<&Arc<CacheStep>>, _asking: &Asking<'_>) -> Handled {
        let text = "No origin can be asked.";
        Handled::Refused(Refused { status: 502, text, fields: Vec::new(), outcome: Outcome::OriginNone })
    }
}
