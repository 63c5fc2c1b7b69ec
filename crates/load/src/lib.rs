//! Load plans, recording and statistics.
//!
//! What a run should do ([`plan`]), one thread's share of it at work ([`schedule`]), what came of it ([`record`]), whether
//! it can be believed ([`judge`]), why a request failed ([`failure`]) and the document all views read ([`report`]). What is
//! asked for ([`workload`]), and what several runs say together ([`stats`]).
//!
//! Absent on purpose: sockets, threads, files and the clock. Time is an argument, in nanoseconds of one monotonic clock,
//! so every rule here can be tested without waiting.

/// Has a table of names written and read as its names.
macro_rules! by_name {
    ($table:ident, $what:literal) => {
        impl serde::Serialize for $table {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $table {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                let known = Self::ALL.iter().copied().find(|one| one.name() == name);
                known.ok_or_else(|| serde::de::Error::custom(format!(concat!("no ", $what, " is called {:?}"), name)))
            }
        }
    };
}
use by_name;

pub mod failure;
pub mod judge;
pub mod plan;
pub mod random;
pub mod record;
pub mod report;
pub mod schedule;
pub mod stats;
pub mod workload;

pub use failure::FailureKind;
