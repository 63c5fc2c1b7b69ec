//! The flags of `flatout bench`.

use super::plan::{parse_duration, parse_stop_when};
use clap::Args;
use flatout_lab::request::RequestField;
use flatout_lab::resolve::{RedirectedHost, ResolvedHost};
use flatout_load::plan::ExpectedStatuses;
use flatout_report::classic::Classic;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Load-test a server, and report its performance and which figures are valid
#[derive(Args, Debug)]
#[command(
    after_help = "Without --rate, the load is a closed loop: each connection sends its next request as soon as the \
    previous response is complete. With --rate, the load is an open loop: requests start on a schedule, and response \
    times include any wait for a free connection or for the client itself.\n\nExamples:\n  \
    flatout bench http://127.0.0.1:8080/                               64 connections for 10 seconds\n  \
    flatout bench URL --rate 2000 --arrivals exp --require 'p99<20ms'  random arrivals at 2,000/s, p99 below 20 ms\n  \
    flatout bench URL --rate 100..1100:100 --arrival-unit connection   a sweep of connection rates\n  \
    flatout bench URL -c 1..512:x2                                     a sweep of connection counts\n  \
    flatout bench URL --find-knee 'p99<50ms'                           the highest rate that meets a condition\n  \
    flatout bench URL --overload --rate 5000                           behavior beyond a peak of 5,000/s\n  \
    flatout bench URL --compare URL2                                   which of two servers is faster\n  \
    flatout bench URL --filelist filelist.standard --close             the WebStone mix of files\n  \
    flatout bench URL --replay access.log,x10                          replay a log at ten times its pace\n\n\
    Exit codes:\n  \
    0  no request failed, and at least one figure is valid; the report names the invalid ones\n  \
    1  requests failed, and no --require condition allows that\n  \
    2  the command line is invalid\n  \
    4  a --require condition was not met\n  \
    5  no figure is valid, part of the requested run was not measured, or a --require condition is inconclusive; \
    with --strict, also if any figure is invalid\n\n\
    A request fails if its response is incomplete or has an unexpected status. Rates and response times are those of \
    the other requests; in percentiles, a request without a response counts as slower than all others."
)]
pub(crate) struct BenchArgs {
    #[arg(help = "URL to test, such as http://127.0.0.1:8080/")]
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

/// Amount, duration and kind of load.
#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
pub(crate) struct LoadArgs {
    /// Number of concurrent connections, or a sweep such as 1..512:x2 [default: 64; with --rate: 256]
    ///
    /// With --rate, N is the maximum: unless each arrival opens its own connection (--arrival-unit, --calls, --close), a
    /// request uses an open connection that is idle, and opens another one only if none is. The default is 1000 if each
    /// arrival opens its own.
    #[arg(short, long, value_name = "N")]
    pub(super) connections: Option<String>,
    /// Duration of the run, or of each level of a sweep, such as 500ms, 10s or 2m [default: 10s, or the sum of the
    /// --arrivals steps]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "requests")]
    pub(super) duration: Option<Duration>,
    /// Stop after this many requests (with --rate: arrivals) instead of after a duration
    ///
    /// Without --rate, N must be a multiple of --burst.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) requests: Option<u64>,
    /// Run an open loop with this many arrivals per second, or a sweep such as 100..1100:100
    #[arg(long, value_name = "RATE")]
    pub(super) rate: Option<String>,
    /// Spacing between arrivals: fixed, exp, `uniform[:SPREAD]` or steps:100@10s,100..500@1m [default: fixed]
    #[arg(long, value_name = "KIND")]
    pub(super) arrivals: Option<String>,
    /// Unit of arrival: a request, a connection (with --calls requests) or a session (with --session-length requests)
    #[arg(long, value_name = "WHAT", value_parser = ["request", "connection", "session"])]
    pub(super) arrival_unit: Option<String>,
    /// Number of sequential requests per connection; implies --arrival-unit connection
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) calls: Option<u32>,
    /// Number of requests per session: N, uniform:5..15, exp:5 or 30%:1,70%:uniform:5..15 [default: 5]
    #[arg(long, value_name = "DIST")]
    pub(super) session_length: Option<String>,
    /// Time between a response and the next request: 20ms, exp:20ms or uniform:1s..3s [default: 0s]
    #[arg(long, value_name = "TIME|DIST")]
    pub(super) think_time: Option<String>,
    /// Number of requests to pipeline on a connection before waiting for responses [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) burst: Option<u32>,
    /// Open a new connection for each request; shorthand for --arrival-unit connection
    #[arg(long)]
    pub(super) close: bool,
    /// Discard a warm-up phase: none, a duration, or auto (until the figures are steady) [default: none]
    #[arg(long, value_name = "auto|TIME|none")]
    pub(super) warm_up: Option<String>,
    /// Raise the load evenly over this time, before the warm-up and the measured part
    ///
    /// Without --rate, connections are opened one after another; with --rate, the rate rises from 0.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "replay")]
    pub(super) ramp: Option<Duration>,
    /// Stop when the mean response time is known to within this percentage
    #[arg(long, value_name = "PERCENT", conflicts_with = "requests")]
    pub(super) precision: Option<String>,
    /// Stop when more than this share of the requests has failed, such as 'errors>5%'
    ///
    /// The share is that of all requests of a level so far, and is checked from 20 requests on.
    #[arg(long, value_name = "EXPR", value_parser = parse_stop_when, conflicts_with = "agents")]
    pub(super) stop_when: Option<f64>,
    /// Seed for the random number generator
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Number of client threads [default: one per core, or half as many if the server runs on this machine]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) threads: Option<u32>,
    /// Maximum time to connect, and maximum time to receive a complete response
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(super) timeout: Duration,
    /// Rotate through this many source addresses in 127.0.0.0/8
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) source_addresses: Option<u32>,
}

