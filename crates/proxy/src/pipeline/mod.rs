//! A request's way through the accelerator, as named steps. Each step has one task and names the next one.
//!
//! ```text
//! receive ─┬─> Lookup ─┬─> Hit ─────────────────────────────> response
//!          │     ^     └─> Miss ─┬─> Pass ──────────────────> response
//!          │     │               ├─> FetchAlone ────────────> response
//!          │     │               └─> FetchShared ─> Wait ─┬─> response
//!          │     └──────── nothing usable ────────────────┘
//!          ├─> Pass, FetchAlone ────────────────────────────> response
//!          └─> purge ───────────────────────────────────────> response
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `receive` | the first step of a request; hits that need no lookup |
//! | `direct` | requests without a cache, and for one client alone, while nothing unusual happens |
//! | `lookup` | the lookup in memory, then on disk |
//! | `hit` | responses from the store; revalidation in the background |
//! | `miss` | the choice of the upstream request |
//! | `pass` | requests forwarded without the cache |
//! | `fetch_alone` | fetches for one client |
//! | `fetch_shared` | fetches that other clients may join |
//! | `wait` | waiting for a shared fetch, and the use of its result |
//! | `fetch` | the upstream request of a fetch, and the storage of its response |
//! | `deliver` | the client's response, from the store or from an origin |
//! | `purge` | PURGE, and invalidation by unsafe methods |
//! | `tunnel` | upgraded connections |

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

/// Maximum lookups of a request because shared fetches yielded nothing usable; then it fetches alone.
const LOOKUPS_MAX: u32 = 5;

/// One step of a cacheable request.
pub(crate) enum Step {
    /// Look for stored responses.
    Lookup,
    /// Respond from the store.
    Hit { found: LookupResult, reason: Lookup, revalidate: bool },
    /// Choose the upstream request.
    Miss { found: LookupResult, need: Need },
    /// Forward the request without the cache; `kept` is the stored response that a HEAD may update.
    Pass { reason: Lookup, kept: Option<Arc<StoredResponse>> },
    /// Fetch for this client alone.
    FetchAlone { reason: Lookup, question: FetchConditions, kept: Option<Arc<StoredResponse>> },
    /// Join a fetch, or start one that others may join.
    FetchShared { found: LookupResult, need: Need, kept: Option<Arc<StoredResponse>> },
    /// Wait for a shared fetch and use its result.
    Wait(SharedFetch),
}

impl Step {
    /// Fetch of the client's own request, for it alone.
    const fn fetch_alone(reason: Lookup) -> Self {
        Self::FetchAlone { reason, question: FetchConditions::NONE, kept: None }
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

/// A request on its way through the steps.
struct Pipeline {
    worker: Rc<ProxyWorker>,
    query: Rc<Query>,
    /// Number of lookups so far.
    lookups: u32,
    /// True if it no longer waits for shared fetches.
    alone: bool,
    /// True if it no longer validates stored responses or fetches parts.
    whole: bool,
    /// Reason for forwarding after a shared fetch was released.
    released: Option<Lookup>,
    /// Note for stored parts that the origin has just validated.
    validated: Option<Note>,
}

impl Pipeline {
    /// A shared fetch was unusable: after another lookup, the whole response is fetched for this request alone.
    fn ask_for_whole(&mut self) {
        (self.alone, self.whole) = (true, true);
    }
}

/// Takes `query` through the steps, beginning with `step`.
pub(crate) async fn run(worker: Rc<ProxyWorker>, query: Rc<Query>, mut step: Step) -> Result<Response, Refusal> {
    let (alone, whole, released, validated) = Default::default();
    let mut pipeline = Pipeline { worker, query, lookups: 0, alone, whole, released, validated };
    loop {
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
