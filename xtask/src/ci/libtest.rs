//! Reads what a test program prints: the JSON events of libtest, one per line, mixed with what the tests and the
//! programs that they start print themselves.

use serde_json::Value;
use std::collections::BTreeSet;

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestOutcome {
    Passed,
    Failed,
    /// The test has the mark `#[ignore]`, and marked tests were not selected.
    Ignored,
}

/// A test that has ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TestResult {
    pub(crate) name: String,
    pub(crate) outcome: TestOutcome,
    pub(crate) seconds: f64,
    /// What the test printed.
    pub(crate) output: String,
}

/// What a line of output means.
#[derive(Debug, PartialEq)]
pub(crate) enum Line {
    /// A test has begun, or a list of tests has begun or ended.
    Progress,
    Ended(TestResult),
    /// The line is not an event.
    Text,
}

/// The events of one run of a test program.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// The tests that have begun and not ended.
    running: BTreeSet<String>,
    /// True once libtest has reported the end of the run, which it does not do if the program dies.
    is_complete: bool,
}

impl Events {
    /// Reads a line. An event may follow text that a child process has printed without a line end.
    pub(crate) fn read(&mut self, line: &str) -> Line {
        const EVENT: &str = "{ \"type\": ";
        let Some(event) = line.find(EVENT).and_then(|at| serde_json::from_str::<Value>(&line[at..]).ok()) else {
            return Line::Text;
        };
        let text = |key: &str| event[key].as_str().unwrap_or_default();
        let outcome = match (text("type"), text("event")) {
            ("test", "started") => {
                self.running.insert(text("name").to_owned());
                return Line::Progress;
            }
            ("test", "ok") => TestOutcome::Passed,
            ("test", "failed") => TestOutcome::Failed,
            ("test", "ignored") => TestOutcome::Ignored,
            ("suite", "ok" | "failed") => {
                self.is_complete = true;
                return Line::Progress;
            }
            _ => return Line::Progress,
        };
        self.running.remove(text("name"));
        Line::Ended(TestResult {
            name: text("name").to_owned(),
            outcome,
            seconds: event["exec_time"].as_f64().unwrap_or(0.0),
            output: text("stdout").to_owned(),
        })
    }

    /// The tests that were running when the program ended.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = &str> {
        self.running.iter().map(String::as_str)
    }

    pub(crate) const fn is_complete(&self) -> bool {
        self.is_complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(name: &str, outcome: TestOutcome, seconds: f64, output: &str) -> Line {
        Line::Ended(TestResult { name: name.to_owned(), outcome, seconds, output: output.to_owned() })
    }

    #[test]
    fn events_and_text_are_told_apart() {
        let mut events = Events::default();
        for (line, expected) in [
            (r#"{ "type": "suite", "event": "started", "test_count": 3 }"#, Line::Progress),
            (r#"{ "type": "test", "event": "started", "name": "a::b" }"#, Line::Progress),
            (r#"{ "type": "test", "event": "timeout", "name": "a::b" }"#, Line::Progress),
            ("a test prints this", Line::Text),
            (r#"{ "type": "#, Line::Text),
            (r#"{"type": "test", "event": "ok", "name": "another program's" }"#, Line::Text),
            (
                r#"{ "type": "test", "name": "a::b", "event": "ok", "exec_time": 1.5 }"#,
                ended("a::b", TestOutcome::Passed, 1.5, ""),
            ),
            (
                r#"no line end{ "type": "test", "name": "c", "event": "failed", "exec_time": 0.25, "stdout": "\"x\"\n" }"#,
                ended("c", TestOutcome::Failed, 0.25, "\"x\"\n"),
            ),
            (
                r#"{ "type": "test", "name": "d", "event": "ignored", "message": "decides by timing" }"#,
                ended("d", TestOutcome::Ignored, 0.0, ""),
            ),
        ] {
            assert_eq!(events.read(line), expected, "{line}");
        }
        assert!(!events.is_complete());
        events.read(r#"{ "type": "suite", "event": "failed", "passed": 1, "failed": 1 }"#);
        assert!(events.is_complete() && events.unfinished().next().is_none());
    }

    #[test]
    fn tests_that_were_running_when_the_program_died_are_known() {
        let mut events = Events::default();
        for name in ["a", "b", "c"] {
            events.read(&format!(r#"{{ "type": "test", "event": "started", "name": "{name}" }}"#));
        }
        events.read(r#"{ "type": "test", "name": "b", "event": "ok" }"#);
        assert_eq!(events.unfinished().collect::<Vec<_>>(), ["a", "c"]);
        assert!(!events.is_complete());
    }
}
