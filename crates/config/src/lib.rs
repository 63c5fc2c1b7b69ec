//! The configuration: KDL 2 to typed settings.
//!
//! Absent by design: sockets, handlers, the clock.

pub mod model;
