//! Connections and requests that the process refuses because of overload, on standard error and in `flatout status`.
//! The control thread reads the workers' counters once a second.

use crate::failure::say;
use crate::status::{Count, StatusState};
use flatout_os::clock::Now;
use flatout_overload::{Episode, EpisodeEvent, EpisodeWatch, Refusals};
use flatout_server::counters::marked_sums;
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Interval between two samples, in milliseconds.
const SAMPLE_MS: u64 = 1_000;

/// Lowest limit of open files that the advice names.
const OPEN_FILES_WANTED_MIN: u64 = 1024;

/// Why connections and requests are refused. In tables of reasons, each row of such a cause has its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// There are more connections or requests than can be served in time.
    Overload,
    /// File descriptors, ports or kernel memory have run out.
    Resources,
}

impl Cause {
    const ALL: [Self; 2] = [Self::Overload, Self::Resources];

    const fn mark(self) -> &'static str {
        match self {
            Self::Overload => "overload",
            Self::Resources => "resources",
        }
    }

    const fn subject(self) -> &'static str {
        match self {
            Self::Overload => "overload",
            Self::Resources => "shortage of file descriptors, ports or kernel memory",
        }
    }
}

/// Connections and requests that are refused now, as `flatout status` shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalStatus {
    /// Time at which it began, in seconds since 1970; `None` if nothing was refused in the last 10 seconds.
    pub since_unix_s: Option<u64>,
    /// Refused connections and requests since then, by reason.
    pub refused: Vec<Count>,
}

impl RefusalStatus {
    fn of(watch: &EpisodeWatch, now: Now) -> Self {
        let Some(Episode { began_ms, refusals, .. }) = watch.episode() else { return Self::default() };
        let elapsed_s = now.monotonic_ms.saturating_sub(*began_ms) / 1000;
        let count = |(name, count): (&&str, &u64)| Count { name: (*name).to_owned(), count: *count };
        Self {
            since_unix_s: Some(u64::try_from(now.unix_s).unwrap_or(0).saturating_sub(elapsed_s)),
            refused: refusals.iter().map(count).collect(),
        }
    }

    /// Returns what was refused, in words.
    pub fn describe(&self) -> String {
        describe(self.refused.iter().map(|Count { name, count }| (name.as_str(), *count)))
    }
}

/// The watches of the control thread, in the order of [`Cause::ALL`].
#[derive(Debug, Default)]
pub(crate) struct OverloadWatches {
    watches: [EpisodeWatch; 2],
    sampled_ms: u64,
}

impl OverloadWatches {
    /// Returns the time until [`OverloadWatches::look`] takes the next sample.
    pub(crate) fn time_left(&self, now_ms: u64) -> Duration {
        Duration::from_millis(self.sampled_ms.saturating_add(SAMPLE_MS).saturating_sub(now_ms))
    }

    /// Takes a sample if it is due, and reports what has begun or ended.
    pub(crate) fn look(&mut self, shared: &StatusState) {
        let now = Now::read();
        if self.time_left(now.monotonic_ms) == Duration::ZERO {
            self.sample(shared, now);
            shared.refresh_unsent(now.monotonic_ms);
        }
    }

    fn sample(&mut self, shared: &StatusState, now: Now) {
        self.sampled_ms = now.monotonic_ms;
        let mut lines = Vec::new();
        for (cause, watch) in Cause::ALL.into_iter().zip(&mut self.watches) {
            let counts = marked_sums(&shared.counters, shared.outcomes, cause.mark());
            lines.extend(watch.handle_sample(counts, now.monotonic_ms).map(|event| describe_event(cause, &event)));
        }
        // An operator who reads a line finds the same in the status.
        let mut view = shared.view();
        [view.overload, view.resources] = self.watches.each_ref().map(|watch| RefusalStatus::of(watch, now));
        drop(view);
        for line in lines {
            say(&line);
        }
    }

    /// Reports what the process was still refusing when it stopped.
    pub(crate) fn finish(&mut self, shared: &StatusState) {
        self.sample(shared, Now::read());
        for (cause, watch) in Cause::ALL.into_iter().zip(&self.watches) {
            if let Some(episode) = watch.episode() {
                say(&describe_stop(cause, episode));
            }
        }
    }
}

