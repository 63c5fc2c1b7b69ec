//! Notice of a proxy in front of this server that no setting trusts, so that all its clients appear to be one.
//!
//! Each worker looks at one request per second at most. All other requests cost a comparison.

use flatout_handler::Request;
use flatout_http::head::Fields;
use std::cell::Cell;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

/// Interval between two samples of a worker, in milliseconds.
const SAMPLE_INTERVAL_MS: u64 = 1_000;

/// How long all samples must have come from one peer, in milliseconds.
const SERIES_MS: u64 = 60_000;

/// Number of samples in a series that must name a client. The others may be health checks.
const NAMING_MIN: u32 = 10;

/// The proxy that no setting trusts, found by any worker of the process.
pub struct UntrustedProxy {
    peer: OnceLock<IpAddr>,
    on_found: Box<dyn Fn(IpAddr) + Send + Sync>,
}

impl UntrustedProxy {
    /// `on_found` is called with the proxy's address when it is found, once, by a worker, so it must not block.
    pub fn new(on_found: impl Fn(IpAddr) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { peer: OnceLock::new(), on_found: Box::new(on_found) })
    }

    /// Records that `peer` is such a proxy, unless one is known.
    pub fn report(&self, peer: IpAddr) {
        if self.peer.set(peer).is_ok() {
            (self.on_found)(peer);
        }
    }

    /// Returns the proxy's address, if one was found.
    pub fn peer(&self) -> Option<IpAddr> {
        self.peer.get().copied()
    }
}

/// Successive samples that came from one peer.
#[derive(Clone, Copy, Default)]
struct Series {
    peer: Option<IpAddr>,
    began_ms: u64,
    /// Number of samples that named a client.
    naming: u32,
}

/// The samples of one worker.
pub(crate) struct UntrustedProxyWatch {
    found: Option<Arc<UntrustedProxy>>,
    /// When the next sample is due, in milliseconds on the monotonic clock.
    due_ms: Cell<u64>,
    series: Cell<Series>,
}

impl UntrustedProxyWatch {
    /// Without `found`, takes no samples.
    pub(crate) fn new(found: Option<Arc<UntrustedProxy>>) -> Self {
        let due_ms = if found.is_some() { 0 } else { u64::MAX };
        Self { found, due_ms: Cell::new(due_ms), series: Cell::default() }
    }

    /// Returns whether a sample is due.
    #[inline]
    pub(crate) fn is_due(&self, now_ms: u64) -> bool {
        now_ms >= self.due_ms.get()
    }

    /// Samples `request`. `trusts` returns whether any setting trusts an address as a proxy.
    #[cold]
    pub(crate) fn sample(&self, request: &Request<'_>, now_ms: u64, trusts: impl FnOnce(IpAddr) -> bool) {
        let Some(found) = self.found.as_ref().filter(|found| found.peer().is_none()) else {
            self.due_ms.set(u64::MAX);
            return;
        };
        self.due_ms.set(now_ms + SAMPLE_INTERVAL_MS);
        let Some(peer) = request.client.map(|client| client.ip().to_canonical()) else { return };
        let mut series = self.series.get();
        if series.peer != Some(peer) {
            series = Series { peer: Some(peer), began_ms: now_ms, naming: 0 };
        }
        series.naming = series.naming.saturating_add(u32::from(names_client(request.head.fields)));
        self.series.set(series);
        let is_long = now_ms.saturating_sub(series.began_ms) >= SERIES_MS && series.naming >= NAMING_MIN;
        if is_long && is_private(peer) && !trusts(peer) {
            found.report(peer);
        }
    }
}

/// Returns whether the fields name a client, as those of a proxy do.
fn names_client(fields: Fields<'_>) -> bool {
    ["x-forwarded-for", "forwarded"].iter().any(|name| fields.all(name).next().is_some())
}

