//! Strings with variables.

/// A string with variables, such as `https://{host}{path}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    /// The parts of the string, in order.
    pub parts: Vec<TextPart>,
}

/// A literal part, or a variable, of a [`Text`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextPart {
    /// Literal characters.
    Literal(String),
    /// The value of a variable, from the request.
    Variable(Variable),
}

/// The variables that a [`Text`] may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable {
    /// The client's address, without its port.
    Client,
    /// The value of the Host field without its port.
    Host,
    /// The value of the Host field, with its port.
    HostPort,
    /// The requested path, percent-encoded.
    Path,
    /// The requested path and query, percent-encoded.
    Uri,
    /// The query without the `?`; empty if there is none.
    Query,
    /// The scheme: `http` or `https`.
    Scheme,
    /// The part of the path that the route's last `*` matches, percent-encoded.
    Rest,
}
