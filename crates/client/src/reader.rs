//! Parsing of successive responses from the bytes of a connection, without access to the socket.

use super::content::Digesting;
use super::failure::RequestFailure;
use flatout_http::body::BodyDecoder;
use flatout_http::connection::{Connection, ConnectionEvent, ConnectionState};
use flatout_http::framing::Framing;
use flatout_http::head::FieldStorage;
use flatout_http::limits::Limits;
use flatout_http::lines::each_line;
use flatout_http::response::parse_response_head;
use flatout_http::token::trim;

/// A complete final response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FinalResponse {
    pub(super) status: u16,
    /// True if another request may be sent on the connection.
    pub(super) persistent: bool,
}

/// Numbers of bytes received for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) total_bytes: u64,
    pub(super) body_bytes: u64,
    pub(super) interim_responses: u64,
}

/// The relevant parts of the head of a final response.
#[derive(Clone, Copy, Debug)]
struct Head {
    status: u16,
    framing: Framing,
    persistent: bool,
    /// True if the client stores cookies and the head has the field Set-Cookie.
    sets_cookies: bool,
}

/// Appends the value of each Set-Cookie line in `lines` to `values`, followed by LF.
pub(super) fn collect_set_cookies(lines: &[u8], values: &mut Vec<u8>) {
    for (name, line) in each_line(lines) {
        push_set_cookie(name, trim(line[name.len() + 1..].trim_ascii_end()), values);
    }
}

/// Appends the value of a field to `values`, followed by LF, if it is Set-Cookie. No version of HTTP permits LF in values.
pub(super) fn push_set_cookie(name: &[u8], value: &[u8], values: &mut Vec<u8>) {
    if name.eq_ignore_ascii_case(SET_COOKIE) {
        values.extend_from_slice(value);
        values.push(b'\n');
    }
}

/// Name of the field that sets a cookie, in lower case.
pub(super) const SET_COOKIE: &[u8] = b"set-cookie";

/// The last final head and its parsed form. A server under load sends the same bytes thousands of times, until its Date
/// field changes, so each distinct head is parsed only once.
#[derive(Debug, Default)]
pub(super) struct HeadMemo {
    /// A complete head, including the empty line at its end. Empty before the first head.
    bytes: Vec<u8>,
    head: Option<Head>,
}

impl HeadMemo {
    /// Returns the head at the start of `bytes` and its length, if it is the stored head.
    fn recall(&self, bytes: &[u8]) -> Option<(Head, usize)> {
        self.head.filter(|_| bytes.starts_with(&self.bytes)).map(|head| (head, self.bytes.len()))
    }

    fn remember(&mut self, bytes: &[u8], head: Head) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.head = Some(head);
    }
}

/// The body of a final response whose head has been parsed.
#[derive(Debug)]
struct Body {
    decoder: BodyDecoder,
    answer: FinalResponse,
}

/// The parser of the responses on one connection.
#[derive(Debug)]
pub(super) struct ResponseReader {
    connection: Connection,
    /// True if the next response belongs to a HEAD request.
    is_head: bool,
    /// True if the next response is the last one requested on the connection.
    is_last: bool,
    /// True if another response follows the next one, because requests were pipelined.
    more_due: bool,
    body: Option<Body>,
    /// Bytes received but not parsed: a partial head, or the beginning of the next response. Empty, and never
    /// allocated, if servers send heads in one piece.
    stash: Vec<u8>,
    received: Received,
    digesting: Option<Digesting>,
    /// True if the client stores cookies.
    collects_cookies: bool,
    /// The values of the Set-Cookie fields of the final response, each followed by LF.
    set_cookies: Vec<u8>,
}

impl ResponseReader {
    /// Creates the parser of a new connection.
    pub(super) fn new() -> Self {
        Self {
            connection: Connection::new(),
            is_head: false,
            is_last: false,
            more_due: false,
            body: None,
            stash: Vec::new(),
            received: Received::default(),
            digesting: None,
            collects_cookies: false,
            set_cookies: Vec::new(),
        }
    }

    /// Creates the parser of a new connection, which collects Set-Cookie fields if `collects_cookies`.
    pub(super) fn with_cookies(collects_cookies: bool) -> Self {
        Self { collects_cookies, ..Self::new() }
    }

    /// Returns the values of the Set-Cookie fields of the last response, each followed by LF.
    pub(super) fn set_cookies(&self) -> &[u8] {
        &self.set_cookies
    }

    /// Expects the response to a request that was sent. If `more_due`, further responses follow.
    pub(super) fn begin(&mut self, is_head: bool, is_last: bool, more_due: bool, digesting: Option<Digesting>) {
        debug_assert!(self.connection.state() == ConnectionState::Idle && self.body.is_none());
        (self.is_head, self.is_last, self.more_due, self.digesting) = (is_head, is_last, more_due, digesting);
        self.received = Received { total_bytes: self.stash.len() as u64, ..Received::default() };
        self.set_cookies.clear();
        self.connection.advance(ConnectionEvent::RequestWithoutBody);
    }

