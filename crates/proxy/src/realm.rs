//! Realms, which separate stored responses that must not be mixed.
//!
//! A cache key begins with the realm of the site and its `proxy` step and that of the `cache` step. A realm is derived
//! from the settings that decide which response the key stands for, so it is the same after a reload or a restart if
//! and only if these settings are.

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;
use flatout_cache::rules::Rules;
use flatout_config::encode::step_to_kdl;
use flatout_config::model::{CacheSettings, Handler, ListenAddress, Origin, Place, Proxy, Step, StepKind};

/// Maximum length in characters of the host name in a realm. The digest covers the whole name.
const NAME_CHARS_MAX: usize = 100;

/// A site, as far as it decides which responses its visitors get.
#[derive(Clone, Copy, Debug)]
pub struct SiteIdentity<'a> {
    /// The site's host names.
    pub hosts: &'a [String],
    /// The addresses of the site's listeners, if another site has one of the host names on other listeners; otherwise
    /// empty.
    pub listeners: &'a [ListenAddress],
}

impl SiteIdentity<'_> {
    /// Returns the site's name for display: its first host name.
    pub fn name(&self) -> &str {
        self.hosts.first().map_or("*", String::as_str)
    }

    /// Returns the realm of data that belongs to the site as a whole: its name, and a digest if another site may have
    /// the same name.
    pub fn realm(&self) -> String {
        if self.listeners.is_empty() { self.name().to_owned() } else { self.with_digest(None) }
    }

    /// Returns the realm of responses of a `proxy` step with `settings`: the site's name and a digest.
    pub fn proxy_realm(&self, settings: &Proxy) -> String {
        let deciding = deciding_proxy(settings);
        self.with_digest(Some(StepKind::Handler(Handler::Proxy(Box::new(deciding)))))
    }

    fn with_digest(&self, step: Option<StepKind>) -> String {
        let mut hosts: Vec<&str> = self.hosts.iter().map(String::as_str).collect();
        hosts.sort_unstable();
        let mut listeners: Vec<String> = self.listeners.iter().map(ToString::to_string).collect();
        listeners.sort_unstable();
        let settings = step.map(written).unwrap_or_default();
        // Neither host names nor addresses contain a blank or a line break.
        let deciding = format!("{}\n{}\n{settings}", hosts.join(" "), listeners.join(" "));
        let mut realm: String = self.name().chars().take(NAME_CHARS_MAX).collect();
        realm.push('~');
        write_digest(&deciding, &mut realm);
        realm
    }
}

/// Returns the realm of a `cache` step with `settings`: empty for most settings, otherwise a plus sign and a digest.
pub(crate) fn cache_realm(settings: &CacheSettings) -> String {
    // The others decide whether and for how long a response is stored, and are checked again when it is served, or
    // have no effect on its content.
    let Rules { query, set_cookie, .. } = &settings.rules;
    let rules = Rules { query: query.clone(), set_cookie: *set_cookie, ..Rules::default() };
    let deciding = CacheSettings { rules, esi: settings.esi, ..CacheSettings::default() };
    if deciding == CacheSettings::default() {
        return String::new();
    }
    let mut realm = "+".to_owned();
    write_digest(&written(StepKind::Cache(Box::new(deciding))), &mut realm);
    realm
}

/// Returns `settings` with the defaults for everything that decides neither which service responds nor what it
/// receives. The first origin stands for the service, so that adding another one keeps its responses.
fn deciding_proxy(settings: &Proxy) -> Proxy {
    // All settings are listed, so that a new setting must be classified.
    let Proxy {
        origins,
        host,
        forwarded,
        trusted,
        request_fields,
        tls,
        proxy_protocol,
        via_to_origins,
        balance: _,
        sticky: _,
        health_check: _,
        passive: _,
        slow_start_ms: _,
        concurrency: _,
        timeouts: _,
        retries: _,
        via: _,
        http2: _,
        content_bytes_max: _,
        buffer_bytes_max: _,
        idle_connections_max: _,
        upgrades: _,
        unknown_codings: _,
    } = settings;
    let first = origins.first().map(|origin| Origin { weight: 1, backup: false, ..origin.clone() });
    Proxy {
        origins: first.into_iter().collect(),
        host: host.clone(),
        forwarded: *forwarded,
        trusted: trusted.clone(),
        request_fields: request_fields.clone(),
        tls: tls.clone(),
        proxy_protocol: *proxy_protocol,
        via_to_origins: *via_to_origins,
        ..Proxy::default()
    }
}

/// Returns a step as written in a configuration, which omits settings that have their defaults. So a new setting in a
/// later version does not change the digests of configurations that do not use it.
fn written(kind: StepKind) -> String {
    step_to_kdl(&Step { place: Place::default(), kind })
}

fn write_digest(deciding: &str, realm: &mut String) {
    HEXLOWER.encode_append(&digest(&SHA256, deciding.as_bytes()).as_ref()[..4], realm);
}

