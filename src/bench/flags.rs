//! The flags of `flatout bench`.

use super::plan::parse_duration;
use clap::Args;
use flatout_lab::request::Field;
use flatout_lab::view::classic::Classic;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Load a server and say how fast it was, and whether the figures can be believed
#[derive(Args, Debug)]
#[command(
    after_help = "Without --rate the loop is closed: every connection sends its next request when the last one is \
    answered. With --rate it is open: requests are due by the clock, and what waits for a free connection, or for this \
    client, counts as response time.\n\nExamples:\n  \
    flatout bench http://127.0.0.1:8080/                               64 connections for 10 seconds\n  \
    flatout bench URL --rate 2000 --arrivals exp --require 'p99<20ms'  2,000 requests/s as of many visitors\n  \
    flatout bench URL --rate 100..1100:100 --per connection            one level after another, a connection each\n  \
    flatout bench URL -c 1..512:x2                                     how throughput grows with connections\n  \
    flatout bench URL --find-knee 'p99<50ms'                           the highest rate that keeps it\n  \
    flatout bench URL --overload --rate 5000                           what becomes of it beyond 5,000/s\n  \
    flatout bench URL --vs URL2                                        which of two is faster, if any\n  \
    flatout bench URL --filelist filelist.standard --per connection    WebStone's mix, a connection each\n  \
    flatout bench URL --replay access.log,x10                          a log's requests, ten times as fast\n\nThe exit \
    code is 0 when every request was answered whole with a status below 400 and figures hold; the report says which do \
    not, and why. It is 1 when requests failed that no --require allows for; 2 when the command line makes no sense; 4 \
    when a --require was missed; 5 when no figure holds, when a part of what was asked for was not measured, when it is \
    not certain whether a --require is met, or when a figure does not hold under --strict."
)]
pub(crate) struct BenchArgs {
    #[arg(help = "What to load, such as http://127.0.0.1:8080/")]
    pub(super) url: String,
    #[command(flatten)]
    pub(super) load: LoadArgs,
    #[command(flatten)]
    pub(super) request: RequestArgs,
    #[command(flatten)]
    pub(super) question: QuestionArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    #[command(flatten)]
    pub(super) agents: AgentsArgs,
}

/// How much, how long and in what way.
#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
pub(crate) struct LoadArgs {
    /// Connections open at once: N, or levels such as 1..512:x2 [default: 64; with --rate 256, or at most 1000 where
    /// every arrival has one of its own]
    #[arg(short, long, value_name = "N")]
    pub(super) connections: Option<String>,
    /// How long to send, such as 500ms, 10s or 2m [default: 10s, or as long as the steps of --arrivals]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "requests")]
    pub(super) duration: Option<Duration>,
    /// Send exactly so many requests instead (with --rate: so many arrivals), a multiple of --burst
    #[arg(short = 'n', long, value_name = "N")]
    pub(super) requests: Option<u64>,
    /// Open loop: arrivals a second, N, or levels such as 100..1100:100
    #[arg(long, value_name = "RATE")]
    pub(super) rate: Option<String>,
    /// How regular arrivals are: fixed, exp, `uniform[:SPREAD]`, or steps:100@10s,100..500@1m [default: fixed]
    #[arg(long, value_name = "KIND")]
    pub(super) arrivals: Option<String>,
    /// What arrives: request, connection (of --calls requests) or session (of --session-length)
    #[arg(long, value_name = "WHAT", value_parser = ["request", "connection", "session"])]
    pub(super) per: Option<String>,
    /// Requests a connection, one after another; alone, it means --per connection
    #[arg(long, value_name = "N")]
    pub(super) calls: Option<u32>,
    /// Requests a session: a number, uniform:5..15, exp:5, or 30%:1,70%:uniform:5..15 [default: 5]
    #[arg(long, value_name = "DIST")]
    pub(super) session_length: Option<String>,
    /// Time between an answer and the next request: a time, exp:20ms, uniform:1s..3s [default: 0s]
    #[arg(long, value_name = "TIME|DIST")]
    pub(super) think: Option<String>,
    /// Requests sent at once on a connection, before any of them is answered [default: 1]
    #[arg(long, visible_alias = "pipeline", value_name = "N")]
    pub(super) burst: Option<u32>,
    /// A connection per request: short for --per connection
    #[arg(long)]
    pub(super) close: bool,
    /// What is not counted at the beginning: none, a time, or auto for as long as it is not steady [default: none]
    #[arg(long, value_name = "auto|TIME|none")]
    pub(super) warm_up: Option<String>,
    /// Stop when the mean response is known to within so many percent
    #[arg(long, value_name = "PERCENT", conflicts_with = "requests")]
    pub(super) until_tight: Option<String>,
    /// Seed of everything that is left to chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Client threads [default: half of the cores for a server on this machine, else all]
    #[arg(long, value_name = "N")]
    pub(super) threads: Option<u32>,
    /// Longest wait for a connection, and for a whole answer
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(super) timeout: Duration,
    /// Connect from so many addresses of 127.0.0.0/8 in turn
    #[arg(long, value_name = "N")]
    pub(super) sources: Option<u32>,
}

