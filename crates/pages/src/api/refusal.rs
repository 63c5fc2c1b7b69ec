//! Refusals of requests on behalf of a page: one table with their names, statuses and meanings, for the log and the
//! counters.
//!
//! The page receives an ordinary error, which it may catch in order to respond in its own way. If it does not catch the
//! error, the response has the status of the refusal instead of 500.

use crate::exchange::Exchange;
use crate::sandbox::wait::NativeError;
use std::cell::Cell;
use std::rc::Rc;

flatout_reason::reasons! {
    /// The reason why a request was refused on behalf of a page.
    pub enum PageRefusal {
        name,
        /// The status of the response.
        status: u16,
        text,
    }
    FormTooLarge, "page_form_too_large", 413, "The form, or the content that the page reads as a whole, is larger than form-limit: 413.";
    UploadTooLarge, "page_upload_too_large", 413, "The uploaded files are larger than upload-limit: 413.";
    FormTooManyFields, "page_form_too_many_fields", 413, "The form has too many fields or files: 413.";
    FormMalformed, "page_form_malformed", 400, "The form is not valid multipart/form-data: 400.";
    JsonMalformed, "page_json_malformed", 400, "The content is not JSON, or is nested too deeply: 400.";
    ContentCut, "page_content_cut", 400, "The client did not send all of the content that the page reads: 400.";
    ContentType, "page_content_type", 415, "The content is not of the type that the page reads: 415.";
    SpoolFailed, "page_spool_failed", 507, "There was no space to store the files of the form: 507.";
    ContentBudget, "page_content_budget", 503, "Forms, files and other content have reached the limit for all clients or for this one: 503.";
    PasswordsBusy: overload, "page_passwords_busy", 503, "The queue for hashing and verifying passwords is full: 503.";
    DatabaseBusy: overload, "page_database_busy", 503, "The database is saturated, and the page's statement was not started: 503.";
    DatabaseDiskFull, "page_database_disk_full", 507, "The disk is full, and the page's statement changed nothing: 507.";
    CsrfInvalid, "page_csrf_invalid", 403, "The form has no valid CSRF token for this session: 403.";
}

/// The refusal of a request. A future can set it while the page is suspended.
#[derive(Clone, Debug, Default)]
pub(crate) struct RefusalCell(Rc<Cell<Option<PageRefusal>>>);

impl RefusalCell {
    /// Returns the refusal cell of the current request.
    pub(crate) fn of(exchange: &mut Exchange) -> Self {
        exchange.slot::<Self>().clone()
    }

    /// Records the refusal. Returns the error for the page.
    pub(crate) fn refuse(&self, refusal: PageRefusal) -> NativeError {
        self.0.set(Some(refusal));
        NativeError::from(refusal.text())
    }

    pub(crate) fn get(&self) -> Option<PageRefusal> {
        self.0.get()
    }
}

#[cfg(test)]
mod tests {
    use super::PageRefusal;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_sentences_end_with_the_status() {
        let names: HashSet<_> = PageRefusal::NAMES.iter().collect();
        assert_eq!(names.len(), PageRefusal::ALL.len());
        for (index, refusal) in PageRefusal::ALL.iter().enumerate() {
            assert_eq!((*refusal as usize, refusal.name()), (index, PageRefusal::NAMES[index]));
            assert!(refusal.text().ends_with(&format!(": {}.", refusal.status())), "{}", refusal.name());
        }
    }
}
