//! The outcomes of responses, with the names and meanings that the log and the counters use.

use flatout_handler::routed::Refusal;
use flatout_os::root::OpenFault;

flatout_reason::reasons! {
    /// The outcome of a response.
    pub enum FileOutcome { name, text, }
    Hit, "hit", "The file's metadata was cached and had been revalidated within the file check interval.";
    Checked, "checked", "The cached metadata was revalidated: the file had not changed.";
    Loaded, "loaded", "The file was new, had changed or had been evicted from the cache: flatout opened it and built its response heads.";
    Encoded, "encoded", "Like `hit`, but flatout sent a stored encoding of the file, such as its gzip form.";
    EncodedFirst, "encoded_first", "flatout delayed the response briefly to encode the file; later responses use the stored encoding.";
    EncodingPending, "encoding_pending", "The file was still being encoded, so flatout sent another encoding or none.";
    ThreadPoolFull, "thread_pool_full", "The queue for the background threads is full: flatout sends files uncompressed, and responds to requests for listings with 503.";
    Fallback, "fallback", "flatout used an entry of the try list instead of the requested path.";
    Listing, "listing", "flatout sent a cached folder listing that it had read within the file check interval.";
    ListingRead, "listing_read", "flatout read the folder from disk to create this listing.";
    Parts, "parts", "The request asks for multiple ranges: 206 with one part for each range.";
    RangeRefused, "range_refused", "The request has too many ranges, overlapping or redundant ranges, or several ranges of a file that is stored compressed, so flatout sends the whole file.";
    NotModified, "not_modified", "The client's copy is current: 304.";
    PreconditionFailed, "precondition_failed", "If-Match or If-Unmodified-Since is false: 412.";
    RangeUnsatisfiable, "range_unsatisfiable", "The requested range is outside the file: 416.";
    FolderSlash, "folder_slash", "The path names a folder: 301 to the same path with a trailing slash.";
    SlashesMerged, "slashes_merged", "The path has an empty segment: 301, or 308 for other methods than GET and HEAD, to the same path without it.";
    Options, "options", "The request was OPTIONS, and the response lists the allowed methods: 204.";
    NotFound, "not_found", "No file has this name: 404.";
    NoIndex, "no_index", "The folder contains none of the index files: 404.";
    HiddenName, "hidden_name", "A name in the path begins with a dot, and `hidden` is off: 404.";
    SourceHidden, "source_hidden", "The path names a script, or a copy of one, in a folder where scripts run: 404.";
    OutsideRoot, "outside_root", "A symbolic link points outside the served folder and outside the folders in `follow-links`: 404.";
    NotAFile, "not_a_file", "The path names a device, a pipe or a socket: 404.";
    Forbidden, "forbidden", "flatout has no permission to read the file: 403.";
    MethodNotAllowed, "method_not_allowed", "The method is not allowed for files: 405.";
    MethodUnknown, "method_unknown", "The method is unknown, or not supported for files: 501.";
    FileUnsettled, "file_unsettled", "The file changed during every attempt to read it, so any response would mix versions: 503.";
    NoDescriptor: resources, "no_descriptor", "No file descriptor was available to open the file: 503.";
    FileFailed, "file_failed", "The file could not be read: 500.";
    PathAboveRoot, "path_above_root", "The path escapes the root with `..` segments: 400.";
    TryStatus, "try_status", "No entry in the try list matched, so flatout responded with the status at the end of the list.";
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
    /// Returns the refusal for a name that has no file to serve. A visitor cannot distinguish a hidden name or a link
    /// that leads out of the root from a missing file.
    fn from(outcome: FileOutcome) -> Self {
        const TRY_AGAIN: &str = "The file cannot be read at this moment. Please try again.";
        match outcome {
            FileOutcome::Forbidden => Self::new(403, "The server has no permission to read this file.", outcome),
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
