//! Overload control without I/O: time is an argument.
//!
//! A queue in front of a server that is slower than its clients fills up, whatever its length. Then each entry waits
//! for the whole queue, and if that takes longer than clients wait, every response comes too late: the server works at
//! full speed for nobody. A bound on the *length* of the queue cannot prevent this, as the time that an entry waits
//! depends on the speed of the server. So [`QueueBound`] measures that speed while the queue is saturated, and bounds
//! the queue to what can be served within a target delay (Little's law: length = rate × delay).
//!
//! | file | content |
//! |---|---|
//! | `bound` | the bound of a queue, from the measured rate of service |
//!
//! Absent by design: queues, sockets, the clock, and what is done with refused work.

mod bound;

pub use bound::{QueueBound, QueueSettings};
