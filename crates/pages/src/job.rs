//! A run that did not end in its first slice: its state, its continuation and its response.

use crate::answer;
use crate::api;
use crate::api::budget::RequestBudget;
use crate::backlog::BacklogFull;
use crate::dev;
use crate::outcome::PageOutcome;
use crate::page::Page;
use crate::queue::Claim;
use crate::sandbox::failure::{FailureKind, RunFailure};
use crate::sandbox::wait::Wanted;
use crate::sandbox::{ResumeResult, Run};
use crate::step::PagesStep;
use crate::worker::{PagesWorker, Vm, head_failure};
use flatout_handler::ending::CloseReason;
use flatout_handler::response::{Body, Response, Segment};
use flatout_handler::routed::{HeaderPolicy, Refusal};
use flatout_handler::stream::{ContentEvent, ContentSource, Stream};
use flatout_http::status::has_content;
use flatout_net::task_deadlines::{DeadlineTable, DeadlineTimer};
use flatout_os::clock::Now;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Number of resumptions within one poll after which a run queues like a run that computes. Otherwise, waits that end
/// immediately and empty flushes would bypass the queue.
const RESUMES_MAX: u32 = 4;

/// Size in bytes up to which a run's memory is not counted in the total. The number of waiting runs is limited
/// separately.
const UNCOUNTED_BYTES_MAX: usize = 256 * 1024;

/// A run with the resources that it uses.
pub(crate) struct PageRun {
    pub(crate) worker: Rc<PagesWorker>,
    pub(crate) vm: Rc<Vm>,
    pub(crate) step: Arc<PagesStep>,
    pub(crate) page: Rc<Page>,
    pub(crate) policy: Rc<HeaderPolicy>,
    run: Option<Run>,
    slices: u32,
    /// True if the head of the response has been sent.
    has_begun: bool,
    /// The run's share of the memory for output.
    share: RequestBudget,
}

impl PageRun {
    /// Creates the state of a run. Returns `None` if too many runs are already waiting.
    pub(crate) fn new(
        worker: &Rc<PagesWorker>,
        vm: &Rc<Vm>,
        step: &Arc<PagesStep>,
        page: &Rc<Page>,
        policy: &Rc<HeaderPolicy>,
        mut run: Run,
    ) -> Option<Self> {
        let client = run.exchange().facts.client().map(|client| client.ip());
        let mut job = Self {
            worker: Rc::clone(worker),
            vm: Rc::clone(vm),
            step: Arc::clone(step),
            page: Rc::clone(page),
            policy: Rc::clone(policy),
            run: Some(run),
            slices: 1,
            has_begun: false,
            share: worker.share(client),
        };
        if let Some(run) = job.run.as_mut() {
            // The first slice may have been shorter.
            run.set_slice(Duration::from_micros(step.settings().cpu_slice_us));
        }
        // The run counts as waiting from here on. If it is refused, dropping it undoes the count.
        worker.count_waiting().then_some(job)
    }

    /// Runs the next slice. The memory that the run still holds while other runs continue counts as output, unless it
    /// is small.
    pub(crate) fn resume(&mut self) -> ResumeResult {
        let Some(run) = self.run.as_mut() else { return ResumeResult::Done };
        self.slices = self.slices.saturating_add(1);
        let step = run.resume();
        let held_bytes = match step {
            ResumeResult::Preempted | ResumeResult::Wants(_) => run.held_bytes(),
            ResumeResult::Done | ResumeResult::Failed(_) | ResumeResult::Flush => 0,
        };
        let counted = if held_bytes > UNCOUNTED_BYTES_MAX { held_bytes } else { 0 };
        if self.share.set(counted).is_err() {
            return ResumeResult::Failed(run.end(FailureKind::MemoryBudget));
        }
        step
    }

    /// Number of slices that the run has used, including incomplete ones.
    pub(crate) const fn slices(&self) -> u32 {
        self.slices
    }

    /// Ends the run, unless its response has begun. Returns the failure if the run was ended.
    pub(crate) fn refuse(&mut self, kind: FailureKind) -> Option<Box<RunFailure>> {
        self.run.as_mut().filter(|_| !self.has_begun).map(|run| run.end(kind))
    }

    /// Length of a slice.
    pub(crate) fn slice(&self) -> Duration {
        Duration::from_micros(self.step.settings().cpu_slice_us)
    }

    /// Maximum total duration of the run, in milliseconds.
    fn run_ms_max(&self) -> u64 {
        self.step.settings().run_ms_max
    }

    /// Returns the response of a run that has ended.
    fn finish(mut self) -> Result<Response, Refusal> {
        let Some(run) = self.run.take() else { return Err(PageOutcome::Busy.into()) };
        self.worker.finish(&self.vm, &self.step, &self.page, &self.policy, run, PageOutcome::AnsweredLater)
    }

