//! A step in a suite's file: one measurement for each of its servers and each value of its variables.

use super::Placed;
use crate::client::ClientProgram;
use flatout_config::model::Place;

/// A step of the suite.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Name of the step: lower-case letters, digits, hyphens and underscores.
    pub name: String,
    /// Place of the step in the file.
    pub place: Place,
    /// Purpose of the step.
    pub about: String,
    /// Names of the step's servers, in the order in which they take turns.
    pub servers: Vec<Placed>,
    /// Path of the URL.
    pub path: Placed,
    /// Names of single servers that need a different path, with their paths.
    pub paths: Vec<(Placed, Placed)>,
    /// Arguments of `flatout bench`, with placeholders. The engine adds the URL, the duration and the output files.
    pub bench: Vec<Placed>,
    /// Clients other than `flatout bench`.
    pub clients: Vec<Client>,
    /// Names of the servers with which the report compares the others. If empty, this is the first server.
    pub compare: Vec<Placed>,
    /// Required properties of the responses, which are checked before the measurements.
    pub expect: Option<Expectation>,
    /// Names of servers, such as origins, and the share of the requests that must reach each of them.
    pub reaches: Vec<(Placed, Reach)>,
    /// Name of the testbed in which the step runs. If `None`, it runs on this machine without a testbed.
    pub testbed: Option<Placed>,
    /// Name of the classic view in which the report shows the step.
    pub view: Option<String>,
    /// Number of repetitions, if it differs from the suite's.
    pub repetitions: Option<u32>,
    /// Duration of each measurement in seconds, if it differs from the suite's.
    pub seconds: Option<f64>,
    /// Expected duration in seconds of a measurement without `--duration`, for estimating the remaining time.
    pub expected_seconds: Option<f64>,
    /// Variables that are computed from figures of earlier steps.
    pub takes: Vec<Take>,
    /// True if failed requests are expected, as beyond the knee. They are shown but are not errors. The same applies to
    /// arrivals that wait for a connection or are dropped.
    pub failures_expected: bool,
    /// True if the client is expected to be saturated, as in measurements of a link. Saturation then does not
    /// invalidate a run.
    pub client_limit: bool,
    /// Arguments, with placeholders, of a `flatout bench` that runs before every measurement and is not part of it, for
    /// example to warm up caches. If empty, there is none.
    pub first: Vec<Placed>,
    /// True if servers are restarted for every repetition, instead of once per step.
    pub fresh_servers: bool,
}

/// A client other than `flatout bench`.
#[derive(Clone, Debug, PartialEq)]
pub struct Client {
    /// The load generator.
    pub program: ClientProgram,
    /// Arguments of the load generator, with placeholders. The engine adds the duration and the URL.
    pub arguments: Vec<Placed>,
    /// Name of the only server for which the client is used. If `None`, it is used for all servers without a client of
    /// their own.
    pub server: Option<Placed>,
}

/// Required properties of a step's responses, because a wrong response may be a fast one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expectation {
    /// Path of a file whose content the response must equal.
    pub file: Option<Placed>,
    /// Fields that the response must have.
    pub fields: Vec<ExpectedField>,
    /// Field lines of the request, in the form `Name: value`.
    pub send: Vec<Placed>,
    /// True if the response must be HTTP/2.
    pub http2: bool,
}

/// A field that a response must have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExpectedField {
    /// Name of the field.
    pub name: String,
    /// Value of the field. If `None`, any value is accepted.
    pub value: Option<Placed>,
    /// Name of the only server that must send the field, and that no other server may send it. If `None`, all servers
    /// must send it.
    pub server: Option<Placed>,
}

/// The share of a step's requests that must reach another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// No request may reach it: the measured server responds from its cache.
    None,
    /// Every request must reach it: the measured server forwards all requests.
    All,
}

impl Step {
    /// Returns the client for this server; `None` for `flatout bench`.
    pub fn client_for(&self, server: &str) -> Option<&Client> {
        let own = self.clients.iter().find(|client| client.server.as_ref().is_some_and(|of| of.text == server));
        own.or_else(|| self.clients.iter().find(|client| client.server.is_none()))
    }
}

/// A variable of a step that is computed: a figure of an earlier step, multiplied by a number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Take {
    /// Name of the variable.
    pub name: String,
    /// Place of the variable in the file.
    pub place: Place,
    /// Name of the step with the figure.
    pub step: String,
    /// Name of the measure.
    pub measure: String,
    /// Name of the server with the figure. If `None`, this is the measured server.
    pub of: Option<Placed>,
    /// The factor, which is a number or a variable in braces.
    pub times: Placed,
}
