//! The reasons for missing results and problems, in one table.

use crate::document::Why;
use flatout_reason::reasons;

reasons! {
    /// The reason something is missing or failed.
    pub enum Reason {
        name,
        /// True if the reason makes the suite fail. Something that is merely unavailable on this machine does not.
        is_failure: bool,
        text,
    }
    ProgramMissing, "program-missing", false, "The program is not on this machine.";
    NeedMissing, "need-missing", false, "A file that the server needs is not on this machine.";
    TooOld, "too-old", false, "The program is older than the suite requires.";
    VersionUnknown, "version-unknown", false, "The program did not print its version.";
    Skipped, "skipped", false, "It was left out on request.";
    NeedsRoot, "needs-root", false, "Network namespaces require root.";
    ShareMissing, "share-missing", false, "The servers' CPU share cannot be limited on this machine.";
    TestbedFailed, "testbed-failed", true, "The network could not be created.";
    FixtureFailed, "fixture-failed", true, "The files to serve could not be created.";
    ConfigFailed, "config-failed", true, "A server's file could not be written.";
    StartFailed, "start-failed", true, "The server could not be started.";
    PortTaken, "port-taken", true, "Another process listens on the server's port.";
    NeverReady, "never-ready", true, "The server was not ready in time.";
    DiedStarting, "died-starting", true, "The server exited before it was ready.";
    Died, "died", true, "The server exited during the measurement.";
    PortKept, "port-kept", true, "The server was stopped, but its port is still in use.";
    NeededAbsent, "needed-absent", false, "A server that it needs was left out.";
    NeededFailed, "needed-failed", true, "A server that it needs failed.";
    TakenMissing, "taken-missing", false, "A figure from an earlier step on which it depends is missing.";
    BenchFailed, "bench-failed", true, "The measurement failed.";
    BenchHung, "bench-hung", true, "The measurement did not finish in time.";
    ResponseWrong, "response-wrong", true, "The response is not the expected one.";
    ReachWrong, "reach-wrong", true, "More or fewer requests than expected reached another server.";
    RequestsFailed, "requests-failed", true, "Requests failed.";
    Interrupted, "interrupted", true, "The suite was interrupted.";
    HistoryUnreadable, "history-unreadable", true, "A table of earlier figures cannot be read.";
    WriteFailed, "write-failed", true, "The result could not be written.";
}

/// The sentence for a step that `--only` leaves out, by which such steps are recognised.
pub const LEFT_OUT_BY_ONLY: &str = "--only leaves it out";

impl Reason {
    /// Combines the reason with a sentence.
    pub fn why(self, text: impl Into<String>) -> Why {
        Why { name: self.name().to_owned(), text: text.into() }
    }

    /// Returns the reason with this name, if there is one.
    pub fn of(why: &Why) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.name() == why.name)
    }
}
