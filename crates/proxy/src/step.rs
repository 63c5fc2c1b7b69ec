//! A `proxy` step, shared by all workers.

use crate::forward::{LOOP_MARK_START, SentFields, original_client, unkeyed_fields};
use crate::rules::CacheStep;
use crate::sticky::StickyCookie;
use crate::versions::{LengthNeed, OriginVersions};
use flatout_balance::group::{Change, Group, OriginStatus, Preference};
use flatout_balance::limit::{Arrival, ConcurrencyLimiter, LimiterStatus};
use flatout_config::model::{Balance, HashKey, Proxy, TrustedProxy, is_trusted};
use flatout_http::forwarded::Sender;
use flatout_http::head::Fields;
use flatout_http::url::OriginAddress;
use flatout_net::tls::ClientTlsError;
use flatout_os::random;
use flatout_store::key::begin_key;
use flatout_upstream::events::OriginState;
use flatout_upstream::failing::FailureSeries;
use flatout_upstream::origin::{OriginSettings, OriginTls, OriginTlsSettings};
use flatout_upstream::spool::Spools;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Maximum number of bytes of request content that one step buffers, over all workers.
const SPOOL_TOTAL_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// A `proxy` step of the configuration.
#[derive(derive_more::Debug)]
#[debug("ProxyStep {{ realm: {realm:?}, settings: {settings:?}, .. }}")]
pub struct ProxyStep {
    /// Unique ID within the process.
    pub(crate) id: u64,
    name: Box<str>,
    realm: Box<str>,
    pub(crate) settings: Proxy,
    /// Fields whose forwarded value is not part of any key. A response whose Vary names one of them is not stored.
    unkeyed: Box<[Box<str>]>,
    pub(crate) group: Arc<Group>,
    /// Concurrency limiter of each origin, by index.
    pub(crate) limiters: Vec<Arc<ConcurrencyLimiter>>,
    /// Failed attempts since each origin last answered, by index.
    pub(crate) failures: Vec<FailureSeries>,
    pub(crate) addresses: Vec<OriginAddress>,
    pub(crate) tls: Option<Arc<OriginTls>>,
    /// The element by which this step recognises its requests in CDN-Loop. It is random, so that servers with the same
    /// configuration can be chained.
    pub(crate) loop_mark: Box<str>,
    /// The cookie for session affinity, if it is configured.
    pub(crate) sticky: Option<StickyCookie>,
    /// The HTTP versions that the origins' responses have shown.
    pub(crate) versions: OriginVersions,
    /// Where request content is buffered.
    pub(crate) spools: Arc<Spools>,
    /// True if a worker has started the health checks.
    pub(crate) is_watched: AtomicBool,
}

/// State of an origin, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginStanding {
    /// The origin's URL.
    pub address: String,
    /// True if requests may be sent to the origin.
    pub is_available: bool,
    /// Description of the origin's health and load.
    pub text: String,
    /// The origin's load.
    pub load: Option<LimiterStatus>,
}

impl ProxyStep {
    /// Returns how much the origins to which a request with this preference may be sent now need the length of its
    /// content.
    pub(crate) fn length_need(&self, now_ms: u64, preference: Preference) -> LengthNeed {
        // Usually, all origins have responded, and none speaks HTTP/1.0.
        if self.versions.accept_chunks() {
            return LengthNeed::None;
        }
        self.versions.length_need(&self.group.selectable(now_ms, preference))
    }

    /// Returns the clients whose Forwarded and X-Forwarded-… fields are trusted.
    pub fn trusted(&self) -> &[TrustedProxy] {
        &self.settings.trusted
    }

