//! The life of an HTTP/1.1 connection as one transition table, the same for both roles.
//!
//! The table speaks of what passes over the wire, not of who reads it: the server sees request events arrive and
//! causes response events, the client the other way about. Everything that affects the state stands in
//! [`TRANSITIONS`]; the pumps ask [`Connection::advance`] and obey. docs/connection.md is printed from this table.

use std::fmt::Write as _;

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// Nothing under way: a request may begin, and either side may close.
    Idle,
    /// A part of a request head has passed.
    RequestHead,
    /// The head asked for `100 Continue`; neither the interim response nor content has passed.
    AwaitContinue,
    /// Request content is passing; no final response yet.
    RequestBody,
    /// The request is whole; its final response is due.
    ResponseDue,
    /// The final response began before the request's content ended.
    EarlyResponse,
    /// The final response's content is passing; the request is whole.
    ResponseBody,
    /// The response is whole, the request's content is not: it is read and thrown away, up to a bound.
    Drain,
    /// One side has said that it is done; the last bytes pass and nothing new may begin.
    Closing,
    /// Over.
    Closed,
}

/// What happens on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Event {
    /// Some bytes of a request head, not all.
    RequestBegins,
    /// A request head ended and no content follows.
    RequestWithoutBody,
    /// A request head ended and content follows.
    RequestWithBody,
    /// A request head ended that waits for `100 Continue`.
    RequestExpectsContinue,
    /// The request's content ended.
    RequestEnds,
    /// An interim (1xx) response passed.
    Interim,
    /// The final response's head passed.
    ResponseBegins,
    /// The response ended and the connection may persist.
    ResponseEnds,
    /// The response ended and said, or both know, that the connection will not persist.
    ResponseEndsLast,
    /// A message was refused or its peer was too slow; at most one error response passes and then the end.
    Fault,
    /// A side closed its half, or the whole connection.
    Close,
}

use Event::{
    Close, Fault, Interim, RequestBegins, RequestEnds, RequestExpectsContinue, RequestWithBody, RequestWithoutBody,
    ResponseBegins, ResponseEnds, ResponseEndsLast,
};
use State::{
    AwaitContinue, Closed, Closing, Drain, EarlyResponse, Idle, RequestBody, RequestHead, ResponseBody, ResponseDue,
};

/// Every transition there is. What is not here cannot happen; trying it is a defect of the caller.
pub const TRANSITIONS: &[(State, Event, State)] = &[
    (Idle, RequestBegins, RequestHead),
    (Idle, RequestWithoutBody, ResponseDue),
    (Idle, RequestWithBody, RequestBody),
    (Idle, RequestExpectsContinue, AwaitContinue),
    (Idle, Fault, Closing),
    (Idle, Close, Closed),
    (RequestHead, RequestBegins, RequestHead),
    (RequestHead, RequestWithoutBody, ResponseDue),
    (RequestHead, RequestWithBody, RequestBody),
    (RequestHead, RequestExpectsContinue, AwaitContinue),
    (RequestHead, Fault, Closing),
    (RequestHead, Close, Closed),
    // RFC 9110 §10.1.1: the client may stop waiting and send the content, or be answered at once.
    (AwaitContinue, Interim, RequestBody),
    (AwaitContinue, RequestEnds, ResponseDue),
    (AwaitContinue, ResponseBegins, EarlyResponse),
    (AwaitContinue, Fault, Closing),
    (AwaitContinue, Close, Closed),
    (RequestBody, Interim, RequestBody),
    (RequestBody, RequestEnds, ResponseDue),
    (RequestBody, ResponseBegins, EarlyResponse),
    (RequestBody, Fault, Closing),
    (RequestBody, Close, Closed),
    (ResponseDue, Interim, ResponseDue),
    (ResponseDue, ResponseBegins, ResponseBody),
    (ResponseDue, Fault, Closing),
    (ResponseDue, Close, Closed),
    (EarlyResponse, RequestEnds, ResponseBody),
    (EarlyResponse, ResponseEnds, Drain),
    (EarlyResponse, ResponseEndsLast, Closing),
    (EarlyResponse, Fault, Closing),
    (EarlyResponse, Close, Closed),
    (ResponseBody, ResponseEnds, Idle),
    (ResponseBody, ResponseEndsLast, Closing),
    (ResponseBody, Fault, Closing),
    (ResponseBody, Close, Closed),
    (Drain, RequestEnds, Idle),
    (Drain, Fault, Closing),
    (Drain, Close, Closed),
    (Closing, Fault, Closing),
    (Closing, Close, Closed),
];

