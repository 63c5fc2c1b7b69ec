//! Sites and routes: one request finds its handler here.
//!
//! A [`Spec`] is a configuration put to use, shared by all workers; an [`Engine`] is what one worker answers with.
//! Written order is execution order: a request goes through the steps of its site one by one, and the first that
//! answers ends the walk. An index keeps that true and cheap at once.
//!
//! | file | what it knows |
//! |---|---|
//! | [`spec`] | a configuration put to use, and everything that stands against it |
//! | `host` | from a host to a site |
//! | `step`, `pattern`, `index` | steps, what routes match, and which steps a path could concern |
//! | `walk` | from a request to an answer, step by step |
//! | `policy`, `text` | header steps in force; texts with variables |
//! | `answer` | pages, redirects and texts under a policy |
//! | `network`, `rate`, `cors` | who may come, how often, and from which pages |
//! | `auth`, `credentials` | names and passwords |
//! | `owned` | a request that outlives the turn it came in |
//! | [`engine`] | what one worker holds, and how it changes over to another configuration |
//! | [`explain`] | the same walk, told |
//! | [`outcome`], [`error`] | reasons, by name |
//!
//! Absent by design: sockets, how files are read, the parsing of configurations.

mod answer;
mod auth;
mod cors;
mod credentials;
pub mod engine;
pub mod error;
pub mod explain;
mod host;
mod index;
pub mod metrics;
mod neighbour;
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
pub use outcome::{OUTCOMES, Outcome};
pub use spec::{Sources, Spec};
