//! Folders whose paths name another folder now: a link was switched to the next release, or a build has deleted the
//! folder and created it again. flatout then puts the same configuration in force again, which opens the new folder.
//!
//! A thread looks up the paths, because a network file system may not respond. Requests never look them up.

use crate::events::{EventReceiver, event_channel};
use crate::failure::Failure;
use flatout_engine::spec::OpenedFolder;
use flatout_os::clock;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The time from the end of a check to the next one.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The first delay after an attempt to follow a folder that has failed, or that has replaced the worker process. Each
/// further delay is twice as long.
const DELAY_MIN: Duration = Duration::from_secs(1);

/// The longest delay. Each process that is replaced loses the responses stored in memory.
const DELAY_MAX: Duration = Duration::from_mins(5);

/// If nothing is to be followed for so long after a delay, the next delay is the first one again.
const QUIET_TIME: Duration = Duration::from_mins(1);

/// Returns the message that the folder at `path` was replaced, and that the new one is served.
pub(crate) fn describe_replaced(path: &Path) -> String {
    format!("note: {} is another folder now, and flatout serves it", path.display())
}

/// Returns the message that the folder at `path` was replaced, and why the new one is not served.
pub(crate) fn describe_unusable(path: &Path, failure: &Failure) -> String {
    let text = failure.text.trim_start_matches("error: ");
    format!(
        "warning: {} is another folder now, but the earlier one remains in use; flatout tries again later: {text}",
        path.display()
    )
}

/// Checks that the folders in `next` may be served without a command of an operator, in place of those in `opened`,
/// which the same paths named before.
///
/// # Errors
/// If a folder belongs to another user than before, and not to root.
pub(crate) fn check_owners(opened: &[OpenedFolder], next: &[OpenedFolder]) -> Result<(), Failure> {
    let before = |next: &OpenedFolder| opened.iter().find(|folder| folder.path() == next.path());
    let foreign = next.iter().find_map(|next| Some((next.path(), before(next)?.describe_foreign(next)?)));
    let Some((path, why)) = foreign else { return Ok(()) };
    let path = path.display();
    Err(Failure::runtime(format!("{path} {why}\n  try: flatout reload, if this folder is to be served")))
}

/// The checks for replaced folders, and the attempts to follow one.
#[derive(Debug)]
pub(crate) struct FolderCheck {
    /// The thread that checks; `None` until [`FolderCheck::start_thread`] succeeds.
    thread: Option<CheckThread>,
    /// True from the beginning of a check until its result is taken.
    is_outstanding: bool,
    /// True if the folders that are being checked are no longer in use, so that the result is ignored.
    is_outdated: bool,
    /// When the last check ended.
    checked_at: Instant,
    /// When the last attempt began.
    requested_at: Instant,
    delay: FollowDelay,
    /// The failure that was last reported.
    failure: Option<String>,
}

impl FolderCheck {
    pub(crate) fn new() -> Self {
        let now = clock::now();
        Self {
            thread: None,
            is_outstanding: false,
            is_outdated: false,
            checked_at: now,
            requested_at: now,
            delay: FollowDelay::default(),
            failure: None,
        }
    }

    /// A descriptor that is readable when the result of a check is available.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.thread.as_ref().map(|thread| thread.results.fd())
    }

    /// The time until the next check; `None` while one is in progress.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let interval = CHECK_INTERVAL.saturating_sub(clock::since(self.checked_at));
        (!self.is_outstanding).then(|| interval.max(self.delay.time_left(clock::now())))
    }

    /// Returns whether it is time for a check.
    pub(crate) fn is_due(&self) -> bool {
        self.time_left().is_some_and(|left| left.is_zero())
    }

    /// Starts the thread that checks, unless it is running. Called once the process is ready, and no earlier: a thread
    /// that exists before the process is confined stays unconfined.
    pub(crate) fn start_thread(&mut self) {
        if self.thread.is_none() {
            // Without a descriptor or a thread, the next check tries again.
            self.thread = CheckThread::start(find_replaced).ok();
        }
    }

    /// Begins to check `opened`.
    pub(crate) fn begin(&mut self, opened: Vec<OpenedFolder>) {
        (self.checked_at, self.is_outdated) = (clock::now(), false);
        self.start_thread();
        self.is_outstanding = self.thread.as_ref().is_some_and(|thread| thread.folders.send(opened).is_ok());
    }

    /// Takes the result of a check: the path of a folder that was replaced.
    pub(crate) fn take_replaced(&mut self) -> Option<PathBuf> {
        let results = &self.thread.as_ref().filter(|_| self.is_outstanding)?.results;
        results.quiet();
        let replaced = results.next()?;
        (self.is_outstanding, self.checked_at) = (false, clock::now());
        replaced.filter(|_| !self.is_outdated)
    }

    /// Notes that an attempt to follow a folder begins.
    pub(crate) fn request(&mut self) {
        self.requested_at = clock::now();
    }

    /// Notes that a configuration was put in force, and so that its folders were opened.
    pub(crate) fn succeed(&mut self) {
        (self.failure, self.is_outdated) = (None, true);
    }

    /// Notes that the attempt has ended, and that the next one is to wait: it has failed, or a worker process was
    /// replaced.
    pub(crate) fn delay_next(&mut self) {
        self.delay.extend(self.requested_at, clock::now());
    }

    /// Notes that the new folder cannot be served, perhaps because it is being built. Returns whether this is to be
    /// reported: not if the last attempt failed as well for the same reason.
    pub(crate) fn fail(&mut self, failure: String) -> bool {
        self.delay_next();
        let is_new = self.failure.as_ref() != Some(&failure);
        self.failure = Some(failure);
        is_new
    }
}

