//! The machine and the versions a result was measured on: without them a figure means nothing.

use super::bench::Bench;
use std::fs;
use std::process::Command;

/// What the report says before its tables.
pub(super) struct Machine {
    /// Name and value, in the report's order.
    pub(super) facts: Vec<(String, String)>,
    /// What makes this run doubtful.
    pub(super) warnings: Vec<String>,
}

/// Above this, somebody else is using the machine.
const IDLE_LOAD_MAX: f64 = 0.5;

impl Machine {
    /// Looks around.
    pub(super) fn describe(bench: &Bench) -> Self {
        let mut warnings = Vec::new();
        let load = one_minute_load();
        if load > IDLE_LOAD_MAX {
            warnings.push(format!("the machine was busy before the run: load {load:.2}"));
        }
        let mut facts = vec![
            ("date", said_by("date", &["-u", "+%Y-%m-%d"])),
            ("processor", processor()),
            ("cores", std::thread::available_parallelism().map_or(0, usize::from).to_string()),
            ("memory", memory()),
            ("kernel", read("/proc/sys/kernel/osrelease")),
            ("system", system()),
            ("load before the run", format!("{load:.2}")),
        ];
        facts.extend(bench.versions());
        let facts = facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { facts, warnings }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn one_minute_load() -> f64 {
    read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(f64::NAN)
}

fn processor() -> String {
    value_after(&read("/proc/cpuinfo"), "model name", ':')
}

fn system() -> String {
    value_after(&read("/etc/os-release"), "PRETTY_NAME", '=').trim_matches('"').to_owned()
}

fn memory() -> String {
    let total = value_after(&read("/proc/meminfo"), "MemTotal", ':');
    let kib: Option<f64> = total.split(' ').next().and_then(|kib| kib.parse().ok());
    kib.map_or(total, |kib| format!("{:.1} GiB", kib / 1024.0 / 1024.0))
}

fn value_after(text: &str, name: &str, separator: char) -> String {
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.split_once(separator)).map(|(_, value)| value.trim());
    value.unwrap_or("unknown").to_owned()
}

/// The first line a program prints, on whichever stream.
pub(super) fn said_by(program: &str, args: &[&str]) -> String {
    let Some(path) = crate::shell::locate(program) else { return "not installed".to_owned() };
    first_line(Command::new(path).args(args))
}

/// The same of a command.
pub(super) fn first_line(command: &mut Command) -> String {
    let Ok(output) = command.output() else { return "does not start".to_owned() };
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).lines().next().unwrap_or("says nothing").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_from_the_kernels_lists() {
        assert_eq!(value_after("a\t: 1\nb : 2\n", "b", ':'), "2");
        assert_eq!(value_after("a : 1\n", "c", ':'), "unknown");
        assert_eq!(first_line(Command::new("sh").args(["-c", "echo 'v 1' >&2"])), "v 1");
    }
}
