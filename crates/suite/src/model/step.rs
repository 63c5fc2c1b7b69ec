//! A step in a suite's file: one measurement, for each of its servers and each value of its variables.

use super::Placed;
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
    /// Arguments of a `flatout bench` that precedes every measurement and is no part of it, with names in braces; such as a
    /// pass over all files, after which caches are warm.
    pub first: Vec<Placed>,
    /// True if servers restart for every repetition, instead of once per step.
    pub fresh_servers: bool,
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