/// Returns whether an address cannot be that of a client on the Internet.
const fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            // Addresses between a provider's network and its customers (RFC 6598).
            let is_shared = first == 100 && second & 0xc0 == 64;
            address.is_private() || address.is_loopback() || address.is_link_local() || is_shared
        }
        IpAddr::V6(address) => address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::{UntrustedProxy, UntrustedProxyWatch};
    use crate::engine::tests::{Tester, compile, config, site};
    use flatout_config::model::ProxySenders;
    use flatout_handler::Request;
    use flatout_handler::content::Offers;
    use flatout_http::head::FieldStorage;
    use flatout_http::limits::Limits;
    use flatout_http::request::parse_request_head;
    use std::net::IpAddr;
    use std::sync::{Arc, Mutex};

    type Reports = Arc<Mutex<Vec<IpAddr>>>;

    fn found() -> (Reports, Arc<UntrustedProxy>) {
        let reports = Reports::default();
        let log = Arc::clone(&reports);
        (reports, UntrustedProxy::new(move |peer| log.lock().unwrap().push(peer)))
    }

    /// Handles a request from `peer` with `field` at `now_ms`, as an engine does that trusts 10.9.0.1.
    fn handle(watch: &UntrustedProxyWatch, peer: &str, field: &str, now_ms: u64) {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n");
        let mut storage = FieldStorage::new();
        let head = parse_request_head(text.as_bytes(), &Limits::DEFAULT, &mut storage).unwrap().unwrap();
        let client = Some((peer.parse::<IpAddr>().unwrap(), 5).into());
        let request = Request { head: &head, client, unix: false, secure: false, listener: 0, offers: &Offers::new() };
        if watch.is_due(now_ms) {
            watch.sample(&request, now_ms, |peer| peer.to_string() == "10.9.0.1");
        }
    }

    const NAMED: &str = "X-Forwarded-For: 192.0.2.1\r\n";

    /// Returns whether requests every 100 ms until `end_ms` have a proxy reported. `request` returns the peer and the
    /// field of the request at a time.
    fn reports(end_ms: u64, request: impl Fn(u64) -> (&'static str, &'static str)) -> bool {
        let (reports, found) = found();
        let watch = UntrustedProxyWatch::new(Some(found));
        for now_ms in (1_000..=1_000 + end_ms).step_by(100) {
            let (peer, field) = request(now_ms);
            handle(&watch, peer, field, now_ms);
        }
        let count = reports.lock().unwrap().len();
        assert!(count <= 1);
        count == 1
    }

    #[test]
    fn a_private_peer_that_names_clients_for_a_minute_is_reported_once() {
        for peer in ["10.0.0.1", "127.0.0.1", "::1", "fd00::1", "::ffff:192.168.0.1", "100.64.0.1"] {
            assert!(reports(200_000, |_| (peer, NAMED)), "{peer}");
        }
        assert!(reports(60_000, |_| ("10.0.0.1", "Forwarded: for=192.0.2.1\r\n")));
        assert!(!reports(59_000, |_| ("10.0.0.1", NAMED)));
        // A health check in every second sample.
        assert!(reports(60_000, |now_ms| ("10.0.0.1", if now_ms / 1_000 % 2 == 0 { NAMED } else { "" })));
    }

    #[test]
    fn nothing_else_is_reported() {
        assert!(!reports(200_000, |_| ("203.0.113.1", NAMED)));
        assert!(!reports(200_000, |_| ("10.9.0.1", NAMED)));
        assert!(!reports(200_000, |_| ("10.0.0.1", "")));
        assert!(!reports(200_000, |_| ("10.0.0.1", "X-Forwarded-Host: a\r\n")));
        assert!(!reports(200_000, |now_ms| (if now_ms % 30_000 < 1_000 { "10.0.0.2" } else { "10.0.0.1" }, NAMED)));
        // Nine samples name a client, and the rest are health checks.
        assert!(!reports(200_000, |now_ms| ("10.0.0.1", if now_ms < 10_000 { NAMED } else { "" })));
    }

    #[test]
    fn workers_report_one_proxy_together_and_then_take_no_samples() {
        let (reports, found) = found();
        let watches = [0, 1].map(|_| UntrustedProxyWatch::new(Some(Arc::clone(&found))));
        for now_ms in (0..=61_000).step_by(1_000) {
            for watch in &watches {
                handle(watch, "10.0.0.1", NAMED, now_ms);
            }
        }
        assert_eq!(*reports.lock().unwrap(), ["10.0.0.1".parse::<IpAddr>().unwrap()]);
        assert_eq!(found.peer(), Some("10.0.0.1".parse().unwrap()));
        assert!(watches.iter().all(|watch| !watch.is_due(u64::MAX - 1)));
        assert!(!UntrustedProxyWatch::new(None).is_due(u64::MAX - 1));
    }

    #[test]
    fn clients_that_a_proxy_header_names_are_not_reported() {
        for senders in [None, Some(ProxySenders::All)] {
            let mut config = config(vec![site(&["*"], Vec::new())]);
            config.listeners[0].proxy_protocol.clone_from(&senders);
            let (reports, found) = found();
            let mut tester = Tester::new(compile(&config));
            tester.engine = tester.engine.reporting_untrusted_proxy(found);
            tester.client = "10.0.0.1:5".parse().unwrap();
            for _ in 0..=61 {
                tester.get("/", &["X-Forwarded-For: 192.0.2.1"]);
                tester.now.monotonic_ms += 1_000;
            }
            assert_eq!(reports.lock().unwrap().len(), usize::from(senders.is_none()));
        }
    }
}
