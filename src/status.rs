//! `flatout status`: shows the state of a running flatout.

use crate::admin::AdminArgs;
use crate::config::Color;
use clap::Args;
use flatout_config::Style;
use flatout_daemon::Failure;
use flatout_daemon::status::Status;
use flatout_units::quantity::exact_size;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::process::ExitCode;

/// Show the status of a running flatout
#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// Print the status as JSON, including the schema name
    #[arg(long)]
    json: bool,
    /// When to use colors
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: Color,
}

/// Runs the command and returns its exit code.
pub(crate) fn run(arguments: &StatusArgs) -> ExitCode {
    match report(arguments) {
        Ok(text) => {
            // A closed pipe is not an error.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(failure) => failure.report(),
    }
}

fn report(arguments: &StatusArgs) -> Result<String, Failure> {
    let reply = arguments.admin.ask("GET", "/status")?;
    if reply.status != 200 {
        return Err(Failure::runtime(format!("the server responded with {}: {}", reply.status, reply.body.trim_end())));
    }
    if arguments.json {
        return Ok(reply.body);
    }
    let status: Status = serde_json::from_str(&reply.body)
        .map_err(|error| Failure::runtime(format!("this version cannot read the server's response: {error}")))?;
    // Errors go to standard error, but the status goes to standard output, so each stream is checked for a terminal.
    let colour = match arguments.color {
        Color::Auto => io::stdout().is_terminal() && Color::Always.style() == Style::Colour && !no_color(),
        Color::Always => true,
        Color::Never => false,
    };
    Ok(render(&status, colour))
}

fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Number of days before a certificate's expiry from which on the date is coloured.
const DAYS_FEW: i64 = 14;

fn render(status: &Status, colour: bool) -> String {
    let paint = |code: &str, text: &str| if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() };
    let mut text = String::new();
    let mut row = |name: &str, value: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{} {value}", paint("1", &format!("{name:<12}")));
    };
    let worker = match status.worker_pid {
        0 => String::new(),
        pid if pid == status.pid => String::new(),
        pid => format!(" (worker process {pid})"),
    };
    let (version, pid, phase) = (&status.version, status.pid, &status.phase);
    row("flatout", &format!("{version}, process {pid}{worker}, {phase} for {}", duration(status.uptime_s)));
    let refused = if status.reloads_refused > 0 {
        format!(", {} reloads refused", status.reloads_refused)
    } else {
        String::new()
    };
    row("generation", &format!("{}{refused}", status.generation));
    row("config", status.config.as_deref().unwrap_or("from command-line flags"));
    let confined = if status.landlock { ", confined by Landlock" } else { "" };
    row("workers", &format!("{}{confined}", status.workers));
    for (index, listener) in status.listeners.iter().enumerate() {
        let http3 = match listener.http3_receive_bytes {
            Some(bytes) => format!(", HTTP/3 with receive buffers of {}", exact_size(bytes)),
            None => String::new(),
        };
        let (protocol, address) = (&listener.protocol, &listener.address);
        let shown = if address.starts_with("unix:") {
            format!("{address} ({protocol})")
        } else {
            format!("{protocol}://{address}")
        };
        row(if index == 0 { "listeners" } else { "" }, &format!("{shown}{http3}"));
    }
    for (index, site) in status.sites.iter().enumerate() {
        row(if index == 0 { "sites" } else { "" }, &site.hosts.join(" "));
    }
    for (index, certificate) in status.certificates.iter().enumerate() {
        let left = match certificate.days_left {
            Some(days) if days < 0 => paint("31", &format!("expired {} days ago", -days)),
            Some(days) if days < DAYS_FEW => paint("33", &format!("{days} days left")),
            Some(days) => format!("{days} days left"),
            None => "expiry unknown".to_owned(),
        };
        let line = format!("{} ({}): {left}", certificate.hosts.join(" "), certificate.source);
        row(if index == 0 { "certificates" } else { "" }, &line);
    }
    row("connections", &format!("{} open, {} accepted", status.connections_open, status.connections_accepted));
    row("requests", &format!("{}, {} bytes sent", status.requests, status.bytes_sent));
    for (name, refusals) in [("overload", &status.overload), ("resources", &status.resources)] {
        match refusals.since_unix_s {
            Some(since_unix_s) => {
                let seconds = (status.started_unix_s + status.uptime_s).saturating_sub(since_unix_s);
                row(name, &paint("31", &format!("for {}: {}", duration(seconds), refusals.describe())));
            }
            None if name == "overload" => row(name, "none"),
            None => {}
        }
    }
    let width = status.queues.iter().map(|queue| queue.name.len()).max().unwrap_or(0);
    for (index, queue) in status.queues.iter().enumerate() {
        let value = format!("{} waiting, at most {}", queue.waiting, queue.waiting_max);
        row(if index == 0 { "queues" } else { "" }, &format!("{:<width$} {value}", queue.name));
    }
    if status.log_lines_lost > 0 {
        row("logs", &paint("31", &format!("{} lines lost", status.log_lines_lost)));
    }
    let width = status.store.iter().map(|line| line.name.len()).max().unwrap_or(0);
    for (index, line) in status.store.iter().enumerate() {
        row(if index == 0 { "cache" } else { "" }, &format!("{:<width$} {}", line.name, line.value));
    }
    let width = status.limits.iter().map(|line| line.name.len()).max().unwrap_or(0);
    for (index, line) in status.limits.iter().enumerate() {
        row(if index == 0 { "limits" } else { "" }, &format!("{:<width$} {}", line.name, line.value));
    }
    let width = status.reasons.iter().map(|reason| reason.name.len()).max().unwrap_or(0);
    for (index, reason) in status.reasons.iter().enumerate() {
        row(if index == 0 { "reasons" } else { "" }, &format!("{:<width$} {}", reason.name, reason.count));
    }
    if let Some(error) = &status.last_error {
        row("last error", &paint("31", error.trim_end()));
    }
    text
}

