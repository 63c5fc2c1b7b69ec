//! Failure kinds: one table of names and texts, used by records, text output and JSON.
//!
//! The first eight names are httperf's, so that reports can be compared; the rest distinguish failures that httperf
//! does not. Each failed request has exactly one kind.

flatout_reason::reasons! {
    /// The reason a request failed.
    #[derive(PartialOrd, Ord)]
    pub enum FailureKind { name, text, }
    ClientTimo,  "client-timo",  "the response was not complete within the request timeout";
    SocketTimo,  "socket-timo",  "the connection timed out in the kernel";
    ConnRefused, "connrefused",  "nothing listens at the address";
    ConnReset,   "connreset",    "the peer reset the connection";
    FdUnavail,   "fd-unavail",   "this process has no free file descriptor (raise ulimit -n)";
    AddrUnavail, "addrunavail",  "no local port or source address was free";
    FtabFull,    "ftab-full",    "the system's file table is full";
    Other,       "other",        "another system error";
    ShortBody,   "short-body",   "the body was cut: the connection closed before the end of the body";
    BadResponse, "bad-response", "the received data is not an HTTP response";
    ClosedEarly, "closed-early", "the connection closed before the response head was complete";
    WrongBody,   "wrong-body",   "the body was complete but not the expected one";
    Tls,         "tls",          "no TLS session could be established";
    Http2,       "http2",        "the server does not support HTTP/2, or ended a stream or connection with an HTTP/2 error";
    Http3,       "http3",        "the server does not support HTTP/3, or ended a stream or connection with an HTTP/3 error";
    Quic,        "quic",         "no QUIC connection could be established, or it was lost";
    Abandoned,   "abandoned",    "the run was interrupted twice while the request was in progress";
}

impl FailureKind {
    /// Number of failure kinds.
    pub const COUNT: usize = Self::ALL.len();

    /// Position in [`FailureKind::ALL`], for indexing arrays of counters.
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