    /// Returns the refusal for a run that has failed.
    fn fail(mut self, failure: &RunFailure) -> Result<Response, Refusal> {
        let Some(run) = self.run.take() else { return Err(PageOutcome::Busy.into()) };
        self.worker.fail(&self.step, &self.page, run, failure)
    }

    /// Appends the output since the last call to `segments`.
    fn collect(&mut self, segments: &mut VecDeque<Segment>) -> Result<(), BacklogFull> {
        let Some(run) = self.run.as_mut() else { return Ok(()) };
        let exchange = run.exchange();
        let client = exchange.facts.client().map(|client| client.ip());
        let worker = &self.worker;
        segments.extend(answer::segments(&self.page, &mut exchange.output, |buffer| worker.keep(buffer, client))?);
        exchange.output.clear();
        Ok(())
    }
}

impl Drop for PageRun {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            self.worker.give_back(run.finish());
        }
        self.worker.count_gone();
    }
}

/// The result of driving a run.
pub(crate) enum DriveResult {
    /// The run has ended.
    Done,
    /// The page has requested that the output so far be sent.
    Flush,
    /// The run has failed.
    Failed(Box<RunFailure>),
}

/// Interval between checks of the deadlines of waiting runs, in milliseconds. A run may exceed its deadline by this
/// much.
const SWEEP_INTERVAL_MS: u64 = 100;

/// A run in progress.
pub(crate) struct Driving {
    /// The run; `None` while it is queued.
    job: Option<PageRun>,
    state: RunState,
    /// Number of resumptions since the run last waited.
    resumes: u32,
    /// The deadline, in milliseconds on the monotonic clock.
    due_ms: u64,
    /// When the run began to wait for its client to send content or take output. Such waits do not count towards the
    /// deadline.
    excused_since_ms: Option<u64>,
    /// The entry in the worker's table of deadlines, while the run waits.
    timer: Option<DeadlineTimer>,
    deadlines: Rc<DeadlineTable>,
}

enum RunState {
    /// Ready to continue.
    Due,
    /// Waiting for an operation.
    Waiting(Wanted),
    /// Waiting for its turn in the queue.
    Queued(Claim),
    /// A result of the run that has not been handled yet.
    Came(ResumeResult),
}

impl Driving {
    /// Continues after `step`, the result of the first slice of `job`.
    pub(crate) fn new(job: PageRun, step: ResumeResult) -> Self {
        let due_ms = Now::read().monotonic_ms.saturating_add(job.run_ms_max());
        let deadlines = Rc::clone(job.worker.deadlines());
        Self {
            job: Some(job),
            state: RunState::Came(step),
            resumes: 0,
            due_ms,
            excused_since_ms: None,
            timer: None,
            deadlines,
        }
    }

