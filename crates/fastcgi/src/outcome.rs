//! Outcomes of `php` requests, including all failures of the application server: one table defines their names,
//! counters, statuses and meanings.

use crate::head::HeadError;
use crate::record::RecordError;
use flatout_handler::routed::Refusal;
use flatout_upstream::fastcgi::ConnectFailure;
use flatout_upstream::spool::SpoolFault;

flatout_reason::reasons! {
    /// The outcome of a `php` request.
    pub enum PhpOutcome {
        name,
        /// The status of the response; 0 if the script determines it.
        status: u16,
        /// True if the application server is at fault, and not the client or a lack of processes. A script is at fault
        /// instead if [`may_be_script`](Self::may_be_script) and other scripts are answered.
        is_server_fault: bool,
        text,
    }
    Answered, "php_answered", 0, false, "The script responded.";
    AnsweredAgain, "php_answered_again", 0, false, "The script responded on a new connection, because the application server had closed the pooled one.";
    FileSent, "php_file_sent", 0, false, "The script named a file (X-Sendfile, X-Accel-Redirect), and flatout sent it.";
    FileMissing, "php_file_missing", 404, false, "The script named a file that does not exist: 404.";
    FileOutside, "php_file_outside", 502, false, "The script named a file outside the allowed folders: 502.";
    FolderSlash, "php_folder_slash", 308, false, "A folder with an index script was requested without the trailing slash: 308.";
    Refused, "php_refused", 502, true, "Nothing listens at the application server's address: 502.";
    NoSocket, "php_no_socket", 502, true, "The application server's socket does not exist: 502.";
    Forbidden, "php_forbidden", 502, true, "This process is not allowed to connect to the application server's socket: 502.";
    Unresolved, "php_unresolved", 502, true, "The application server's name has no address, or the resolver failed: 502.";
    ConnectTimeout, "php_connect_timeout", 504, true, "Connecting to the application server timed out: 504.";
    ConnectFailed, "php_connect_failed", 502, true, "Connecting to the application server failed for another reason: 502.";
    Busy: overload, "php_busy", 503, false, "The application server's listen queue stayed full until the connect timeout expired: 503.";
    NoDescriptor: resources, "php_no_descriptor", 503, false, "No file descriptor or port was available for a connection to the application server: 503.";
    TooMany: overload, "php_too_many", 503, false, "All processes of the application server are busy, and the requests already waiting will keep them busy until the queue timeout expires: 503.";
    TooManyClient, "php_too_many_client", 503, false, "All processes of the application server are busy, and requests of the same client take up a quarter of the queue: 503.";
    Overloaded: overload, "php_overloaded", 503, false, "The application server reports that it is overloaded: 503.";
    RoleUnknown, "php_role_unknown", 502, true, "The application server does not support the FastCGI responder role: 502.";
    ClosedBeforeHead, "php_closed_before_head", 502, true, "The application server closed the connection before the first byte of a response: 502.";
    CutHead, "php_cut_head", 502, false, "The connection closed, or the script exited, before the response head was complete: 502.";
    HeadTimeout, "php_head_timeout", 504, true, "The response head was not complete within the head timeout: 504.";
    HeadTooLarge, "php_head_too_large", 502, false, "The response head is larger than 64 KiB, or has more than 1,000 fields: 502.";
    HeadMalformed, "php_head_malformed", 502, false, "The response head is not a valid CGI response (RFC 3875 §6): 502.";
    StatusLine, "php_status_line", 502, false, "The script writes an HTTP status line itself (NPH), which FastCGI does not allow: 502.";
    RecordMalformed, "php_record_malformed", 502, true, "The application server's response is not valid FastCGI 1.0: 502.";
    UploadTimeout, "php_upload_timeout", 504, true, "The application server read no request content for the duration of the body timeout: 504.";
    ContentCut, "php_content_cut", 400, false, "The client did not send all of the request's content: 400.";
    ContentTooLarge, "php_content_too_large", 413, false, "The request's content is larger than `content-limit`, or has no Content-Length and is larger than half of `spool-total`: 413.";
    LengthRequired, "php_length_required", 411, false, "The request has no Content-Length, and `spool-limit` disables buffering: 411.";
    SpoolFailed, "php_spool_failed", 503, false, "The request has no Content-Length, and its content could not be buffered, because requests use half of `spool-total`, `spool-total` is reached, or there is no space for files: 503.";
}