/// The requests and how they are sent.
#[derive(Args, Debug)]
#[command(next_help_heading = "Requests")]
pub(crate) struct RequestArgs {
    /// Request the URLs listed in FILE, in order
    ///
    /// A line may begin with a method, and then continue after the URL with the content of the request, or with `@` and
    /// the name of a file with the content: `POST /b @b.json`. Names are relative to the list. `#` begins a comment
    /// where a line, a URL or the content would begin.
    #[arg(long, value_name = "FILE", group = "workload_source")]
    pub(super) urls: Option<PathBuf>,
    /// Request the URLs in a WebStone filelist by weight, and check the response sizes
    #[arg(long, value_name = "FILE", group = "workload_source")]
    pub(super) filelist: Option<PathBuf>,
    /// Request a SPECweb mix: web96:OPS[,lambda=L] or web99:CONNECTIONS
    ///
    /// `flatout workload make` creates the files for the server.
    #[arg(long, value_name = "NAME", group = "workload_source")]
    pub(super) workload: Option<String>,
    /// Replay an access log at its original pace, or K times as fast with LOG,xK
    #[arg(long, value_name = "LOG[,xK]", group = "workload_source", conflicts_with_all = ["rate", "arrivals"])]
    pub(super) replay: Option<String>,
    /// Check the body size of each response against the replayed log
    ///
    /// The log of a server that compresses contains the sizes of compressed responses.
    #[arg(long, requires = "replay")]
    pub(super) verify_sizes: bool,
    /// Request method [default: the method given in the list, POST for a request with a body, or GET]
    #[arg(long, value_name = "NAME")]
    pub(super) method: Option<String>,
    /// Send this file as the request body; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pub(super) body: Option<PathBuf>,
    /// Send this text as the request body
    #[arg(long, value_name = "TEXT", conflicts_with = "body")]
    pub(super) body_text: Option<String>,
    /// Add a request header, as 'Name: value'; may be repeated
    #[arg(short = 'H', long, value_name = "HEADER", value_parser = RequestField::parse)]
    pub(super) header: Vec<RequestField>,
    /// Do not send the cookies that responses set
    ///
    /// Without this flag, each client stores the cookies that responses set, and sends them with its later requests. A
    /// client is a connection or stream, a session (also of a replay) or, with --rate, an arrival. A Cookie header from
    /// --header is sent alone.
    #[arg(long)]
    pub(super) no_cookies: bool,
    /// Fill placeholders in URLs, header values and bodies: {seq}, {uuid} and {random:A-B}
    ///
    /// {seq} is the number of the request, from 1; {uuid} is a random UUID; {random:A-B} is a random integer from A to B.
    /// The random values depend on --seed. Other braces are sent unchanged, and {{seq} is sent as {seq}.
    #[arg(long)]
    pub(super) fill: bool,
    /// Connect to ADDRESS for this host and port, instead of resolving the name; may be repeated
    ///
    /// HOST can be `*`, for any host without a --resolve of its own. With several addresses, separated by commas,
    /// connections use them in turn. The Host field and the server name for TLS remain those of the URL.
    #[arg(long, value_name = "HOST:PORT:ADDRESS", value_parser = ResolvedHost::parse)]
    pub(super) resolve: Vec<ResolvedHost>,
    /// Connect to HOST2:PORT2 instead of HOST1:PORT1; may be repeated
    ///
    /// An empty HOST1 or PORT1 stands for any, and an empty HOST2 or PORT2 for that of the URL.
    #[arg(long, value_name = "HOST1:PORT1:HOST2:PORT2", value_parser = RedirectedHost::parse)]
    pub(super) connect_to: Vec<RedirectedHost>,
    /// Connect to the Unix socket at this path instead of an address
    ///
    /// The Host field remains that of the URL.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["resolve", "connect_to", "source_addresses", "limit", "agents"])]
    pub(super) unix_socket: Option<PathBuf>,
    /// Server name for TLS, which the certificate must contain [default: the host of the URL]
    #[arg(long, value_name = "NAME")]
    pub(super) sni: Option<String>,
    /// HTTP version
    ///
    /// HTTP/3 requires an https:// URL and uses the UDP port with the URL's port number. Its connect time includes the
    /// TLS handshake.
    #[arg(long, value_name = "VERSION", default_value = "1.1", value_parser = ["1.0", "1.1", "2", "3"])]
    pub(super) http: String,
    /// Number of concurrent HTTP/2 or HTTP/3 streams per connection, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) streams: u32,
    /// Resume TLS sessions (default)
    #[arg(long, overrides_with = "no_tls_resume")]
    pub(super) tls_resume: bool,
    /// Perform a full TLS handshake for every connection
    #[arg(long)]
    pub(super) no_tls_resume: bool,
    /// Skip certificate verification
    #[arg(long)]
    pub(super) insecure: bool,
    /// Trust only the certificate authorities in this PEM file
    #[arg(long, value_name = "FILE")]
    pub(super) cacert: Option<PathBuf>,
    /// Statuses of successful responses, such as 2xx,404 or 400-451
    #[arg(long, value_name = "STATUSES", default_value = "2xx,3xx", value_parser = ExpectedStatuses::parse)]
    pub(super) expect_status: ExpectedStatuses,
    /// Share of response bodies to verify by digest, such as 1% or 0.01
    ///
    /// Body sizes are checked wherever the list of requests contains them.
    #[arg(long, value_name = "SHARE")]
    pub(super) verify_digest: Option<String>,
}