#[cfg(test)]
mod tests {
    use super::{SiteIdentity, cache_realm};
    use flatout_cache::rules::{QueryKey, Rules, SetCookie};
    use flatout_config::model::ListenAddress;
    use flatout_config::model::{Balance, CacheSettings, Cidr, HostField, Origin, Proxy};
    use flatout_http::lines::{FieldOp, FieldOpKind};

    fn origin(host: &str) -> Origin {
        Origin { secure: false, host: host.to_owned(), port: 80, weight: 1, backup: false }
    }

    fn proxy() -> Proxy {
        Proxy { origins: vec![origin("app-1")], ..Proxy::default() }
    }

    fn realm(hosts: &[&str], listeners: &[&str], settings: &Proxy) -> String {
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let listeners: Vec<ListenAddress> = listeners.iter().map(|address| address.parse().unwrap()).collect();
        SiteIdentity { hosts: &hosts, listeners: &listeners }.proxy_realm(settings)
    }

    fn change(edit: impl FnOnce(&mut Proxy)) -> String {
        let mut settings = proxy();
        edit(&mut settings);
        realm(&["a.example"], &[], &settings)
    }

    #[test]
    fn settings_of_a_proxy_that_decide_its_responses() {
        let base = change(|_| {});
        // Disks contain the realm, so it must be the same in later versions.
        assert_eq!(base, "a.example~c5eba74c");
        let same: [fn(&mut Proxy); 5] = [
            |proxy| proxy.origins.push(origin("app-2")),
            |proxy| proxy.origins[0].weight = 7,
            |proxy| proxy.timeouts.head_timeout_ms = 1,
            |proxy| proxy.balance = Balance::RoundRobin,
            |proxy| (proxy.retries, proxy.http2, proxy.slow_start_ms) = (0, true, 5),
        ];
        for (index, edit) in same.into_iter().enumerate() {
            assert_eq!(change(edit), base, "{index}");
        }
        let other: [fn(&mut Proxy); 8] = [
            |proxy| proxy.origins.insert(0, origin("app-2")),
            |proxy| proxy.origins[0].port = 81,
            |proxy| proxy.origins[0].secure = true,
            |proxy| proxy.host = HostField::Fixed("b.example".to_owned()),
            |proxy| proxy.forwarded.x_forwarded = false,
            |proxy| proxy.trusted = vec![Cidr { address: "10.0.0.0".parse().unwrap(), bits: 8 }.into()],
            |proxy| {
                proxy.request_fields = vec![FieldOp::new(FieldOpKind::SET, "X-Group".to_owned(), "staff".to_owned())];
            },
            |proxy| proxy.tls.server_name = Some("b.example".to_owned()),
        ];
        let mut seen = vec![base];
        for (index, edit) in other.into_iter().enumerate() {
            let realm = change(edit);
            assert!(!seen.contains(&realm), "{index}");
            seen.push(realm);
        }
    }

    #[test]
    fn sites() {
        let base = realm(&["a.example", "b.example"], &[], &proxy());
        assert!(base.starts_with("a.example~"), "{base}");
        let second = realm(&["b.example", "a.example"], &[], &proxy());
        assert_eq!(base.split_once('~').unwrap().1, second.split_once('~').unwrap().1);
        let port_80 = realm(&["a.example", "b.example"], &["127.0.0.1:80"], &proxy());
        let port_81 = realm(&["a.example", "b.example"], &["127.0.0.1:81"], &proxy());
        assert!(base != port_80 && port_80 != port_81);
        assert_ne!(base, realm(&["a.example"], &[], &proxy()));
        // A long name is cut before the digest.
        let long = "a".repeat(250);
        assert_eq!(realm(&[&long], &[], &proxy()).len(), 100 + 9);
        let hosts = ["*".to_owned()];
        let listeners = ["127.0.0.1:80".parse().unwrap()];
        assert_eq!(SiteIdentity { hosts: &hosts, listeners: &[] }.realm(), "*");
        let realm = SiteIdentity { hosts: &hosts, listeners: &listeners }.realm();
        assert!(realm.starts_with("*~") && realm.len() == 10, "{realm}");
    }

    #[test]
    fn settings_of_a_cache_that_decide_its_responses() {
        let of = |rules: Rules, esi| cache_realm(&CacheSettings { rules, esi, ..CacheSettings::default() });
        assert_eq!(of(Rules::default(), false), "");
        assert_eq!(of(Rules { default_ttl_s: Some(5), variants_max: 3, ..Rules::default() }, false), "");
        let mut seen = vec![
            of(Rules::default(), true),
            of(Rules { query: QueryKey::Only(vec!["a".to_owned()]), ..Rules::default() }, false),
            of(Rules { query: QueryKey::Without(vec!["a".to_owned()]), ..Rules::default() }, false),
            of(Rules { set_cookie: SetCookie::Store, ..Rules::default() }, false),
        ];
        assert!(seen.iter().all(|realm| realm.len() == 9 && realm.starts_with('+')), "{seen:?}");
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 4);
    }
}