fn describe_event(cause: Cause, event: &EpisodeEvent) -> String {
    match event {
        EpisodeEvent::Began(Episode { refusals, .. }) => {
            let advice = if cause == Cause::Resources { advise(refusals) } else { String::new() };
            format!("{} began: {}{advice}", cause.subject(), describe_counts(refusals))
        }
        EpisodeEvent::Ended(episode) => {
            format!("{} ended after {}", cause.subject(), describe_episode(episode))
        }
    }
}

fn describe_stop(cause: Cause, episode: &Episode) -> String {
    format!("{} ended when this process stopped, after {}", cause.subject(), describe_episode(episode))
}

fn describe_episode(Episode { began_ms, last_ms, refusals }: &Episode) -> String {
    let seconds = last_ms.saturating_sub(*began_ms).div_ceil(1000);
    format!("{seconds} s: {}", describe_counts(refusals))
}

fn describe_counts(refusals: &Refusals) -> String {
    describe(refusals.iter().map(|(name, count)| (*name, *count)))
}

fn describe<'a>(refusals: impl Iterator<Item = (&'a str, u64)>) -> String {
    refusals.map(|(name, count)| format!("{count} × {name}")).collect::<Vec<_>>().join(", ")
}

/// Returns a line of advice for each resource that has run out.
fn advise(refusals: &Refusals) -> String {
    let limit = getrlimit(Resource::Nofile);
    let (limit, hard) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    let mut lines: Vec<_> = refusals.keys().map(|name| advise_on(name, limit, hard)).collect();
    lines.sort();
    lines.dedup();
    lines.concat()
}

/// Returns advice on the reason with this name. `limit` is how many files the process may open, and `hard` the highest
/// limit that it may set.
fn advise_on(name: &str, limit: u64, hard: u64) -> String {
    let wanted = limit.saturating_mul(2).max(OPEN_FILES_WANTED_MIN);
    let raise = if wanted <= hard {
        format!("open-files {wanted} in the configuration")
    } else {
        format!("LimitNOFILE={wanted} in the systemd unit, or ulimit -Hn {wanted} as root before starting flatout")
    };
    match name {
        "accept_descriptor_share" => {
            format!("\n  try: {raise}; of the {limit} files, each worker has a share for connections")
        }
        "accept_process_descriptors" => format!("\n  try: {raise}; this process may open {limit} files"),
        "accept_system_descriptors" => "\n  try: a higher sysctl fs.file-max".to_owned(),
        "accept_kernel_memory" => {
            "\n  try: more memory, or lower limits in limit-connections; see /proc/net/sockstat".to_owned()
        }
        "origin_no_local_port" => "\n  try: a wider sysctl net.ipv4.ip_local_port_range".to_owned(),
        // Such an outcome has several causes.
        _ => format!("\n  try: {raise}, if this process has {limit} open files; otherwise a higher sysctl fs.file-max"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Cause, advise_on, describe_event, describe_stop};
    use flatout_overload::{Episode, EpisodeEvent};

    #[test]
    fn lines_say_what_was_refused() {
        let refusals = [("accept_queue_full", 15), ("page_overloaded", 3)].into();
        let episode = Episode { began_ms: 1_000, last_ms: 34_500, refusals };
        let refused = "15 × accept_queue_full, 3 × page_overloaded";
        let began = describe_event(Cause::Overload, &EpisodeEvent::Began(episode.clone()));
        assert_eq!(began, format!("overload began: {refused}"));
        let ended = describe_event(Cause::Overload, &EpisodeEvent::Ended(episode.clone()));
        assert_eq!(ended, format!("overload ended after 34 s: {refused}"));
        let last = describe_stop(Cause::Overload, &episode);
        assert_eq!(last, format!("overload ended when this process stopped, after 34 s: {refused}"));
    }

    #[test]
    fn the_advice_fits_the_resource() {
        let share = advise_on("accept_descriptor_share", 1024, 4096);
        assert!(share.starts_with("\n  try: open-files 2048 in the configuration; of the 1024 files"), "{share}");
        let process = advise_on("accept_process_descriptors", 1024, 1024);
        assert!(process.starts_with("\n  try: LimitNOFILE=2048 in the systemd unit"), "{process}");
        assert!(advise_on("accept_system_descriptors", 1024, 4096).ends_with(" fs.file-max"));
        assert!(!advise_on("accept_kernel_memory", 1024, 4096).contains("open-files"));
        assert!(!advise_on("origin_no_local_port", 1024, 4096).contains("open-files"));
        assert!(advise_on("no_descriptor", 3, 4096).contains("open-files 1024 in the configuration, if "));
    }
}
