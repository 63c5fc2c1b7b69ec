//! Path of a cacheable request through the proxy, as a sequence of named steps. Each step has one task and selects the
//! next step.
//!
//! ```text
//! receive ─┬─> Lookup ─┬─> Hit ─────────────────────────────> response
//!          │     ^     └─> Miss ─┬─> Pass ──────────────────> response
//!          │     │               ├─> FetchAlone ────────────> response
//!          │     │               └─> FetchShared ─┬─> Wait ─┬─> response
//!          │     │                                └─> Hit   │   (origin hangs)
//!          │     └──────── nothing usable ──────────────────┘
//!          ├─> Pass, FetchAlone ────────────────────────────> response
//!          └─> purge ───────────────────────────────────────> response
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `receive` | receipt of a request; hits from the worker's cache |
//! | `direct` | the fast path for requests without a cache and for fetches on behalf of one client |
//! | `lookup` | lookup in memory, then on disk |
//! | `hit` | responses from the store; revalidation in the background |
//! | `miss` | choice of the upstream request |
//! | `pass` | requests forwarded without the cache |
//! | `buffer` | buffering of request content before an origin is selected |
//! | `fetch_alone` | fetches for one client |
//! | `fetch_shared` | fetches that other clients may join; a stale response while the origin hangs |
//! | `wait` | waiting for a shared fetch, and use of its result |
//! | `fetch` | the upstream request of a fetch, notes about origins that hang, and storage of its response |
//! | `deliver` | the client's response, from the store or from an origin |
//! | `purge` | PURGE, and invalidation by unsafe methods |
//! | `tunnel` | upgraded connections |

mod buffer;
pub(crate) mod deliver;
mod direct;
pub(crate) mod fetch;
mod fetch_alone;
pub(crate) mod fetch_shared;
mod hit;
pub(crate) mod lookup;
mod miss;
mod pass;
mod purge;
mod receive;
mod tunnel;
mod wait;

use crate::meta::StoredResponse;
use crate::note::Note;
use crate::query::Query;
use crate::worker::ProxyWorker;
use fetch::FetchConditions;
use fetch_shared::SharedFetch;
use flatout_cache::decision::Intake;
use flatout_cache::reason::Lookup;
use flatout_handler::response::Response;
use flatout_handler::routed::Refusal;
use lookup::LookupResult;
use miss::Need;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

/// Maximum number of lookups per request. A lookup is repeated if a shared fetch yields no usable response; at the
/// limit, the request fetches alone.
const LOOKUPS_MAX: u32 = 5;

/// A step in handling a cacheable request.
pub(crate) enum Step {
    /// Look for stored responses.
    Lookup,
    /// Respond from the store.
    Hit { found: LookupResult, reason: Lookup, revalidate: bool },
    /// Choose the upstream request.
    Miss { found: LookupResult, need: Need },
    /// Forward the request without the cache. `kept` is the stored response that a response to HEAD may update.
    Pass { reason: Lookup, kept: Option<Arc<StoredResponse>> },
    /// Fetch the response for this client alone.
    FetchAlone { reason: Lookup, question: FetchConditions, kept: Option<Arc<StoredResponse>> },
    /// Join a fetch, or start one that others may join.
    FetchShared { found: LookupResult, need: Need, kept: Option<Arc<StoredResponse>> },
    /// Wait for a shared fetch and use its result.
    Wait(SharedFetch),
}

impl Step {
    /// Creates the step that forwards the client's own request for this client alone.
    const fn fetch_alone(reason: Lookup) -> Self {
        Self::FetchAlone { reason, question: FetchConditions::NONE, kept: None }
    }

    /// Returns the reason for forwarding, if this step forwards the request.
    const fn forward_reason(&self) -> Option<Lookup> {
        match self {
            Self::Pass { reason, .. } | Self::FetchAlone { reason, .. } => Some(*reason),
            Self::FetchShared { need, .. } => Some(need.reason),
            Self::Lookup | Self::Hit { .. } | Self::Miss { .. } | Self::Wait(_) => None,
        }
    }
}

impl From<Intake> for Step {
    fn from(intake: Intake) -> Self {
        match intake {
            Intake::LookUp => Self::Lookup,
            Intake::Bypass(reason) | Intake::Unsafe(reason) => Self::Pass { reason, kept: None },
        }
    }
}

/// The next step, or the response.
type Next = ControlFlow<Result<Response, Refusal>, Step>;

/// The chance that a request gets a stale response because the origin hangs. Each change happens once, so that the steps
/// cannot repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StaleChance {
    /// The request may leave a shared fetch whose response head is late.
    #[default]
    Leave,
    /// The request has left a fetch, and may get a stale response.
    Left,
    /// The request has used its chance.
    Taken,
}

/// State of a request that is handled by the steps.
struct Pipeline {
    worker: Rc<ProxyWorker>,
    query: Rc<Query>,
    /// Number of lookups so far.
    lookups: u32,
    /// True if the request no longer waits for shared fetches.
    alone: bool,
    /// True if the request no longer validates stored responses or fetches missing ranges.
    whole: bool,
    /// Reason for forwarding of an earlier shared fetch whose response this request could not use.
    released: Option<Lookup>,
    /// True if the request has waited for another request's fetch that failed, and may not do so again.
    retried: bool,
    stale: StaleChance,
    /// Note for the response from stored parts that the origin has just validated.
    validated: Option<Note>,
}

impl Pipeline {
    /// After an unusable result of a shared fetch, makes this request look up again and then fetch the whole response
    /// alone.
    fn ask_for_whole(&mut self) {
        (self.alone, self.whole) = (true, true);
    }
}

/// Handles `query` by running the steps, beginning with `step`.
pub(crate) async fn run(worker: Rc<ProxyWorker>, query: Rc<Query>, mut step: Step) -> Result<Response, Refusal> {
    let (alone, whole, released, retried, stale, validated) = Default::default();
    let mut pipeline = Pipeline { worker, query, lookups: 0, alone, whole, released, retried, stale, validated };
    loop {
        if let Some(reason) = step.forward_reason() {
            pipeline.query.forwarded.set(Some(reason));
        }
        let next = match step {
            Step::Lookup => pipeline.look_up().await,
            Step::Hit { found, reason, revalidate } => pipeline.hit(found, reason, revalidate),
            Step::Miss { found, need } => pipeline.miss(found, need),
            Step::Pass { reason, kept } => ControlFlow::Break(pipeline.pass(reason, kept).await),
            Step::FetchAlone { reason, question, kept } => {
                ControlFlow::Break(pipeline.fetch_alone(reason, question, kept).await)
            }
            Step::FetchShared { found, need, kept } => pipeline.fetch_shared(found, need, kept),
            Step::Wait(fetch) => pipeline.wait(fetch).await,
        };
        match next {
            ControlFlow::Continue(next) => step = next,
            ControlFlow::Break(result) => return result,
        }
    }
}
