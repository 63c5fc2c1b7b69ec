//! Outcomes defined by the engine, and the tables of all its handlers' outcomes.

use flatout_cache::reason::Lookup;
use flatout_fastcgi::PhpOutcome;
use flatout_pages::PageOutcome;
use flatout_pages::api::refusal::PageRefusal;
use flatout_pages::sandbox::failure::FailureKind;
use flatout_proxy::outcome::ForwardOutcome;
use flatout_reason::Table;
use flatout_serve::outcome::FileOutcome;
use flatout_upstream::origin::OriginFailure;

flatout_reason::reasons! {
    /// Outcome of a request that the engine itself responds to.
    pub enum RouteOutcome { name, text, }
    SiteUnknown, "site_unknown", "No site on this listener has the requested host name: 421.";
    HostNeeded, "host_needed", "The response needs a host name, but the request has none: 400.";
    HttpsRedirect, "https_redirect", "This listener only redirects to https: 308.";
    Redirected, "redirected", "A `redirect` directive responded.";
    Responded, "responded", "A `respond` directive responded.";
    Metrics, "metrics", "A `metrics` directive responded.";
    CorsPreflight, "cors_preflight", "The request is a CORS preflight request from a page on another origin: 204.";
    AccessDenied, "access_denied", "The client's address is denied: 403.";
    RateLimited, "rate_limited", "The client's address exceeded the rate limit: 429.";
    AddressRequestsLimit, "address_requests_limit", "The concurrent requests of the client's address had reached the limit in `limit-connections`: 429.";
    RequestsLimit: overload, "requests_limit", "The concurrent requests of all clients together had reached the limit in `limit-connections`: 503.";
    Unauthorized, "unauthorized", "The user name or password is missing or wrong: 401.";
    AuthBusy: overload, "auth_busy", "The queue for password verification is full: 503.";
    AmbiguousPath, "ambiguous_path", "The path contains `%2F`, `%5C`, `\\`, `;` or a suffix after a script's name. Servers interpret these differently, and different rules would apply under another interpretation: 400.";
    Unrouted, "unrouted", "No handler in the site responded: 404.";
}

/// Tables of all outcomes of an [`crate::Engine`].
pub const OUTCOMES: [&Table; 9] = [
    FileOutcome::TABLE,
    Lookup::TABLE,
    RouteOutcome::TABLE,
    ForwardOutcome::TABLE,
    OriginFailure::TABLE,
    PageOutcome::TABLE,
    FailureKind::TABLE,
    PageRefusal::TABLE,
    PhpOutcome::TABLE,
];

const COUNT: usize = {
    let (mut count, mut table) = (0, 0);
    while table < OUTCOMES.len() {
        count += OUTCOMES[table].names.len();
        table += 1;
    }
    count
};

const _: () = assert!(COUNT <= flatout_handler::OUTCOMES_MAX);

#[cfg(test)]
mod tests {
    use super::{OUTCOMES, OriginFailure};
    use std::collections::HashSet;

    #[test]
    fn names_are_unique() {
        let names: Vec<_> = OUTCOMES.iter().flat_map(|table| table.names).collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        assert!(OUTCOMES.iter().flat_map(|table| table.texts).all(|text| text.contains('.')));
    }

    /// Otherwise a new outcome would not be reported on standard error.
    #[test]
    fn refusals_because_of_overload_are_marked() {
        // The request or its page is at fault, an origin, a disk, or a client that takes up more than its share.
        const OTHERS: [&str; 15] = [
            "file_unsettled",
            "no_healthy_origin",
            "origin_queue_client",
            "page_changing",
            "page_content_budget",
            "page_cpu_limit",
            "page_memory_budget",
            "page_memory_limit",
            "page_no_yield",
            "page_output_budget",
            "page_run_limit",
            "php_spool_failed",
            "php_too_many_client",
            "request_buffer_failed",
            "thread_pool_full",
        ];
        let is_busy = |name, text: &str| {
            text.contains("503") || {
                OriginFailure::ALL.iter().any(|failure| failure.name() == name && failure.status() == 503)
            }
        };
        for table in OUTCOMES {
            for ((name, mark), text) in table.rows().zip(table.texts) {
                let is_known = matches!(mark, "" | "overload" | "resources");
                let is_marked = !mark.is_empty();
                assert!(is_known && is_marked == (is_busy(name, text) && !OTHERS.contains(&name)), "{name}: {mark}");
            }
        }
    }
}
