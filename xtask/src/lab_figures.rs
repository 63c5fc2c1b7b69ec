//! The lab's own figures: how late it begins what is due, how flat its memory is, how many connections it holds.
//!
//! The server is pinned to one core and the client to another, as in `suites/peers.kdl`; run it on a machine that does nothing
//! else. What is printed is to be quoted with the machine's name.

use crate::failure::{Context, Outcome};
use crate::shell;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const USAGE: &str = "\
usage: cargo xtask lab-figures [--quick]

  --quick    short runs: to see that everything runs, not to quote

FLATOUT_BIN names the binary to measure; without it, target/release/flatout.";

/// Largest lag of 99 in 100 requests, in nanoseconds.
const LAG_NS_MAX: u64 = 100_000;

/// `cargo xtask lab-figures`.
pub(crate) fn run(args: &[String]) -> Outcome<()> {
    let is_quick = match args {
        [] => false,
        [word] if word == "--quick" => true,
        _ => {
            println!("{USAGE}");
            return Ok(());
        }
    };
    let flatout = shell::release_binary()?;
    let folder =
        PathBuf::from(shell::output_of(Command::new("mktemp").args(["-d", "-t", "flatout-lab.XXXXXX"]))?.trim());
    let figures = Figures { flatout, folder, is_quick };
    let measured = figures.measure();
    std::fs::remove_dir_all(&figures.folder).cannot("remove the folder of the figures")?;
    measured
}

struct Figures {
    flatout: PathBuf,
    folder: PathBuf,
    is_quick: bool,
}

/// A server that is killed at the end.
struct Server(Child, String);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Figures {
    fn measure(&self) -> Outcome<()> {
        std::fs::write(self.folder.join("1k"), vec![b'x'; 1024]).cannot("write a file to serve")?;
        let server = self.serve()?;
        let url = format!("{}1k", server.1);
        let seconds = if self.is_quick { "2s" } else { "30s" };
        let mut is_late = false;
        println!("| load | lag p50 | lag p99 | lag max | response p99 | client CPU |");
        println!("|---|---|---|---|---|---|");
        for rate in ["100", "1000", "10000"] {
            let json = self.bench(&url, &["--rate", rate, "-c", "64", "-d", seconds])?;
            let lag = |name: &str| json["lag"][name].as_u64().unwrap_or(u64::MAX);
            is_late |= lag("p99_ns") > LAG_NS_MAX;
            println!(
                "| {rate}/s | {} | {} | {} | {} | {:.1} % |",
                micros(lag("p50_ns")),
                micros(lag("p99_ns")),
                micros(lag("max_ns")),
                micros(json["latency"]["p99_ns"].as_u64().unwrap_or(0)),
                100.0 * json["client"]["busy_share"].as_f64().unwrap_or(0.0)
            );
        }
        let counts: &[&str] = if self.is_quick { &["100000", "200000"] } else { &["1000000", "10000000"] };
        println!("\n| requests | most memory of the client |\n|---|---|");
        for requests in counts {
            let json = self.bench(&url, &["-n", requests, "-c", "64"])?;
            let peak = json["steps"][0]["client"]["memory_bytes_peak"].as_u64().unwrap_or(0);
            println!("| {requests} | {:.1} MiB |", peak as f64 / 1024.0 / 1024.0);
        }
        if is_late {
            eprintln!("!!! 99 in 100 requests should begin within {}", micros(LAG_NS_MAX));
        }
        Ok(())
    }

    fn serve(&self) -> Outcome<Server> {
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(&self.flatout).arg("serve").arg(&self.folder);
        command.args(["--listen", "127.0.0.1:0", "--workers", "1"]).stdout(Stdio::piped());
        let mut child = command.spawn().cannot("start the server")?;
        let stdout = child.stdout.take().cannot("read what the server says")?;
        let mut server = Server(child, String::new());
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).cannot("read the server's URL")?;
        line.trim().clone_into(&mut server.1);
        Ok(server)
    }

    fn bench(&self, url: &str, arguments: &[&str]) -> Outcome<serde_json::Value> {
        let file: &Path = &self.folder.join("result.json");
        let mut command = Command::new("taskset");
        command.args(["-c", "1"]).arg(&self.flatout).args(["bench", url, "--threads", "1"]).args(arguments);
        command.arg("--json").arg(file).stdout(Stdio::null());
        let status = command.status().cannot("run the bench")?;
        if !status.success() {
            eprintln!("!!! `{}` ended with {status}", shell::shown(&command));
        }
        let text = std::fs::read_to_string(file).cannot("read the bench's result")?;
        serde_json::from_str(&text).cannot("read the bench's result")
    }
}

fn micros(ns: u64) -> String {
    format!("{:.1} µs", ns as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_shown_in_microseconds() {
        assert_eq!(super::micros(1_234), "1.2 µs");
        assert!(super::run(&["--fast".to_owned()]).is_ok());
    }
}