fn find_replaced(opened: &[OpenedFolder]) -> Option<PathBuf> {
    opened.iter().find(|folder| folder.replacement().is_some()).map(|replaced| replaced.path().to_owned())
}

/// The thread that looks up paths. It exits when this value is dropped, unless a file system does not respond.
#[derive(Debug)]
struct CheckThread {
    folders: Sender<Vec<OpenedFolder>>,
    results: EventReceiver<Option<PathBuf>>,
}

impl CheckThread {
    /// Starts a thread that calls `check` with each list of folders, and sends the result.
    ///
    /// # Errors
    /// If no descriptor or thread is available.
    fn start(check: impl Fn(&[OpenedFolder]) -> Option<PathBuf> + Send + 'static) -> io::Result<Self> {
        let (sender, results) = event_channel()?;
        let (folders, received) = channel::<Vec<OpenedFolder>>();
        let body = move || {
            while let Ok(opened) = received.recv() {
                sender.send(check(&opened));
            }
        };
        thread::Builder::new().name("folders".to_owned()).spawn(body)?;
        Ok(Self { folders, results })
    }
}

/// The delay between attempts to follow a folder. It doubles, so that neither a folder that stays unusable nor one that
/// is switched all the time costs much.
#[derive(Debug, Default)]
struct FollowDelay {
    delay: Duration,
    /// The end of the last attempt.
    ended_at: Option<Instant>,
}

impl FollowDelay {
    fn time_left(&self, now: Instant) -> Duration {
        self.ended_at.map_or(Duration::ZERO, |at| (at + self.delay).saturating_duration_since(now))
    }

    /// Extends the delay after an attempt that has begun and ended at these times.
    fn extend(&mut self, begun_at: Instant, ended_at: Instant) {
        let is_quiet = self.ended_at.is_none_or(|at| begun_at >= at + self.delay + QUIET_TIME);
        self.delay = if is_quiet { DELAY_MIN } else { (2 * self.delay).min(DELAY_MAX) };
        self.ended_at = Some(ended_at);
    }
}

#[cfg(test)]
mod tests {
    use super::{CheckThread, FolderCheck, FollowDelay};
    use flatout_os::clock;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::path::PathBuf;
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    fn wait(check: &FolderCheck) {
        let fd = check.fd().unwrap();
        assert_eq!(poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], None).unwrap(), 1);
    }

    /// A check for which it is time.
    fn due(thread: CheckThread) -> FolderCheck {
        let checked_at = clock::now().checked_sub(Duration::from_secs(2)).unwrap();
        FolderCheck { thread: Some(thread), checked_at, ..FolderCheck::new() }
    }

    /// As with a network file system that does not respond.
    #[test]
    fn a_check_that_hangs_does_not_block_the_caller_and_is_not_repeated() {
        let (responds, response) = channel();
        let mut check = due(CheckThread::start(move |_| response.recv().unwrap()).unwrap());
        assert!(check.is_due());
        check.begin(Vec::new());
        assert_eq!((check.time_left(), check.is_due(), check.take_replaced()), (None, false, None));
        responds.send(Some(PathBuf::from("/srv"))).unwrap();
        wait(&check);
        assert_eq!(check.take_replaced(), Some(PathBuf::from("/srv")));
        assert!(check.time_left().is_some() && !check.is_due());
        assert_eq!(check.take_replaced(), None);
    }

    #[test]
    fn the_result_of_a_check_is_ignored_after_a_reload() {
        let mut check = due(CheckThread::start(|_| Some("/srv".into())).unwrap());
        check.begin(Vec::new());
        check.succeed();
        wait(&check);
        assert_eq!(check.take_replaced(), None);
        check.begin(Vec::new());
        wait(&check);
        assert_eq!(check.take_replaced(), Some(PathBuf::from("/srv")));
    }

    #[test]
    fn the_delay_doubles_from_the_end_of_each_attempt_until_a_quiet_minute() {
        let (start, mut delay) = (clock::now(), FollowDelay::default());
        let at = |seconds: u64| -> Instant { start + Duration::from_secs(seconds) };
        assert_eq!(delay.time_left(start), Duration::ZERO);
        let mut now = 0;
        for expected in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            // An attempt may take long.
            delay.extend(at(now), at(now + 100));
            assert_eq!(delay.time_left(at(now + 100)).as_secs(), expected);
            now += 100 + expected;
            assert_eq!(delay.time_left(at(now)), Duration::ZERO);
        }
        delay.extend(at(now + 59), at(now + 59));
        assert_eq!(delay.time_left(at(now + 59)).as_secs(), 300);
        now += 59 + 300 + 60;
        delay.extend(at(now), at(now));
        assert_eq!(delay.time_left(at(now)).as_secs(), 1);
    }

    #[test]
    fn the_same_failure_is_reported_once_and_delays_the_next_check() {
        let mut check = FolderCheck::new();
        check.request();
        assert!(check.fail("one".to_owned()));
        assert!(!check.fail("one".to_owned()) && check.fail("two".to_owned()));
        assert_eq!(check.delay.delay, Duration::from_secs(4));
        check.succeed();
        assert!(check.fail("two".to_owned()));
    }
}
