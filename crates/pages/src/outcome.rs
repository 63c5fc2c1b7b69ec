//! Outcomes of pages' responses: one table with their names, statuses and meanings, for the log and the counters.
//! Failures of runs and refusals on behalf of a page are in [`crate::sandbox::failure`] and [`crate::api::refusal()`].

use crate::api::refusal::PageRefusal;
use crate::sandbox::failure::FailureKind;
use flatout_handler::routed::Refusal;
use flatout_reason::Outcome;

flatout_reason::reasons! {
    /// The outcome of a page's response, except for failures of the page's code.
    pub enum PageOutcome {
        name,
        /// The status of the response; 0 if the page determines it.
        status: u16,
        text,
    }
    Answered, "page_answered", 0, "A page responded within its first time slice.";
    AnsweredLater, "page_answered_later", 0, "A page responded after it had waited for an operation or for its next time slice.";
    Streamed, "page_streamed", 0, "A page started its response early: it called `flush()`.";
    Slash, "page_folder_slash", 308, "A folder with an index page was requested without the trailing slash: 308.";
    Options, "page_options", 204, "The request was OPTIONS, and the response lists the page's methods: 204.";
    Events, "page_events", 200, "A browser subscribed to change events in development mode (`dev`): 200.";
    Malformed, "page_malformed", 500, "The page or an included file does not compile: 500.";
    Unreadable, "page_unreadable", 500, "The page or an included file cannot be read: 500.";
    Changing, "page_changing", 503, "The page changed during every attempt to read it: 503.";
    Busy: overload, "page_busy", 503, "Too many pages are waiting on this worker: 503.";
    OutputBudget, "page_output_budget", 503, "Unsent page output has reached the limit for all clients or for this one: 503.";
    NoInterpreter, "page_no_interpreter", 500, "The interpreter for pages could not be created: 500.";
}

impl From<PageOutcome> for Refusal {
    fn from(outcome: PageOutcome) -> Self {
        refuse(outcome.status(), outcome)
    }
}

impl From<FailureKind> for Refusal {
    fn from(kind: FailureKind) -> Self {
        refuse(kind.status(), kind)
    }
}

impl From<PageRefusal> for Refusal {
    fn from(refusal: PageRefusal) -> Self {
        refuse(refusal.status(), refusal)
    }
}

/// Creates a refusal with `status`. Its text tells visitors no more than whether they can do something about it.
fn refuse(status: u16, outcome: impl Into<Outcome>) -> Refusal {
    let text = match status {
        // The page does not accept the content, which visitors should know.
        400..=499 => "This page does not accept the content of this request.",
        503 | 507 => "The server is too busy for this page at the moment. Please try again.",
        _ => "This page failed. The operator of the site can find the error in the log.",
    };
    let refusal = Refusal::new(status, text, outcome).with("Cache-Control", "no-store");
    if status == 503 { refusal.with("Retry-After", "1") } else { refusal }
}

#[cfg(test)]
mod tests {
    use super::PageOutcome;
    use crate::api::refusal::PageRefusal;
    use crate::sandbox::failure::FailureKind;
    use flatout_handler::routed::Refusal;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_statuses_are_told() {
        let own = PageOutcome::ALL.iter().map(|&outcome| Refusal::from(outcome));
        let failures = FailureKind::ALL.iter().map(|&kind| Refusal::from(kind));
        let refusals = PageRefusal::ALL.iter().map(|&refusal| Refusal::from(refusal));
        let all: Vec<Refusal> = own.chain(failures).chain(refusals).collect();
        assert_eq!(all.iter().map(|refusal| refusal.outcome.name()).collect::<HashSet<_>>().len(), all.len());
        for Refusal { status, outcome, .. } in all {
            let (name, text) = (outcome.name(), outcome.text());
            assert!(name.starts_with("page_") && text.ends_with('.'), "{name}: {text}");
            let is_told = text.ends_with(&format!(": {status}.")) || text.contains(&format!("; {status} to"));
            assert!(status == 0 || is_told, "{name}: {text}");
        }
        assert_eq!(Refusal::from(PageOutcome::Busy).status, 503);
    }
}
