//! The tables of bad and of unusual requests, run against every handler that a configuration can name, and over TLS. A
//! request that is refused before any handler must be refused in the same way for all. A request that reaches a handler
//! must get that handler's response, and no handler may leak a secret.

use super::bad_input::exchange::{Peer, Way, exchange_over};
use super::bad_input::trapped::{CANARY, TrappedSite};
use super::bad_input::vectors::{Expected, Row, SERVED};
use super::bad_input::{bad_rows, valid_rows};
use super::harness::{Response, Server, TIMEOUT};
use super::tls::Certificate;
use flatout_handler::ending::CloseReason;
use flatout_http::refusal::Refusal;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

/// How a handler responds to a request that the core and the engine let through.
#[derive(Clone, Copy, Debug)]
enum Nature {
    /// The responses in the tables: files, whatever directives precede them.
    Files,
    /// Files, and a different status where the tables have a 404.
    FilesOr(u16),
    /// Files, and a different status where there is no file or files do not support the method.
    Passes(u16),
    /// Files, and a listing for folders without an index.
    Lists,
    /// One response to GET and HEAD, whatever the path, and the responses of files to other methods.
    Says(u16),
    /// The same response to everything.
    Always(u16),
}

/// A handler's name, how it responds, and the content of its `site` block, where `SITE` stands for the folder with the
/// traps.
type Handler = (&'static str, Nature, &'static str);

/// Directives in front of files that leave their responses unchanged.
const BEFORE_FILES: &[Handler] = &[
    ("files", Nature::Files, "files \"SITE\""),
    ("route", Nature::Files, "route \"/*\" { files \"SITE\"; }"),
    ("cors", Nature::Files, "cors \"https://a.example\"\nfiles \"SITE\""),
    ("rate-limit", Nature::Files, "rate-limit requests=1000000 period=\"1s\"\nfiles \"SITE\""),
    ("access", Nature::Files, "allow \"127.0.0.0/8\"\ndeny \"all\"\nfiles \"SITE\""),
    ("error", Nature::Files, "error 404 file=\"SITE/docs/index.html\"\nfiles \"SITE\""),
    ("early-hints", Nature::Files, "early-hints \"</app.css>; rel=preload; as=style\"\nfiles \"SITE\""),
    ("header", Nature::Files, "header { set \"X-A\" \"b\"; remove \"Last-Modified\"; }\nfiles \"SITE\""),
];

/// Directives that look up files under a different path, or after which other directives may run.
const AROUND_FILES: &[Handler] = &[
    ("rewrite", Nature::Files, "route \"/*\" {\n rewrite to=\"/{rest}?{query}\"\n files \"SITE\"\n}"),
    ("try", Nature::FilesOr(410), "files \"SITE\" { try \"{path}\" \"=410\"; }"),
    ("pass", Nature::Passes(410), "files \"SITE\" { pass #true; }\nrespond 410"),
    ("listing", Nature::Lists, "files \"SITE\" { listing #true; }"),
];

/// Handlers without files, or that give nobody access to them.
const WITHOUT_FILES: &[Handler] = &[
    ("respond", Nature::Says(200), "respond 200 \"said\" type=\"text/plain\""),
    ("metrics", Nature::Says(200), "metrics"),
    ("redirect", Nature::Always(302), "redirect \"/*\" to=\"/elsewhere\" 302"),
    ("deny", Nature::Always(403), "allow \"192.0.2.1\"\nfiles \"SITE\""),
    ("basic-auth", Nature::Always(401), "basic-auth realm=\"Staff\" { user \"ann\" \"HASH\"; }\nfiles \"SITE\""),
];

/// The hash of a password that no test sends.
const HASH: &str = "$2b$12$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy";

/// A configuration with one site per handler, each with its own listener and log.
fn configure(traps: &TrappedSite, handlers: &[Handler], listener: &str) -> String {
    let outer = traps.path().parent().unwrap().display().to_string();
    let mut text = "workers 1\nadmin off=#true\n".to_owned();
    for (name, _, _) in handlers {
        writeln!(text, "log \"{outer}/{name}.log\" name=\"{name}\"").unwrap();
    }
    for (number, (name, _, inside)) in handlers.iter().enumerate() {
        let inside = inside.replace("SITE", traps.path().to_str().unwrap()).replace("HASH", HASH);
        // Several listeners on ephemeral ports must not have the same address.
        let address = format!("127.0.0.{}:0", number + 1);
        writeln!(text, "site \"*\" {{\nlisten \"{address}\" {listener}\nlog name=\"{name}\"\n{inside}\n}}").unwrap();
    }
    text
}

fn is_core(answer: &Expected) -> bool {
    Refusal::ALL.iter().any(|refusal| refusal.name() == answer.outcome)
}

