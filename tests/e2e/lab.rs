//! The load lab end to end: real servers, real clients, and what is said of them.

mod agents;
mod live;
mod report;
