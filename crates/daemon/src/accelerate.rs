//! Access to the accelerator of the process: opens the store, and provides the admin interface's view of it.

use crate::cache::CacheReply;
use crate::events::{EventSender, WorkerEvent};
use crate::failure::{Failure, say};
use crate::memory::{decide_budget, memory_limit};
use crate::purge::{PurgeReply, PurgeRequest, PurgeScope, PurgedProxy};
use crate::shares::Shares;
use crate::store::{MetricKind, MetricRow, StatusRow, StoreView};
use arc_swap::ArcSwap;
use flatout_config::model::Config;
use flatout_engine::explain::Question;
use flatout_engine::spec::Spec;
use flatout_overload::QueueReading;
use flatout_proxy::{Accelerator, OriginStanding, url_purges};
use flatout_store::{Purge, StoreSettings, StoreStats, VolumeState};
use flatout_units::show;
use flatout_upstream::origin::counts::sum_origin_rows;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Sets the memory budget. Opens the store if the configuration stores responses and no store is open yet. Must be
/// called on a thread that is not confined.
///
/// # Errors
/// If the memory budget exceeds the kernel's limit.
pub(crate) fn open_store(
    accelerator: &Accelerator,
    config: &Config,
    spec: &Spec,
    (shares, workers): (Shares, usize),
    event_sender: &EventSender,
) -> Result<(), Failure> {
    if accelerator.store().is_some() {
        return Ok(());
    }
    let (memory_bytes_max, note) = decide_budget(config.store.memory_bytes_max, memory_limit())?;
    // Forwarded content counts towards the budget even if no responses are stored.
    accelerator.budget().set_bytes_max(memory_bytes_max);
    if !spec.keeps_answers() {
        return Ok(());
    }
    if let Some(note) = note {
        say(&note);
    }
    let settings = StoreSettings {
        memory_bytes_max,
        memory_objects_max: config.store.memory_objects_max,
        descriptors_max: (shares.files_max * workers) as u64,
        disks: config.store.disks.clone(),
    };
    for warning in accelerator.open_store(settings) {
        say(&format!("warning: {warning}"));
    }
    if let Some(store) = accelerator.store() {
        let event_sender = event_sender.clone();
        store.on_notice(Box::new(move |line| event_sender.send(WorkerEvent::Said(format!("disk {line}")))));
    }
    Ok(())
}

/// Has the control thread report when an origin or an application server fails, is ejected or returns, so that workers
/// need not wait for standard error.
pub(crate) fn tell_changes(accelerator: &Accelerator, event_sender: &EventSender) {
    let event_sender = event_sender.clone();
    accelerator.events().listen(Box::new(move |event| event_sender.send(WorkerEvent::Origin(event))));
}

/// The admin interface's view of the store.
pub(crate) struct View {
    accelerator: Arc<Accelerator>,
    spec: Arc<ArcSwap<Spec>>,
}

impl View {
    /// Creates a view of `accelerator` with the current configuration.
    pub(crate) fn new(accelerator: &Arc<Accelerator>, spec: &Arc<ArcSwap<Spec>>) -> Self {
        Self { accelerator: Arc::clone(accelerator), spec: Arc::clone(spec) }
    }
}

fn locator(host: &str, target: &str) -> Vec<u8> {
    format!("{host}{target}").into_bytes()
}

impl StoreView for View {
    fn purge(&self, request: &PurgeRequest) -> Result<PurgeReply, String> {
        let Some(store) = self.accelerator.store() else {
            return Err("no cache is configured, so there is nothing to purge".to_owned());
        };
        let purges = match &request.scope {
            // A client's URL may have parameters that the site's cache keys omit.
            PurgeScope::Url(url) => {
                let targets = self.spec.load_full().key_targets(&url.target);
                url_purges(targets.iter().map(|target| locator(&url.authority(), target)))
            }
            PurgeScope::Prefix(url) => vec![Purge::Prefix(locator(&url.authority(), &url.target))],
            PurgeScope::Host(host) => vec![Purge::Host(host.clone().into_bytes())],
            PurgeScope::Tag(tag) => vec![Purge::Tag(tag.clone().into_bytes())],
            PurgeScope::All => vec![Purge::All],
        };
        let steps = self.accelerator.steps();
        let mut proxies = BTreeMap::new();
        for purge in purges {
            for (realm, count) in store.purge(&purge, request.soft, request.dry_run).realms {
                let step = steps.iter().find(|step| step.has_realm(&realm));
                let name =
                    step.map_or_else(|| String::from_utf8_lossy(&realm).into_owned(), |step| step.name().to_owned());
                *proxies.entry(name).or_default() += count;
            }
        }
        let purged = |(proxy, objects)| PurgedProxy { proxy, objects };
        Ok(PurgeReply::new(request, proxies.into_iter().map(purged).collect()))
    }

