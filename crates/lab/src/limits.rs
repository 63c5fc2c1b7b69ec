//! x
pub mod responder;
