//! A `cache` step, shared by all workers.

use crate::realm::cache_realm;
use flatout_cache::key::write_query;
use flatout_cache::rules::Rules;
use flatout_config::model::{CacheSettings, Cidr, StatusField, is_listed};
use std::net::IpAddr;

/// A `cache` step of the configuration.
#[derive(Debug)]
pub struct CacheStep {
    /// Rules in the form that `flatout_cache` requires.
    pub(crate) rules: Rules,
    /// The part of keys that separates responses stored by other rules.
    pub(crate) realm: Box<str>,
    status_field: StatusField,
    purge: Vec<Cidr>,
    pub(crate) esi: bool,
    pub(crate) early_hints: bool,
    /// Maximum size in bytes of a response that is fetched whole on behalf of a range request. 0 disables such fetches.
    pub(crate) range_fetch_bytes_max: u64,
    /// Surrogate-Capability line, which announces support for Surrogate-Control to origins.
    capability: Box<[u8]>,
}

impl CacheStep {
    /// Creates the step from `settings`.
    pub fn new(settings: &CacheSettings) -> Self {
        let rules = settings.rules.clone();
        let esi = if settings.esi { " ESI/1.0" } else { "" };
        let capability = format!("Surrogate-Capability: {}=\"Surrogate/1.0{esi}\"\r\n", rules.surrogate);
        Self {
            capability: capability.into_bytes().into(),
            rules,
            realm: cache_realm(settings).into(),
            status_field: settings.status_field.clone(),
            purge: settings.purge.clone(),
            esi: settings.esi,
            early_hints: settings.early_hints,
            range_fetch_bytes_max: settings.range_fetch_bytes_max,
        }
    }

    /// Returns whether responses are stored.
    pub const fn is_enabled(&self) -> bool {
        self.rules.enabled
    }

    /// Appends the Surrogate-Capability line (Edge Architecture Specification 1.0) to `output`.
    pub(crate) fn write_capability(&self, output: &mut Vec<u8>) {
        output.extend_from_slice(self.capability());
    }

    /// Returns the Surrogate-Capability line.
    pub(crate) fn capability(&self) -> &[u8] {
        &self.capability
    }

    /// Returns `target`, a path with an optional query, without the query parameters that are not part of the key.
    pub fn key_target(&self, target: &str) -> String {
        let Some((path, query)) = target.split_once('?') else { return target.to_owned() };
        let mut kept = format!("{path}?").into_bytes();
        if !write_query(Some(query.as_bytes()), &self.rules.query, &mut kept) {
            kept.truncate(path.len());
        }
        String::from_utf8_lossy(&kept).into_owned()
    }

    /// Returns whether responses to `client` include Cache-Status.
    pub(crate) fn shows_status(&self, client: Option<IpAddr>) -> bool {
        match &self.status_field {
            StatusField::Everybody => true,
            StatusField::Nobody => false,
            StatusField::Networks(networks) => is_listed(networks, client),
        }
    }

    /// Returns whether `client` may use PURGE. PURGE is never forwarded, because an origin might obey unauthorized
    /// clients.
    pub(crate) fn allows_purge(&self, client: Option<IpAddr>) -> bool {
        is_listed(&self.purge, client)
    }
}
