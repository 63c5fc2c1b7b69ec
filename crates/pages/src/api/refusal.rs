//! Refusals on a page's behalf: one table with name, status and meaning, for the log and the counters.
//!
//! The page receives an ordinary error, which it may catch to respond in its own way. If it does not, the response
//! has the refusal's status instead of 500.

use crate::exchange::Exchange;
use crate::sandbox::wait::NativeError;
use std::cell::Cell;
use std::rc::Rc;

flatout_reason::reasons! {
    /// Why a request was refused on a page's behalf.
    pub enum PageRefusal {
        name,
        /// The status of the response.
        status: u16,
        text,
    }
    FormTooLarge, "page_form_too_large", 413, "The form, or the content that the page reads as a whole, is larger than form-limit: 413.";
    UploadTooLarge, "page_upload_too_large", 413, "The files of the form are larger than upload-limit: 413.";
    FormTooManyFields, "page_form_too_many_fields", 413, "The form has more fields or files than a form may have: 413.";
    FormMalformed, "page_form_malformed", 400, "The form is not valid multipart/form-data: 400.";
    JsonMalformed, "page_json_malformed", 400, "The content is not JSON, or nested too deeply: 400.";
    ContentCut, "page_content_cut", 400, "The client did not send all of the content that the page reads: 400.";
    ContentType, "page_content_type", 415, "The content has another type than the page reads: 415.";
    SpoolFailed, "page_spool_failed", 507, "There was no space to store the files of the form: 507.";
    ContentBudget, "page_content_budget", 503, "The limit for forms, files and other content of all pages is reached: 503.";
    PasswordsBusy, "page_passwords_busy", 503, "The queue for hashing and verifying passwords is full: 503.";
    DatabaseBusy, "page_database_busy", 503, "The database is saturated, and the page's statement was not started: 503.";
    DatabaseDiskFull, "page_database_disk_full", 507, "The disk is full, and the page's statement changed nothing: 507.";
    CsrfInvalid, "page_csrf_invalid", 403, "The form has no token of this site for this session: 403.";
}

/// The refusal of one request, which a future can set while the page is suspended.
#[derive(Clone, Debug, Default)]
pub(crate) struct RefusalCell(Rc<Cell<Option<PageRefusal>>>);

impl RefusalCell {
    /// The refusal of the current request.
    pub(crate) fn of(exchange: &mut Exchange) -> Self {
        exchange.slot::<Self>().clone()
    }

    /// Records the refusal; returns the error for the page.
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
