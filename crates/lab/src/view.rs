//! How results are shown: text for people, JSON for programs, and a line that lives while a run does.

pub mod chart;
pub mod classic;
pub mod human;
pub mod json;
pub mod live;
pub mod output;
pub mod style;
pub mod units;