    fn explain(&self, question: &Question) -> Result<CacheReply, String> {
        Ok(CacheReply::new(&self.spec.load_full().explain(question)))
    }

    fn status_rows(&self) -> Vec<StatusRow> {
        let row = |name: &str, value: String| StatusRow { name: name.to_owned(), value };
        let mut rows = Vec::new();
        let stats = self.accelerator.store().map(|store| store.stats());
        if let Some(stats) = &stats {
            rows.extend([
                row("memory", show_memory(stats)),
                row("objects", stats.memory_objects.to_string()),
                row("evicted", stats.evicted.to_string()),
                row("purges", stats.generation.to_string()),
            ]);
        }
        let spec = self.spec.load();
        if spec.has_pages() {
            let backlog = &spec.pages().backlog;
            let show = |budget: &flatout_engine::spec::PageBudget| {
                format!("{} of {}", show::bytes(budget.held_bytes() as f64), show::bytes(budget.bytes_max() as f64))
            };
            let output = format!("{} in memory, {} in files", show(backlog.memory()), show(backlog.disk()));
            rows.push(row("pages: output", output));
            rows.push(row("pages: content", show(&spec.pages().contents())));
        }
        for (server, (held_bytes, bytes_max)) in spec.php_buffers() {
            let value = format!("{} of {} buffered", show::bytes(held_bytes as f64), show::bytes(bytes_max as f64));
            rows.push(row(&format!("php: {server}"), value));
        }
        for volume in stats.iter().flat_map(|stats| &stats.volumes) {
            let used = format!("{} of {}", show::bytes(volume.bytes as f64), show::bytes(volume.bytes_max as f64));
            let mut value =
                format!("{}: {used}, {} objects, {}", volume.folder.display(), volume.objects, volume.state.name());
            if !volume.problem.is_empty() {
                value = format!("{value}: {}", volume.problem);
            }
            rows.push(row("disk", value));
        }
        let events = self.accelerator.store().map(|store| store.volume_events()).unwrap_or_default();
        for (event, count) in events.into_iter().filter(|(_, count)| *count > 0) {
            rows.push(row(&format!("disk: {}", event.name()), count.to_string()));
        }
        for (name, count) in self.origin_rows() {
            rows.push(row(&name, count.to_string()));
        }
        for (reason, count) in self.accelerator.not_kept_counts().into_iter().filter(|(_, count)| *count > 0) {
            rows.push(row(&format!("not stored: {}", reason.name()), count.to_string()));
        }
        for step in self.accelerator.steps() {
            for origin in step.standings() {
                rows.push(row("origin", format!("{} of the proxy {}: {}", origin.address, step.name(), origin.text)));
            }
        }
        for step in spec.php_steps() {
            let (server, root) = (step.describe(), step.settings().root.display());
            rows.push(row("php", format!("{server} for {root}: {}", step.describe_state())));
        }
        rows
    }

    fn queues(&self) -> Vec<(String, QueueReading)> {
        let mut queues = Vec::<(String, QueueReading)>::new();
        // Several steps may use the same server.
        for (name, reading) in self.spec.load().queues() {
            match queues.iter_mut().find(|(other, _)| *other == name) {
                Some((_, sum)) => sum.add(reading),
                None => queues.push((name, reading)),
            }
        }
        queues
    }

