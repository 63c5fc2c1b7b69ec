//! A scenario as read: what starts, what the origins do when they are asked, and what happens in which order.

use std::time::Duration;

/// One scenario, or one row of a scenario with a table.
#[derive(Debug)]
pub(crate) struct Scenario {
    /// How the accelerator is started.
    pub(crate) launch: Launch,
    /// What the origins do, in written order.
    pub(crate) turns: Vec<Turn>,
    /// What else happens, in written order.
    pub(crate) steps: Vec<(usize, Step)>,
}

/// How the accelerator is started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Launch {
    /// `flatout accelerate`, with these arguments besides `--listen`.
    Verb(Vec<String>),
    /// `flatout run` with a site of these settings.
    Site(String),
}

/// What an origin does with one request, or with each of several.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Where it stands.
    pub(crate) line: usize,
    /// The origin's name.
    pub(crate) origin: String,
    /// Methods that it answers; `*` is all.
    pub(crate) methods: Vec<String>,
    /// The target that it answers; `*` is all.
    pub(crate) target: String,
    /// How often it is to be asked.
    pub(crate) times: Times,
    /// True if it answers before it reads the request's content.
    pub(crate) early: bool,
    /// What must hold for the request's head, or another turn answers it.
    pub(crate) conditions: Vec<Expect>,
    /// What must hold for the request.
    pub(crate) expects: Vec<Expect>,
    /// What it does then.
    pub(crate) actions: Vec<Action>,
}

/// How often an origin is to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Times {
    Exactly(u32),
    AtMost(u32),
    Any,
}

/// What happens at the clients' side, or to the accelerator.
#[derive(Debug)]
pub(crate) enum Step {
    Client(Exchange),
    /// Lets go the origin's turns that hold under this name.
    Release(String),
    /// Waits until all origins together were asked so often.
    Await(usize),
    Wait(Duration),
    /// Waits for the clients in the background.
    Join,
    /// `flatout` with these arguments.
    Command(Vec<String>, Vec<Expect>),
    /// Stops the accelerator with this signal and starts it again.
    Restart(&'static str),
}

/// One request, or the same by several clients at once.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) line: usize,
    pub(crate) clients: usize,
    pub(crate) background: bool,
    /// True if it goes over the connection of the exchange before.
    pub(crate) same_connection: bool,
    /// `None`: all bytes are written out.
    pub(crate) method: Option<String>,
    pub(crate) items: Vec<Item>,
}

/// What a client does, in this order.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Act(Action),
    Expect(Expect),
    /// Waits for 100 (Continue).
    Continue,
    /// Goes away after so many bytes of the answer.
    Leave(usize),
    /// Reads so many bytes of the answer, and no more while the scenario lasts.
    StopReading(usize),
    /// Ends its side of the connection.
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

/// What either side does on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The head of a message.
    Head(Head),
    /// Content, framed as the head before says.
    Body(Vec<u8>),
    /// The content is whole: what is left of its framing, with these trailers.
    End(Vec<(String, String)>),
    /// Bytes as they are.
    Send(Vec<u8>),
    /// Waits for these bytes.
    Receive(Vec<u8>),
    Pause(Duration),
    Hold(String),
    Close,
    Reset,
    /// Does nothing more, and keeps the connection.
    Stall,
}

/// The head of a message as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// `GET /a HTTP/1.1` or `HTTP/1.1 200 OK`.
    pub(crate) start: String,
    /// 0 for a request.
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    /// Fields that the runner would add.
    pub(crate) without: Vec<String>,
    /// How long the content is that follows; `None`: there is none.
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

/// What must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expect {
    pub(crate) line: usize,
    /// As written.
    pub(crate) text: String,
    pub(crate) what: What,
}

/// What a condition looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Status(Vec<u16>),
    Body(Vec<u8>),
    BodyContains(Vec<u8>, bool),
    Field(String, Test),
    Trailer(String, Test),
    Interim(u16, Option<(String, Test)>),
    NoInterim(u16),
    /// Parameters of this cache's member in Cache-Status (RFC 9211): those that must be there, and those that must not.
    Cache(Vec<(String, Test)>),
    /// The message ends before it is whole.
    Cut,
    /// The other side ends the connection.
    Closed,
    /// The request is not the first one on its connection.
    Kept,
    Within(Duration),
    NotWithin(Duration),
    Target(String),
    /// Of a command.
    Exit(i32),
    Output(String, bool),
}

/// What must hold for a value.
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
    /// So many field lines.
    Lines(usize),
}
