//! `flatout purge`: removes cached responses.

use crate::admin::AdminArgs;
use clap::Args;
use flatout_daemon::Failure;
use flatout_daemon::purge::{PurgeReply, PurgeRequest, PurgeScope};
use std::io::{self, Write as _};
use std::process::ExitCode;

/// Exit code if something failed at run time. README, "Exit codes", lists all exit codes.
const EXIT_FAILED: u8 = 1;
/// Exit code if the command line is invalid.
const EXIT_USAGE: u8 = 2;

/// Purge cached responses by URL, tag, prefix or host
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flatout purge https://example.com/news            one URL, with all its variants
  flatout purge --tag article-17                    responses with this Surrogate-Key or Cache-Tag
  flatout purge --prefix https://example.com/blog/  all URLs with this prefix
  flatout purge --host example.com --dry-run        count the responses for this host
  flatout purge --all --soft                        mark everything as stale

Give URLs as visitors see them, with the public host and port, not the origin's. When the command returns, purged \
responses are no longer served.

Exit codes:
  0  purged, or nothing matched
  1  the purge failed
  2  the command line is invalid, or no cache is configured")]
#[group(skip)]
pub(crate) struct PurgeArgs {
    #[command(flatten)]
    scope: ScopeArgs,
    /// Mark responses as stale instead of removing them
    ///
    /// A stale response may still be served while a new one is fetched, or if the origin fails.
    #[arg(long)]
    soft: bool,
    /// Print how many responses match, without purging them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    admin: AdminArgs,
    /// Print the result as JSON, including the schema name
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct ScopeArgs {
    /// URL to purge, including the scheme
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// Purge responses with this tag
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Purge all URLs with this prefix
    #[arg(long, value_name = "URL")]
    prefix: Option<String>,
    /// Purge all URLs on this host: on any port, or on one port with HOST:PORT
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Purge everything
    #[arg(long)]
    all: bool,
}

impl ScopeArgs {
    fn scope(&self) -> Result<PurgeScope, String> {
        match (&self.url, &self.tag, &self.prefix, &self.host) {
            (Some(url), ..) => PurgeScope::url(url),
            (_, Some(tag), ..) => PurgeScope::tag(tag),
            (_, _, Some(prefix), _) => PurgeScope::prefix(prefix),
            (.., Some(host)) => PurgeScope::host(host),
            _ => Ok(PurgeScope::All),
        }
    }
}

/// Runs the command and returns its exit code.
pub(crate) fn run(arguments: &PurgeArgs) -> ExitCode {
    let scope = match arguments.scope.scope() {
        Ok(scope) => scope,
        Err(message) => return Failure::usage(message).report(),
    };
    let request = PurgeRequest { scope, soft: arguments.soft, dry_run: arguments.dry_run };
    match arguments.admin.ask("POST", &request.to_target()) {
        Ok(reply) if reply.status == 200 => report(&reply.body, arguments.json),
        Ok(reply) => {
            let _ = io::stderr().write_all(reply.body.as_bytes());
            ExitCode::from(if matches!(reply.status, 409 | 422) { EXIT_USAGE } else { EXIT_FAILED })
        }
        Err(failure) => failure.report(),
    }
}

fn report(body: &str, json: bool) -> ExitCode {
    let text = if json {
        body.to_owned()
    } else {
        match serde_json::from_str::<PurgeReply>(body) {
            Ok(reply) => format!("{}\n", sentence(&reply)),
            Err(error) => {
                return Failure::runtime(format!("this version cannot read the server's response: {error}")).report();
            }
        }
    };
    // A closed pipe is not an error.
    let _ = io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn sentence(reply: &PurgeReply) -> String {
    let objects = if reply.objects == 1 { "object" } else { "objects" };
    let what = match (reply.soft, reply.dry_run) {
        (false, false) => "purged",
        (true, false) => "marked as stale",
        (false, true) => "would be purged",
        (true, true) => "would be marked as stale",
    };
    let proxies: Vec<String> =
        reply.proxies.iter().map(|purged| format!("{} for the proxy {}", purged.objects, purged.proxy)).collect();
    let proxies = if proxies.is_empty() { String::new() } else { format!(": {}", proxies.join(", ")) };
    format!("{} {objects} {what}{proxies}", reply.objects)
}

#[cfg(test)]
mod tests {
    use super::sentence;
    use flatout_daemon::purge::{PurgeReply, PurgeRequest, PurgeScope, PurgedProxy};

    #[test]
    fn what_was_done_is_said() {
        let reply = |counts: &[u64], soft, dry_run| {
            let names = ["a.example", "a.example#1"].map(str::to_owned);
            let proxies = names.into_iter().zip(counts);
            let proxies = proxies.map(|(proxy, &objects)| PurgedProxy { proxy, objects }).collect();
            sentence(&PurgeReply::new(&PurgeRequest { scope: PurgeScope::All, soft, dry_run }, proxies))
        };
        assert_eq!(reply(&[], false, false), "0 objects purged");
        assert_eq!(reply(&[1], true, false), "1 object marked as stale: 1 for the proxy a.example");
        assert_eq!(reply(&[2], false, true), "2 objects would be purged: 2 for the proxy a.example");
        assert_eq!(
            reply(&[2, 1], true, true),
            "3 objects would be marked as stale: 2 for the proxy a.example, 1 for the proxy a.example#1"
        );
    }
}
