//! Running pages on one worker: interpreters, reusable buffers, and the queue of pages that compute for longer.
//!
//! A page starts directly in the handler, with its first slice. Most pages end there, without a future or an
//! allocation.

use crate::answer;
use crate::api::budget::RequestBudget;
use crate::api::refusal::PageRefusal;
use crate::api::{self, Api, ApiSettings, LogLevel, LogLine};
use crate::backlog::{BacklogFull, BufferedOutput};
use crate::dev;
use crate::exchange::Exchange;
use crate::folder::{PageFolder, PageLookup};
use crate::job::{Driving, PageRun};
use crate::outcome::PageOutcome;
use crate::page::{Broken, Page};
use crate::queue::RunQueue;
use crate::ranged;
use crate::sandbox::failure::{FailureKind, RunFailure};
use crate::sandbox::limits::Limits;
use crate::sandbox::wait::NativeError;
use crate::sandbox::{ResumeResult, Run, Sandbox};
use crate::step::{PagesShared, PagesStep};
use flatout_handler::response::{Body, Response};
use flatout_handler::routed::{Handling, HeaderPolicy, Refusal, RoutedRequest};
use flatout_http::request::Method;
use flatout_http::status::has_content;
use flatout_net::task_deadlines::DeadlineTable;
use flatout_os::clock::Now;
use flatout_upstream::origin::{OriginClient, OriginCounts, OriginSettings, OriginTls};
use std::cell::{Cell, RefCell};
use std::future::ready;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of waiting runs on one worker, each of which may use up to its memory limit.
const WAITING_MAX: usize = 4096;

/// Maximum number of exchanges kept for later requests.
const EXCHANGES_MAX: usize = 64;

/// The value of Allow in a response to OPTIONS. A page handles all these methods itself.
const ALLOW: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// An interpreter with the API of pages.
pub(crate) struct Vm {
    pub(crate) sandbox: Sandbox,
    pub(crate) api: Api,
}

/// The state of one worker for all pages.
#[derive(derive_more::Debug)]
#[debug("PagesWorker(waiting: {waiting:?})")]
pub struct PagesWorker {
    shared: Arc<PagesShared>,
    /// Interpreters by their API settings. Steps with the same resources share an interpreter.
    vms: RefCell<Vec<(Arc<ApiSettings>, Rc<Vm>)>>,
    #[expect(clippy::vec_box, reason = "runs take the boxes and return them")]
    exchanges: RefCell<Vec<Box<Exchange>>>,
    /// The reusable buffer for small content.
    spare: RefCell<Rc<Vec<u8>>>,
    queue: Rc<RunQueue>,
    deadlines: Rc<DeadlineTable>,
    waiting: Cell<usize>,
}

impl Vm {
    fn new(settings: &Arc<ApiSettings>, tls: Option<Arc<OriginTls>>) -> mlua::Result<Self> {
        let sandbox = Sandbox::new()?;
        let client = (!settings.upstreams.is_empty())
            .then(|| OriginClient::new(OriginSettings::default(), tls, Arc::new(OriginCounts::default())));
        let api = Api::new(Arc::clone(settings), client);
        api::install(&sandbox, &api)?;
        sandbox.seal()?;
        Ok(Self { sandbox, api })
    }
}

impl PagesWorker {
    /// Creates the state of a worker. Interpreters are created when needed.
    pub fn new(shared: Arc<PagesShared>) -> Rc<Self> {
        Rc::new(Self {
            queue: Rc::new(RunQueue::shown_in(&shared)),
            shared,
            vms: RefCell::default(),
            exchanges: RefCell::default(),
            spare: RefCell::default(),
            deadlines: Rc::default(),
            waiting: Cell::new(0),
        })
    }

