//! Presentation of results: text, classic reports, one page of HTML, tables, metrics, JSON, and a live view.

pub mod bundle;
pub mod chart;
pub mod classic;
pub mod command;
pub mod compare;
pub mod hlog;
pub mod html;
pub mod human;
pub mod json;
pub mod live;
pub mod method;
pub mod output;
pub mod plan_words;
pub mod prometheus;
pub mod series;
pub mod style;
pub mod text;
pub mod tui;
pub mod verdict;

#[cfg(test)]
pub(crate) mod fixture;
