//! Why the engine, and not a handler, answered: one table, between those of `flatout-serve` and `flatout-proxy`;
//! behind them stand those of `flatout-pages` and of `flatout-fastcgi`.

use flatout_fastcgi::Outcome as Run;
use flatout_pages::Outcome as Paged;
use flatout_proxy::outcome::Outcome as Proxied;
use flatout_serve::outcome::Outcome as Served;

macro_rules! outcomes {
    ($($variant:ident, $name:literal, $text:literal;)+) => {
        /// Why an answer was what it was, where no file decided it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Outcome {
            $(#[doc = $text] $variant,)+
        }

        impl Outcome {
            /// All of them, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The stable name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What it means.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

outcomes! {
    SiteUnknown, "site_unknown", "No site of this listener has the host's name: 421.";
    HostNeeded, "host_needed", "The answer would name the host, and the request named none: 400.";
    HttpsRedirect, "https_redirect", "This listener only leads to https: 308.";
    Redirected, "redirected", "A `redirect` step answered.";
    Responded, "responded", "A `respond` step answered.";
    Metrics, "metrics", "The counters were asked for.";
    CorsPreflight, "cors_preflight", "A page of another origin asked what it may send: 204.";
    AccessDenied, "access_denied", "The client's address may not come here: 403.";
    RateLimited, "rate_limited", "The client's address asked too often: 429.";
    Unauthorized, "unauthorized", "No right name and password were given: 401.";
    AuthBusy, "auth_busy", "Too many passwords wait to be verified: 503.";
    Unrouted, "unrouted", "No step of the site answered: 404.";
}

impl Outcome {
    /// The index into [`OUTCOMES`].
    pub const fn index(self) -> u8 {
        Served::ALL.len() as u8 + self as u8
    }
}

/// Where the outcomes of proxies begin in [`OUTCOMES`].
pub(crate) const PROXY_BASE: usize = Served::ALL.len() + Outcome::ALL.len();

/// Where the outcomes of active pages begin in [`OUTCOMES`].
pub(crate) const PAGES_BASE: usize = PROXY_BASE + Proxied::NAMES.len();

/// Where the outcomes of application servers begin in [`OUTCOMES`].
pub(crate) const PHP_BASE: usize = PAGES_BASE + Paged::NAMES.len();

const COUNT: usize = PHP_BASE + Run::NAMES.len();

/// The names of all outcomes that an [`crate::Engine`] counts: those of files, of the engine, of proxies, of pages, and
/// of application servers.
pub const OUTCOMES: [&str; COUNT] = {
    let mut names = [""; COUNT];
    let mut index = 0;
    while index < COUNT {
        names[index] = if index < Served::ALL.len() {
            Served::NAMES[index]
        } else if index < PROXY_BASE {
            Outcome::ALL[index - Served::ALL.len()].name()
        } else if index < PAGES_BASE {
            Proxied::NAMES[index - PROXY_BASE]
        } else if index < PHP_BASE {
            Paged::NAMES[index - PAGES_BASE]
        } else {
            Run::NAMES[index - PHP_BASE]
        };
        index += 1;
    }
    names
};

/// What the outcome at `index` into [`OUTCOMES`] means.
pub fn outcome_text(index: u8) -> &'static str {
    let index = usize::from(index);
    let served = Served::ALL.get(index).map(|outcome| outcome.text());
    let ours = || Some(Outcome::ALL.get(index.checked_sub(Served::ALL.len())?)?.text());
    let proxied = || Proxied::text_at(index.checked_sub(PROXY_BASE).filter(|_| index < PAGES_BASE)?);
    let paged = || Paged::text_at(index.checked_sub(PAGES_BASE).filter(|_| index < PHP_BASE)?);
    let run = || Some(Run::ALL.get(index.checked_sub(PHP_BASE)?)?.text());
    served.or_else(ours).or_else(proxied).or_else(paged).or_else(run).unwrap_or("")
}

const _: () = assert!(COUNT <= flatout_net::counters::OUTCOMES_MAX);

#[cfg(test)]
mod tests {
    use super::{OUTCOMES, Outcome};
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_stand_at_their_index() {
        assert_eq!(OUTCOMES.iter().collect::<HashSet<_>>().len(), OUTCOMES.len());
        for outcome in Outcome::ALL {
            assert_eq!(OUTCOMES[usize::from(outcome.index())], outcome.name());
            assert!(outcome.text().ends_with('.'));
            assert_eq!(super::outcome_text(outcome.index()), outcome.text());
        }
    }
}
