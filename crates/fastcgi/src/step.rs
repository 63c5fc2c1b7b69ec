//! A `php` step, shared by all workers.

use crate::outcome::PhpOutcome;
use crate::split::{Meaning, ScriptRules, find_script};
use flatout_balance::group::Change;
use flatout_balance::limit::{ConcurrencyLimiter, LimiterStatus};
use flatout_config::model::{Concurrency, Php, PhpAddress};
use flatout_os::clock::Now;
use flatout_os::root::Root;
use flatout_upstream::events::{OriginEvents, OriginState, SeriesReport};
use flatout_upstream::failing::FailureSeries;
use flatout_upstream::fastcgi::{FastcgiAddress, FastcgiSettings};
use flatout_upstream::spool::Spools;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum value of `shortest_timeout_ms`, in milliseconds. Timers are precise to a tenth of that value, so that
/// congestion is detected early.
const EXACT_MS: u64 = 500;

/// Minimum of the concurrency limit, because small process pools have two processes.
const CONCURRENCY_MIN: u32 = 2;

/// A `php` step of the configuration.
#[derive(derive_more::Debug)]
#[debug("PhpStep({address:?})")]
pub struct PhpStep {
    /// The ID of the step, which is unique in the process.
    pub(crate) id: u64,
    pub(crate) settings: Php,
    pub(crate) rules: ScriptRules,
    folder: Root,
    pub(crate) address: FastcgiAddress,
    /// The root as seen by the application server, without a trailing slash.
    pub(crate) root: Vec<u8>,
    pub(crate) spools: Arc<Spools>,
    /// The limiter of concurrent requests, which finds the number of the server's processes by trial.
    pub(crate) limiter: Arc<ConcurrencyLimiter>,
    /// Failed requests since the application server last answered.
    failures: FailureSeries,
    events: Arc<OriginEvents>,
}