    /// Returns whether a response is due and incomplete.
    pub(super) fn is_due(&self) -> bool {
        matches!(self.connection.state(), ConnectionState::ResponseDue | ConnectionState::ResponseBody)
    }

    /// Returns the number of bytes received of the current or last response.
    pub(super) fn received(&self) -> Received {
        self.received
    }

    /// Returns the digest of the body, if it is being computed.
    pub(super) fn take_digest(&mut self) -> Option<Digesting> {
        self.digesting.take()
    }

    /// Parses bytes that arrived together with the previous response.
    pub(super) fn read_stash(&mut self, memo: &mut HeadMemo) -> Result<Option<FinalResponse>, RequestFailure> {
        if self.stash.is_empty() { Ok(None) } else { self.handle_stashed(memo, &[]) }
    }

    /// Parses the bytes of one receive. Returns the response if it is now complete.
    pub(super) fn handle_bytes(
        &mut self,
        memo: &mut HeadMemo,
        bytes: &[u8],
    ) -> Result<Option<FinalResponse>, RequestFailure> {
        self.received.total_bytes += bytes.len() as u64;
        if !self.stash.is_empty() {
            return self.handle_stashed(memo, bytes);
        }
        let (used, answer) = self.read(memo, bytes)?;
        if used < bytes.len() {
            self.stash.extend_from_slice(&bytes[used..]);
            self.leave_stash(answer);
        }
        Ok(answer)
    }

    fn handle_stashed(&mut self, memo: &mut HeadMemo, bytes: &[u8]) -> Result<Option<FinalResponse>, RequestFailure> {
        let mut stash = std::mem::take(&mut self.stash);
        stash.extend_from_slice(bytes);
        let (used, answer) = self.read(memo, &stash)?;
        stash.drain(..used);
        self.stash = stash;
        self.leave_stash(answer);
        Ok(answer)
    }

    /// Keeps the bytes after a response for the next response.
    fn leave_stash(&mut self, answer: Option<FinalResponse>) {
        if answer.is_some() {
            self.received.total_bytes -= self.stash.len() as u64;
        }
    }

    /// Handles the end of the server's data. It completes a body that is delimited by the close; otherwise it is a
    /// failure.
    pub(super) fn handle_end(&mut self) -> Result<FinalResponse, RequestFailure> {
        let body = self.body.take();
        match body {
            Some(body) if body.decoder.ends_with_connection() => {
                self.connection.advance(ConnectionEvent::ResponseEndsLast);
                Ok(FinalResponse { persistent: false, ..body.answer })
            }
            Some(_) => Err(RequestFailure::ShortBody),
            None => Err(RequestFailure::ClosedEarly),
        }
    }

    /// Parses as much as possible: interim responses, the final head and its body.
    fn read(&mut self, memo: &mut HeadMemo, bytes: &[u8]) -> Result<(usize, Option<FinalResponse>), RequestFailure> {
        let mut used = 0;
        if self.body.is_none() {
            let Some(head) = self.read_head(memo, bytes, &mut used)? else { return Ok((used, None)) };
            self.connection.advance(ConnectionEvent::ResponseBegins);
            let answer = FinalResponse { status: head.status, persistent: head.persistent && !self.is_last };
            match BodyDecoder::of_response(head.framing, &Limits::CLIENT) {
                Some(decoder) => self.body = Some(Body { decoder, answer }),
                None => return self.finish(answer, used, bytes.len()),
            }
        }
        let Some(body) = &mut self.body else { return Ok((used, None)) };
        while used < bytes.len() {
            let step = body.decoder.decode(&bytes[used..])?;
            if let Some(digesting) = &mut self.digesting {
                digesting.take(&bytes[used + step.data_start..][..step.data_bytes]);
            }
            used += step.consumed;
            self.received.body_bytes += step.data_bytes as u64;
            if step.done {
                let answer = body.answer;
                self.body = None;
                return self.finish(answer, used, bytes.len());
            }
        }
        Ok((used, None))
    }