    /// Continues until the run produces a result or its deadline has passed.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<DriveResult> {
        if let Some(since_ms) = self.excused_since_ms.take() {
            self.due_ms = self.due_ms.saturating_add(Now::read().monotonic_ms.saturating_sub(since_ms));
        }
        let came = self.go_on(context);
        let now_ms = Now::read().monotonic_ms;
        match came {
            Poll::Ready(_) => {
                self.timer = None;
                self.excused_since_ms = Some(now_ms);
            }
            Poll::Pending if matches!(&self.state, RunState::Waiting(wanted) if wanted.is_of_client()) => {
                self.timer = None;
                self.excused_since_ms = Some(now_ms);
            }
            Poll::Pending if now_ms >= self.due_ms => {
                self.timer = None;
                return self.expire();
            }
            Poll::Pending => {
                self.deadlines.keep_swept(SWEEP_INTERVAL_MS);
                let timer = self.timer.get_or_insert_with(|| DeadlineTimer::new(&self.deadlines));
                timer.begin_until(self.due_ms);
                if timer.poll_expired(context).is_ready() {
                    // The timer uses a different clock from the one above, so the deadline is checked again.
                    context.waker().wake_by_ref();
                }
            }
        }
        came
    }

    /// Ends a run that is waiting or queued because its deadline has passed.
    fn expire(&mut self) -> Poll<DriveResult> {
        if let RunState::Queued(claim) = &self.state {
            self.job = claim.cancel();
        }
        let run = self.job.as_mut().and_then(|job| job.run.as_mut());
        let Some(failure) = run.map(|run| run.end(FailureKind::RunLimit)) else { return Poll::Pending };
        self.came(DriveResult::Failed(failure))
    }

    fn go_on(&mut self, context: &mut Context<'_>) -> Poll<DriveResult> {
        loop {
            let step = match &mut self.state {
                RunState::Due if self.resumes < RESUMES_MAX => {
                    self.resumes += 1;
                    self.job.as_mut().map_or(ResumeResult::Done, PageRun::resume)
                }
                RunState::Due => ResumeResult::Preempted,
                RunState::Waiting(wanted) => {
                    let Poll::Ready(answer) = Pin::new(wanted).poll(context) else {
                        self.resumes = 0;
                        return Poll::Pending;
                    };
                    if let Some(run) = self.job.as_mut().and_then(|job| job.run.as_mut()) {
                        run.answer(answer);
                    }
                    self.state = RunState::Due;
                    continue;
                }
                RunState::Queued(claim) => {
                    self.resumes = 0;
                    let Some((job, step)) = claim.take(context.waker()) else { return Poll::Pending };
                    self.job = Some(job);
                    step
                }
                RunState::Came(_) => match mem::replace(&mut self.state, RunState::Due) {
                    RunState::Came(step) => step,
                    _ => continue,
                },
            };
            self.state = match step {
                ResumeResult::Done => return self.came(DriveResult::Done),
                ResumeResult::Flush => return self.came(DriveResult::Flush),
                ResumeResult::Failed(failure) => return self.came(DriveResult::Failed(failure)),
                ResumeResult::Wants(wanted) => RunState::Waiting(wanted),
                ResumeResult::Preempted => match self.job.take() {
                    Some(job) => {
                        let queue = Rc::clone(job.worker.queue());
                        queue.note_preempted();
                        RunState::Queued(queue.push(job))
                    }
                    None => return self.came(DriveResult::Done),
                },
            };
        }
    }

    fn came(&mut self, came: DriveResult) -> Poll<DriveResult> {
        self.state = RunState::Due;
        Poll::Ready(came)
    }

    /// Returns the response once the run ends or flushes.
    pub(crate) async fn answer(mut self) -> Result<Response, Refusal> {
        let came = poll_fn(|context| self.poll(context)).await;
        let Some(job) = self.job.take() else { return Err(PageOutcome::Busy.into()) };
        match came {
            DriveResult::Done => job.finish(),
            DriveResult::Failed(failure) => job.fail(&failure),
            DriveResult::Flush => {
                self.job = Some(job);
                self.stream()
            }
        }
    }

    /// Returns a response that streams the output of the rest of the run.
    fn stream(mut self) -> Result<Response, Refusal> {
        let Some(mut job) = self.job.take() else { return Err(PageOutcome::Busy.into()) };
        job.has_begun = true;
        let mut segments = VecDeque::new();
        let Some(run) = job.run.as_mut() else { return Err(PageOutcome::Busy.into()) };
        let exchange = run.exchange();
        if let Err(fault) = job.vm.api.finish_head(&job.vm.sandbox, exchange) {
            let failure = head_failure(&fault);
            return job.fail(&failure);
        }
        let status = exchange.draft.status;
        let (head, extra) = answer::head(&job.page, &exchange.draft, None, &job.policy);
        if job.collect(&mut segments).is_err() {
            return Err(job.worker.refuse_output());
        }
        self.job = Some(job);
        let body = if has_content(status) {
            Body::Stream(Stream::new(PageSource { driving: Some(self), segments }, None))
        } else {
            Body::Empty
        };
        let mut response = Response::new(status, head, body, PageOutcome::Streamed);
        response.extra = extra;
        Ok(response)
    }
}

/// The content of a page that is streamed after the first flush.
struct PageSource {
    /// The run; `None` after its end.
    driving: Option<Driving>,
    segments: VecDeque<Segment>,
}

impl ContentSource for PageSource {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<ContentEvent> {
        loop {
            if let Some(segment) = self.segments.pop_front() {
                return Poll::Ready(ContentEvent::Segment(segment));
            }
            let Some(driving) = self.driving.as_mut() else { return Poll::Ready(ContentEvent::End(None)) };
            let came = ready!(driving.poll(context));
            let Some(job) = driving.job.as_mut() else {
                self.driving = None;
                continue;
            };
            match came {
                DriveResult::Flush => {
                    if job.collect(&mut self.segments).is_err() {
                        job.worker.refuse_output();
                        self.driving = None;
                        return Poll::Ready(ContentEvent::Failed(CloseReason::PageFailed));
                    }
                }
                DriveResult::Done => {
                    if job.step.is_dev()
                        && let Some(run) = job.run.as_mut()
                    {
                        dev::add_script(run.exchange());
                    }
                    let collected = job.collect(&mut self.segments);
                    if let Some(run) = job.run.as_mut() {
                        let lines = api::take_log(run.exchange());
                        job.worker.log(&job.step, &job.page, lines);
                    }
                    if collected.is_err() {
                        job.worker.refuse_output();
                        self.driving = None;
                        return Poll::Ready(ContentEvent::Failed(CloseReason::PageFailed));
                    }
                    self.driving = None;
                }
                DriveResult::Failed(failure) => {
                    if let Some(job) = self.driving.take().and_then(|driving| driving.job) {
                        // It is too late to send the failure as a response, but it is logged.
                        let _ = job.fail(&failure);
                    }
                    return Poll::Ready(ContentEvent::Failed(CloseReason::PageFailed));
                }
            }
        }
    }
}