impl PhpStep {
    /// Creates a step with these settings, and opens its root. Events of the application server are reported to `events`.
    ///
    /// # Errors
    /// If the root cannot be opened.
    pub fn new(settings: &Php, events: &Arc<OriginEvents>) -> io::Result<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let root = match &settings.script_root {
            Some(root) => root.clone(),
            // Links are resolved so that both flatout and the application server see a changed link only after the next
            // reload.
            None => settings.root.canonicalize()?,
        };
        let mut root = root.as_os_str().as_bytes().to_vec();
        while root.last() == Some(&b'/') {
            root.pop();
        }
        Ok(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            rules: ScriptRules {
                suffixes: settings.split.clone(),
                index: settings.index.clone(),
                front_controller: settings.front_controller.clone(),
            },
            folder: Root::open(&settings.root)?,
            address: match &settings.address {
                PhpAddress::Unix(path) => FastcgiAddress::Unix(path.clone()),
                PhpAddress::Tcp(host, port) => FastcgiAddress::Tcp(host.clone(), *port),
            },
            root,
            // Slow uploads must not use all of the space, because slow readers would then occupy processes again.
            spools: Spools::new(
                settings.spool_total_bytes_max,
                settings.spool_total_bytes_max / 2,
                Some(std::env::temp_dir()),
            ),
            limiter: ConcurrencyLimiter::for_pool(&Concurrency {
                min: CONCURRENCY_MIN,
                max: settings.connections_max,
                ..Concurrency::default()
            }),
            settings: settings.clone(),
            failures: FailureSeries::default(),
            events: Arc::clone(events),
        })
    }

    /// Returns whether the step has these settings and the path of its root still leads to the same folder.
    pub fn is(&self, settings: &Php) -> bool {
        let identity = Root::open(&settings.root).and_then(|folder| folder.identity());
        self.settings == *settings && identity.is_ok_and(|now| self.folder.identity().is_ok_and(|then| then == now))
    }

    /// Returns whether the address of the application server contains a host name, which requires DNS.
    pub fn asks_by_name(&self) -> bool {
        self.address.is_named()
    }

    /// The settings with which the step was created.
    pub const fn settings(&self) -> &Php {
        &self.settings
    }

    /// The address of the application server, as a string.
    pub fn describe(&self) -> String {
        self.address.to_string()
    }

    /// Number of bytes that the step buffers for requests and responses now, over all workers.
    pub fn buffered_bytes(&self) -> u64 {
        self.spools.held_bytes()
    }

    /// The requests that the application server processes, and those that wait for it.
    pub fn load(&self) -> LimiterStatus {
        self.limiter.status()
    }

    /// Describes whether the application server answers, and its load.
    pub fn describe_state(&self) -> String {
        let failing = self.failures.describe(Now::read().monotonic_ms);
        format!("{}, {}", failing.as_deref().unwrap_or("healthy"), self.load())
    }

    /// The state of the application server of which operators are notified.
    pub fn state(&self) -> OriginState {
        OriginState {
            server: self.name_server(),
            route: self.id,
            is_only: true,
            fault: None,
            limited: Some(self.load()).filter(LimiterStatus::is_limited),
        }
    }

    /// Reports that the application server has answered, if requests had failed.
    pub(crate) fn tell_answer(&self) {
        self.tell_series(self.failures.end(Now::read().monotonic_ms));
    }

    /// Reports that a request has failed, if it is the first one and the application server is at fault, or that the
    /// application server has answered, if this is why the request failed.
    pub(crate) fn tell_failure(&self, outcome: PhpOutcome) {
        let now_ms = Now::read().monotonic_ms;
        if outcome.is_answer() {
            self.tell_series(self.failures.end(now_ms));
        } else if outcome.is_server_fault() && !(outcome.may_be_script() && self.limiter.is_answering(now_ms)) {
            self.tell_series(self.failures.add(outcome, now_ms));
        }
    }

    /// Reports a change of the concurrency limit, if there is one.
    pub(crate) fn tell_change(&self, change: Option<Change>) {
        self.events.tell_change(change);
    }

    fn tell_series(&self, report: Option<SeriesReport>) {
        self.events.tell_series(|| self.name_server(), self.id, report);
    }

    /// The application server in lines for operators.
    fn name_server(&self) -> String {
        format!("application server {}", self.address)
    }

    /// Maps `decoded`, which must be the output of `flatout_http::path::decode_path`.
    pub fn find(&self, decoded: &[u8]) -> Meaning {
        find_script(decoded, &self.rules, &self.folder)
    }

    /// The path of a script as seen by the application server, as a string.
    pub fn show_file(&self, script: &[u8]) -> String {
        format!("{}/{}", String::from_utf8_lossy(&self.root), String::from_utf8_lossy(script))
    }

    pub(crate) fn client_settings(&self) -> FastcgiSettings {
        let timeouts = &self.settings.timeouts;
        FastcgiSettings {
            connect_timeout_ms: timeouts.connect_timeout_ms,
            shortest_timeout_ms: timeouts
                .head_timeout_ms
                .min(timeouts.body_timeout_ms)
                .min(timeouts.stream_timeout_ms)
                .min(EXACT_MS),
            idle_timeout_ms: timeouts.idle_timeout_ms,
            idle_connections_max: self.settings.idle_connections_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PhpStep;
    use crate::outcome::PhpOutcome;
    use flatout_balance::limit::{Arrival, Sample};
    use flatout_config::model::Php;
    use flatout_os::clock::Now;
    use flatout_upstream::events::{OriginEvent, OriginEvents, SeriesReport};
    use std::sync::{Arc, Mutex};

    #[test]
    fn failures_of_the_server_are_reported_and_those_of_scripts_are_not() {
        let (events, heard) = (Arc::<OriginEvents>::default(), Arc::<Mutex<Vec<OriginEvent>>>::default());
        let hearing = Arc::clone(&heard);
        events.listen(Box::new(move |event| hearing.lock().unwrap().push(event)));
        let step = PhpStep::new(&Php { root: "/".into(), ..Php::default() }, &events).unwrap();
        for outcome in [PhpOutcome::HeadMalformed, PhpOutcome::TooMany, PhpOutcome::ContentCut] {
            step.tell_failure(outcome);
        }
        step.tell_answer();
        assert!(heard.lock().unwrap().is_empty());
        assert!(step.describe_state().starts_with("healthy, 0 of "), "{}", step.describe_state());
        step.tell_failure(PhpOutcome::NoSocket);
        assert!(step.describe_state().contains("1 attempt: [php_no_socket], 0 of "), "{}", step.describe_state());
        // A response that is invalid is an answer.
        step.tell_failure(PhpOutcome::StatusLine);
        assert!(step.describe_state().starts_with("healthy, 0 of "), "{}", step.describe_state());
        // While other scripts are answered, one of them may have caused these.
        let arrival = Arrival { path: b"/x.php", client: None, now_ms: Now::read().monotonic_ms };
        let mut permit = step.limiter.try_acquire(&arrival).unwrap();
        permit.report(Sample::Answered { delay_us: 1_000 }, arrival.now_ms);
        for outcome in [PhpOutcome::HeadTimeout, PhpOutcome::UploadTimeout, PhpOutcome::ClosedBeforeHead] {
            step.tell_failure(outcome);
        }
        assert!(step.describe_state().starts_with("healthy, "), "{}", step.describe_state());
        let heard = heard.lock().unwrap();
        let [
            OriginEvent::Series { server, report: SeriesReport::Began(text), .. },
            OriginEvent::Series { report: SeriesReport::Ended(None), .. },
        ] = &heard[..]
        else {
            panic!("{heard:?}")
        };
        assert_eq!(server, "application server unix:/run/php/php-fpm.sock");
        assert!(text.starts_with("fails: [php_no_socket] "), "{text}");
    }
}