    /// Creates the step from `settings`. `name` is unique among all steps, for display. `realm` is that of its stored
    /// responses (see [`crate::realm`]), which steps with the same deciding settings in the same site share.
    ///
    /// # Errors
    /// Returns a description of the problem, and its remedy.
    pub fn new(name: &str, realm: &str, settings: &Proxy) -> Result<Self, (String, String)> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        if settings.origins.is_empty() {
            return Err(("there is no origin".to_owned(), "add one: proxy \"http://127.0.0.1:3000\"".to_owned()));
        }
        let secure = settings.origins.iter().any(|origin| origin.secure);
        let tls = if secure { Some(load_tls(settings)?) } else { None };
        let addresses: Vec<OriginAddress> = settings
            .origins
            .iter()
            .map(|origin| OriginAddress::new(origin.secure, &origin.host, origin.port))
            .collect();
        let sticky = settings.sticky.as_ref();
        Ok(Self {
            sticky: sticky.map(|sticky| StickyCookie::new(sticky, site_of(name), &addresses)),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            name: name.into(),
            realm: realm.into(),
            group: Arc::new(Group::new(settings)),
            limiters: settings.origins.iter().map(|_| ConcurrencyLimiter::new(&settings.concurrency)).collect(),
            failures: settings.origins.iter().map(|_| FailureSeries::default()).collect(),
            addresses,
            tls,
            loop_mark: new_loop_mark().into(),
            versions: OriginVersions::new(settings.origins.len(), settings.http2),
            spools: Spools::new(SPOOL_TOTAL_BYTES_MAX, SPOOL_TOTAL_BYTES_MAX, Some(std::env::temp_dir())),
            is_watched: AtomicBool::new(false),
            unkeyed: unkeyed_fields(settings),
            settings: settings.clone(),
        })
    }

    /// Returns whether the step has this name, this realm and these `settings`.
    pub fn is(&self, name: &str, realm: &str, settings: &Proxy) -> bool {
        *self.name == *name && *self.realm == *realm && self.settings == *settings
    }

    /// Returns the address of the client that sent a request with these `fields`: `peer`, or the client that the fields
    /// name if the peer is a trusted proxy. `None` if the address is unknown.
    pub(crate) fn original_client(&self, fields: Fields<'_>, peer: Sender) -> Option<IpAddr> {
        original_client(&self.settings.trusted, fields, peer)
    }

    /// Calls `handle` with `fields`, those of a request, without the cookie for session affinity, as the cache and the
    /// origins see them.
    pub fn without_sticky<T>(&self, fields: Fields<'_>, handle: impl FnOnce(Fields<'_>) -> T) -> T {
        match &self.sticky {
            Some(sticky) => sticky.without(fields, handle),
            None => handle(fields),
        }
    }

    /// Returns how fields in requests from this peer are forwarded.
    pub fn forwarding(&self, peer: Sender) -> SentFields<'_> {
        SentFields::new(&self.unkeyed, &self.settings, peer)
    }

    /// Returns the step's name for display: the site's first host name, with a number unless the step is the first of
    /// this name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the site's first host name, or `None` if it has a wildcard.
    pub(crate) fn site_host(&self) -> Option<&str> {
        let host = site_of(&self.name);
        (!host.is_empty() && !host.contains('*')).then_some(host)
    }

    /// Returns the realm of responses that are stored by the rules of `cache`.
    pub fn realm_with(&self, cache: &CacheStep) -> String {
        format!("{}{}", self.realm, cache.realm)
    }

    /// Returns whether `realm` is that of the step's responses, by the rules of any `cache`.
    pub fn has_realm(&self, realm: &[u8]) -> bool {
        realm.strip_prefix(self.realm.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"+"))
    }

    /// Appends the beginning of a key in the realm of the step and `cache` to `output`.
    pub(crate) fn begin_key(&self, cache: &CacheStep, output: &mut Vec<u8>) {
        output.extend_from_slice(self.realm.as_bytes());
        begin_key(&cache.realm, output);
    }

    /// Returns whether any origin has a host name, which requires DNS.
    pub fn asks_by_name(&self) -> bool {
        self.addresses.iter().any(|address| address.ip().is_none())
    }

    /// Returns the origins' URLs, separated by commas.
    pub fn describe(&self) -> String {
        let origins: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        origins.join(", ")
    }

    /// Returns a description of the balancing policy, or `None` if there is only one origin.
    pub fn describe_balance(&self) -> Option<String> {
        if self.settings.origins.len() < 2 {
            return None;
        }
        let policy = match &self.settings.balance {
            Balance::LeastConnections => {
                "the origin with the fewest requests in progress relative to its weight".to_owned()
            }
            Balance::RoundRobin => "each origin in turn, according to its weight".to_owned(),
            Balance::ConsistentHash(key) => {
                let by = match key {
                    HashKey::Uri => "host, path and query".to_owned(),
                    HashKey::Client => "the client's address".to_owned(),
                    HashKey::Header(name) => format!("the field {name}"),
                    HashKey::Cookie(name) => format!("the cookie {name}"),
                };
                format!("the same origin for the same {by}")
            }
        };
        Some(match &self.sticky {
            Some(sticky) => format!("the origin named by the cookie {}; for other clients, {policy}", sticky.name()),
            None => policy,
        })
    }

    /// Describes a request for the concurrency limit of an origin.
    pub(crate) fn arrival<'a>(&self, path: &'a [u8], client: Option<IpAddr>, now_ms: u64) -> Arrival<'a> {
        // All clients behind a proxy that does not name them would share its address.
        let client = client.filter(|client| !is_trusted(self.trusted(), Sender::Ip(*client)));
        Arrival::new(path, client, now_ms)
    }

    /// Returns the state of each origin.
    pub fn standings(&self) -> Vec<OriginStanding> {
        let now_ms = flatout_os::clock::Now::read().monotonic_ms;
        let describe = |(index, address): (usize, &OriginAddress)| {
            let standing = self.group.standing(index, now_ms);
            let is_available = !matches!(standing, Some(OriginStatus::PausedUntil(_) | OriginStatus::Down));
            let failing = self.failures.get(index).and_then(|series| series.describe(now_ms));
            let standing = match standing {
                None => "unknown".to_owned(),
                Some(standing) => match standing {
                    // It gets all requests until enough of them have failed.
                    OriginStatus::Well if failing.is_some() => "in rotation".to_owned(),
                    OriginStatus::Well => "healthy".to_owned(),
                    OriginStatus::Starting(thousandths) => {
                        format!("recovering, with {} % of its full share", thousandths / 10)
                    }
                    // It is selected all the same.
                    OriginStatus::PausedUntil(_) | OriginStatus::Trial if self.addresses.len() == 1 => {
                        "failing, but still gets all requests, because there is no other".to_owned()
                    }
                    OriginStatus::PausedUntil(until_ms) => {
                        format!("paused for another {} ms, because requests failed", until_ms.saturating_sub(now_ms))
                    }
                    OriginStatus::Trial => "on trial after a pause".to_owned(),
                    OriginStatus::Down => "down: its health checks fail".to_owned(),
                },
            };
            let standing = failing.map_or(standing.clone(), |failing| format!("{standing}, {failing}"));
            let load = self.limiters.get(index).map(|limiter| limiter.status());
            let text = match &load {
                Some(load) => format!("{standing}, {load}"),
                None => standing,
            };
            OriginStanding { address: address.to_string(), is_available, text, load }
        };
        self.addresses.iter().enumerate().map(describe).collect()
    }

    /// Returns the time without a response head after which an attempt to fetch a response hangs, in milliseconds: half
    /// of the head timeout.
    pub(crate) fn hang_ms(&self) -> u64 {
        (self.settings.timeouts.head_timeout_ms / 2).max(1)
    }

    /// Returns the states of the origins of which operators are notified.
    pub fn origin_states(&self) -> Vec<OriginState> {
        let now_ms = flatout_os::clock::Now::read().monotonic_ms;
        let read = |(index, address): (usize, &OriginAddress)| OriginState {
            server: name_origin(address),
            route: self.id,
            is_only: self.addresses.len() == 1,
            fault: match self.group.standing(index, now_ms) {
                Some(OriginStatus::Down) => Some(Change::ChecksFailed),
                Some(OriginStatus::PausedUntil(_) | OriginStatus::Trial) => Some(Change::Paused),
                Some(OriginStatus::Well | OriginStatus::Starting(_)) | None => None,
            },
            limited: self.limiters.get(index).map(|limiter| limiter.status()).filter(LimiterStatus::is_limited),
        };
        self.addresses.iter().enumerate().map(read).collect()
    }

    /// Returns the settings for connections to the origins.
    pub(crate) fn client_settings(&self) -> OriginSettings {
        let timeouts = &self.settings.timeouts;
        OriginSettings {
            connect_timeout_ms: timeouts.connect_timeout_ms,
            head_timeout_ms: timeouts.head_timeout_ms,
            body_timeout_ms: timeouts.body_timeout_ms,
            stream_timeout_ms: timeouts.stream_timeout_ms,
            idle_timeout_ms: timeouts.idle_timeout_ms,
            idle_connections_max: self.settings.idle_connections_max,
            http2: self.settings.http2,
            unknown_codings: self.settings.unknown_codings,
            proxy_protocol: self.settings.proxy_protocol,
            ..OriginSettings::default()
        }
    }
}

