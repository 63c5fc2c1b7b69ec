//! RFC 9111 as values: what may be stored, when it is fresh, what to do next.
//!
//! Absent by design: sockets, files, threads, the clock. Time is an argument, and every decision is a value with a
//! reason.