/// What is asked for, and how the server is spoken to.
#[derive(Args, Debug)]
#[command(next_help_heading = "Requests")]
pub(crate) struct RequestArgs {
    /// Ask for the URLs of a list in turn
    #[arg(long, value_name = "FILE", group = "workload_source")]
    pub(super) urls: Option<PathBuf>,
    /// Ask for the pages of a WebStone list by their weights; sizes in it are checked
    #[arg(long, value_name = "FILE", group = "workload_source")]
    pub(super) filelist: Option<PathBuf>,
    /// Ask as web96:OPS[,lambda=L] or web99:CONNECTIONS; `flatout workload make` writes their files
    #[arg(long, value_name = "NAME", group = "workload_source")]
    pub(super) workload: Option<String>,
    /// Ask again for what an access log has, at its own times or xK as fast
    #[arg(long, value_name = "LOG[,xK]", group = "workload_source", conflicts_with_all = ["rate", "arrivals"])]
    pub(super) replay: Option<String>,
    /// Method [default: GET, or what the list says]
    #[arg(long, value_name = "NAME")]
    pub(super) method: Option<String>,
    /// Send this file as content
    #[arg(long, value_name = "FILE")]
    pub(super) body: Option<PathBuf>,
    /// Send this header too, as 'Name: value'; may be given several times
    #[arg(short = 'H', long, value_name = "HEADER", value_parser = Field::parse)]
    pub(super) header: Vec<Field>,
    /// Version of HTTP: 1.0, 1.1 or 2
    #[arg(long, value_name = "VERSION", default_value = "1.1", value_parser = ["1.0", "1.1", "2"])]
    pub(super) http: String,
    /// HTTP/2: streams at once on each connection
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) streams: u32,
    /// Resume TLS sessions (the default)
    #[arg(long, overrides_with = "no_tls_resume")]
    pub(super) tls_resume: bool,
    /// Make every TLS session anew
    #[arg(long)]
    pub(super) no_tls_resume: bool,
    /// Believe any certificate
    #[arg(long)]
    pub(super) insecure: bool,
    /// Believe certificates signed by these (PEM), and by nobody else
    #[arg(long, value_name = "FILE")]
    pub(super) cacert: Option<PathBuf>,
    /// Check the digest of so large a share of all bodies, such as 1% or 0.01; sizes are always checked
    #[arg(long, value_name = "SHARE")]
    pub(super) verify_digest: Option<String>,
}