/// Returns the name of the origin at `address` in lines for operators.
pub(crate) fn name_origin(address: &OriginAddress) -> String {
    format!("origin {address}")
}

/// Returns the host name in the name of a step.
fn site_of(name: &str) -> &str {
    name.split('#').next().unwrap_or_default()
}

fn load_tls(settings: &Proxy) -> Result<Arc<OriginTls>, (String, String)> {
    let asked = OriginTlsSettings {
        insecure: settings.tls.insecure,
        authorities: settings.tls.authorities.clone(),
        server_name: settings.tls.server_name.clone(),
    };
    OriginTls::load(&asked).map_err(|error| match error {
        ClientTlsError::Unreadable(path, error) => (
            format!("the certificate authorities in {} cannot be read: {error}", path.display()),
            "use a PEM file that is readable by the user that starts flatout".to_owned(),
        ),
        ClientTlsError::NoAuthority(path) => (
            format!("{} contains no PEM certificate", path.display()),
            "use the file with the authority's certificate, not its key".to_owned(),
        ),
        ClientTlsError::NoSystemAuthority => (
            "this system has no CA certificates, so no https origin can be verified".to_owned(),
            "install the package ca-certificates, or specify a file: tls ca=\"ca.pem\"".to_owned(),
        ),
        ClientTlsError::ServerName(name) => {
            (format!("`{name}` is not a host name"), "use the name in the origin's certificate".to_owned())
        }
        ClientTlsError::Internal(error) => {
            (format!("TLS cannot be set up: {error}"), "this is a bug in flatout or the system".to_owned())
        }
    })
}

