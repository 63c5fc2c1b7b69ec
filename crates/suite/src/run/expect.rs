//! Checks of responses before a measurement, and of the number of requests that reach other servers during it.
//!
//! The requests are made with `curl`, because it supports every protocol that a step may use and shares no code with
//! flatout.

use super::engine::Engine;
use super::step::Health;
use crate::combine::Values;
use crate::document::{Cell, Why};
use crate::model::{Reach, Step};
use crate::server::program;
use crate::testbed;
use crate::why::Reason;
use flatout_load::report::RunReport;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Maximum time to wait for a field that a server adds only later, such as a digest.
const FIELD_TIMEOUT: Duration = Duration::from_secs(20);

/// Interval between two requests while waiting for a field.
const LOOK: Duration = Duration::from_millis(100);

/// A response that `curl` received.
struct Received {
    status: String,
    version: String,
    /// Names and values of the fields. Names are in lower case.
    fields: Vec<(String, String)>,
    /// The content, after decoding its content coding.
    content: Vec<u8>,
}

impl Engine<'_> {
    /// Checks that the server of `cell` responds as the step requires. Does so once per combination of values.
    pub(super) fn check_response(
        &mut self,
        step: &Step,
        cell: &Cell,
        url: &str,
        values: &Values,
        health: &mut Health,
    ) -> Result<(), Why> {
        if step.expect.is_none() || !health.checked.insert(cell.server.clone()) {
            return Ok(());
        }
        self.expected(step, &cell.server, url, values).inspect_err(|why| {
            if Reason::of(why).is_none_or(Reason::is_failure) {
                let log = self.log_tail(&cell.server);
                self.trouble(why, &step.place, Some(&cell.server), Some(&step.name), log);
            }
            health.given_up.insert(cell.server.clone(), why.clone());
        })
    }

    fn expected(&self, step: &Step, server: &str, url: &str, values: &Values) -> Result<(), Why> {
        let Some(expect) = &step.expect else { return Ok(()) };
        let wrong = |text: String| Reason::ResponseWrong.why(format!("{server}: {text}"));
        let fill = self.fill(server, values);
        let lines: Vec<String> = expect.send.iter().map(|line| fill.fill(&line.text)).collect();
        let begun = Instant::now();
        loop {
            let received = self.receive(url, &lines, expect.http2)?;
            if received.status != "200" {
                return Err(wrong(format!("the response has status {}", received.status)));
            }
            if (received.version == "2") != expect.http2 {
                return Err(wrong(format!("the response is HTTP/{}", received.version)));
            }
            if let Some(file) = expect.file.as_ref().map(|file| fill.fill(&file.text)) {
                let content = std::fs::read(&file).map_err(|error| wrong(format!("{file}: {error}")))?;
                if content != received.content {
                    let length = received.content.len();
                    return Err(wrong(format!(
                        "the response has {length} bytes, but they are not the content of {file}"
                    )));
                }
            }
            let fault = expect.fields.iter().find_map(|field| {
                let is_wanted = field.server.as_ref().is_none_or(|of| of.text == server);
                let name = field.name.to_ascii_lowercase();
                let value = received.fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
                let wanted = field.value.as_ref().map(|value| fill.fill(&value.text));
                match (is_wanted, value, wanted) {
                    (true, None, _) => Some(format!("the response has no {}", field.name)),
                    (true, Some(value), Some(wanted)) if value != wanted => {
                        Some(format!("the response has {}: {value}, not {wanted}", field.name))
                    }
                    (false, Some(value), _) => Some(format!("the response has {}: {value}", field.name)),
                    _ => None,
                }
            });
            match fault {
                None => return Ok(()),
                Some(text) if begun.elapsed() > FIELD_TIMEOUT => return Err(wrong(text)),
                Some(_) => std::thread::sleep(LOOK),
            }
        }
    }

    /// Makes one request.
    fn receive(&self, url: &str, lines: &[String], http2: bool) -> Result<Received, Why> {
        const CURL: &str = "curl";
        let curl = program::look_up(CURL)
            .ok_or_else(|| Reason::ProgramMissing.why("curl is not installed; the Debian package curl provides it"))?;
        let body = self.bundle.path("work/response");
        let mut words = self.network.as_ref().map(|network| testbed::within(network.client())).unwrap_or_default();
        words.push(curl.display().to_string());
        // Certificates in suites are self-signed.
        words.extend(["--silent", "--show-error", "--insecure", "--max-time", "10"].map(str::to_owned));
        words.push(
            match (http2, url.starts_with("https")) {
                (false, _) => "--http1.1",
                (true, true) => "--http2",
                (true, false) => "--http2-prior-knowledge",
            }
            .to_owned(),
        );
        for line in lines {
            if line.to_ascii_lowercase().starts_with("accept-encoding:") {
                words.push("--compressed".to_owned());
            }
            words.extend(["--header".to_owned(), line.clone()]);
        }
        let body_path = body.display().to_string();
        words.extend(["--output", &body_path, "--dump-header", "-", "--write-out"].map(str::to_owned));
        words.extend(["%{http_code} %{http_version}".to_owned(), url.to_owned()]);
        let failed = |text: String| Reason::ResponseWrong.why(format!("{url}: {text}"));
        let (program, arguments) = words.split_first().ok_or_else(|| failed("no program".to_owned()))?;
        let output = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let (status, version) = said
            .lines()
            .last()
            .and_then(|line| line.split_once(' '))
            .ok_or_else(|| failed("curl printed no status".to_owned()))?;
        let fields = said.lines().filter_map(|line| line.split_once(':'));
        Ok(Received {
            status: status.to_owned(),
            version: version.to_owned(),
            fields: fields.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect(),
            content: std::fs::read(&body).map_err(|error| failed(error.to_string()))?,
        })
    }

    /// Returns how many requests have reached each server in the step's `reaches` so far. Only servers that run for the
    /// server of `cell` are included.
    pub(super) fn reached<'s>(
        &self,
        step: &'s Step,
        cell: &Cell,
        values: &Values,
    ) -> Result<Vec<(&'s str, Reach, u64)>, Why> {
        let involved = self.involved(step, &cell.server);
        let runs = |name: &str| involved.iter().any(|server| server.name == name);
        let reaches = step.reaches.iter().filter(|(server, _)| runs(&server.text));
        reaches.map(|(server, reach)| Ok((&*server.text, *reach, self.requests_of(&server.text, values)?))).collect()
    }

    /// Compares the number of requests that reached other servers with the number of responses of a measurement.
    pub(super) fn check_reached(
        &mut self,
        step: &Step,
        cell: &Cell,
        before: &[(&str, Reach, u64)],
        values: &Values,
        report: &RunReport,
    ) -> Result<(), Why> {
        let responses: u64 =
            report.steps.iter().map(|step| step.record.counts.responses + step.record.warm_up_samples).sum();
        for (server, reach, before) in before {
            // The request that reads the count is also counted.
            let reached = self.requests_of(server, values)?.saturating_sub(before + 1);
            let is_right = match reach {
                Reach::None => reached == 0,
                Reach::All => reached >= responses,
            };
            if !is_right {
                let text = format!("{}: {reached} requests reached {server} for {responses} responses", cell.server);
                let why = Reason::ReachWrong.why(text);
                self.trouble(&why, &step.place, Some(&cell.server), Some(&step.name), Vec::new());
                return Err(why);
            }
        }
        Ok(())
    }

    /// Returns the number of requests according to the server's own count.
    fn requests_of(&self, server: &str, values: &Values) -> Result<u64, Why> {
        let wrong = |text: &str| Reason::ReachWrong.why(format!("requests to {server} cannot be counted: {text}"));
        let path = self.suite.server(server).and_then(|server| server.counts.as_ref());
        let path = path.ok_or_else(|| wrong("it has no `counts`"))?;
        let url = format!("{}{}", self.fill(server, values).fill("{url}"), path.text);
        let received = self.receive(&url, &[], false)?;
        parse_count(&String::from_utf8_lossy(&received.content)).ok_or_else(|| wrong("its status page has no count"))
    }
}

/// Parses the number of requests in flatout's metrics, or in nginx's `stub_status`.
fn parse_count(page: &str) -> Option<u64> {
    let metric = page.lines().find_map(|line| line.strip_prefix("flatout_requests_total "));
    let status =
        || page.lines().skip_while(|line| !line.starts_with("server accepts")).nth(1)?.split_whitespace().nth(2);
    metric.or_else(status)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::parse_count;

    #[test]
    fn the_count_of_metrics_and_of_a_status_page() {
        let metrics = "# TYPE flatout_requests counter\nflatout_requests_total 42\nflatout_open 1\n";
        assert_eq!(parse_count(metrics), Some(42));
        let status = "Active connections: 1 \nserver accepts handled requests\n 5 5 17 \nReading: 0\n";
        assert_eq!(parse_count(status), Some(17));
        assert_eq!(parse_count("flatout_requests_total many\n"), None);
        assert_eq!(parse_count(""), None);
    }
}
