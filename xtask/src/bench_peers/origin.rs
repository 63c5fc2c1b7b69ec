//! The origin behind an accelerator: our own server on the client's core, which says how often it was asked.

use super::bench::Bench;
use super::cases::{Behind, Case};
use super::servers;
use crate::failure::{Context, Outcome};
use crate::shell;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A running origin; it stops when dropped. Its time is nobody's cost.
pub(super) struct Origin {
    child: Child,
    admin: PathBuf,
    pub(super) port: u16,
    /// Its command and its configuration, for the report.
    pub(super) shown: String,
}

impl Drop for Origin {
    fn drop(&mut self) {
        servers::stop(&mut self.child);
    }
}

impl Origin {
    /// Starts one for this accelerator alone, so that anyone who asks it is known.
    pub(super) fn start(bench: &Bench, case: &Case, behind: Behind, slug: &str) -> Outcome<Self> {
        let port = servers::free_port()?;
        let folder = bench.folder();
        let admin = folder.join(format!("{slug}.origin.sock"));
        let config = config(port, &admin.display().to_string(), &folder.join(case.file.root), behind);
        let file = folder.join(format!("{slug}.origin.kdl"));
        std::fs::write(&file, &config).cannot("write an origin's configuration")?;
        let mut command = servers::flatout(bench)?;
        command.args(["run", "-c"]).arg(&file);
        let shown = format!("# Its origin, on the client's core: {}\n{config}", shell::shown(&command));
        let said = std::fs::File::create(folder.join(format!("{slug}.origin.log"))).cannot("create an origin's log")?;
        let mut command = bench.on_client_core(&command);
        command.stdin(Stdio::null()).stdout(said.try_clone().cannot("create an origin's log")?).stderr(said);
        let child = command.spawn().cannot("start an origin")?;
        let mut origin = Self { child, admin, port, shown };
        servers::wait_until_ready(&mut origin.child, port).cannot("start an origin")?;
        Ok(origin)
    }

    /// How many requests have reached it so far.
    pub(super) fn requests(&self) -> Outcome<u64> {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--max-time", "10", "--unix-socket"]).arg(&self.admin);
        let text = shell::output_of(curl.arg("http://origin/metrics"))?;
        requests(&text).cannot("read how many requests an origin has counted")
    }
}

fn requests(metrics: &str) -> Option<u64> {
    metrics.lines().find_map(|line| line.strip_prefix("flatout_requests_total ")).and_then(|n| n.trim().parse().ok())
}

/// Nothing that varies, so that no cache has to compare what was asked.
fn config(port: u16, admin: &str, root: &std::path::Path, behind: Behind) -> String {
    format!(
        "workers 1
admin \"{admin}\"
site \"*\" {{
    listen \"127.0.0.1:{port}\"
    header {{
        set \"Cache-Control\" \"{}\"
        remove \"Vary\"
    }}
    files \"{}\"
}}
",
        behind.cache_control(),
        root.display()
    )
}

/// What a round's requests must have done at the origin.
pub(super) fn is_right(behind: Behind, requests: u64, reached: u64) -> Outcome<()> {
    match behind {
        Behind::Kept if reached > 0 => {
            Err(format!("{reached} of {requests} requests reached its origin: they were no hits").into())
        }
        Behind::Private if reached < requests => {
            Err(format!("{reached} of {requests} requests reached its origin: it kept what is private").into())
        }
        Behind::Kept | Behind::Private => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_never_reach_the_origin_and_what_is_private_always_does() {
        assert!(is_right(Behind::Kept, 100, 0).is_ok() && is_right(Behind::Kept, 100, 1).is_err());
        // What was under way when the client stopped is counted by the origin alone.
        assert!(is_right(Behind::Private, 100, 164).is_ok() && is_right(Behind::Private, 100, 99).is_err());
    }

    #[test]
    fn the_count_is_read_from_the_metrics() {
        let text = "# TYPE flatout_requests counter\nflatout_requests_total 42\nflatout_open 1\n";
        assert_eq!(requests(text), Some(42));
        assert_eq!(requests("flatout_requests_total many\n"), None);
    }
}