    /// Parses up to the end of the final head, if that has arrived. Skips interim responses.
    fn read_head(
        &mut self,
        memo: &mut HeadMemo,
        bytes: &[u8],
        used: &mut usize,
    ) -> Result<Option<Head>, RequestFailure> {
        loop {
            let rest = &bytes[*used..];
            if let Some((head, head_bytes)) = memo.recall(rest) {
                *used += head_bytes;
                if head.sets_cookies {
                    collect_set_cookies(&rest[..head_bytes], &mut self.set_cookies);
                }
                return Ok(Some(head));
            }
            let mut storage = FieldStorage::new();
            let parsed = parse_response_head(rest, self.is_head, &Limits::CLIENT, &mut storage)?;
            let Some(parsed) = parsed else { return Ok(None) };
            *used += parsed.head_bytes;
            if parsed.is_interim() {
                self.connection.advance(ConnectionEvent::Interim);
                self.received.interim_responses += 1;
                continue;
            }
            let head = Head {
                status: parsed.status,
                framing: parsed.framing,
                persistent: parsed.persistent,
                sets_cookies: self.collects_cookies && parsed.fields.first("set-cookie").is_some(),
            };
            memo.remember(&rest[..parsed.head_bytes], head);
            if head.sets_cookies {
                collect_set_cookies(&rest[..parsed.head_bytes], &mut self.set_cookies);
            }
            return Ok(Some(head));
        }
    }

