//! Load plans, recording and statistics.
//!
//! Modules: the plan of a run ([`plan`]), execution of one thread's share of it ([`schedule`]), results ([`record`]),
//! validity ([`judge`]), failure kinds ([`failure`]), the document from which all views are made ([`report`]), the
//! requests ([`workload`]) and their placeholders ([`template`]), and statistics over several runs ([`stats`]).
//!
//! By design, there are no sockets, threads, files or clocks in this crate. Time is an argument, in nanoseconds of one
//! monotonic clock, so every rule can be tested without waiting.

/// Serialises an enum by its table of names. Names that earlier versions wrote, `old => new`, can still be read.
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
pub mod template;
pub mod workload;

pub use failure::FailureKind;