/// Questions to answer, and requirements.
#[derive(Args, Debug)]
#[command(next_help_heading = "Questions")]
pub(crate) struct QuestionArgs {
    /// Exit with code 4 unless this condition is met, such as 'p99<20ms', 'errors<0.1%' or 'rate>=1000'; may be
    /// repeated
    #[arg(long, value_name = "EXPR")]
    pub(super) require: Vec<String>,
    /// Exit with code 5 unless every figure is valid
    #[arg(long)]
    pub(super) strict: bool,
    /// Find the highest rate at which this condition is met, such as 'p99<50ms' or 'p99<50ms,errors<5%'
    ///
    /// At most 1 % of the requests may fail, unless the condition has a limit of errors.
    ///
    /// --rate A..B sets the range to search. Short trials narrow the range, and long trials confirm the result.
    /// --duration sets the duration of a long trial.
    #[arg(long, value_name = "EXPR", group = "question_kind", conflicts_with = "agents")]
    pub(super) find_knee: Option<String>,
    /// Overload the server, and report the remaining goodput and the recovery time
    ///
    /// --rate sets the server's peak rate; without --rate, flatout finds the peak first.
    #[arg(long, group = "question_kind", conflicts_with = "agents")]
    pub(super) overload: bool,
    /// With --overload: exclude responses slower than this from goodput
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration, requires = "overload")]
    pub(super) deadline: Duration,
    /// Compare with another URL: alternate between both, after an A/A baseline
    ///
    /// This takes about four times as long as --duration.
    #[arg(long, value_name = "URL2", group = "question_kind", conflicts_with = "agents")]
    pub(super) compare: Option<String>,
    /// Also measure the machine's limit with a bare epoll loop, and report how close the run came to it
    #[arg(long, conflicts_with = "agents")]
    pub(super) limit: bool,
    /// Compare request counts with the server's access log, in common, combined or flatout's JSON format
    #[arg(long, value_name = "FILE", group = "server_counts", conflicts_with = "agents")]
    pub(super) server_log: Option<PathBuf>,
    /// Compare request counts with the metrics of a flatout server at this URL
    #[arg(long, value_name = "URL", group = "server_counts", conflicts_with = "agents")]
    pub(super) server_metrics: Option<String>,
}