    fn metric_rows(&self) -> Vec<MetricRow> {
        let mut rows = Vec::new();
        if let Some(store) = self.accelerator.store() {
            add_store_rows(&store.stats(), &mut rows);
            for (event, value) in store.volume_events() {
                rows.push(MetricRow {
                    name: "store_volume_events",
                    help: "Volume events, such as corrupt entries and state changes, by event.",
                    kind: MetricKind::Counter,
                    labels: vec![("event", event.name().to_owned())],
                    value,
                });
            }
        }
        let spec = self.spec.load();
        if spec.has_pages() {
            let backlog = &spec.pages().backlog;
            let contents = spec.pages().contents();
            let budgets =
                [("output_memory", &**backlog.memory()), ("output_files", &**backlog.disk()), ("contents", &*contents)];
            rows.extend(budgets.map(|(kind, budget)| MetricRow {
                name: "pages_held_bytes",
                help: "Memory and files that active pages use for unsent output and content, in bytes, by kind.",
                kind: MetricKind::Gauge,
                labels: vec![("kind", kind.to_owned())],
                value: budget.held_bytes(),
            }));
        }
        rows.extend(spec.php_buffers().into_iter().map(|(server, (value, _))| MetricRow {
            name: "php_buffered_bytes",
            help: "Bytes of requests and responses that are buffered so that slow clients hold no process, by server.",
            kind: MetricKind::Gauge,
            labels: vec![("server", server)],
            value,
        }));
        for (name, value) in self.origin_rows() {
            let (name, help, label) = match name.strip_prefix("failed_") {
                Some(failure) => {
                    ("origin_failures", "Failed exchanges with origins, by reason.", ("reason", failure.to_owned()))
                }
                None => ("origin_events", "Events and bytes on connections to origins.", ("event", name)),
            };
            rows.push(MetricRow { name, help, kind: MetricKind::Counter, labels: vec![label], value });
        }
        for (reason, value) in self.accelerator.not_kept_counts().into_iter().filter(|(_, value)| *value > 0) {
            rows.push(MetricRow {
                name: "cache_not_stored",
                help: "Origin responses that were not stored, by reason.",
                kind: MetricKind::Counter,
                labels: vec![("reason", reason.name().to_owned())],
                value,
            });
        }
        for step in self.accelerator.steps() {
            for origin in step.standings() {
                add_origin_rows(step.name(), &origin, &mut rows);
            }
        }
        rows.sort_by_key(|row| row.name);
        rows
    }
}

impl View {
    fn origin_rows(&self) -> Vec<(String, u64)> {
        let counts = self.accelerator.origin_counts();
        let counts: Vec<_> = counts.iter().map(|counts| &**counts).collect();
        sum_origin_rows(&counts)
    }
}

/// Adds the metrics of an origin.
fn add_origin_rows(proxy: &str, origin: &OriginStanding, rows: &mut Vec<MetricRow>) {
    let mut add = |name, help, label: Option<(&'static str, &str)>, value: u64| {
        let mut labels = vec![("proxy", proxy.to_owned()), ("origin", origin.address.clone())];
        labels.extend(label.map(|(label, value)| (label, value.to_owned())));
        rows.push(MetricRow { name, help, kind: MetricKind::Gauge, labels, value });
    };
    let available = "1 if the origin receives requests, 0 while it is unhealthy or paused.";
    add("origin_available", available, None, u64::from(origin.is_available));
    let Some(load) = &origin.load else { return };
    let requests = "Requests to the origin, by state: in progress, of which those that wait for a response head (quick \
                    kinds, those of them that have waited for more than a second, slow kinds), and queued.";
    for (state, count) in [
        ("in_progress", load.under_way),
        ("waiting_for_head", load.quick.asking),
        ("waiting_for_head_long", load.aged),
        ("waiting_for_head_slow", load.slow.asking),
        ("queued", load.quick.queued),
        ("queued_slow", load.slow.queued),
    ] {
        add("origin_requests", requests, Some(("state", state)), u64::from(count));
    }
    if load.is_limited() || load.queue().waiting > 0 {
        let by_path = "Requests that wait for a response head of an origin that has a concurrency limit or queued requests, \
                       by path: the eight paths with the most of them, and `other`.";
        let others = ("other", load.other_paths());
        for (path, count) in load.paths.iter().map(|(path, count)| (path.as_str(), *count)).chain([others]) {
            add("origin_requests_by_path", by_path, Some(("path", path)), u64::from(count));
        }
    }
    let limited = "The origin's current concurrency limit, by kind of requests, while there is one.";
    for (state, limit) in [("waiting_for_head", load.quick.limit), ("waiting_for_head_slow", load.slow.limit)] {
        if let Some(limit) = limit {
            add("origin_limit", limited, Some(("state", state)), u64::from(limit));
        }
    }
}

