//! Suites, as people run them.

mod five;