/// Formats a duration with its two largest units: `3d 4h`, `5m 2s`.
fn duration(seconds: u64) -> String {
    let parts = [(seconds / 86_400, "d"), (seconds / 3600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let first = parts.iter().position(|(count, _)| *count > 0).unwrap_or(parts.len() - 1);
    let shown: Vec<String> = parts[first..].iter().take(2).map(|(count, unit)| format!("{count}{unit}")).collect();
    shown.join(" ")
}

#[cfg(test)]
mod tests {
    use super::{Status, duration, render};

    #[test]
    fn durations_have_at_most_two_units() {
        for (seconds, text) in [(0, "0s"), (59, "59s"), (61, "1m 1s"), (3600, "1h 0m"), (90_061, "1d 1h")] {
            assert_eq!(duration(seconds), text);
        }
    }

    /// A status as an older flatout would return it, except for its rows about the store.
    fn status(store: &str) -> Status {
        let text = format!(
            r#"{{"schema": "flatout-status/1", "version": "1", "pid": 2, "started_unix_s": 3, "uptime_s": 4, "phase": "serving",
            "generation": 5, "reloads_refused": 0, "upgrades_failed": 0, "last_error": null, "config": null, "workers": 1,
            "landlock": false, "listeners": [], "sites": [], "certificates": [], "connections_open": 0,
            "connections_accepted": 0, "requests": 0, "bytes_sent": 0, "log_lines_lost": 0, {store} "reasons": []}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn rows_of_the_store_are_shown_when_there_are_any() {
        assert!(!render(&status(""), false).contains("cache"));
        let rows = r#"{"name": "memory", "value": "1 MiB of 2 MiB"}, {"name": "hits", "value": "7"}"#;
        let text = render(&status(&format!(r#""store": [{rows}],"#)), false);
        assert!(text.contains("\ncache        memory 1 MiB of 2 MiB\n             hits   7\n"), "{text}");
    }

    #[test]
    fn an_overload_is_shown_with_its_queues() {
        assert!(render(&status(""), false).contains("\noverload     none\n"));
        let rows = r#""overload": {"since_unix_s": 5, "refused": [{"name": "page_overloaded", "count": 9}]}, "queues": [
            {"name": "accept: [::1]:80", "waiting": 65, "waiting_max": 64},
            {"name": "passwords", "waiting": 0, "waiting_max": 65}],"#;
        let text = render(&status(rows), false);
        let lines = [
            "overload     for 2s: 9 × page_overloaded",
            "queues       accept: [::1]:80 65 waiting, at most 64",
            "             passwords        0 waiting, at most 65",
        ];
        assert!(text.contains(&lines.join("\n")), "{text}");
    }
}
