//! One worker's execution of pages: an interpreter, reusable buffers, and the queue of pages that compute longer.
//!
//! A page starts in the handler itself, within its first slice; most end there, without a future or an allocation.

use crate::answer;
use crate::api::budget::RequestBudget;
use crate::api::refusal::PageRefusal;
use crate::api::{self, Api, ApiSettings, LogLevel, LogLine};
use crate::asking::{Asking, Changes, Handled, Refused};
use crate::backlog::{BacklogFull, BufferedOutput};
use crate::deadlines::Deadlines;
use crate::dev;
use crate::exchange::Exchange;
use crate::folder::{PageFolder, PageLookup};
use crate::job::{Driving, PageRun};
use crate::outcome::{Outcome, PageOutcome};
use crate::page::{Broken, Page};
use crate::queue::RunQueue;
use crate::sandbox::failure::{FailureKind, RunFailure};
use crate::sandbox::limits::Limits;
use crate::sandbox::wait::NativeError;
use crate::sandbox::{ResumeResult, Run, Sandbox};
use crate::step::{PagesShared, PagesStep};
use flatout_http::framing::Version;
use flatout_http::path::{append_local, encode_location, normalize_path};
use flatout_http::request::Method;
use flatout_http::status::has_content;
use flatout_http::target::Target;
use flatout_net::clock::Now;
use flatout_net::origin::{OriginClient, OriginCounts, OriginSettings, OriginTls};
use flatout_net::page::page_response;
use flatout_net::response::{Body, Head, Response};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::ready;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Upper bound of waiting runs on one worker, each with up to its memory limit.
const WAITING_MAX: usize = 4096;

/// Exchanges retained for later requests.
const EXCHANGES_MAX: usize = 64;

/// Allowed methods: a page handles them itself.
const ALLOW: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// An interpreter with the API of pages.
pub(crate) struct Vm {
    pub(crate) sandbox: Sandbox,
    pub(crate) api: Api,
}

/// One worker's state for all pages.
pub struct PagesWorker {
    shared: Arc<PagesShared>,
    /// Index of this crate's first outcome in the handler's table.
    base: u8,
    /// By their API settings: steps with equal settings share one.
    vms: RefCell<Vec<(Arc<ApiSettings>, Rc<Vm>)>>,
    #[expect(clippy::vec_box, reason = "runs take and give back the boxes")]
    exchanges: RefCell<Vec<Box<Exchange>>>,
    /// The buffer for small contents.
    spare: RefCell<Rc<Vec<u8>>>,
    queue: Rc<RunQueue>,
    deadlines: Rc<Deadlines>,
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
    /// A worker's state. `base` is added to the outcomes of its responses. Interpreters are created on demand.
    pub fn new(shared: Arc<PagesShared>, base: u8) -> Rc<Self> {
        Rc::new(Self {
            shared,
            base,
            vms: RefCell::default(),
            exchanges: RefCell::default(),
            spare: RefCell::default(),
            queue: Rc::default(),
            deadlines: Rc::default(),
            waiting: Cell::new(0),
        })
    }

    /// Drops the interpreters that none of `steps` needs. Runs in progress keep theirs.
    pub fn retain(&self, steps: &[Arc<PagesStep>]) {
        let is_used = |settings: &Arc<ApiSettings>| {
            steps.iter().any(|step| step.api().is_some_and(|other| Arc::ptr_eq(other, settings)))
        };
        self.vms.borrow_mut().retain(|(settings, _)| is_used(settings));
    }

    /// Handles `asking` with a page of `folder`.
    pub fn handle(self: &Rc<Self>, folder: &PageFolder, asking: &Asking<'_>) -> Handled {
        let step = folder.step();
        let Some(vm) = self.vm(step, asking.now) else {
            return Handled::Refused(Refused::new(Outcome::page(PageOutcome::NoInterpreter)));
        };
        let (path, facts) = asking.decoded;
        let loaded = match folder.find(path, facts, asking.now, &vm.sandbox) {
            PageLookup::Page(loaded) => loaded,
            PageLookup::Slash => return Handled::Reply(self.slash(asking)),
            PageLookup::Nothing => return Handled::NoPage,
        };
        if asking.request.head.method == Method::Options {
            return Handled::Reply(self.options(asking.changes));
        }
        if step.is_dev()
            && let Some(response) = dev::events(step, asking)
        {
            return Handled::Reply(Response { outcome: self.index(Outcome::page(PageOutcome::Events)), ..response });
        }
        match &loaded.page {
            Ok(page) => {
                let handled = self.start(&vm, step, page, asking);
                // The page has run, so its response is sent whatever content is unread; a later response does not
                // wait for that.
                match handled {
                    Handled::Reply(response) if asking.request.offers.has_content() => {
                        Handled::Later(Box::pin(ready(Ok(response))))
                    }
                    Handled::Refused(refused) if asking.request.offers.has_content() => {
                        Handled::Later(Box::pin(ready(Err(refused))))
                    }
                    handled => handled,
                }
            }
            Err(broken) => self.refuse_broken(step, broken, asking.now),
        }
    }