/// What is to be found out, and what must hold.
#[derive(Args, Debug)]
#[command(next_help_heading = "Questions")]
pub(crate) struct QuestionArgs {
    /// What must hold, such as 'p99<20ms', 'errors<0.1%' or 'rate>=1000'; may be given several times
    #[arg(long, value_name = "EXPR")]
    pub(super) require: Vec<String>,
    /// Exit with 5 unless every figure holds
    #[arg(long)]
    pub(super) strict: bool,
    /// Find the highest rate at which this holds; --rate A..B bounds the search, --duration is a long trial's length
    #[arg(long, value_name = "EXPR", group = "question_kind", conflicts_with = "agents")]
    pub(super) find_knee: Option<String>,
    /// Load beyond --rate (or beyond what is found to be the most), and see what is left and how soon it recovers
    #[arg(long, group = "question_kind", conflicts_with = "agents")]
    pub(super) overload: bool,
    /// With --overload: answers later than this are of no use to anybody
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration, requires = "overload")]
    pub(super) in_time: Duration,
    /// Compare with another URL: both take turns, and first the one with itself. Takes about four times --duration
    #[arg(long, value_name = "URL2", group = "question_kind", conflicts_with = "agents")]
    pub(super) vs: Option<String>,
    /// Measure the machine's limit beside the run, and say how near the run came to it
    #[arg(long, conflicts_with = "agents")]
    pub(super) limit: bool,
    /// Compare counts with the server's access log (common, combined or flatout's JSON)
    #[arg(long, value_name = "FILE", group = "server_books", conflicts_with = "agents")]
    pub(super) server_log: Option<PathBuf>,
    /// Compare counts with the server's metrics (flatout's names)
    #[arg(long, value_name = "URL", group = "server_books", conflicts_with = "agents")]
    pub(super) server_metrics: Option<String>,
}

/// What is shown and written.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Show the result as httperf, webstone, ptester, wrk or autobench would
    #[arg(long, value_name = "NAME", value_parser = Classic::parse)]
    pub(super) view: Option<Classic>,
    /// Write the result as JSON to FILE as well, or to standard output alone with -
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<String>,
    /// Write one page of HTML with charts
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<String>,
    /// Write tables as comma-separated values into this folder
    #[arg(long, value_name = "DIR")]
    pub(super) csv: Option<PathBuf>,
    /// Write metrics for Prometheus' textfile collector
    #[arg(long, value_name = "FILE")]
    pub(super) prometheus: Option<String>,
    /// Write the histograms as an HdrHistogram log
    #[arg(long, value_name = "FILE")]
    pub(super) hlog: Option<String>,
    /// Write all that `flatout rerun` needs into this folder
    #[arg(long, value_name = "DIR")]
    pub(super) bundle: Option<PathBuf>,
    /// Show the run on the whole terminal while it goes on (the default where there is one)
    #[arg(long, overrides_with = "no_tui", conflicts_with = "agents")]
    pub(super) tui: bool,
    /// Show one line at most while it goes on
    #[arg(long)]
    pub(super) no_tui: bool,
}

/// Several machines make one load.
#[derive(Args, Debug)]
#[command(next_help_heading = "Agents")]
pub(crate) struct AgentsArgs {
    /// Wait for so many `flatout agent`s, and have them make the load together
    #[arg(long, value_name = "N", requires_all = ["listen", "trust"], value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) agents: Option<u32>,
    /// Where agents are waited for, such as 0.0.0.0:7000
    #[arg(long, value_name = "ADDRESS", requires = "agents")]
    pub(super) listen: Option<SocketAddr>,
    /// The folder that `flatout agent init` made
    #[arg(long, value_name = "DIR", requires = "agents")]
    pub(super) trust: Option<PathBuf>,
    /// An agent's own: which share of the plan is made here, as I/N
    #[arg(long, hide = true, value_name = "I/N", value_parser = parse_share_of)]
    pub(super) share: Option<(u32, u32)>,
    /// An agent's own: when it begins, in nanoseconds of the monotonic clock
    #[arg(long, hide = true, value_name = "NS")]
    pub(super) begin_at: Option<u64>,
}

fn parse_share_of(text: &str) -> Result<(u32, u32), String> {
    let numbers = text.split_once('/').and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
    numbers.filter(|(index, of)| index < of).ok_or_else(|| format!("{text:?} is no share; write 0/3"))
}
