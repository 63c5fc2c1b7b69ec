//! Where the results of a bench go.

use super::flags::OutputArgs;
use flatout_lab::bench::BenchReport;
use flatout_lab::view::output::{Output, print};
use flatout_lab::view::style::Style;
use flatout_lab::view::{human, json};

/// Everything that is to be written.
#[derive(Debug)]
pub(super) struct Outputs {
    json: Option<Output>,
}

impl Outputs {
    pub(super) fn of(args: &OutputArgs) -> Self {
        Self { json: args.json.as_deref().map(Output::parse) }
    }

    /// Says before the run what could not be written after it.
    pub(super) fn check(&self) -> Result<(), String> {
        match &self.json {
            Some(output @ Output::File(path)) => {
                output.check().map_err(|error| format!("cannot write to {}: {error}", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Writes everything, whatever becomes of the rest; says what could not be written.
    pub(super) fn write(&self, report: &BenchReport) -> Result<(), String> {
        let mut lost = Vec::new();
        if self.json != Some(Output::Stdout)
            && let Err(error) = print(&human::print_bench(report, Style::of(&std::io::stdout())))
        {
            lost.push(format!("to standard output: {error}"));
        }
        if let Some(output) = &self.json
            && let Err(error) = output.write(&format!("{:#}", json::bench_value(report)))
        {
            lost.push(match output {
                Output::File(path) => format!("to {}: {error}", path.display()),
                Output::Stdout => format!("to standard output: {error}"),
            });
        }
        if lost.is_empty() { Ok(()) } else { Err(format!("the result could not be written {}", lost.join("; "))) }
    }
}
