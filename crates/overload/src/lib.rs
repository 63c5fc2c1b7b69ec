//! Overload control, without I/O. Time is passed as an argument.
//!
//! If a server is slower than its clients, any queue in front of it fills up. Each entry then waits for the whole
//! queue, and if that takes longer than clients are willing to wait, every response is too late: the server works at
//! full speed, but no client benefits. A fixed bound on the *length* of the queue cannot prevent this, because the time
//! that an entry waits depends on the speed of the server. Therefore, [`QueueBound`] measures that speed while the
//! queue is saturated, and bounds the queue to the number of entries that can be served within a target delay (Little's
//! law: length = rate × delay).
//!
//! | file | content |
//! |---|---|
//! | `bound` | bound on the length of a queue, derived from the measured service rate |
//! | `clients` | limits on the connections, requests or the like of each client |
//! | `episode` | when an overload begins and ends, and how much was refused meanwhile |
//! | `gauge` | the state of a queue for other threads |
//!
//! By design, this crate contains no queues, sockets or clock, and does not decide what happens to refused work.

mod bound;
mod clients;
mod episode;
mod gauge;

pub use bound::{QueueBound, QueueSettings};
pub use clients::{ClientCounter, ClientLimit, ClientPermit, LimitReached, PER_CLIENT_MAX, Subject, subject};
pub use episode::{Episode, EpisodeEvent, EpisodeWatch, QUIET_MS, Refusals};
pub use gauge::{QueueGauge, QueueGauges, QueueReading};