/// Formats the memory used by content, with the share of each use.
fn show_memory(stats: &StoreStats) -> String {
    let in_all: u64 = stats.held.iter().map(|(_, bytes)| bytes).sum();
    let held: Vec<_> =
        stats.held.iter().map(|(share, bytes)| format!("{} {}", share.name(), show::bytes(*bytes as f64))).collect();
    format!("{} of {}: {}", show::bytes(in_all as f64), show::bytes(stats.memory_bytes_max as f64), held.join(", "))
}

fn add_store_rows(stats: &StoreStats, rows: &mut Vec<MetricRow>) {
    let gauge = MetricKind::Gauge;
    let counter = MetricKind::Counter;
    let all: [(&'static str, &'static str, MetricKind, u64); 10] = [
        ("store_memory_bytes", "Bytes of stored responses in memory.", gauge, stats.memory_bytes),
        ("store_memory_bytes_limit", "Maximum bytes of stored responses in memory.", gauge, stats.memory_bytes_max),
        ("store_memory_objects", "Stored responses in memory.", gauge, stats.memory_objects),
        ("store_inserted", "Responses stored.", counter, stats.inserted),
        ("store_evicted", "Responses evicted from memory.", counter, stats.evicted),
        (
            "store_memory_hits",
            "Lookups that found a response in memory, not including hits in the per-worker caches.",
            counter,
            stats.memory_hits,
        ),
        ("store_memory_misses", "Lookups that found no response in memory.", counter, stats.memory_misses),
        ("store_disk_hits", "Lookups that found a response on a disk.", counter, stats.disk_hits),
        ("store_disk_misses", "Lookups that found no response on any disk.", counter, stats.disk_misses),
        ("store_purges", "Purges since the store was created.", counter, stats.generation),
    ];
    rows.extend(all.map(|(name, help, kind, value)| MetricRow { name, help, kind, labels: Vec::new(), value }));
    rows.extend(stats.held.iter().map(|&(share, value)| MetricRow {
        name: "memory_held_bytes",
        help: "Memory in use from the memory budget, in bytes, by use.",
        kind: gauge,
        labels: vec![("share", share.name().to_owned())],
        value,
    }));
    for volume in &stats.volumes {
        let folder = volume.folder.display().to_string();
        let of_volume: [(&'static str, &'static str, MetricKind, u64); 7] = [
            (
                "store_volume_good",
                "1 if the volume is in use, otherwise 0.",
                gauge,
                u64::from(matches!(volume.state, VolumeState::Good | VolumeState::Full)),
            ),
            (
                "store_volume_full",
                "1 if the volume stores no new responses because its file system is full, otherwise 0.",
                gauge,
                u64::from(volume.state == VolumeState::Full),
            ),
            ("store_volume_bytes", "Bytes of stored responses on the volume.", gauge, volume.bytes),
            ("store_volume_objects", "Stored responses on the volume.", gauge, volume.objects),
            ("store_volume_written", "Responses written to the volume.", counter, volume.written),
            (
                "store_volume_dropped",
                "Responses not written because too many were waiting to be written.",
                counter,
                volume.dropped,
            ),
            ("store_volume_errors", "Failed reads and writes on the volume.", counter, volume.errors),
        ];
        rows.extend(of_volume.map(|(name, help, kind, value)| MetricRow {
            name,
            help,
            kind,
            labels: vec![("folder", folder.clone())],
            value,
        }));
    }
}
