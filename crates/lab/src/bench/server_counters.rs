//! The server's own counts of a run's requests, from its access log or its metrics.

use crate::resolve::Routes;
use flatout_http::url::Url;
use flatout_load::judge::reconcile::ServerCounts;
use flatout_load::workload::log::parse_line;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum time to wait for the server to write its last log lines or to update its counters.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Interval between two readings of the counts.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Timeout for reading the complete metrics once.
const LOOK_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum length of a metrics response, in bytes.
const METRICS_BYTES_MAX: usize = 16 << 20;

/// The source of the server's counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CounterSource {
    /// The server's access log, in the common, the combined, or flatout's JSON format.
    Log(PathBuf),
    /// The server's metrics in Prometheus text format, with flatout's metric names, and the routes to their host.
    Metrics(Url, Routes),
}

/// A reading of the server's counters at one moment.
#[derive(Clone, Debug)]
pub(super) enum CounterSnapshot {
    /// Length of the log in bytes.
    LogBytes(u64),
    /// The metrics, and the number of requests that each reading itself adds: 1 if the measured server also serves the
    /// metrics, otherwise 0.
    Metrics(Metrics, u64),
}

/// A server's request counters at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Metrics {
    /// Responses by status class, 1xx to 5xx.
    classes: [u64; 5],
    requests: u64,
}

impl CounterSource {
    /// Reads the counts before a run.
    ///
    /// # Errors
    /// Returns text that names the source and says why it cannot be read. So does [`CounterSource::close`].
    pub(super) fn open(&self) -> Result<CounterSnapshot, String> {
        match self {
            Self::Log(path) => {
                let length = File::open(path).and_then(|file| file.metadata()).map(|metadata| metadata.len());
                length.map(CounterSnapshot::LogBytes).map_err(|error| format!("{}: {error}", path.display()))
            }
            Self::Metrics(url, routes) => {
                let first = read_metrics(url, routes)?;
                let second = read_metrics(url, routes)?;
                Ok(CounterSnapshot::Metrics(second, second.requests.saturating_sub(first.requests).min(1)))
            }
        }
    }

    /// Returns the counts since `opened`. Waits until they are at least `expected` requests, or until a timeout.
    pub(super) fn close(&self, opened: &CounterSnapshot, expected: u64) -> Result<ServerCounts, String> {
        let begun = Instant::now();
        for looks in 1.. {
            let counts = self.count(opened, looks)?;
            if counts.requests >= expected || begun.elapsed() >= TIMEOUT {
                return Ok(counts);
            }
            thread::sleep(LOOK_INTERVAL);
        }
        self.count(opened, 0)
    }

    /// Returns the counts since `opened`. `looks` is the number of readings so far, including this one.
    fn count(&self, opened: &CounterSnapshot, looks: u64) -> Result<ServerCounts, String> {
        match (self, opened) {
            (Self::Log(path), CounterSnapshot::LogBytes(from)) => {
                count_log(path, *from).map_err(|error| format!("{}: {error}", path.display()))
            }
            (Self::Metrics(url, routes), CounterSnapshot::Metrics(before, own)) => {
                let counts = read_metrics(url, routes)?.since(before, own * looks);
                let by_status = (1..=5_u16).map(|class| 100 * class).zip(counts.classes).collect();
                Ok(ServerCounts { source: url.to_string(), by_status, requests: counts.requests })
            }
            _ => Err("the two readings come from different sources".to_owned()),
        }
    }
}

impl Metrics {
    /// Returns the difference from `before`. The readings of the metrics themselves, which are responses with status
    /// 200, are subtracted.
    fn since(&self, before: &Self, looks: u64) -> Self {
        let mut classes: [u64; 5] =
            std::array::from_fn(|class| self.classes[class].saturating_sub(before.classes[class]));
        classes[1] = classes[1].saturating_sub(looks);
        let requests = self.requests.saturating_sub(before.requests).saturating_sub(looks);
        Self { classes, requests }
    }
}

/// Counts the log lines after the first `from` bytes.
fn count_log(path: &Path, from: u64) -> io::Result<ServerCounts> {
    let mut file = File::open(path)?;
    // A log that was rotated in the meantime is shorter, and is read from its start.
    let from = if file.metadata()?.len() < from { 0 } else { from };
    file.seek(SeekFrom::Start(from))?;
    let mut by_status: BTreeMap<u16, u64> = BTreeMap::new();
    let mut requests = 0;
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let mut line = Vec::new();
    while reader.by_ref().take(1 << 20).read_until(b'\n', &mut line)? > 0 {
        // A line without a line end is still being written.
        if line.ends_with(b"\n")
            && let Ok(parsed) = parse_line(&line)
        {
            requests += 1;
            *by_status.entry(parsed.status.unwrap_or(0)).or_default() += 1;
        }
        line.clear();
    }
    Ok(ServerCounts { source: path.display().to_string(), by_status: by_status.into_iter().collect(), requests })
}

fn read_metrics(url: &Url, routes: &Routes) -> Result<Metrics, String> {
    let text = fetch(url, routes, LOOK_TIMEOUT).map_err(|error| format!("{url}: {error}"))?;
    parse_metrics(&text).ok_or_else(|| format!("{url}: flatout_requests_total is missing"))
}