/// The forms in which the result is shown and written.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print the result in the format of httperf, webstone, ptester, wrk or autobench
    #[arg(long, value_name = "NAME", value_parser = Classic::parse)]
    pub(super) view: Option<Classic>,
    /// Write the result to FILE as JSON; `-` prints only the JSON
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<String>,
    /// Write the result to FILE as a self-contained HTML page with charts
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<String>,
    /// Write the result as CSV tables to this folder
    #[arg(long, value_name = "DIR")]
    pub(super) csv: Option<PathBuf>,
    /// Write Prometheus metrics to FILE, for the textfile collector of node_exporter
    #[arg(long, value_name = "FILE")]
    pub(super) prometheus: Option<String>,
    /// Write the histograms to FILE as an HdrHistogram log
    #[arg(long, value_name = "FILE")]
    pub(super) hlog: Option<String>,
    /// Write a bundle to this folder, with everything that `flatout rerun` needs
    #[arg(long, value_name = "DIR")]
    pub(super) bundle: Option<PathBuf>,
    /// Show progress in full screen (default on a terminal)
    #[arg(long, overrides_with = "no_tui", conflicts_with = "agents")]
    pub(super) tui: bool,
    /// Show progress on a single line instead of in full screen
    #[arg(long)]
    pub(super) no_tui: bool,
}

/// Load from several machines.
#[derive(Args, Debug)]
#[command(next_help_heading = "Agents")]
pub(crate) struct AgentsArgs {
    /// Wait for this many agents, which then generate the load together
    #[arg(long, value_name = "N", requires_all = ["listen", "certs"], value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) agents: Option<u32>,
    /// Address to listen on for agents, such as 0.0.0.0:7000
    #[arg(long, value_name = "ADDRESS", requires = "agents")]
    pub(super) listen: Option<SocketAddr>,
    /// Folder with the certificates from `flatout agent init`
    #[arg(long, value_name = "DIR", requires = "agents")]
    pub(super) certs: Option<PathBuf>,
    /// For agents: which share of the plan to run, as I/N
    #[arg(long, hide = true, value_name = "I/N", value_parser = parse_share_of)]
    pub(super) share: Option<(u32, u32)>,
    /// For agents: when to start, in nanoseconds of the monotonic clock
    #[arg(long, hide = true, value_name = "NS")]
    pub(super) begin_at: Option<u64>,
}

fn parse_share_of(text: &str) -> Result<(u32, u32), String> {
    let numbers = text.split_once('/').and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
    numbers.filter(|(index, of)| index < of).ok_or_else(|| format!("{text:?} is not a share; write 0/3"))
}
