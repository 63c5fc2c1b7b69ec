//! One `proxy` step and one `cache` step of the configuration, put to use for all workers.

use flatout_config::model::{CacheRules, Proxy};

/// One `proxy` step.
#[derive(Debug)]
pub struct ProxyStep {
    realm: String,
    settings: Proxy,
}

impl ProxyStep {
    /// The step for `settings`. `realm` tells what is kept for it from what is kept for others; it stays the same over
    /// reloads and restarts. The error is what is wrong, and what to do.
    pub fn new(realm: &str, settings: &Proxy) -> Result<Self, (String, String)> {
        Ok(Self { realm: realm.to_owned(), settings: settings.clone() })
    }

    /// Whether the step is one for `settings` in this realm.
    pub fn is(&self, realm: &str, settings: &Proxy) -> bool {
        self.realm == realm && self.settings == *settings
    }

    /// The origins, for people.
    pub fn describe(&self) -> String {
        let origins: Vec<String> =
            self.settings.origins.iter().map(|origin| format!("{}:{}", origin.host, origin.port)).collect();
        origins.join(", ")
    }
}

/// One `cache` step.
#[derive(Debug)]
pub struct CacheStep {}

impl CacheStep {
    /// The step for `rules`.
    pub fn new(_rules: &CacheRules) -> Self {
        Self {}
    }
}