/// Sends an HTTP/1.0 request, whose response ends with the connection. `timeout` limits the whole exchange, so that a
/// response that trickles in slowly also fails.
fn fetch(url: &Url, routes: &Routes, timeout: Duration) -> io::Result<String> {
    if url.secure {
        return Err(io::Error::other("metrics can be read only over plain http://"));
    }
    let address = routes.resolve(url).map_err(io::Error::other)?[0];
    let deadline = Instant::now() + timeout;
    let left = || match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(late(timeout)),
        left => Ok(left),
    };
    let mut stream = TcpStream::connect_timeout(&address, left()?)?;
    stream.set_write_timeout(Some(left()?))?;
    let request = format!("GET {} HTTP/1.0\r\nHost: {}\r\n\r\n", url.target, url.authority());
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(bytes) if answer.len() + bytes > METRICS_BYTES_MAX => {
                return Err(io::Error::other(format!("it is larger than {METRICS_BYTES_MAX} bytes")));
            }
            Ok(bytes) => answer.extend_from_slice(&piece[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err(late(timeout));
            }
            Err(error) => return Err(error),
        }
    }
    let text = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    match head.split_ascii_whitespace().nth(1) {
        Some("200") => Ok(body.to_owned()),
        status => Err(io::Error::other(format!("its status is {}", status.unwrap_or("missing")))),
    }
}

fn late(timeout: Duration) -> io::Error {
    io::Error::other(format!("its response was not complete within {timeout:?}"))
}

fn parse_metrics(text: &str) -> Option<Metrics> {
    let value = |name: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        rest.split_ascii_whitespace().next()?.parse::<f64>().ok().map(|value| value as u64)
    };
    let requests = value("flatout_requests_total")?;
    let mut classes = [0; 5];
    for (class, count) in (1..).zip(&mut classes) {
        *count = value(&format!("flatout_responses_total{{class=\"{class}xx\"}}")).unwrap_or(0);
    }
    Some(Metrics { classes, requests })
}

#[cfg(test)]
mod tests {
    use super::{CounterSource, METRICS_BYTES_MAX, Metrics, Routes, count_log, fetch, parse_metrics};
    use flatout_http::url::Url;
    use std::fs;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;
    use std::time::Duration;

    /// Starts a server that sends the same piece repeatedly, at this interval, as long as the client reads.
    fn endless(piece: Vec<u8>, gap: Duration) -> Url {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/metrics", listener.local_addr().unwrap());
        thread::spawn(move || {
            let (mut stream, _): (TcpStream, _) = listener.accept().unwrap();
            let _request = stream.read(&mut [0; 4096]);
            stream.set_read_timeout((!gap.is_zero()).then_some(gap)).unwrap();
            while stream.write_all(&piece).is_ok() {
                // Wait for the interval: the read times out unless the client has closed the connection.
                if !gap.is_zero() && matches!(stream.read(&mut [0]), Ok(0)) {
                    break;
                }
            }
        });
        Url::parse(&url).unwrap()
    }

    #[test]
    fn metrics_that_never_end_are_given_up() {
        // With an occasional byte, each single read stays within its timeout, but the whole response exceeds it.
        let dripping = endless(b"f".to_vec(), Duration::from_millis(5));
        let error = fetch(&dripping, &Routes::default(), Duration::from_millis(200)).unwrap_err();
        assert!(error.to_string().contains("within 200ms"), "{error}");
        let flooding = endless(vec![b'x'; METRICS_BYTES_MAX / 4], Duration::ZERO);
        let error = fetch(&flooding, &Routes::default(), Duration::from_mins(10)).unwrap_err();
        assert!(error.to_string().contains("larger than"), "{error}");
        // There is no response, because only the listener's backlog accepts the connection.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let error = fetch(&silent, &Routes::default(), Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("within 50ms"), "{error}");
    }

    #[test]
    fn a_log_is_counted_from_where_it_was_opened() {
        let path = std::env::temp_dir().join(format!("flatout-counters-{}", std::process::id()));
        let line = |status| format!("127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0\" {status} 5\n");
        fs::write(&path, line(500)).unwrap();
        let counter_source = CounterSource::Log(path.clone());
        let opened = counter_source.open().unwrap();
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all([line(200), line(404), line(200), "half a li".to_owned()].concat().as_bytes()).unwrap();
        let counts = counter_source.close(&opened, 3).unwrap();
        assert_eq!((counts.requests, counts.by_status), (3, vec![(200, 2), (404, 1)]));
        // A truncated log is counted from its beginning.
        fs::write(&path, line(200)).unwrap();
        assert_eq!(count_log(&path, 1_000).unwrap().requests, 1);
        fs::remove_file(&path).unwrap();
        assert!(counter_source.open().is_err());
    }

    #[test]
    fn metrics_are_found_by_name() {
        let text = "# TYPE flatout_requests counter\nflatout_requests_total 7\n\
            flatout_responses_total{class=\"2xx\"} 5\nflatout_responses_total{class=\"4xx\"} 2\n";
        let found = parse_metrics(text).unwrap();
        assert_eq!(found, Metrics { classes: [0, 5, 0, 2, 0], requests: 7 });
        let before = Metrics { classes: [0, 1, 0, 2, 0], requests: 3 };
        assert_eq!(found.since(&before, 1), Metrics { classes: [0, 3, 0, 0, 0], requests: 3 });
        assert_eq!(parse_metrics("other 1\n"), None);
    }
}
