//! The engine's own outcomes, in one table between those of `flatout-serve` and `flatout-proxy`; those of
//! `flatout-pages` and `flatout-fastcgi` follow.

use flatout_fastcgi::Outcome as Run;
use flatout_pages::Outcome as Paged;
use flatout_proxy::outcome::Outcome as Proxied;
use flatout_reason::join;
use flatout_serve::outcome::Outcome as Served;

flatout_reason::reasons! {
    /// The outcome of a response that no file determined.
    pub enum Outcome { name, text, }
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
    AmbiguousPath, "ambiguous_path", "Reading `%2F`, `%5C`, `\\` or `;` as some servers do would choose another rule, or a rule guards the script or page by its plain name: 400.";
    Unrouted, "unrouted", "No step of the site answered: 404.";
}

impl Outcome {
    /// The index into [`OUTCOMES`].
    pub const fn index(self) -> u8 {
        Served::ALL.len() as u8 + self as u8
    }
}

/// Index in [`OUTCOMES`] of the first outcome of proxies.
pub(crate) const PROXY_BASE: usize = Served::ALL.len() + Outcome::ALL.len();

/// Index in [`OUTCOMES`] of the first outcome of active pages.
pub(crate) const PAGES_BASE: usize = PROXY_BASE + Proxied::NAMES.len();

/// Index in [`OUTCOMES`] of the first outcome of application servers.
pub(crate) const PHP_BASE: usize = PAGES_BASE + Paged::NAMES.len();

const COUNT: usize = PHP_BASE + Run::NAMES.len();

/// Names of all outcomes of an [`crate::Engine`]: those of files, of the engine, of proxies, of pages, and of
/// application servers.
pub const OUTCOMES: [&str; COUNT] = join(&[Served::NAMES, Outcome::NAMES, Proxied::NAMES, Paged::NAMES, Run::NAMES]);

const TEXTS: [&str; COUNT] = join(&[Served::TEXTS, Outcome::TEXTS, Proxied::TEXTS, Paged::TEXTS, Run::TEXTS]);

/// The meaning of the outcome at `index` in [`OUTCOMES`].
pub fn outcome_text(index: u8) -> &'static str {
    TEXTS.get(usize::from(index)).copied().unwrap_or("")
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
