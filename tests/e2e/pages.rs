//! Active pages, end to end.

mod demo;
