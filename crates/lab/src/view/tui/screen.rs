//! The terminal: switched to the alternate screen for the run, and restored however the run ends.
//!
//! The view is drawn on standard error, so that results on standard output can be piped. Keys keep their meaning:
//! Ctrl-C still sends SIGINT, which ends the run as it does without the view. Only echo is off, because it would
//! disturb the view.

use super::{DisplayState, RunProgress, draw};
use crate::bench::{Live, Phase, ProgressReceiver};
use crate::view::live::{planned, statuses};
use flatout_client::watch_endings;
use flatout_load::plan::Plan;
use flatout_os::clock::precise_ns;
use flatout_report::style::Style;
use flatout_report::verdict;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::{self, IsTerminal, Stderr};
use std::panic;
use std::sync::{Mutex, PoisonError};

/// The terminal settings from before the view was opened; `None` while no view is open. There is only one terminal, and
/// its settings must be restored however this process ends, even by a panic or a signal.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The smallest screen on which the view is drawn, in columns and rows.
const SIZE_MIN: (u16, u16) = (40, 14);

/// A live view on the terminal.
#[derive(Debug)]
pub struct LiveScreen {
    terminal: Terminal<CrosstermBackend<Stderr>>,
    watch: DisplayState,
    coloured: bool,
    /// Start of the current part, in nanoseconds.
    begun_ns: u64,
    /// Time of the progress that is shown, in nanoseconds.
    shown_ns: u64,
    /// True if the run is an open loop, in which requests can be late.
    is_open: bool,
}

impl LiveScreen {
    /// Opens the view. Returns `None` if standard error is not a terminal, or if the terminal is too small.
    pub fn open(title: &str) -> io::Result<Option<Self>> {
        let stderr = io::stderr();
        let is_large_enough =
            ratatui::crossterm::terminal::size().is_ok_and(|size| size.0 >= SIZE_MIN.0 && size.1 >= SIZE_MIN.1);
        if !stderr.is_terminal() || !is_large_enough {
            return Ok(None);
        }
        take(&stderr)?;
        let coloured = Style::of(&stderr) == Style::COLOURED;
        let terminal = Terminal::new(CrosstermBackend::new(stderr));
        let terminal = terminal.inspect_err(|_| give_back())?;
        Ok(Some(Self {
            terminal,
            watch: DisplayState::new(title),
            coloured,
            begun_ns: precise_ns(),
            shown_ns: 0,
            is_open: false,
        }))
    }

    /// Shows the progress of the run.
    pub fn show(&mut self, standing: RunProgress) {
        self.watch.push(standing);
        let (watch, coloured) = (&self.watch, self.coloured);
        // A failed write to the terminal cannot be reported.
        let _drawn = self.terminal.draw(|frame| draw(watch, frame, coloured));
    }
}

impl Drop for LiveScreen {
    fn drop(&mut self) {
        give_back();
    }
}

impl ProgressReceiver for LiveScreen {
    fn is_live(&self) -> bool {
        true
    }

    fn handle_begin(&mut self, phase: Phase, plan: &Plan) {
        let load = verdict::load_of(plan);
        let part = match phase {
            Phase::Server => load,
            Phase::Limit => format!("the machine's limit, {load}"),
        };
        self.begun_ns = precise_ns();
        self.shown_ns = 0;
        self.watch.planned = planned(plan);
        self.is_open = plan.is_open();
        self.watch.begin(&part, plan.offered_per_s());
    }

    fn handle_live(&mut self, _phase: Phase, live: Option<&Live>) {
        // Show only new progress: an interval without any would look like a pause of the server.
        if let Some(live) = live.filter(|live| live.at_ns > self.shown_ns) {
            self.shown_ns = live.at_ns;
            self.watch.statuses = statuses(&live.statuses);
            let at_s = live.at_ns.saturating_sub(self.begun_ns) as f64 / 1e9;
            let (responses, failures, unanswered) = (live.responses, live.failures, live.unanswered);
            let lag = self.is_open.then_some(&live.lag);
            self.show(RunProgress { at_s, responses, failures, unanswered, response: &live.latency, lag });
        }
    }
}

/// Switches the terminal to the alternate screen, and ensures that it is restored however this process ends.
fn take(stderr: &Stderr) -> io::Result<()> {
    let before = tcgetattr(stderr)?;
    let mut quiet = before.clone();
    quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
    tcsetattr(stderr, OptionalActions::Now, &quiet)?;
    let is_first = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).replace(before).is_none();
    if is_first {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back();
            hook(info);
        }));
        watch_endings(give_back)?;
    }
    execute!(io::stderr(), EnterAlternateScreen, Hide).inspect_err(|_| give_back())
}

/// Restores the terminal. Only the first call has an effect.
fn give_back() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        let mut stderr = io::stderr();
        // A failure here cannot be reported.
        let _left = execute!(stderr, LeaveAlternateScreen, Show);
        let _set = tcsetattr(&stderr, OptionalActions::Now, &before);
    }
}
