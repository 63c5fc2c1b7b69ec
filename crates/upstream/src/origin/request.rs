//! Requests to an origin, as input of the client.

use flatout_handler::content::{RequestContent, Rewind};
use flatout_handler::shared::SharedBytes;
use flatout_http::proxy_protocol::ProxyClient;
use flatout_http::request::is_idempotent;

/// A request to an origin.
#[derive(Debug)]
pub struct OutgoingRequest<'a> {
    /// The method, which must be a token. CONNECT is not supported.
    pub method: &'a str,
    /// The request target as sent: a path with its query, or `*`.
    pub target: &'a [u8],
    /// Field lines, each `Name: value` and CR LF, including Host. They must not include framing fields (Content-Length,
    /// Transfer-Encoding), connection-specific fields (Connection, Keep-Alive, Upgrade, TE other than `trailers`) or
    /// Expect: the client adds those that are needed.
    pub lines: &'a [u8],
    /// The content. Streamed content is taken from here when sending begins.
    pub content: OutgoingContent,
    /// Value of Upgrade, to request a different protocol. Over HTTP/2, only WebSocket is possible, as an extended
    /// CONNECT (RFC 8441), if the origin supports that. Otherwise, the request is sent over HTTP/1.1.
    pub upgrade: Option<&'a [u8]>,
    /// Timeout for the response head in milliseconds, which applies if it is less than that in the settings. Used
    /// because all attempts at a request share one head timeout. It starts when the request has been sent completely or
    /// the origin stops reading it.
    pub head_left_ms: Option<u64>,
    /// The client that a PROXY header names, if the settings require one.
    pub client: ProxyClient,
}

/// Content of a request.
#[derive(Debug, Default)]
pub enum OutgoingContent {
    /// No content, and no field that declares content.
    #[default]
    None,
    /// Content in memory. Empty content is framed as `Content-Length: 0`.
    Bytes(SharedBytes),
    /// Content streamed from the client. Framed by Content-Length if its length is known, otherwise by chunked transfer
    /// coding.
    Content(RequestContent),
    /// Streamed content of which some may have been sent. The request can be sent again as long as the content can be
    /// rewound.
    Taken(Rewind),
}

impl OutgoingContent {
    /// Returns whether so much of the content has been read that it cannot be rewound, and the request cannot be sent
    /// again.
    pub fn is_spent(&self) -> bool {
        matches!(self, Self::Taken(rewind) if !rewind.is_possible())
    }

    /// Returns whether there is content whose length is unknown, so that HTTP/1.1 sends it in chunks.
    pub fn has_unknown_length(&self) -> bool {
        match self {
            Self::None | Self::Bytes(_) => false,
            Self::Content(content) => content.length().is_none(),
            Self::Taken(rewind) => rewind.length().is_none(),
        }
    }

    /// When all of it was there, in milliseconds on the coarse monotonic clock: 0 if it came with the request, `None`
    /// while the client still sends it.
    pub fn arrived_ms(&self) -> Option<u64> {
        match self {
            Self::None | Self::Bytes(_) => Some(0),
            Self::Content(content) => content.arrived_ms(),
            Self::Taken(rewind) => rewind.arrived_ms(),
        }
    }
}

impl OutgoingRequest<'_> {
    /// Returns whether the method is idempotent (RFC 9110 §9.2.2).
    pub fn is_idempotent(&self) -> bool {
        is_idempotent(self.method)
    }
}
