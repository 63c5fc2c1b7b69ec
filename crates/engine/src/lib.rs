//! Sites and routes: selection and execution of a request's handler.
//!
//! A [`Spec`] is a compiled configuration, shared by all workers; an [`Engine`] handles one worker's requests.
//! Configuration order is execution order: a request passes the steps of its site one by one, and the first handler
//! that responds ends the walk. An index makes that cheap.
//!
//! | file | content |
//! |---|---|
//! | [`spec`] | the compiled configuration, and its errors |
//! | `host` | from a host to a site |
//! | `step`, `pattern`, `index` | steps, route conditions, and an index of steps by path |
//! | `walk` | from a request to a response: the action of each step, and its execution |
//! | `policy`, `text` | header steps in force; texts with variables |
//! | `answer` | redirects and texts under a policy |
//! | `network`, `rate`, `cors` | access by address, rate limits, cross-origin requests |
//! | `auth`, `credentials` | basic authentication |
//! | `owned` | a request that outlives its turn |
//! | [`engine`] | a worker's state, and its switch to a new configuration |
//! | [`explain`] | the same actions, recorded |
//! | [`outcome`], [`error`] | named reasons |
//!
//! Absent by design: sockets, reading files, parsing configurations.

mod answer;
mod auth;
mod cors;
mod credentials;
pub mod engine;
pub mod error;
pub mod explain;
mod forwarded;
mod host;
mod index;
pub mod metrics;
mod network;
pub mod outcome;
mod pattern;
mod policy;
mod rate;
pub mod spec;
mod step;
mod text;
mod walk;

pub use engine::Engine;
pub use error::SpecError;
pub use metrics::{MetricsFormat, MetricsText};
pub use outcome::{OUTCOMES, RouteOutcome};
pub use spec::{Sources, Spec};
