//! stand-in
use flatout_config::model::{Config, Files as F, Handler as H, StepKind};
use flatout_http::target::Target;
use flatout_net::clock::Now;
use flatout_net::handler::{Handler, Reply, Request};
use flatout_net::response::{Body, Head, Response};
use flatout_serve::cache::CacheLimits;
use flatout_serve::files::{Files, Found, Location, Policy, Services, Store};
use flatout_serve::root::Root;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

pub(crate) struct Spec {
    root: Arc<Root>,
    files: F,
    recheck_ms: u64,
}
impl Spec {
    pub(crate) fn compile(config: &Config) -> Result<Arc<Self>, String> {
        for site in &config.sites {
            for step in &site.block {
                if let StepKind::Handler(H::Files(files)) = &step.kind {
                    let root = Root::open(&files.root)
                        .map_err(|error| format!("cannot open the root {}: {error}", files.root.display()))?;
                    return Ok(Arc::new(Self {
                        root: Arc::new(root),
                        files: (**files).clone(),
                        recheck_ms: site.recheck_ms,
                    }));
                }
            }
        }
        Err("no files".to_owned())
    }
}
pub(crate) struct Engine {
    files: RefCell<Files>,
    store: Rc<Store>,
}
impl Engine {
    pub(crate) fn new(spec: Arc<Spec>, services: Arc<Services>, limits: CacheLimits) -> Self {
        let store = Store::new(limits, services);
        Self {
            files: RefCell::new(Files::new(0, Arc::clone(&spec.root), &spec.files, spec.recheck_ms, None, &store)),
            store,
        }
    }
    pub(crate) fn swap(&self, spec: Arc<Spec>) {
        *self.files.borrow_mut() =
            Files::new(0, Arc::clone(&spec.root), &spec.files, spec.recheck_ms, None, &self.store);
    }
}
impl Handler for Engine {
    const OUTCOMES: &'static [&'static str] = flatout_serve::outcome::Outcome::NAMES;
    fn handle(&self, request: &Request<'_>, now: Now) -> Reply {
        let (path, query) = match request.head.target {
            Target::Resource { path, query, .. } => (path, query),
            _ => (&b"/"[..], None),
        };
        match self.files.borrow().handle(request, Location { path, query }, &Rc::new(Policy::default()), now) {
            Found::Reply(reply) => reply,
            Found::Error(error) => {
                Reply::Now(Response::new(error.status, Head::new(error.status, &[]), Body::Empty, 0))
            }
        }
    }
}