    /// Drops the interpreters that none of `steps` needs. Runs in progress keep their interpreters.
    pub fn retain(&self, steps: &[Arc<PagesStep>]) {
        let is_used = |settings: &Arc<ApiSettings>| {
            steps.iter().any(|step| step.api().is_some_and(|other| Arc::ptr_eq(other, settings)))
        };
        self.vms.borrow_mut().retain(|(settings, _)| is_used(settings));
    }

    /// Handles a request with a page of `folder`, or passes it on if there is no such page.
    pub fn handle(self: &Rc<Self>, folder: &PageFolder, routed: &RoutedRequest<'_>) -> Handling {
        let step = folder.step();
        let Some(vm) = self.vm(step, routed.now) else {
            return Refusal::from(PageOutcome::NoInterpreter).into();
        };
        let (path, facts) = (routed.decoded, routed.facts);
        let loaded = match folder.find(path, facts, routed.now, &vm.sandbox) {
            PageLookup::Page(loaded) if step.is_single() || !routed.lacks_slash() => loaded,
            PageLookup::Page(_) | PageLookup::Slash => {
                return routed.redirect_to_folder(308, PageOutcome::Slash).into();
            }
            PageLookup::Nothing => return Handling::Pass,
        };
        if routed.request.head.method == Method::Options {
            return Response::new(204, routed.policy.head(204, &[("Allow", ALLOW)]), Body::Empty, PageOutcome::Options)
                .into();
        }
        if step.is_dev()
            && let Some(response) = dev::events(step, routed)
        {
            return response.into();
        }
        match &loaded.page {
            Ok(page) => {
                let handled = self.start(&vm, step, page, routed);
                match handled {
                    // The page has run, so its response is sent even if content is unread. Unlike an immediate
                    // response, a later one does not wait for the content.
                    Handling::Now(result) if routed.request.offers.has_content() => Handling::later(ready(result)),
                    handled => handled,
                }
            }
            Err(broken) => self.refuse_broken(step, broken, routed.now),
        }
    }

    /// Returns the interpreter for `step`, which is created on first use.
    fn vm(&self, step: &PagesStep, now: Now) -> Option<Rc<Vm>> {
        let settings = step.api()?;
        if let Some((_, vm)) = self.vms.borrow().iter().find(|(known, _)| Arc::ptr_eq(known, settings)) {
            return Some(Rc::clone(vm));
        }
        match Vm::new(settings, step.tls()) {
            Ok(vm) => {
                let vm = Rc::new(vm);
                self.vms.borrow_mut().push((Arc::clone(settings), Rc::clone(&vm)));
                Some(vm)
            }
            Err(error) => {
                let name = PageOutcome::NoInterpreter.name();
                let line = format!("error: [{name}] the interpreter for pages could not be created: {error}");
                self.shared.told.say_once(&line, now.monotonic_ms);
                None
            }
        }
    }