    /// The interpreter for `step`, created on first use.
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
                let line = format!("error: [{name}] the interpreter for pages could not be made: {error}");
                self.shared.told.say_once(&line, now.monotonic_ms);
                None
            }
        }
    }

    /// Runs the first slice of `page`.
    fn start(self: &Rc<Self>, vm: &Rc<Vm>, step: &Arc<PagesStep>, page: &Rc<Page>, asking: &Asking<'_>) -> Handled {
        let mut exchange = self.exchanges.borrow_mut().pop().unwrap_or_default();
        let Some(code) = &page.code else {
            if page.range(0).is_some() {
                exchange.output.segment(0);
            }
            if step.is_dev() {
                dev::add_script(&mut exchange);
            }
            let response = self.compose(page, &mut exchange, asking.changes, PageOutcome::Answered);
            self.give_back(exchange);
            return match response {
                Ok(response) => Handled::Reply(response),
                Err(BacklogFull) => Handled::Refused(self.refuse_output()),
            };
        };
        let request = asking.request;
        if !self.shared.backlog.has_room_for(request.client.map(|client| client.ip())) {
            self.give_back(exchange);
            return Handled::Refused(self.refuse_output());
        }
        // Over HTTP/2 the host is not a field (RFC 9113 §8.3.1); pages find it where it always is.
        let has_host = || request.head.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
        let host = request.head.host.filter(|_| request.head.version == Version::Http2 && !has_host());
        exchange.facts.set(
            request.head.method.as_str(),
            asking.path,
            asking.query,
            host.map(|host| ("host", host)).into_iter().chain(request.head.fields.iter()),
            request.client,
            request.secure,
        );
        if let Some(host) = asking.host {
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
        // If others compute as well, this slice is shorter, and the page queues afterwards.
        limits.slice /= self.queue.slices_taken().saturating_add(1);
        let mut run = vm.sandbox.start(code, exchange, limits);
        match run.resume() {
            ResumeResult::Done => match self.finish(vm, step, page, asking.changes, run, PageOutcome::Answered) {
                Ok(response) => Handled::Reply(response),
                Err(refused) => Handled::Refused(refused),
            },
            ResumeResult::Failed(failure) => match self.fail(vm, step, page, run, &failure) {
                Ok(response) => Handled::Reply(response),
                Err(refused) => Handled::Refused(refused),
            },
            came => {
                if matches!(came, ResumeResult::Preempted) {
                    self.queue.note_preempted();
                }
                match PageRun::new(self, vm, step, page, asking.changes, run) {
                    Some(job) => Handled::Later(Box::pin(Driving::new(job, came).answer())),
                    None => Handled::Refused(Refused::new(Outcome::page(PageOutcome::Busy))),
                }
            }
        }
    }

    /// The response of a finished run.
    pub(crate) fn finish(
        &self,
        vm: &Vm,
        step: &PagesStep,
        page: &Page,
        changes: &Changes,
        mut run: Run,
        outcome: PageOutcome,
    ) -> Result<Response, Refused> {
        if let Err(fault) = vm.api.finish_head(&vm.sandbox, run.exchange()) {
            return self.fail(vm, step, page, run, &head_failure(&fault));
        }
        let mut exchange = run.finish();
        self.log(step, page, api::take_log(&mut exchange));
        if step.is_dev() {
            dev::add_script(&mut exchange);
        }
        let response = self.compose(page, &mut exchange, changes, outcome);
        self.give_back(exchange);
        response.map_err(|BacklogFull| self.refuse_output())
    }

    /// The refusal if output buffers are full, reported at most once a minute.
    pub(crate) fn refuse_output(&self) -> Refused {
        let outcome = Outcome::page(PageOutcome::OutputBudget);
        self.shared
            .told
            .say_rarely(&format!("error: [{}] {}", outcome.name(), outcome.text()), Now::read().monotonic_ms);
        Refused::new(outcome)
    }

    /// An empty share of the memory for output.
    pub(crate) fn share(&self, client: Option<IpAddr>) -> RequestBudget {
        self.shared.backlog.memory().share(client)
    }

    /// Buffers output until the client at this address has taken it.
    pub(crate) fn keep(&self, buffer: Vec<u8>, client: Option<IpAddr>) -> Result<BufferedOutput, BacklogFull> {
        self.shared.backlog.keep(buffer, client)
    }

    fn compose(
        &self,
        page: &Page,
        exchange: &mut Exchange,
        changes: &Changes,
        outcome: PageOutcome,
    ) -> Result<Response, BacklogFull> {
        let client = exchange.facts.client().map(|client| client.ip());
        let status = exchange.draft.status;
        let length = answer::length(page, &exchange.output);
        let (head, extra) = answer::head(page, &exchange.draft, Some(length as u64), changes);
        let body = if has_content(status) {
            let keep = |buffer| self.keep(buffer, client);
            answer::body(page, &mut exchange.output, length, &mut self.spare.borrow_mut(), keep)?
        } else {
            Body::Empty
        };
        let mut response = Response::new(status, head, body, self.index(Outcome::page(outcome)));
        response.extra = extra;
        Ok(response)
    }

    /// The refusal for a failed run, with its message for operators.
    pub(crate) fn fail(
        &self,
        _: &Vm,
        step: &PagesStep,
        page: &Page,
        mut run: Run,
        failure: &RunFailure,
    ) -> Result<Response, Refused> {
        let exchange = run.exchange();
        let refusal = api::refusal(exchange, &failure.message);
        let lines = api::take_log(exchange);
        self.give_back(run.finish());
        self.log(step, page, lines);
        let outcome = match refusal {
            Some(refusal) => Outcome::refusal(refusal),
            None => Outcome::failure(failure.kind),
        };
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
            return Ok(self.place_outcome(dev::failure_page(step, page, failure, place, outcome), outcome));
        }
        Err(Refused::new(outcome))
    }

    fn refuse_broken(&self, step: &PagesStep, broken: &Broken, now: Now) -> Handled {
        let outcome = Outcome::page(broken.outcome);
        self.shared.told.say_once(&format!("error: {} [{}]", broken.line, outcome.name()), now.monotonic_ms);
        if step.is_dev() {
            return Handled::Reply(self.place_outcome(dev::broken_page(&broken.text, outcome), outcome));
        }
        Handled::Refused(Refused::new(outcome))
    }

    fn place_outcome(&self, response: Response, outcome: Outcome) -> Response {
        Response { outcome: self.index(outcome), ..response }
    }

    /// A 301 to the folder's name with a trailing slash. The path may have been rewritten: the redirect uses the
    /// client's form.
    fn slash(&self, asking: &Asking<'_>) -> Response {
        let asked = match asking.request.head.target {
            Target::Resource { path, .. } if !path.ends_with(b"/") => path,
            _ => asking.path,
        };
        let mut local = Vec::with_capacity(asked.len() + 1);
        append_local(&normalize_path(asked), &mut local);
        local.push(b'/');
        if let Some(query) = asking.query {
            local.push(b'?');
            local.extend_from_slice(query);
        }
        let location = encode_location(&local);
        let outcome = self.index(Outcome::page(PageOutcome::Slash));
        let mut response =
            page_response(301, "The address is a little different.", &[("Location", &location)], outcome);
        if !asking.changes.fields.is_empty() {
            let length = response.body.len().to_string();
            let fields = [
                ("Content-Type", "text/html; charset=utf-8"),
                ("Content-Length", length.as_str()),
                ("Location", &location),
            ];
            response.head = Head::with_operations(301, &fields, &asking.changes.fields);
        }
        response
    }

    fn options(&self, changes: &Changes) -> Response {
        let head = Head::with_operations(204, &[("Allow", ALLOW)], &changes.fields);
        Response::new(204, head, Body::Empty, self.index(Outcome::page(PageOutcome::Options)))
    }

    /// The index of `outcome` in the handler's table.
    pub(crate) const fn index(&self, outcome: Outcome) -> u8 {
        self.base + outcome.index()
    }

    pub(crate) const fn queue(&self) -> &Rc<RunQueue> {
        &self.queue
    }

    pub(crate) const fn deadlines(&self) -> &Rc<Deadlines> {
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

    /// Returns an exchange for reuse.
    pub(crate) fn give_back(&self, mut exchange: Box<Exchange>) {
        let mut exchanges = self.exchanges.borrow_mut();
        if exchanges.len() < EXCHANGES_MAX {
            exchange.clear();
            exchanges.push(exchange);
        }
    }

    /// Counts another waiting run, also if that exceeds the bound: [`PagesWorker::count_gone`] follows in any case.
    pub(crate) fn count_waiting(&self) -> bool {
        let count = self.waiting.get() + 1;
        self.waiting.set(count);
        count <= WAITING_MAX
    }

    pub(crate) fn count_gone(&self) {
        self.waiting.set(self.waiting.get().saturating_sub(1));
    }
}

/// The display form of a place: the file and its line.
fn show_place(step: &PagesStep, page: &Page, place: Option<&(String, u32)>) -> String {
    place.map_or_else(|| page.shown.clone(), |(name, line)| format!("{}:{line}", step.show(name)))
}

/// The failure of a page whose head is invalid.
pub(crate) fn head_failure(fault: &NativeError) -> RunFailure {
    RunFailure {
        kind: FailureKind::ScriptError,
        message: fault.to_string(),
        chunk: String::new(),
        line: None,
        traceback: String::new(),
    }
}

impl fmt::Debug for PagesWorker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PagesWorker").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}
