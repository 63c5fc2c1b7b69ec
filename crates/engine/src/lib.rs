//! Sites and routes: selection and execution of the handler of a request.
//!
//! A [`Spec`] is a compiled configuration, which all workers share. An [`Engine`] handles the requests of a worker.
//! Steps are executed in configuration order, until the first handler that responds. An index by path skips routes that
//! cannot match.
//!
//! | file | content |
//! |---|---|
//! | [`spec`] | the compiled configuration, and its errors |
//! | `host` | selection of the site by host name |
//! | `step`, `pattern`, `index` | steps, route conditions, and an index of steps by path |
//! | `walk` | handling of a request: the action of each step, and its execution |
//! | `policy`, `text` | header steps in force; text with variables |
//! | `answer` | redirects and fixed text |
//! | `network`, `rate`, `cors` | access by address, rate limits, cross-origin requests |
//! | `auth`, `credentials` | basic authentication |
//! | `forwarded` | original client of a request forwarded by a trusted proxy |
//! | [`untrusted_proxy`] | notice of a proxy that should be trusted |
//! | [`engine`] | a worker's state, and replacement of its configuration |
//! | [`explain`] | explanation of a request by recording its actions |
//! | [`outcome`], [`error`] | named reasons |
//!
//! By design, this crate uses no sockets, and does not read files or parse configurations.

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
pub mod untrusted_proxy;
mod walk;

#[cfg(feature = "fuzzing")]
pub use credentials::check_basic;
pub use engine::Engine;
pub use error::SpecError;
pub use metrics::{MetricsFormat, MetricsText};
pub use outcome::{OUTCOMES, RouteOutcome};
pub use spec::{Sources, Spec};
pub use untrusted_proxy::UntrustedProxy;
