//! A parsed scenario: what is started, how the origins respond, and what happens in which order.

use std::time::Duration;

/// One scenario, or one row of a scenario with a table.
#[derive(Debug)]
pub(crate) struct Scenario {
    /// How the accelerator is started.
    pub(crate) launch: Launch,
    /// The behaviour of the origins, in the order of the file.
    pub(crate) turns: Vec<Turn>,
    /// All other steps, in the order of the file.
    pub(crate) steps: Vec<(usize, Step)>,
}

/// How the accelerator is started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Launch {
    /// `flatout accelerate`, with these arguments in addition to `--listen`.
    Verb(Vec<String>),
    /// `flatout run` with a site that has these settings.
    Site(String),
}

/// The behaviour of an origin for one request, or for each of several.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Line number.
    pub(crate) line: usize,
    /// The origin's name.
    pub(crate) origin: String,
    /// Methods that it handles. `*` means all.
    pub(crate) methods: Vec<String>,
    /// The target that it handles. `*` means all.
    pub(crate) target: String,
    /// How often it must be used.
    pub(crate) times: Times,
    /// True if it responds before it reads the request's content.
    pub(crate) early: bool,
    /// Conditions on the request's head. If one does not hold, the turn is skipped.
    pub(crate) conditions: Vec<Expect>,
    /// Conditions that the request must meet.
    pub(crate) expects: Vec<Expect>,
    /// Actions after that.
    pub(crate) actions: Vec<Action>,
}

/// How often a turn must be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Times {
    Exactly(u32),
    AtMost(u32),
    Any,
}

/// A step on the clients' side, or one that affects the accelerator.
#[derive(Debug)]
pub(crate) enum Step {
    Client(Exchange),
    /// Releases the origin turns that wait under this name.
    Release(String),
    /// Waits until all origins together have received this many requests.
    Await(usize),
    Wait(Duration),
    /// Waits for the background clients.
    Join,
    /// Runs `flatout` with these arguments.
    Command(Vec<String>, Vec<Expect>),
    /// Stops the accelerator with this signal and starts it again.
    Restart(&'static str),
}

/// One request, or the same request by several clients at once.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) line: usize,
    pub(crate) clients: usize,
    pub(crate) background: bool,
    /// True if it uses the connection of the previous exchange.
    pub(crate) same_connection: bool,
    /// `None` if the request is written out in bytes.
    pub(crate) method: Option<String>,
    pub(crate) items: Vec<Item>,
}

/// One action of a client.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Act(Action),
    Expect(Expect),
    /// Waits for 100 (Continue).
    Continue,
    /// Disconnects after this many bytes of the response.
    Leave(usize),
    /// Reads this many bytes of the response, and no more until the scenario ends.
    StopReading(usize),
    /// Closes its side of the connection.
    Finish,
}

impl Item {
    pub(crate) fn into_action(self) -> Option<Action> {
        match self {
            Self::Act(action) => Some(action),
            _ => None,
        }
    }
}

/// One action of either side on the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The head of a message.
    Head(Head),
    /// Content, framed as the preceding head declares.
    Body(Vec<u8>),
    /// The end of the content: the rest of its framing, with these trailers.
    End(Vec<(String, String)>),
    /// Sends these bytes unchanged.
    Send(Vec<u8>),
    /// Waits for these bytes.
    Receive(Vec<u8>),
    Pause(Duration),
    Hold(String),
    Close,
    Reset,
    /// Does nothing more, and keeps the connection open.
    Stall,
}

/// The head of a message as written in the scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// `GET /a HTTP/1.1` or `HTTP/1.1 200 OK`.
    pub(crate) start: String,
    /// 0 for a request.
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    /// Fields that the runner would otherwise add.
    pub(crate) without: Vec<String>,
    /// Length of the content that follows. `None` if there is none.
    pub(crate) content_bytes: Option<usize>,
}

impl Head {
    /// The value of the first field with this name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }

    pub(crate) fn is_chunked(&self) -> bool {
        self.field("Transfer-Encoding").is_some_and(|value| value.to_ascii_lowercase().contains("chunked"))
    }
}

/// A condition that must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expect {
    pub(crate) line: usize,
    /// As written in the scenario.
    pub(crate) text: String,
    pub(crate) what: What,
}

/// The subject of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Status(Vec<u16>),
    Body(Vec<u8>),
    BodyContains(Vec<u8>, bool),
    Field(String, Test),
    Trailer(String, Test),
    Interim(u16, Option<(String, Test)>),
    NoInterim(u16),
    /// Parameters of this cache's member in Cache-Status (RFC 9211) that must or must not be present.
    Cache(Vec<(String, Test)>),
    /// The message is truncated.
    Cut,
    /// The other side closes the connection.
    Closed,
    /// The request is not the first one on its connection.
    Kept,
    Within(Duration),
    NotWithin(Duration),
    Target(String),
    /// The exit code of a command.
    Exit(i32),
    Output(String, bool),
}

/// A test of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    Absent,
    Present,
    Equals(String),
    OneOf(Vec<String>),
    Differs(String),
    Contains(String),
    Lacks(String),
    AtMost(i64),
    AtLeast(i64),
    /// This many field lines.
    Lines(usize),
}
