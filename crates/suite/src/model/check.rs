//! A check in a suite's file: a condition on the figures.

use super::Placed;
use flatout_config::model::Place;

/// A check. It is judged for each combination of its step's variables that its `where` leaves.
#[derive(Clone, Debug)]
pub struct Check {
    /// Its name, in words.
    pub name: String,
    /// Its place in the file.
    pub place: Place,
    /// The step the figure is of.
    pub step: Placed,
    /// The figure, by the name of its measure.
    pub measure: Placed,
    /// The measure judged instead, with the bound turned over, where the client was the limit of a figure: what a server
    /// takes for what it gives is known then as well.
    pub client_limit: Option<Placed>,
    /// The server it is of.
    pub of: Placed,
    /// Which values of variables it is judged for.
    pub only: Vec<Where>,
    /// The bound.
    pub bound: Bound,
    /// The base of the bound.
    pub against: Against,
}

/// Values of a variable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Where {
    /// The variable.
    pub name: Placed,
    /// The values.
    pub values: Vec<String>,
}

/// A bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// At most so much.
    AtMost(f64),
    /// At least so much.
    AtLeast(f64),
}

/// The base of a bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Against {
    /// Of nothing: the bound is a number in the measure's unit.
    Number,
    /// Of the same figure of another server.
    Server(Placed),
    /// Of the same figure of the best of the step's other servers.
    Best,
    /// Of the same server's best figure over all values of this variable.
    Peak(Placed),
    /// Of the same server's figure in another step, where the variables have the same values.
    Step(Placed),
}