/// Returns true if no handler is called: the core refuses the request, or handlers never see such a path or method.
fn is_decided_before_handlers(row: &Row, answer: &Expected) -> bool {
    let line = row.bytes.split(|&byte| byte == b'\r').next().unwrap_or_default().to_ascii_lowercase();
    let path = line.split(|&byte| byte == b'?').next().unwrap_or_default();
    let has = |part: &[u8]| path.windows(part.len()).any(|window| window == part);
    let unclean = has(b" //") || has(b" /../");
    is_core(answer)
        || ["path_above_root", "target_nul", "slashes_merged", "method_unknown"].contains(&answer.outcome)
        || row.bytes.starts_with(b"TRACE ")
        || unclean && row.answers.len() == 1
}

/// The status that `nature` must give for a request that gets `status` from files.
fn status_of(nature: Nature, status: u16, outcome: &str) -> u16 {
    match nature {
        Nature::FilesOr(other) if status == 404 => other,
        Nature::Passes(other) if matches!(status, 404 | 405) => other,
        Nature::Says(_) if matches!(outcome, "method_not_allowed" | "options") => status,
        Nature::Lists if outcome == "no_index" => 200,
        Nature::Files | Nature::FilesOr(_) | Nature::Passes(_) | Nature::Lists => status,
        Nature::Says(other) | Nature::Always(other) => other,
    }
}

/// The expected statuses for `row`, sent in `way`.
fn expected(nature: Nature, row: &Row, way: Way) -> Vec<u16> {
    let mut statuses = Vec::new();
    for (index, answer) in row.answers.iter().enumerate() {
        // RFC 9112 §3.2.4: OPTIONS with an absolute-form target without a path means `*`.
        let has = |part: &[u8]| row.bytes.windows(part.len()).any(|window| window == part);
        let asterisk = answer.outcome == "options" && (has(b"OPTIONS *") || has(b"OPTIONS http://test HTTP"));
        if asterisk || index == 0 && is_decided_before_handlers(row, answer) || is_core(answer) {
            statuses.push(answer.status);
            continue;
        }
        let status = status_of(nature, answer.status, answer.outcome);
        // A request that would succeed gets 100 Continue, and then the server waits for content that never arrives.
        if row.closed == Some(CloseReason::RefusedBody) && status < 400 {
            continue;
        }
        statuses.push(status);
    }
    // A refused request gets no 100 Continue, so it gets its response after all.
    if row.name == "cut-after-expectation-of-get" && status_of(nature, 200, SERVED) >= 400 {
        statuses.push(status_of(nature, 200, SERVED));
    }
    if way == Way::Followed && row.closed.is_none() {
        statuses.push(status_of(nature, 200, SERVED));
    }
    statuses
}

/// Sends every row in every way over `connect`, and describes the unexpected results.
fn differences(handler: &str, nature: Nature, rows: &[Row], connect: impl Fn() -> Box<dyn Peer>) -> Vec<String> {
    let mut differences = Vec::new();
    for row in rows {
        for &way in Way::of(row) {
            let label = format!("{handler}: {} ({way:?})", row.name);
            let answers = expected(nature, row, way);
            let responses = match exchange_over(connect(), row, way) {
                Ok(responses) => responses,
                Err(error) => {
                    differences.push(format!("{label}: {error}"));
                    continue;
                }
            };
            let came: Vec<_> = responses.iter().map(|response| response.status).collect();
            if came != answers {
                differences.push(format!("{label}: {came:?} and not {answers:?}"));
            }
            differences.extend(find_harm(nature, row, &responses).map(|harm| format!("{label}: {harm}")));
        }
    }
    differences
}

/// Describes a leaked secret, or a connection that does not end as the table says.
fn find_harm(nature: Nature, row: &Row, responses: &[Response]) -> Option<String> {
    let is_out = |response: &Response| response.body.windows(CANARY.len()).any(|window| window == CANARY);
    if responses.iter().any(is_out) {
        return Some("the secret is out".to_owned());
    }
    let closes =
        matches!(row.closed, Some(CloseReason::Refused | CloseReason::RefusedBody | CloseReason::NotPersistent))
            || row.name == "cut-after-expectation-of-get" && status_of(nature, 200, SERVED) >= 400;
    let last = responses.len().wrapping_sub(1);
    let says_close = |(index, response): (usize, &Response)| {
        (response.field("connection") == Some("close")) != (closes && index == last)
    };
    responses.iter().enumerate().any(says_close).then(|| format!("Connection: close, or none, in {responses:?}"))
}

/// Number of refusals of `rows` by the core for each reason, whichever handler is configured.
fn refusals(rows: &[Row]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for row in rows {
        for answer in row.answers.iter().filter(|answer| is_core(answer)) {
            *counts.entry(answer.outcome).or_default() += Way::of(row).len();
        }
    }
    counts
}

