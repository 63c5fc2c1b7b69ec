//! Load plans, recording and statistics.
//!
//! Modules: the plan of a run ([`plan`]), execution of one thread's share ([`schedule`]), results ([`record`]),
//! validity ([`judge`]), failure kinds ([`failure`]), the document for all views ([`report`]), the requests
//! ([`workload`]) and statistics over several runs ([`stats`]).
//!
//! Absent by design: sockets, threads, files and the clock. Time is an argument, in nanoseconds of one monotonic
//! clock, so every rule is testable without waiting.

/// Serialises an enum by its table of names. Names of earlier versions, `old => new`, are still read.
macro_rules! by_name {
    ($table:ident, $what:literal $(, $old:literal => $new:literal)*) => {
        impl serde::Serialize for $table {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $table {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                let name = match name.as_ref() {
                    $($old => $new,)*
                    name => name,
                };
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