impl PhpOutcome {
    /// Returns whether the application server has answered the request, although not with a response.
    pub(crate) const fn is_answer(self) -> bool {
        matches!(self, Self::Overloaded | Self::HeadTooLarge | Self::HeadMalformed | Self::StatusLine)
    }

    /// Returns whether a script can cause this failure, although other scripts are answered: one that takes long, one that
    /// does not read its input, and one that ends its process, or is terminated with it.
    pub(crate) const fn may_be_script(self) -> bool {
        matches!(self, Self::HeadTimeout | Self::UploadTimeout | Self::ClosedBeforeHead)
    }

    /// The sentence shown to visitors. The reason is only logged because it would disclose internals.
    const fn sentence(self) -> &'static str {
        use PhpOutcome::{ClosedBeforeHead, ConnectFailed, CutHead, Forbidden, NoSocket, Unresolved};
        if matches!(self, Self::Refused | NoSocket | Forbidden | Unresolved | ConnectFailed) {
            return "Bad gateway: the origin cannot be reached.";
        }
        if matches!(self, ClosedBeforeHead | CutHead) {
            return "Bad gateway: the origin closed the connection.";
        }
        match self.status() {
            400 => "The request was incomplete.",
            404 => "There is nothing at this address.",
            411 => "The request must declare the length of its content.",
            413 => "The request's content is too large.",
            502 => "Bad gateway: the origin's response was invalid.",
            503 => "The server is busy. Please try again in a moment.",
            504 => "Gateway timeout: the origin did not respond in time.",
            _ => "The server cannot handle this request.",
        }
    }
}

impl From<PhpOutcome> for Refusal {
    fn from(outcome: PhpOutcome) -> Self {
        let refusal = Self::new(outcome.status(), outcome.sentence(), outcome);
        if outcome.status() == 503 { refusal.with("Retry-After", "1") } else { refusal }
    }
}

impl From<ConnectFailure> for PhpOutcome {
    fn from(failure: ConnectFailure) -> Self {
        match failure {
            ConnectFailure::Refused => Self::Refused,
            ConnectFailure::NoSocket => Self::NoSocket,
            ConnectFailure::Forbidden => Self::Forbidden,
            ConnectFailure::Unresolved => Self::Unresolved,
            ConnectFailure::Timeout => Self::ConnectTimeout,
            ConnectFailure::Busy => Self::Busy,
            ConnectFailure::NoDescriptor => Self::NoDescriptor,
            ConnectFailure::Failed => Self::ConnectFailed,
        }
    }
}

impl From<SpoolFault> for PhpOutcome {
    fn from(fault: SpoolFault) -> Self {
        match fault {
            SpoolFault::Cut(reason) => reason.content_fault(Self::ContentTooLarge, Self::ContentCut),
            SpoolFault::TooLarge => Self::ContentTooLarge,
            SpoolFault::Full | SpoolFault::Failed => Self::SpoolFailed,
        }
    }
}

impl From<HeadError> for PhpOutcome {
    fn from(error: HeadError) -> Self {
        match error {
            HeadError::TooLarge => Self::HeadTooLarge,
            HeadError::StatusLine => Self::StatusLine,
            HeadError::Field | HeadError::Status | HeadError::ContentLength | HeadError::Doubled => Self::HeadMalformed,
        }
    }
}

impl From<RecordError> for PhpOutcome {
    fn from(_: RecordError) -> Self {
        Self::RecordMalformed
    }
}

#[cfg(test)]
mod tests {
    use super::PhpOutcome;
    use std::collections::HashSet;

    #[test]
    fn outcome_names_are_unique_and_have_statuses() {
        let names: HashSet<_> = PhpOutcome::NAMES.iter().collect();
        assert_eq!(names.len(), PhpOutcome::ALL.len());
        for (index, outcome) in PhpOutcome::ALL.iter().enumerate() {
            assert_eq!((*outcome as usize, outcome.name()), (index, PhpOutcome::NAMES[index]));
            assert!(outcome.text().ends_with('.') && outcome.name().starts_with("php_"));
            let told = format!(": {}", outcome.status());
            assert!(outcome.status() == 0 || outcome.text().contains(&told), "{}", outcome.name());
            assert!(!outcome.is_server_fault() || matches!(outcome.status(), 502 | 504), "{}", outcome.name());
        }
    }
}
