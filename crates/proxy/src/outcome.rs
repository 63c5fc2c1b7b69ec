//! Why a request was, or was not, given to an origin: one table gives the name for the log and the counter, the status
//! and the meaning.

use flatout_cache::reason::Lookup;
use flatout_net::origin::OriginFailure;

macro_rules! outcomes {
    ($($variant:ident, $name:literal, $status:literal, $text:literal;)+) => {
        /// Why a request was, or was not, given to an origin, as far as this crate's own rules decide it. What the
        /// cache decides and what an origin's connection met have tables of their own.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum ForwardOutcome {
            $(#[doc = $text] $variant,)+
        }

        impl ForwardOutcome {
            /// All of them, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The names, in the order of the table.
            pub const NAMES: &'static [&'static str] = &[$($name,)+];

            /// The stable name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The status of the answer; 0: the origin's own.
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)+ }
            }

            /// What it means.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

outcomes! {
    Forwarded, "forwarded", 0, "An origin answered.";
    ForwardedAgain, "forwarded_again", 0, "An origin answered, after another attempt had failed.";
    Upgraded, "upgraded", 0, "The origin agreed to another protocol: 101, and the connection is a tunnel.";
    UpgradeInvalid, "upgrade_invalid", 502, "The origin answered 101 to a request that asked for no such upgrade: 502.";
    LoopDetected, "loop_detected", 508, "Via names this server twice already: 508.";
    MaxForwards, "max_forwards", 200, "Max-Forwards of OPTIONS or TRACE is 0, so this server is the last: 200.";
    ConnectRefused, "connect_refused", 501, "CONNECT asks for a tunnel to anywhere, and this server is not for that: 501.";
    OriginNoneWell, "origin_none_well", 503, "The health checks of all origins fail: 503.";
    OriginQueueFull, "origin_queue_full", 503, "The origin has as many requests as it can take, and too many wait: 503.";
    OriginQueueTimeout, "origin_queue_timeout", 503, "The origin had no room for the request within its patience: 503.";
    Purged, "purged", 200, "PURGE was asked for, by a client who may: 200.";
    PurgeDenied, "purge_denied", 403, "PURGE was asked for by a client who may not: 403.";
    EsiComposed, "esi_composed", 0, "The page was put together from its parts.";
    EsiPartFailed, "esi_part_failed", 502, "A part of the page could not be had, and the page does not say that it may be missing: 502.";
}

/// Why an answer of a proxy was what it was: what the cache decided, what this crate's rules did, or how an origin
/// failed, as one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome(u8);

const LOOKUPS: usize = Lookup::NAMES.len();
const FORWARDS: usize = ForwardOutcome::NAMES.len();
const COUNT: usize = LOOKUPS + FORWARDS + OriginFailure::NAMES.len();

impl Outcome {
    /// The names, in the order of the table.
    pub const NAMES: &'static [&'static str; COUNT] = &{
        let mut names = [""; COUNT];
        let mut index = 0;
        while index < COUNT {
            names[index] = if index < LOOKUPS {
                Lookup::NAMES[index]
            } else if index < LOOKUPS + FORWARDS {
                ForwardOutcome::NAMES[index - LOOKUPS]
            } else {
                OriginFailure::NAMES[index - LOOKUPS - FORWARDS]
            };
            index += 1;
        }
        names
    };

    /// What the cache decided.
    pub const fn cache(lookup: Lookup) -> Self {
        Self(lookup as u8)
    }

    /// What forwarding came to.
    pub const fn forward(outcome: ForwardOutcome) -> Self {
        Self(LOOKUPS as u8 + outcome as u8)
    }

    /// How an origin failed.
    pub const fn origin(failure: OriginFailure) -> Self {
        Self((LOOKUPS + FORWARDS) as u8 + failure as u8)
    }

    /// The index into [`Outcome::NAMES`].
    pub const fn index(self) -> u8 {
        self.0
    }

    /// The stable name.
    pub fn name(self) -> &'static str {
        Self::NAMES.get(usize::from(self.0)).copied().unwrap_or("-")
    }

    /// What the outcome at `index` means.
    pub fn text_at(index: usize) -> Option<&'static str> {
        if let Some(lookup) = Lookup::ALL.get(index) {
            return Some(lookup.text());
        }
        let index = index - LOOKUPS;
        if let Some(outcome) = ForwardOutcome::ALL.get(index) {
            return Some(outcome.text());
        }
        OriginFailure::ALL.get(index - FORWARDS).map(|failure| failure.text())
    }
}
