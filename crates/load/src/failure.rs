//! Failure kinds: one table for records, text and JSON.
//!
//! The first eight names are httperf's, so that reports can be compared; the rest distinguish failures that httperf
//! does not. Each failed request has exactly one kind.

flatout_reason::reasons! {
    /// The reason a request failed.
    #[derive(PartialOrd, Ord)]
    pub enum FailureKind { name, text, }
    ClientTimo,  "client-timo",  "no complete answer within the request timeout";
    SocketTimo,  "socket-timo",  "the kernel gave up waiting for the peer";
    ConnRefused, "connrefused",  "nothing listens at the address";
    ConnReset,   "connreset",    "the peer reset the connection";
    FdUnavail,   "fd-unavail",   "this process has no free file descriptor (raise ulimit -n)";
    AddrUnavail, "addrunavail",  "no free local port (or source address) was left";
    FtabFull,    "ftab-full",    "the system's file table is full";
    Other,       "other",        "an error of the system that has no name of its own here";
    ShortBody,   "short-body",   "the body ended before its declared length";
    BadResponse, "bad-response", "what came back is not an HTTP response";
    ClosedEarly, "closed-early", "the connection ended before a whole response head";
    WrongBody,   "wrong-body",   "the body was whole and not the one it should be";
    Tls,         "tls",          "no TLS session could be made";
    Http2,       "http2",        "the server does not speak HTTP/2, or ended a stream or a connection with an error of it";
    Abandoned,   "abandoned",    "the run was interrupted twice while the answer was under way";
}

impl FailureKind {
    /// Number of kinds.
    pub const COUNT: usize = Self::ALL.len();

    /// Index in [`FailureKind::ALL`], for arrays of counters.
    pub const fn index(self) -> usize {
        self as usize
    }
}

crate::by_name! { FailureKind, "failure" }

#[cfg(test)]
mod tests {
    use super::FailureKind;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_indexes_match_the_table() {
        let names: BTreeSet<_> = FailureKind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), FailureKind::COUNT);
        for (position, kind) in FailureKind::ALL.iter().enumerate() {
            assert_eq!(kind.index(), position);
            assert!(!kind.text().is_empty());
        }
    }
}
