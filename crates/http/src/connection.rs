//! State machine of an HTTP/1.1 connection as one transition table for both roles.
//!
//! Events describe messages on the wire, regardless of direction: the server receives request events and causes
//! response events, and the client does the reverse. [`TRANSITIONS`] contains everything that affects the state;
//! connection code calls [`Connection::advance`]. docs/connection.md is generated from this table.

use std::fmt::Write as _;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ConnectionState {
    /// No message is in progress: a request may begin, and either side may close.
    Idle,
    /// Part of a request head has been transferred.
    RequestHead,
    /// The request head has `Expect: 100-continue`, and neither the interim response nor content has been transferred.
    AwaitContinue,
    /// Request content is being transferred, and the final response has not begun.
    RequestBody,
    /// The request is complete; its final response is pending.
    ResponseDue,
    /// The final response began before the request content ended.
    EarlyResponse,
    /// The content of the final response is being transferred, and the request is complete.
    ResponseBody,
    /// The response is complete but the request content is not. The rest of the content is discarded, up to a limit.
    Drain,
    /// One side has announced that it will close. The last bytes are transferred, and no message may begin.
    Closing,
    /// Closed.
    Closed,
}

/// Event on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ConnectionEvent {
    /// Part of a request head was transferred.
    RequestBegins,
    /// A request head without content ended.
    RequestWithoutBody,
    /// A request head with content ended.
    RequestWithBody,
    /// A request head with `Expect: 100-continue` ended.
    RequestExpectsContinue,
    /// The request content ended.
    RequestEnds,
    /// An interim (1xx) response was transferred.
    Interim,
    /// The head of the final response was transferred.
    ResponseBegins,
    /// The response ended and the connection may persist.
    ResponseEnds,
    /// The response ended and the connection will not persist, whether this was announced or not.
    ResponseEndsLast,
    /// A message was refused or its sender exceeded a timeout. At most one error response follows.
    Fault,
    /// Either side closed its sending direction or the whole connection.
    Close,
}

use ConnectionEvent::{
    Close, Fault, Interim, RequestBegins, RequestEnds, RequestExpectsContinue, RequestWithBody, RequestWithoutBody,
    ResponseBegins, ResponseEnds, ResponseEndsLast,
};
use ConnectionState::{
    AwaitContinue, Closed, Closing, Drain, EarlyResponse, Idle, RequestBody, RequestHead, ResponseBody, ResponseDue,
};

/// All transitions. Any other combination of state and event is a bug in the caller.
pub const TRANSITIONS: &[(ConnectionState, ConnectionEvent, ConnectionState)] = &[
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
    // RFC 9110 §10.1.1: the client may stop waiting and send the content, or receive the final response immediately.
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

/// `TRANSITIONS` as a matrix, so that a transition costs one load.
const MATRIX: [[Option<ConnectionState>; EVENTS]; STATES] = {
    let mut matrix = [[None; EVENTS]; STATES];
    let mut index = 0;
    while index < TRANSITIONS.len() {
        let (from, event, to) = TRANSITIONS[index];
        assert!(matrix[from as usize][event as usize].is_none(), "a transition appears twice in the table");
        matrix[from as usize][event as usize] = Some(to);
        index += 1;
    }
    matrix
};

/// State machine of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    state: ConnectionState,
}

impl Connection {
    /// Creates a connection in the idle state.
    pub const fn new() -> Self {
        Self { state: Idle }
    }

    /// Returns the current state.
    #[inline]
    pub const fn state(&self) -> ConnectionState {
        self.state
    }

    /// Applies `event`. An event without a transition closes the connection, the only safe action in an undefined
    /// state; in debug builds it panics.
    #[inline]
    pub fn advance(&mut self, event: ConnectionEvent) -> ConnectionState {
        let next = MATRIX[self.state as usize][event as usize];
        debug_assert!(next.is_some(), "no transition from {:?} on {event:?}", self.state);
        self.state = next.unwrap_or(Closed);
        self.state
    }

    /// Returns whether the table has a transition for `event` in this state.
    pub const fn allows(&self, event: ConnectionEvent) -> bool {
        MATRIX[self.state as usize][event as usize].is_some()
    }
}

impl Default for Connection {
    fn default() -> Self {
        Self::new()
    }
}

/// Prints the transition table as Markdown for docs/connection.md.
pub fn print_table() -> String {
    let mut text = String::from("| from | event | to |\n|---|---|---|\n");
    for (from, event, to) in TRANSITIONS {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {from:?} | {event:?} | {to:?} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Connection, ConnectionEvent, ConnectionState, TRANSITIONS, print_table};
    use std::collections::HashSet;

    fn run(events: &[ConnectionEvent]) -> ConnectionState {
        let mut connection = Connection::new();
        for &event in events {
            connection.advance(event);
        }
        connection.state()
    }

    #[test]
    fn an_exchange_returns_to_idle() {
        use ConnectionEvent::*;
        assert_eq!(run(&[RequestWithoutBody, ResponseBegins, ResponseEnds]), ConnectionState::Idle);
        assert_eq!(
            run(&[RequestBegins, RequestWithBody, RequestEnds, ResponseBegins, ResponseEnds]),
            ConnectionState::Idle
        );
        assert_eq!(
            run(&[RequestExpectsContinue, Interim, RequestEnds, Interim, ResponseBegins, ResponseEnds]),
            ConnectionState::Idle
        );
        assert_eq!(run(&[RequestWithBody, ResponseBegins, ResponseEnds, RequestEnds]), ConnectionState::Idle);
        assert_eq!(run(&[RequestWithBody, ResponseBegins, RequestEnds, ResponseEnds]), ConnectionState::Idle);
    }

    #[test]
    fn the_last_response_closes() {
        use ConnectionEvent::*;
        assert_eq!(run(&[RequestWithoutBody, ResponseBegins, ResponseEndsLast]), ConnectionState::Closing);
        assert_eq!(run(&[RequestExpectsContinue, ResponseBegins, ResponseEndsLast, Close]), ConnectionState::Closed);
        assert_eq!(run(&[RequestBegins, Fault, Close]), ConnectionState::Closed);
    }

    #[test]
    fn every_state_but_the_last_can_fail_and_close() {
        for (from, _, _) in TRANSITIONS {
            for event in [ConnectionEvent::Fault, ConnectionEvent::Close] {
                assert!(Connection { state: *from }.allows(event), "{from:?} {event:?}");
            }
        }
        assert!(TRANSITIONS.iter().all(|(from, _, _)| *from != ConnectionState::Closed));
    }

    #[test]
    fn every_state_is_reachable_from_idle() {
        let mut reached = HashSet::from([ConnectionState::Idle]);
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
