//! Outcomes of responses: one table with name and meaning, for the log and the counters.

use flatout_handler::routed::Refusal;
use flatout_os::root::OpenFault;

flatout_reason::reasons! {
    /// The outcome of a response.
    pub enum FileOutcome { name, text, }
    Hit, "hit", "The file's version was known and had been checked within the file check interval.";
    Checked, "checked", "The file's version was known, and a check showed that the file had not changed.";
    Loaded, "loaded", "The file was new, had changed or had been evicted: it was opened, and its response heads were built.";
    Encoded, "encoded", "As `hit`, with a stored encoding of the file.";
    EncodedFirst, "encoded_first", "The response waited briefly for its encoding; later responses use the stored result.";
    EncodingPending, "encoding_pending", "The file is being encoded; this response uses another encoding or none.";
    ThreadPoolFull, "thread_pool_full", "The queue of the background threads is full: content is sent uncompressed, and a listing gets 503.";
    Fallback, "fallback", "No file has this name; another entry of the try list responded.";
    Listing, "listing", "A folder listing, read within the file check interval.";
    ListingRead, "listing_read", "A folder listing, read for this response.";
    Parts, "parts", "Several ranges: 206 with one part for each.";
    RangeRefused, "range_refused", "Too many, overlapping or redundant ranges: the whole file is sent instead.";
    NotModified, "not_modified", "The client's copy is current: 304.";
    PreconditionFailed, "precondition_failed", "If-Match or If-Unmodified-Since is false: 412.";
    RangeUnsatisfiable, "range_unsatisfiable", "The range lies outside the file: 416.";
    FolderSlash, "folder_slash", "The path names a folder: 301 to the same path with a trailing slash.";
    SlashesMerged, "slashes_merged", "The path has an empty segment: 301 to the same path without it.";
    Options, "options", "OPTIONS requested the allowed methods: 204.";
    NotFound, "not_found", "No file has this name: 404.";
    NoIndex, "no_index", "The folder has none of the index files: 404.";
    HiddenName, "hidden_name", "A name in the path begins with a dot, and `hidden` is off: 404.";
    SourceHidden, "source_hidden", "The path names a script or a copy of one, where scripts run: 404.";
    OutsideRoot, "outside_root", "A symbolic link leads out of the served folder, and not into a folder of `follow-links`: 404.";
    NotAFile, "not_a_file", "The path names a device, a pipe or a socket: 404.";
    Forbidden, "forbidden", "flatout has no permission to read the file: 403.";
    MethodNotAllowed, "method_not_allowed", "The method is not allowed for files: 405.";
    MethodUnknown, "method_unknown", "The method is unknown, or not supported for files: 501.";
    FileUnsettled, "file_unsettled", "The file changed during every attempt to read it, so any response would mix versions: 503.";
    NoDescriptor, "no_descriptor", "No file descriptor was left to open the file: 503.";
    FileFailed, "file_failed", "The file could not be read: 500.";
    PathAboveRoot, "path_above_root", "The path leads above the root: 400.";
    TryStatus, "try_status", "The try list ended in a status.";
    TargetNul, "target_nul", "The path contains an encoded NUL: 400.";
}

impl From<OpenFault> for FileOutcome {
    fn from(fault: OpenFault) -> Self {
        match fault {
            OpenFault::NotFound => Self::NotFound,
            OpenFault::OutsideRoot => Self::OutsideRoot,
            OpenFault::Forbidden => Self::Forbidden,
            OpenFault::NotAFile => Self::NotAFile,
            OpenFault::NoDescriptor => Self::NoDescriptor,
            OpenFault::Unsettled => Self::FileUnsettled,
            OpenFault::Failed => Self::FileFailed,
        }
    }
}

impl From<FileOutcome> for Refusal {
    /// The refusal for a name without a file to serve. It reveals no more than a visitor may know: a hidden name, a
    /// link that leads out and a missing name look the same.
    fn from(outcome: FileOutcome) -> Self {
        const TRY_AGAIN: &str = "The file cannot be read at this moment. Please try again.";
        match outcome {
            FileOutcome::Forbidden => Self::new(403, "This file may not be read.", outcome),
            FileOutcome::NoDescriptor | FileOutcome::FileUnsettled | FileOutcome::ThreadPoolFull => {
                Self::new(503, TRY_AGAIN, outcome).with("Retry-After", "1")
            }
            FileOutcome::FileFailed => Self::new(500, "The file could not be read.", outcome),
            _ => Self::new(404, "There is nothing at this address.", outcome),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FileOutcome;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_fit_the_counters() {
        let names: HashSet<_> = FileOutcome::NAMES.iter().collect();
        assert_eq!(names.len(), FileOutcome::ALL.len());
        assert!(names.len() <= flatout_handler::OUTCOMES_MAX);
        for (index, outcome) in FileOutcome::ALL.iter().enumerate() {
            assert_eq!((*outcome as usize, outcome.name()), (index, FileOutcome::NAMES[index]));
            assert!(outcome.text().ends_with('.'));
        }
    }
}
