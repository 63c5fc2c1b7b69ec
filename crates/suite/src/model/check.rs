//! A check in a suite's file: a condition on the results.

use super::Placed;
use flatout_config::model::Place;

/// A check, which is evaluated for each combination of its step's variables that `where` allows.
#[derive(Clone, Debug)]
pub struct Check {
    /// Name of the check, which is a sentence.
    pub name: String,
    /// Place of the check in the file.
    pub place: Place,
    /// Name of the step with the judged figure.
    pub step: Placed,
    /// Name of the judged measure.
    pub measure: Placed,
    /// Name of the measure to use instead if the client was saturated, with the bound inverted. For example, the
    /// server's cost per response is known even then.
    pub client_limit: Option<Placed>,
    /// Name of the server with the judged figure.
    pub of: Placed,
    /// Values of variables to which the check is restricted.
    pub only: Vec<Where>,
    /// The bound.
    pub bound: Bound,
    /// The reference value of which the bound is a multiple.
    pub against: Against,
}

/// The values of a variable to which a check is restricted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Where {
    /// Name of the variable.
    pub name: Placed,
    /// The values.
    pub values: Vec<String>,
}

/// The bound of a check.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// The figure must be at most this.
    AtMost(f64),
    /// The figure must be at least this.
    AtLeast(f64),
}

/// The reference value of which a bound is a multiple.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Against {
    /// No reference value: the bound is a number in the measure's unit.
    Number,
    /// The same figure of another server.
    Server(Placed),
    /// The same figure of the best other server of the step.
    Best,
    /// The best figure of the same server, over all values of this variable.
    Peak(Placed),
    /// The figure of the same server in another step, for the same values of the variables.
    Step(Placed),
}