    /// Runs the first slice of `page`.
    fn start(
        self: &Rc<Self>,
        vm: &Rc<Vm>,
        step: &Arc<PagesStep>,
        page: &Rc<Page>,
        routed: &RoutedRequest<'_>,
    ) -> Handling {
        let mut exchange = self.exchanges.borrow_mut().pop().unwrap_or_default();
        let Some(code) = &page.code else {
            if page.range(0).is_some() {
                exchange.output.segment(0);
            }
            if step.is_dev() {
                dev::add_script(&mut exchange);
            }
            let response = self.compose(page, &mut exchange, routed.policy, PageOutcome::Answered);
            self.give_back(exchange);
            return Handling::Now(response.map_err(|BacklogFull| self.refuse_output()));
        };
        if !self.queue.admits(page.is_long.get()) {
            self.give_back(exchange);
            return Refusal::from(FailureKind::Overloaded).into();
        }
        let request = routed.request;
        if !self.shared.backlog.has_room_for(request.client.map(|client| client.ip())) {
            self.give_back(exchange);
            return self.refuse_output().into();
        }
        // In HTTP/2 and HTTP/3, the host need not be a field (RFC 9113 §8.3.1), nor with a target in absolute form in
        // HTTP/1.0. It is added as a field so that pages find it in the same place.
        let has_host = || request.head.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
        let host = request.head.host.filter(|_| !has_host());
        exchange.facts.set(
            request.head.method.as_str(),
            routed.path,
            routed.query,
            host.map(|host| ("host", host)).into_iter().chain(request.head.fields.iter()),
            request.client,
            request.secure,
        );
        if let Some(host) = routed.host {
            exchange.facts.set_host(host);
        }
        if request.offers.has_content() {
            exchange.offers = Some(request.offers.carry());
        }
        let settings = step.settings();
        let mut limits = Limits {
            slice: Duration::from_micros(settings.cpu_slice_us),
            cpu: Duration::from_micros(settings.cpu_limit_us),
            memory_bytes: settings.memory_bytes_max as usize,
        };
        // If other pages compute as well, this slice is shorter, and the page is queued after it.
        limits.slice /= self.queue.slices_taken().saturating_add(1);
        let mut run = vm.sandbox.start(code, exchange, limits);
        match run.resume() {
            ResumeResult::Done => Handling::Now(self.finish(vm, step, page, routed.policy, run, PageOutcome::Answered)),
            ResumeResult::Failed(failure) => Handling::Now(self.fail(step, page, run, &failure)),
            came => {
                if matches!(came, ResumeResult::Preempted) {
                    self.queue.note_preempted();
                }
                match PageRun::new(self, vm, step, page, routed.policy, run) {
                    Some(job) => Handling::later(Driving::new(job, came).answer()),
                    None => Refusal::from(PageOutcome::Busy).into(),
                }
            }
        }
    }

    /// Returns the response of a run that has ended.
    pub(crate) fn finish(
        &self,
        vm: &Vm,
        step: &PagesStep,
        page: &Page,
        policy: &Rc<HeaderPolicy>,
        mut run: Run,
        outcome: PageOutcome,
    ) -> Result<Response, Refusal> {
        if let Err(fault) = vm.api.finish_head(&vm.sandbox, run.exchange()) {
            return self.fail(step, page, run, &head_failure(&fault));
        }
        let mut exchange = run.finish();
        self.log(step, page, api::take_log(&mut exchange));
        if step.is_dev() {
            dev::add_script(&mut exchange);
        }
        let response = self.compose(page, &mut exchange, policy, outcome);
        self.give_back(exchange);
        response.map_err(|BacklogFull| self.refuse_output())
    }

    /// Returns the refusal if the budgets for buffered output are exhausted, and reports that at most once per minute.
    pub(crate) fn refuse_output(&self) -> Refusal {
        let outcome = PageOutcome::OutputBudget;
        self.shared
            .told
            .say_rarely(&format!("error: [{}] {}", outcome.name(), outcome.text()), Now::read().monotonic_ms);
        outcome.into()
    }

    /// Creates an empty share of the memory for output.
    pub(crate) fn share(&self, client: Option<IpAddr>) -> RequestBudget {
        self.shared.backlog.memory().share(client)
    }

    /// Buffers output until it has been sent to the client at this address.
    pub(crate) fn keep(&self, buffer: Vec<u8>, client: Option<IpAddr>) -> Result<BufferedOutput, BacklogFull> {
        self.shared.backlog.keep(buffer, client)
    }

    fn compose(
        &self,
        page: &Page,
        exchange: &mut Exchange,
        policy: &Rc<HeaderPolicy>,
        outcome: PageOutcome,
    ) -> Result<Response, BacklogFull> {
        let client = exchange.facts.client().map(|client| client.ip());
        let length = ranged::apply(page, exchange, answer::length(page, &exchange.output));
        let status = exchange.draft.status;
        let (head, extra) = answer::head(page, &exchange.draft, Some(length as u64), policy);
        let body = if has_content(status) {
            let keep = |buffer| self.keep(buffer, client);
            answer::body(page, &mut exchange.output, length, &mut self.spare.borrow_mut(), keep)?
        } else {
            Body::Empty
        };
        let mut response = Response::new(status, head, body, outcome);
        response.extra = extra;
        Ok(response)
    }

