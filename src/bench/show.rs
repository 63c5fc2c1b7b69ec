//! The outputs of a bench, and the progress display.

use super::flags::OutputArgs;
use crate::report::write_tables;
use flatout_lab::bench::ProgressReceiver;
use flatout_lab::view::live::LiveLine;
use flatout_lab::view::tui::LiveScreen;
use flatout_load::report::RunReport;
use flatout_report::classic::Classic;
use flatout_report::output::{Output, show};
use flatout_report::{bundle, hlog, html, prometheus};
use std::path::PathBuf;

/// All outputs that were requested.
#[derive(Debug)]
pub(super) struct Outputs {
    view: Option<Classic>,
    json: Option<Output>,
    html: Option<Output>,
    prometheus: Option<Output>,
    hlog: Option<Output>,
    csv: Option<PathBuf>,
    bundle: Option<PathBuf>,
    has_screen: bool,
}

/// The progress display of a run. Dropping it restores the terminal.
#[derive(Debug)]
pub(super) enum Shown {
    Screen(Box<LiveScreen>),
    Line(LiveLine),
}

impl Shown {
    pub(super) fn watcher(&mut self) -> &mut dyn ProgressReceiver {
        match self {
            Self::Screen(screen) => &mut **screen,
            Self::Line(line) => line,
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Self::Line(line) = self {
            line.clear();
        }
    }
}

impl Outputs {
    pub(super) fn of(args: &OutputArgs) -> Self {
        let output = |name: &Option<String>| name.as_deref().map(Output::parse);
        Self {
            view: args.view,
            json: output(&args.json),
            html: output(&args.html),
            prometheus: output(&args.prometheus),
            hlog: output(&args.hlog),
            csv: args.csv.clone(),
            bundle: args.bundle.clone(),
            has_screen: args.tui || !args.no_tui,
        }
    }

    /// Opens the progress display: in full screen if requested and possible, otherwise as a line.
    pub(super) fn progress(&self, title: &str) -> Shown {
        let screen = if self.has_screen { LiveScreen::open(title).ok().flatten() } else { None };
        screen.map_or_else(|| Shown::Line(LiveLine::new()), |screen| Shown::Screen(Box::new(screen)))
    }

    fn files(&self) -> impl Iterator<Item = &Output> {
        [&self.json, &self.html, &self.prometheus, &self.hlog].into_iter().flatten()
    }

    /// Checks before the run that every output can be written.
    pub(super) fn check(&self) -> Result<(), String> {
        for output in self.files() {
            if let Output::File(path) = output {
                output.check().map_err(|error| format!("cannot write to {}: {error}", path.display()))?;
            }
        }
        for folder in [&self.csv, &self.bundle].into_iter().flatten() {
            let made = std::fs::create_dir_all(folder);
            made.map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
        }
        Ok(())
    }

    /// Writes every output, even if another output fails. Returns the failures.
    pub(super) fn write(&self, run: &RunReport, text: &str, json: &str) -> Result<(), String> {
        let mut lost = Vec::new();
        if !self.files().any(|output| *output == Output::Stdout) {
            let shown = self.view.map(|view| view.print(run));
            if let Err(error) = show(shown.as_deref().unwrap_or(text)) {
                lost.push(format!("to standard output: {error}"));
            }
        }
        let mut put = |output: &Option<Output>, content: &dyn Fn() -> String| {
            let Some(output) = output else { return };
            if let Err(error) = output.write(content().trim_end()) {
                lost.push(match output {
                    Output::File(path) => format!("to {}: {error}", path.display()),
                    Output::Stdout => format!("to standard output: {error}"),
                });
            }
        };
        put(&self.json, &|| json.to_owned());
        put(&self.html, &|| html::page(std::slice::from_ref(run)));
        put(&self.prometheus, &|| prometheus::metrics(run));
        put(&self.hlog, &|| hlog::log(run).encode());
        if let Some(folder) = &self.csv
            && let Err(text) = write_tables(folder, run)
        {
            lost.push(text);
        }
        if let Some(folder) = &self.bundle
            && let Err((path, error)) = bundle::write(folder, run)
        {
            lost.push(format!("to {}: {error}", path.display()));
        }
        if lost.is_empty() { Ok(()) } else { Err(format!("the result could not be written {}", lost.join("; "))) }
    }
}