/// Number of refusals for each reason in the log of a handler's site.
fn logged_refusals(traps: &TrappedSite, handler: &str) -> BTreeMap<&'static str, usize> {
    let log = fs::read_to_string(traps.outer().path().join(format!("{handler}.log"))).unwrap();
    let mut counts = BTreeMap::new();
    for line in log.lines() {
        // client - user [date] "request line" status bytes "referer" "user agent" outcome ending duration_us
        let outcome = line.rsplit(' ').nth(2).unwrap_or_default();
        if let Some(refusal) = Refusal::ALL.iter().find(|refusal| refusal.name() == outcome) {
            *counts.entry(refusal.name()).or_default() += 1;
        }
    }
    counts
}

fn plain(server: &Server, listener: usize) -> TcpStream {
    let stream = TcpStream::connect(server.address_of(listener)).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    stream
}

impl Peer for Box<dyn Peer> {
    fn socket(&mut self) -> &mut TcpStream {
        (**self).socket()
    }

    fn end(&mut self) {
        (**self).end();
    }
}

fn run_tables(handlers: &[Handler]) {
    let traps = TrappedSite::new();
    let server = Server::run(traps.outer(), &configure(&traps, handlers, ""));
    let rows: Vec<Row> = bad_rows().into_iter().chain(valid_rows()).collect();
    let mut found = Vec::new();
    for (number, (name, nature, _)) in handlers.iter().enumerate() {
        found.extend(differences(name, *nature, &rows, || Box::new(plain(&server, number))));
    }
    // When announced content is refused, the connection closes only if none of the content has arrived (RFC 9110
    // §10.1.1), which depends on how the client's bytes arrive.
    found.retain(|difference| !(difference.contains("expect") && difference.contains("Connection: close, or none")));
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
    let (status, counters) = server.stop();
    assert!(status.success(), "{status:?}: {counters}");
    // Summed over all logs, because a refusal before any handler may be in a different log.
    let mut expected = refusals(&rows);
    for count in expected.values_mut() {
        *count *= handlers.len();
    }
    let mut logged = BTreeMap::new();
    for (name, count) in handlers.iter().flat_map(|(name, _, _)| logged_refusals(&traps, name)) {
        *logged.entry(name).or_default() += count;
    }
    assert_eq!(logged, expected);
}

#[test]
fn directives_before_files_leave_their_responses_unchanged() {
    run_tables(BEFORE_FILES);
}

#[test]
fn other_routes_to_files_give_no_access_to_other_files() {
    run_tables(AROUND_FILES);
}

#[test]
fn handlers_without_files_refuse_the_same_requests() {
    run_tables(WITHOUT_FILES);
}

/// The client's end of a TLS connection.
struct Secure(StreamOwned<ClientConnection, TcpStream>);

impl Read for Secure {
    /// Unlike `StreamOwned`, does not send pending bytes first: that fails once the server has closed the connection,
    /// even if its response has arrived.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.conn.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
            self.0.conn.read_tls(&mut self.0.sock)?;
            self.0.conn.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

impl Write for Secure {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Peer for Secure {
    fn socket(&mut self) -> &mut TcpStream {
        &mut self.0.sock
    }

    fn end(&mut self) {
        self.0.conn.send_close_notify();
        let _ = self.0.flush();
        let _ = self.0.sock.shutdown(Shutdown::Write);
    }
}

fn client_config(certificate: &Certificate) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate.authority()).unwrap()).unwrap();
    Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

#[test]
fn the_tables_hold_over_tls() {
    let (traps, certificate) = (TrappedSite::new(), Certificate::new());
    let tls = format!("tls=#true\ntls cert=\"{}\" key=\"{}\"", certificate.chain, certificate.key);
    let server = Server::run(traps.outer(), &configure(&traps, &BEFORE_FILES[..1], &tls));
    let config = client_config(&certificate);
    let connect = || -> Box<dyn Peer> {
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let mut client = ClientConnection::new(Arc::clone(&config), name).unwrap();
        let mut stream = plain(&server, 0);
        // A handshake that never completes is no connection.
        while client.is_handshaking() {
            client.complete_io(&mut stream).unwrap();
        }
        Box::new(Secure(StreamOwned::new(client, stream)))
    };
    // Over TLS, http is the wrong scheme instead of https.
    let mut rows: Vec<Row> = bad_rows().into_iter().chain(valid_rows()).collect();
    let count = rows.len();
    rows.retain(|row| !row.name.starts_with("absolute-"));
    assert!(rows.len() + 60 > count, "{} of {count} rows", rows.len());
    let found = differences("tls", Nature::Files, &rows, connect);
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
    let (status, counters) = server.stop();
    assert!(status.success(), "{status:?}: {counters}");
    assert_eq!(logged_refusals(&traps, BEFORE_FILES[0].0), refusals(&rows));
}