    /// Returns the refusal for a run that has failed, and writes a message for operators.
    pub(crate) fn fail(
        &self,
        step: &PagesStep,
        page: &Page,
        mut run: Run,
        failure: &RunFailure,
    ) -> Result<Response, Refusal> {
        let exchange = run.exchange();
        let refusal = api::refusal(exchange, &failure.message);
        let lines = api::take_log(exchange);
        self.give_back(run.finish());
        self.log(step, page, lines);
        let refused = refusal.map_or_else(|| Refusal::from(failure.kind), Refusal::from);
        let outcome = refused.outcome;
        let place = failure.line.and_then(|line| page.place(line));
        if refusal == Some(PageRefusal::ContentBudget) {
            let line = format!("error: [{}] {}", outcome.name(), outcome.text());
            self.shared.told.say_rarely(&line, Now::read().monotonic_ms);
        }
        if refusal.is_none() {
            let place = show_place(step, page, place.as_ref());
            let line = format!("error: {place}: [{}] {}", outcome.name(), failure.message);
            self.shared.told.say_once(&line, Now::read().monotonic_ms);
        }
        if step.is_dev() {
            return Ok(dev::failure_page(step, page, failure, place, &refused));
        }
        Err(refused)
    }

    fn refuse_broken(&self, step: &PagesStep, broken: &Broken, now: Now) -> Handling {
        let refused = Refusal::from(broken.outcome);
        self.shared.told.say_once(&format!("error: {} [{}]", broken.line, broken.outcome.name()), now.monotonic_ms);
        if step.is_dev() { dev::broken_page(&broken.text, &refused).into() } else { refused.into() }
    }

    pub(crate) const fn queue(&self) -> &Rc<RunQueue> {
        &self.queue
    }

    pub(crate) const fn deadlines(&self) -> &Rc<DeadlineTable> {
        &self.deadlines
    }

    /// Writes the lines that a page has logged.
    pub(crate) fn log(&self, step: &PagesStep, page: &Page, lines: Vec<LogLine>) {
        for LogLine { level, text, line, .. } in lines {
            let place = line.and_then(|line| page.place(line));
            let place = show_place(step, page, place.as_ref());
            let level = match level {
                LogLevel::Warn => "warning",
                level => level.name(),
            };
            self.shared.told.say(format!("{level}: {place}: {text}"));
        }
    }

    /// Takes back an exchange for reuse.
    pub(crate) fn give_back(&self, mut exchange: Box<Exchange>) {
        let mut exchanges = self.exchanges.borrow_mut();
        if exchanges.len() < EXCHANGES_MAX {
            exchange.clear();
            exchanges.push(exchange);
        }
    }

    /// Counts another waiting run. Returns whether the limit still holds. [`PagesWorker::count_gone`] must be called
    /// later in either case.
    pub(crate) fn count_waiting(&self) -> bool {
        let count = self.waiting.get() + 1;
        self.waiting.set(count);
        count <= WAITING_MAX
    }

    pub(crate) fn count_gone(&self) {
        self.waiting.set(self.waiting.get().saturating_sub(1));
    }
}

/// Formats a place as the file and the line, or as the page's name if the place is unknown.
fn show_place(step: &PagesStep, page: &Page, place: Option<&(String, u32)>) -> String {
    place.map_or_else(|| page.shown.clone(), |(name, line)| format!("{}:{line}", step.show(name)))
}

/// Creates the failure of a page whose response head is invalid.
pub(crate) fn head_failure(fault: &NativeError) -> RunFailure {
    RunFailure {
        kind: FailureKind::ScriptError,
        message: fault.to_string(),
        chunk: String::new(),
        line: None,
        traceback: String::new(),
    }
}
