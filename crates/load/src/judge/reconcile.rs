//! Comparison of the client's request counts with the server's own.

use serde::{Deserialize, Serialize};

/// The server's counts for this run's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerCounts {
    /// The source of the counts, in words for users.
    pub source: String,
    /// Number of responses by status, in ascending order of status.
    pub by_status: Vec<(u16, u64)>,
    /// Total number of requests.
    pub requests: u64,
}

/// The counts of client and server, to be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reconciliation {
    /// The server's counts.
    pub server: ServerCounts,
    /// The client's responses by status class, 1xx to 5xx, including warm-up.
    pub client_classes: [u64; 5],
    /// Requests of the client that failed after they were started. The server may or may not have counted them.
    pub uncertain: u64,
    /// Number of times that a request was sent again. The server may have counted the earlier attempt too.
    #[serde(default)]
    pub sent_again: u64,
    /// Total number of the client's requests, including warm-up.
    pub client_requests: u64,
}

impl Reconciliation {
    /// Returns all differences as text; empty if the counts agree.
    ///
    /// The server may have counted a failed request, or an attempt before a request was sent again, under any status or
    /// not at all. So the server's count in each status class must be at least the client's, and the total excess must
    /// not exceed the number of uncertain requests and of attempts.
    pub fn differences(&self) -> Vec<String> {
        let mut differences = Vec::new();
        let mut uncertain = self.uncertain.saturating_add(self.sent_again);
        if !self.server.by_status.is_empty() {
            for (class, client) in self.client_classes.iter().enumerate().skip(1) {
                let of_class = |(status, _): &&(u16, u64)| usize::from(status / 100) == class + 1;
                let server: u64 = self.server.by_status.iter().filter(of_class).map(|(_, count)| count).sum();
                let more = server.saturating_sub(*client);
                if server < *client || more > uncertain {
                    let class = class + 1;
                    differences.push(format!("{class}xx: the server counted {server}, the client {client}"));
                }
                uncertain = uncertain.saturating_sub(more);
            }
        }
        let certain = self.client_requests.saturating_sub(self.uncertain);
        let attempts = self.client_requests.saturating_add(self.sent_again);
        if !(certain..=attempts).contains(&self.server.requests) {
            let (server, client) = (self.server.requests, self.client_requests);
            let failed = match self.uncertain {
                0 => String::new(),
                uncertain => format!(", of which {uncertain} failed in transit"),
            };
            let again = match self.sent_again {
                0 => String::new(),
                again => format!(", and {again} sent again"),
            };
            differences.push(format!("requests: the server counted {server}, the client {client}{failed}{again}"));
        }
        differences
    }
}

#[cfg(test)]
mod tests {
    use super::{Reconciliation, ServerCounts};

    fn differences(by_status: &[(u16, u64)], requests: u64, classes: [u64; 5], uncertain: u64) -> Vec<String> {
        let server = ServerCounts { source: "a log".to_owned(), by_status: by_status.to_vec(), requests };
        let client_requests = classes[1..].iter().sum::<u64>() + uncertain;
        let sent_again = 0;
        Reconciliation { server, client_classes: classes, uncertain, sent_again, client_requests }.differences()
    }

    #[test]
    fn counts_that_agree_do() {
        assert_eq!(differences(&[(200, 90), (206, 5), (404, 5)], 100, [7, 95, 0, 5, 0], 0), Vec::<String>::new());
        assert_eq!(differences(&[], 100, [0, 95, 0, 5, 0], 0), Vec::<String>::new());
    }

    #[test]
    fn requests_that_failed_may_have_been_counted_or_not() {
        for counted in 0..=3 {
            let by_status = [(200, 10 + counted)];
            assert_eq!(differences(&by_status, 10 + counted, [0, 10, 0, 0, 0], 3), Vec::<String>::new());
        }
        assert_eq!(differences(&[(200, 11), (499, 2)], 13, [0, 10, 0, 0, 0], 3), Vec::<String>::new());
        assert_eq!(differences(&[(200, 12), (499, 2)], 14, [0, 10, 0, 0, 0], 3).len(), 2);
    }

    #[test]
    fn earlier_attempts_of_requests_may_have_been_counted_or_not() {
        let of = |by_status: &[(u16, u64)], uncertain| {
            let requests = by_status.iter().map(|(_, count)| count).sum();
            let server = ServerCounts { source: "a log".to_owned(), by_status: by_status.to_vec(), requests };
            let (client_classes, client_requests) = ([0, 10, 0, 0, 0], 10 + uncertain);
            Reconciliation { server, client_classes, uncertain, sent_again: 2, client_requests }.differences()
        };
        for by_status in [&[(200, 10)][..], &[(200, 12)], &[(200, 10), (499, 2)]] {
            assert_eq!(of(by_status, 0), Vec::<String>::new());
        }
        assert_eq!(of(&[(200, 11), (499, 2)], 1), Vec::<String>::new());
        assert_eq!(of(&[(200, 9)], 0).len(), 2);
        let requests = "requests: the server counted 13, the client 10, and 2 sent again";
        assert_eq!(of(&[(200, 13)], 0), ["2xx: the server counted 13, the client 10", requests]);
    }

    #[test]
    fn every_difference_is_told() {
        assert_eq!(
            differences(&[(200, 94), (500, 1)], 95, [0, 95, 0, 0, 0], 0),
            ["2xx: the server counted 94, the client 95", "5xx: the server counted 1, the client 0"]
        );
        assert_eq!(
            differences(&[], 120, [0, 95, 0, 0, 0], 5),
            ["requests: the server counted 120, the client 100, of which 5 failed in transit"]
        );
    }
}
