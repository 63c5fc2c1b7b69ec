//! Reports of load runs, and the building blocks that the reports of the lab and of suites share.
//!
//! | module | content |
//! |---|---|
//! | [`page`], [`style`], [`figures`] | lines, tables and colours of a text report; figures of a step in it |
//! | [`html`], [`chart`], [`svg`] | a self-contained page of HTML; charts as inline SVG |
//! | [`text`], [`classic`], [`series`], [`hlog`], [`prometheus`] | one run as text, in the formats of other tools, as tables, as a histogram log, as metrics |
//! | [`compare`] | two runs, or pairs of runs, compared |
//! | [`verdict`], [`plan_words`], [`method`], [`command`] | verdict, plan, environment and command of a run in words |
//! | [`bundle`], [`output`], [`wrap`] | the folder of a result; writing one file or standard output; lines for a terminal |
//!
//! A report is a function of the result document in `flatout_load::report`. By design, this crate uses no sockets and
//! no clock, and generates no load.

pub mod bundle;
pub mod chart;
pub mod classic;
pub mod command;
pub mod compare;
pub mod figures;
pub mod hlog;
pub mod html;
pub mod method;
pub mod output;
pub mod page;
pub mod plan_words;
pub mod prometheus;
pub mod series;
pub mod style;
pub mod svg;
pub mod text;
pub mod verdict;
pub mod wrap;

#[cfg(test)]
mod tests {
    pub(crate) mod fixture;
}