/// Returns a new element for CDN-Loop, such as `flatout;id=0123456789abcdef`.
fn new_loop_mark() -> String {
    // Without random bytes, chained servers would have the same mark, and a loop would still be detected.
    let number = u64::from_le_bytes(random::bytes().unwrap_or_default());
    format!("{LOOP_MARK_START}{number:016x}")
}

#[cfg(test)]
mod tests {
    use super::ProxyStep;
    use crate::versions::LengthNeed;
    use flatout_balance::group::{Ending, Preference, Tried};
    use flatout_config::model::{Cidr, Origin, Proxy, TrustedProxy};
    use flatout_http::forwarded::Sender;
    use flatout_http::framing::Version;
    use flatout_http::head::FieldStorage;

    #[test]
    fn a_length_is_needed_by_the_origins_that_can_be_selected() {
        use LengthNeed::{Certain, None, Possible};
        let origin = |port, backup| Origin { secure: false, host: "a".to_owned(), port, weight: 1, backup };
        let origins = vec![origin(80, false), origin(81, false), origin(82, true)];
        let settings = Proxy { origins, ..Proxy::default() };
        let step = ProxyStep::new("a", "a", &Proxy { http2: true, ..settings.clone() }).unwrap();
        assert_eq!(step.length_need(0, Preference::NONE), None, "never HTTP/1.0");
        let step = ProxyStep::new("a", "a", &settings).unwrap();
        assert_eq!(step.length_need(0, Preference::NONE), Possible, "no response");
        step.versions.note(0, Version::Http10, 200);
        assert_eq!(step.length_need(0, Preference::NONE), Possible, "the other has not responded");
        // The backup, which has not responded either, gets no requests as long as others are available.
        step.versions.note(1, Version::Http10, 200);
        assert_eq!(step.length_need(0, Preference::NONE), Certain);
        step.versions.note(1, Version::Http11, 200);
        assert_eq!(step.length_need(0, Preference::NONE), Possible, "a group of both kinds");
        let session = |index| Preference { key_hash: Option::None, origin: Some(index) };
        assert_eq!([0, 1].map(|index| step.length_need(0, session(index))), [Certain, None]);
        // The second origin is paused, so only the first one can be selected.
        let mut tried = Tried::NONE;
        tried.add(0);
        for _ in 0..step.settings.passive.failures {
            let _ = step.group.choose(0, Preference::NONE, &tried).unwrap().finish(Ending::Failed, 0);
        }
        assert_eq!(step.length_need(0, Preference::NONE), Certain);
        assert_eq!(step.length_need(step.settings.passive.pause_ms, Preference::NONE), Possible);
        step.versions.note(0, Version::Http11, 200);
        assert_eq!(step.length_need(0, Preference::NONE), None);
    }

