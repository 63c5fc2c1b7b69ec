//! Active pages: HTML with insertion points in Luau, compiled once into segments, run in one sandboxed interpreter a worker.

pub mod api;
pub mod exchange;
pub mod sandbox;
pub mod template;