    fn finish(
        &mut self,
        answer: FinalResponse,
        used: usize,
        length: usize,
    ) -> Result<(usize, Option<FinalResponse>), RequestFailure> {
        if used < length && !self.more_due {
            // No other response is due, so the bytes after the body are surplus.
            return Err(RequestFailure::Surplus);
        }
        self.connection.advance(if answer.persistent {
            ConnectionEvent::ResponseEnds
        } else {
            ConnectionEvent::ResponseEndsLast
        });
        Ok((used, Some(answer)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Digesting, FinalResponse, HeadMemo, Received, ResponseReader};
    use crate::content::check;
    use crate::{PreparedRequest, RequestFailure};
    use flatout_http::refusal::Refusal;

    /// Feeds a response in pieces of every size and checks that all give the same result.
    fn feed(bytes: &[u8], closes: bool) -> Result<(Option<FinalResponse>, Received), RequestFailure> {
        let whole = feed_pieces(bytes, bytes.len().max(1), closes);
        for size in 1..bytes.len() {
            let pieces = feed_pieces(bytes, size, closes);
            match (whole, pieces) {
                // If more bytes follow a response, they are detected only if they arrive in the same piece.
                (Err(RequestFailure::Surplus), Ok(_)) => {}
                _ => assert_eq!(pieces, whole, "pieces of {size}"),
            }
        }
        whole
    }

    fn feed_pieces(
        bytes: &[u8],
        size: usize,
        closes: bool,
    ) -> Result<(Option<FinalResponse>, Received), RequestFailure> {
        let (mut reader, mut memo) = (ResponseReader::new(), HeadMemo::default());
        reader.begin(false, closes, false, None);
        for piece in bytes.chunks(size) {
            if let Some(answer) = reader.handle_bytes(&mut memo, piece)? {
                return Ok((Some(answer), reader.received()));
            }
        }
        Ok((None, reader.received()))
    }

    #[test]
    fn bodies_with_every_framing_are_read_completely() {
        let length: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        let chunked: &[u8] = b"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        for (bytes, status) in [(length, 200), (chunked, 404)] {
            let (answer, received) = feed(bytes, false).unwrap();
            assert_eq!(answer, Some(FinalResponse { status, persistent: true }));
            assert_eq!((received.total_bytes, received.body_bytes), (bytes.len() as u64, 5));
        }
    }

    #[test]
    fn interim_responses_are_counted_and_skipped() {
        let (answer, received) = feed(
            b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 N\r\n\r\n",
            false,
        )
        .unwrap();
        assert_eq!(answer, Some(FinalResponse { status: 204, persistent: true }));
        assert_eq!(received.interim_responses, 2);
    }

    #[test]
    fn a_connection_persists_only_when_both_sides_want_it() {
        let says_close = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let says_nothing = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        let persistent = |bytes: &[u8], closes| feed(bytes, closes).unwrap().0.unwrap().persistent;
        assert!(persistent(says_nothing, false));
        assert!(!persistent(says_nothing, true) && !persistent(says_close, false));
    }

    #[test]
    fn a_close_completes_only_a_body_framed_by_it() {
        for (bytes, expected) in [
            (&b"HTTP/1.1 200 OK\r\n\r\nall of it"[..], Ok(FinalResponse { status: 200, persistent: false })),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", Err(RequestFailure::ShortBody)),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", Err(RequestFailure::ShortBody)),
            (b"HTTP/1.1 200 OK\r\nContent-Len", Err(RequestFailure::ClosedEarly)),
            (b"", Err(RequestFailure::ClosedEarly)),
        ] {
            let mut reader = ResponseReader::new();
            reader.begin(false, false, false, None);
            assert_eq!(reader.handle_bytes(&mut HeadMemo::default(), bytes), Ok(None));
            assert_eq!(reader.handle_end(), expected, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn invalid_responses_are_refused_for_a_named_reason() {
        assert_eq!(feed(b"SSH-2.0-OpenSSH\r\n", false), Err(RequestFailure::Malformed(Refusal::StatusLine)));
        let two_lengths = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n";
        assert_eq!(feed(two_lengths, false), Err(RequestFailure::Malformed(Refusal::LengthDuplicate)));
    }

    #[test]
    fn a_body_longer_than_declared_is_a_failure() {
        assert_eq!(feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc", false), Err(RequestFailure::Surplus));
    }

    #[test]
    fn a_reader_parses_a_sequence_of_responses() {
        let (mut reader, mut memo) = (ResponseReader::new(), HeadMemo::default());
        for (head, status) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n", 200),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n", 200),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nA: b\r\n\r\n", 200),
            ("HTTP/1.1 404 OK\r\nContent-Length: 1\r\n\r\n", 404),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n", 200),
        ] {
            for cut in [0, 20, head.len()] {
                reader.begin(false, false, false, None);
                let bytes = format!("{head}x");
                assert_eq!(reader.handle_bytes(&mut memo, &bytes.as_bytes()[..cut]), Ok(None));
                let answer = reader.handle_bytes(&mut memo, &bytes.as_bytes()[cut..]).unwrap().unwrap();
                assert_eq!(answer, FinalResponse { status, persistent: true });
                assert_eq!((reader.received().body_bytes, reader.received().total_bytes), (1, bytes.len() as u64));
            }
        }
    }

    #[test]
    fn pipelined_responses_parse_at_any_split() {
        let all = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabHTTP/1.1 404 N\r\nTransfer-Encoding: chunked\r\n\r\n\
            1\r\nx\r\n0\r\n\r\nHTTP/1.1 204 N\r\n\r\n";
        let lengths = [40, 57, 18_u64];
        for size in 1..=all.len() {
            let (mut reader, mut memo) = (ResponseReader::new(), HeadMemo::default());
            let mut pieces = all.chunks(size);
            let mut answers = Vec::new();
            for nth in 0..3 {
                reader.begin(false, false, nth < 2, None);
                let mut answer = reader.read_stash(&mut memo).unwrap();
                while answer.is_none() {
                    answer = reader.handle_bytes(&mut memo, pieces.next().unwrap()).unwrap();
                }
                answers.push((answer.unwrap().status, reader.received().total_bytes));
            }
            assert_eq!(answers, [(200, lengths[0]), (404, lengths[1]), (204, lengths[2])], "pieces of {size}");
            assert!(pieces.next().is_none());
        }
    }

    #[test]
    fn a_digest_covers_only_the_content() {
        let request = PreparedRequest::plain(Vec::new());
        for answer in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"[..],
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        ] {
            for size in 1..=answer.len() {
                let (mut reader, mut memo) = (ResponseReader::new(), HeadMemo::default());
                reader.begin(false, false, false, Some(Digesting::begin()));
                for piece in answer.chunks(size) {
                    reader.handle_bytes(&mut memo, piece).unwrap();
                }
                assert_eq!(check(&request, 200, 5, reader.take_digest()), Ok(200), "pieces of {size}");
            }
        }
    }

    #[test]
    fn set_cookie_fields_of_final_heads_are_collected() {
        let with = b"HTTP/1.1 103 Early\r\nSet-Cookie: early=1\r\n\r\nHTTP/1.1 200 OK\r\nset-cookie:  a=1; Path=/ \r\n\
            Content-Length: 11\r\nSet-Cookies: no\r\nSET-COOKIE: b=:2\r\nSet-Cookie:\r\n\r\nSet-Cookie:";
        let without = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        for size in 1..=with.len() {
            let (mut reader, mut memo) = (ResponseReader::with_cookies(true), HeadMemo::default());
            // The second response has the head that is stored, and the third has none of its fields.
            for (bytes, expected) in
                [(&with[..], "a=1; Path=/\nb=:2\n\n"), (with, "a=1; Path=/\nb=:2\n\n"), (without, "")]
            {
                reader.begin(false, false, false, None);
                let answers = bytes.chunks(size).map(|piece| reader.handle_bytes(&mut memo, piece).unwrap());
                assert_eq!(answers.flatten().count(), 1);
                assert_eq!(String::from_utf8_lossy(reader.set_cookies()), expected, "pieces of {size}");
            }
        }
        let (mut reader, mut memo) = (ResponseReader::new(), HeadMemo::default());
        for _ in 0..2 {
            reader.begin(false, false, false, None);
            reader.handle_bytes(&mut memo, with).unwrap();
            assert_eq!((reader.set_cookies(), reader.set_cookies.capacity()), (&b""[..], 0));
        }
    }
}