    /// A single origin gets all requests even during its pause, and its status must not say otherwise.
    #[test]
    fn the_status_of_a_failing_origin_says_whether_it_still_gets_requests() {
        let origin = |port| Origin { secure: false, host: "a".to_owned(), port, weight: 1, backup: false };
        for (origins, expected) in [
            (vec![origin(80)], "failing, but still gets all requests, because there is no other"),
            (vec![origin(80), origin(81)], "paused for another "),
        ] {
            let mut settings = Proxy { origins, ..Proxy::default() };
            settings.passive.pause_ms = 3_600_000;
            let step = ProxyStep::new("a", "a", &settings).unwrap();
            let now_ms = flatout_os::clock::Now::read().monotonic_ms;
            let first = Preference { key_hash: None, origin: Some(0) };
            for _ in 0..step.settings.passive.failures {
                let _ = step.group.choose(now_ms, first, &Tried::NONE).unwrap().finish(Ending::Failed, now_ms);
            }
            let text = step.standings()[0].text.clone();
            assert!(text.starts_with(expected), "{text}");
        }
    }

    #[test]
    fn the_original_client_is_the_peer_unless_it_is_a_trusted_proxy() {
        let origin = Origin { secure: false, host: "a".to_owned(), port: 80, weight: 1, backup: false };
        let trusted = vec![Cidr { address: "127.0.0.0".parse().unwrap(), bits: 8 }.into(), TrustedProxy::Unix];
        let step = ProxyStep::new("a", "a", &Proxy { origins: vec![origin], trusted, ..Proxy::default() }).unwrap();
        for (peer, forwarded_for, expected) in [
            ("127.0.0.1", "", Some("127.0.0.1")),
            ("127.0.0.1", "192.0.2.7", Some("192.0.2.7")),
            // The client has sent the first address itself.
            ("127.0.0.1", "127.0.0.1, 192.0.2.7", Some("192.0.2.7")),
            ("127.0.0.1", "unknown", None),
            ("192.0.2.7", "127.0.0.1", Some("192.0.2.7")),
            ("unix", "", None),
            ("unix", "192.0.2.7", Some("192.0.2.7")),
            // A client that another proxy hides.
            ("unknown", "192.0.2.7", None),
        ] {
            let mut storage = FieldStorage::new();
            let line = ("x-forwarded-for", forwarded_for.as_bytes());
            let count = usize::from(!forwarded_for.is_empty());
            let fields = storage.fill([line].into_iter().take(count), count);
            let peer_of = |text: &str| match text {
                "unix" => Sender::Unix,
                "unknown" => Sender::Unknown,
                address => Sender::Ip(address.parse().unwrap()),
            };
            let client = step.original_client(fields, peer_of(peer));
            assert_eq!(client.map(|client| client.to_string()).as_deref(), expected, "{peer} for {forwarded_for}");
        }
    }
}
