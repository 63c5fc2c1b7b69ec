//! A `proxy` step, shared by all workers.

use crate::forward::{SentFields, unkeyed_fields};
use flatout_balance::group::{Group, OriginStatus};
use flatout_balance::limit::ConcurrencyLimiter;
use flatout_config::model::{Balance, HashKey, Proxy};
use flatout_http::url::OriginAddress;
use flatout_net::tls::ClientTlsError;
use flatout_upstream::origin::{OriginSettings, OriginTls, OriginTlsSettings};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Maximum bytes of a realm: enough for a host name and a number.
const REALM_BYTES_MAX: usize = 512;

/// One `proxy` step.
pub struct ProxyStep {
    /// Unique ID within the process.
    pub(crate) id: u64,
    pub(crate) realm: Box<str>,
    pub(crate) settings: Proxy,
    /// Fields that Vary must not name in a shared response.
    unkeyed: Box<[Box<str>]>,
    pub(crate) group: Arc<Group>,
    /// Concurrency limiter of each origin, by index.
    pub(crate) limiters: Vec<Arc<ConcurrencyLimiter>>,
    pub(crate) addresses: Vec<OriginAddress>,
    pub(crate) tls: Option<Arc<OriginTls>>,
    /// True if a worker performs the health checks.
    pub(crate) is_watched: AtomicBool,
}

/// State of an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginStanding {
    /// Its URL.
    pub address: String,
    /// True if it receives requests.
    pub is_available: bool,
    /// Health and load as text.
    pub text: String,
}

impl ProxyStep {
    /// Creates the step from `settings`. `realm` separates its stored responses from others; it stays the same across
    /// reloads and restarts.
    ///
    /// # Errors
    /// Returns the problem and its remedy.
    pub fn new(realm: &str, settings: &Proxy) -> Result<Self, (String, String)> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        if settings.origins.is_empty() {
            return Err(("there is no origin".to_owned(), "name one: proxy \"http://127.0.0.1:3000\"".to_owned()));
        }
        let secure = settings.origins.iter().any(|origin| origin.secure);
        let tls = if secure { Some(load_tls(settings)?) } else { None };
        let realm: String = realm.chars().take(REALM_BYTES_MAX / 4).collect();
        Ok(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            realm: realm.into(),
            group: Arc::new(Group::new(settings)),
            limiters: settings.origins.iter().map(|_| ConcurrencyLimiter::new(&settings.concurrency)).collect(),
            addresses: settings
                .origins
                .iter()
                .map(|origin| OriginAddress::new(origin.secure, &origin.host, origin.port))
                .collect(),
            tls,
            is_watched: AtomicBool::new(false),
            unkeyed: unkeyed_fields(settings),
            settings: settings.clone(),
        })
    }

    /// Returns whether the step has these `settings` in this realm.
    pub fn is(&self, realm: &str, settings: &Proxy) -> bool {
        *self.realm == *realm && self.settings == *settings
    }

    /// How requests of the client with this address are forwarded.
    pub fn forwarding(&self, client: Option<IpAddr>) -> SentFields<'_> {
        SentFields::new(&self.unkeyed, &self.settings.trusted, client)
    }

    /// Realm of its stored responses.
    pub fn realm(&self) -> &str {
        &self.realm
    }

    /// Returns whether an origin has a host name, which requires DNS.
    pub fn asks_by_name(&self) -> bool {
        self.addresses.iter().any(|address| address.ip().is_none())
    }

    /// The origins as text.
    pub fn describe(&self) -> String {
        let origins: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        origins.join(", ")
    }

    /// The balancing policy as text; `None`: there is only one origin.
    pub fn describe_balance(&self) -> Option<String> {
        if self.settings.origins.len() < 2 {
            return None;
        }
        Some(match &self.settings.balance {
            Balance::LeastConnections => "the origin with the fewest requests in progress for its weight".to_owned(),
            Balance::RoundRobin => "one after the other, by weight".to_owned(),
            Balance::ConsistentHash(key) => {
                let by = match key {
                    HashKey::Uri => "host, path and query".to_owned(),
                    HashKey::Client => "the client's address".to_owned(),
                    HashKey::Header(name) => format!("the field {name}"),
                    HashKey::Cookie(name) => format!("the cookie {name}"),
                };
                format!("always the same one by {by}")
            }
        })
    }

    /// State of each origin.
    pub fn standings(&self) -> Vec<OriginStanding> {
        let now_ms = flatout_os::clock::Now::read().monotonic_ms;
        let describe = |(index, address): (usize, &OriginAddress)| {
            let standing = self.group.standing(index, now_ms);
            let is_available = !matches!(standing, Some(OriginStatus::PausedUntil(_) | OriginStatus::Down));
            let standing = match standing {
                None => "unknown".to_owned(),
                Some(standing) => match standing {
                    OriginStatus::Well => "healthy".to_owned(),
                    OriginStatus::Starting(thousandths) => {
                        format!("recovering, with {} % of its share", thousandths / 10)
                    }
                    OriginStatus::PausedUntil(until_ms) => {
                        format!("paused for {} ms more, because requests failed", until_ms.saturating_sub(now_ms))
                    }
                    OriginStatus::Trial => "being tried again".to_owned(),
                    OriginStatus::Down => "down: its health checks fail".to_owned(),
                },
            };
            let limiter = self.limiters.get(index).map_or_else(String::new, |limiter| {
                let (under_way, max) = (limiter.under_way(), limiter.max());
                let (asking, limit) = (limiter.asking(), limiter.limit());
                let waiting = limiter.waiting();
                format!(
                    ", {under_way} of {max} requests in progress, {asking} waiting for a response head (limit {limit}), {waiting} queued"
                )
            });
            OriginStanding { address: address.to_string(), is_available, text: format!("{standing}{limiter}") }
        };
        self.addresses.iter().enumerate().map(describe).collect()
    }

    /// Settings for connections to the origins.
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
            ..OriginSettings::default()
        }
    }
}

impl fmt::Debug for ProxyStep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ProxyStep")
            .field("realm", &self.realm)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

fn load_tls(settings: &Proxy) -> Result<Arc<OriginTls>, (String, String)> {
    let asked = OriginTlsSettings {
        insecure: settings.tls.insecure,
        authorities: settings.tls.authorities.clone(),
        server_name: settings.tls.server_name.clone(),
    };
    OriginTls::load(&asked).map_err(|error| match error {
        ClientTlsError::Unreadable(path, error) => (
            format!("the authorities in {} cannot be read: {error}", path.display()),
            "give a PEM file that the user who starts flatout may read".to_owned(),
        ),
        ClientTlsError::NoAuthority(path) => (
            format!("{} contains no PEM certificate of an authority", path.display()),
            "give the file with the authority's certificate, not its key".to_owned(),
        ),
        ClientTlsError::NoSystemAuthority => (
            "this system has no CA certificates, so no https origin can be verified".to_owned(),
            "install the package ca-certificates, or name a file: tls authorities=\"ca.pem\"".to_owned(),
        ),
        ClientTlsError::ServerName(name) => {
            (format!("`{name}` is not a host name"), "write the name in the origin's certificate".to_owned())
        }
        ClientTlsError::Internal(error) => {
            (format!("TLS cannot be set up: {error}"), "this is a defect of flatout or of the system".to_owned())
        }
    })
}
