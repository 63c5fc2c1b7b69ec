//! A step in a suite's file: one measurement, for each of its servers and each value of its variables.

use super::Placed;
use crate::client::ClientProgram;
use flatout_config::model::Place;

/// A step.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Its name: letters, digits and hyphens.
    pub name: String,
    /// Its place in the file.
    pub place: Place,
    /// Its question.
    pub about: String,
    /// Its servers, in the order in which they take turns.
    pub servers: Vec<Placed>,
    /// Path of the URL.
    pub path: Placed,
    /// A path for one server instead, by its name, where servers call the same thing differently.
    pub paths: Vec<(Placed, Placed)>,
    /// Arguments of `flatout bench`, with names in braces. The engine adds the URL, the time and the output.
    pub bench: Vec<Placed>,
    /// Other programs than `flatout bench` that make the requests.
    pub clients: Vec<Client>,
    /// The servers beside which the report shows the others; without any, the first one.
    pub compare: Vec<Placed>,
    /// Required properties of the responses, checked before the measurements.
    pub expect: Option<Expectation>,
    /// Servers, such as origins, with the share of the requests that must reach them.
    pub reaches: Vec<(Placed, Reach)>,
    /// The testbed it runs in; without one, on this machine alone.
    pub testbed: Option<Placed>,
    /// The classic view the report shows it in.
    pub view: Option<String>,
    /// Number of repetitions, if different from the suite's.
    pub repetitions: Option<u32>,
    /// Duration, if different from the suite's, in seconds.
    pub seconds: Option<f64>,
    /// Expected duration of a measurement without `--duration`, in seconds, for the estimated remaining time.
    pub expected_seconds: Option<f64>,
    /// A variable made of a figure of an earlier step.
    pub takes: Vec<Take>,
    /// True if failed requests are expected, as past the knee: they are shown, but are not errors; nor are arrivals
    /// that wait for a connection or find none.
    pub failures_expected: bool,
    /// True if the client's own limit is expected, as in measurements of a link: it does not invalidate a run.
    pub client_limit: bool,
    /// Arguments of a `flatout bench` that precedes every measurement and is not part of it, with names in braces; such as a
    /// pass over all files, after which caches are warm.
    pub first: Vec<Placed>,
    /// True if servers restart for every repetition, instead of once per step.
    pub fresh_servers: bool,
}

/// Another program that makes the requests of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Client {
    /// The program.
    pub program: ClientProgram,
    /// Its arguments, with names in braces. The engine adds the duration and the URL.
    pub arguments: Vec<Placed>,
    /// The only server that it is for; `None`: all that have none of their own.
    pub server: Option<Placed>,
}

/// Required properties of a step's responses: a server that responds wrongly may well respond fast.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expectation {
    /// A file with exactly the content of the response.
    pub file: Option<Placed>,
    /// Fields that must be present, with this value if any, each for this server or all.
    pub fields: Vec<ExpectedField>,
    /// Field lines of the request, `Name: value`.
    pub send: Vec<Placed>,
    /// True if the response must be HTTP/2.
    pub http2: bool,
}

/// A field of a response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExpectedField {
    /// Its name.
    pub name: String,
    /// Its value; `None`: any.
    pub value: Option<Placed>,
    /// The only server that must send it, and which other servers must not; `None`: all must.
    pub server: Option<Placed>,
}

/// The share of a step's requests that must reach another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// None: the measured server responds from its cache.
    None,
    /// Every one.
    All,
}

impl Step {
    /// The program that makes the requests to this server; `None`: `flatout bench`.
    pub fn client_for(&self, server: &str) -> Option<&Client> {
        let own = self.clients.iter().find(|client| client.server.as_ref().is_some_and(|of| of.text == server));
        own.or_else(|| self.clients.iter().find(|client| client.server.is_none()))
    }
}

/// A variable of one step: a figure of an earlier step, times a number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Take {
    /// Its name.
    pub name: String,
    /// Its place in the file.
    pub place: Place,
    /// The step the figure is of.
    pub step: String,
    /// The figure, by the name of its measure.
    pub measure: String,
    /// The server it is of; without one, the server that is measured.
    pub of: Option<Placed>,
    /// The factor, a number or a variable in braces.
    pub times: Placed,
}
