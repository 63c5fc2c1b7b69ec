//! Presentation of benches and of the machine's limits: text, versioned JSON, and a live view.

pub mod human;
pub mod json;
pub mod live;
pub mod tui;

#[cfg(test)]
#[path = "../../report/src/tests/fixture.rs"]
pub(crate) mod fixture;