/// Number of states.
const STATES: usize = 10;
/// Number of events.
const EVENTS: usize = 11;

/// `TRANSITIONS` as a matrix, so that a step on the hot path is one load.
const MATRIX: [[Option<State>; EVENTS]; STATES] = {
    let mut matrix = [[None; EVENTS]; STATES];
    let mut index = 0;
    while index < TRANSITIONS.len() {
        let (from, event, to) = TRANSITIONS[index];
        assert!(matrix[from as usize][event as usize].is_none(), "a transition stands twice in the table");
        matrix[from as usize][event as usize] = Some(to);
        index += 1;
    }
    matrix
};

/// The state of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    state: State,
}

impl Connection {
    /// A connection just opened.
    pub const fn new() -> Self {
        Self { state: Idle }
    }

    /// Where the connection is.
    #[inline]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Takes the step for `event`. An event that the table does not have closes the connection, which is the one
    /// safe thing to do with a connection whose state is not understood; in debug builds it panics.
    #[inline]
    pub fn advance(&mut self, event: Event) -> State {
        let next = MATRIX[self.state as usize][event as usize];
        debug_assert!(next.is_some(), "no transition from {:?} on {event:?}", self.state);
        self.state = next.unwrap_or(Closed);
        self.state
    }

    /// Whether the table has a transition for `event` here.
    pub const fn allows(&self, event: Event) -> bool {
        MATRIX[self.state as usize][event as usize].is_some()
    }
}

impl Default for Connection {
    fn default() -> Self {
        Self::new()
    }
}

/// The table as Markdown, for docs/connection.md.
pub fn print_table() -> String {
    let mut text = String::from("| from | on | to |\n|---|---|---|\n");
    for (from, event, to) in TRANSITIONS {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {from:?} | {event:?} | {to:?} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Connection, Event, State, TRANSITIONS, print_table};
    use std::collections::HashSet;

    fn run(events: &[Event]) -> State {
        let mut connection = Connection::new();
        for &event in events {
            connection.advance(event);
        }
        connection.state()
    }

    #[test]
    fn an_exchange_returns_to_idle() {
        use Event::*;
        assert_eq!(run(&[RequestWithoutBody, ResponseBegins, ResponseEnds]), State::Idle);
        assert_eq!(run(&[RequestBegins, RequestWithBody, RequestEnds, ResponseBegins, ResponseEnds]), State::Idle);
        assert_eq!(
            run(&[RequestExpectsContinue, Interim, RequestEnds, Interim, ResponseBegins, ResponseEnds]),
            State::Idle
        );
        assert_eq!(run(&[RequestWithBody, ResponseBegins, ResponseEnds, RequestEnds]), State::Idle);
        assert_eq!(run(&[RequestWithBody, ResponseBegins, RequestEnds, ResponseEnds]), State::Idle);
    }

    #[test]
    fn the_last_response_closes() {
        use Event::*;
        assert_eq!(run(&[RequestWithoutBody, ResponseBegins, ResponseEndsLast]), State::Closing);
        assert_eq!(run(&[RequestExpectsContinue, ResponseBegins, ResponseEndsLast, Close]), State::Closed);
        assert_eq!(run(&[RequestBegins, Fault, Close]), State::Closed);
    }

    #[test]
    fn every_state_but_the_last_can_fail_and_close() {
        for (from, _, _) in TRANSITIONS {
            for event in [Event::Fault, Event::Close] {
                assert!(Connection { state: *from }.allows(event), "{from:?} {event:?}");
            }
        }
        assert!(TRANSITIONS.iter().all(|(from, _, _)| *from != State::Closed));
    }

    #[test]
    fn every_state_is_reachable_from_idle() {
        let mut reached = HashSet::from([State::Idle]);
        while let Some((_, _, to)) =
            TRANSITIONS.iter().find(|(from, _, to)| reached.contains(from) && !reached.contains(to))
        {
            reached.insert(*to);
        }
        assert_eq!(reached.len(), super::STATES);
    }

    #[test]
    fn the_document_is_printed_from_the_table() {
        let document = include_str!("../../../docs/connection.md");
        assert!(document.contains(&print_table()), "docs/connection.md is stale; it should hold:\n{}", print_table());
    }
}
