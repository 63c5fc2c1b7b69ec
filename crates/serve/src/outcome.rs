//! Outcomes of responses: one table with name and meaning, for the log and the counters.

use flatout_net::root::OpenFault;
use flatout_net::routed::Refusal;

flatout_reason::reasons! {
    /// The outcome of a response.
    pub enum FileOutcome { name, text, }
    Hit, "hit", "The file's version was known and had been checked within the file check interval.";
    Checked, "checked", "The file's version was known, and a look at the file showed that it still holds.";
    Loaded, "loaded", "The file was opened and its heads were built: it was new, changed, or had been dropped.";
    Encoded, "encoded", "As hit, and the answer is an encoding of the file that was at hand.";
    EncodedFirst, "encoded_first", "The answer waited a moment for its encoding, which others now find at hand.";
    EncodingPending, "encoding_pending", "The file is being encoded; this answer is another encoding or the plain file.";
    ThreadPoolFull, "thread_pool_full", "The queue of the background threads is full: content is sent uncompressed, a listing is answered with 503.";
    Fallback, "fallback", "No file has this name; another one of the try list answers for it.";
    Listing, "listing", "A list of the folder, as known within the file check interval.";
    ListingRead, "listing_read", "A list of the folder, which was read for this answer.";
    Parts, "parts", "Several ranges: 206 with one part for each.";
    RangeRefused, "range_refused", "Too many, overlapping or needless ranges: the whole file instead.";
    NotModified, "not_modified", "The client's copy is current: 304.";
    PreconditionFailed, "precondition_failed", "If-Match or If-Unmodified-Since does not hold: 412.";
    RangeUnsatisfiable, "range_unsatisfiable", "The range lies outside the file: 416.";
    FolderSlash, "folder_slash", "The name is a folder's; 301 to the same with a slash.";
    SlashesMerged, "slashes_merged", "The path has an empty segment; 301 to the same without.";
    Options, "options", "The methods were asked for: 204.";
    NotFound, "not_found", "No file has this name: 404.";
    NoIndex, "no_index", "The folder has none of the index files: 404.";
    HiddenName, "hidden_name", "A name begins with a dot, and such names are not served unless asked for: 404.";
    SourceHidden, "source_hidden", "The name is that of a script, or of a copy of one, where scripts are run: 404.";
    OutsideRoot, "outside_root", "A symbolic link leads out of the folder that is served, and into none that `follow-links` names: 404.";
    NotAFile, "not_a_file", "The name is a device's, a pipe's or a socket's: 404.";
    Forbidden, "forbidden", "The file's permissions do not let us read it: 403.";
    MethodNotAllowed, "method_not_allowed", "Files can be read only: 405.";
    MethodUnknown, "method_unknown", "The method is unknown, or means nothing to a server of files: 501.";
    FileUnsettled, "file_unsettled", "The file changed each time it was read; 503, as any answer would mix versions.";
    NoDescriptor, "no_descriptor", "The kernel had no descriptor left to open the file with: 503.";
    FileFailed, "file_failed", "The file could not be read: 500.";
    PathAboveRoot, "path_above_root", "The path leads above the root: 400.";
    TryStatus, "try_status", "The try list ends in a status.";
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
            _ => Self::new(404, "Nothing here has this name.", outcome),
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
        assert!(names.len() <= flatout_net::counters::OUTCOMES_MAX);
        for (index, outcome) in FileOutcome::ALL.iter().enumerate() {
            assert_eq!((*outcome as usize, outcome.name()), (index, FileOutcome::NAMES[index]));
            assert!(outcome.text().ends_with('.'));
        }
    }
}
