//! One side of a connection: parses messages strictly and writes actions byte for byte.

use super::script::{Action, Head};
use super::stage::Stage;
use crate::e2e::harness::wait_until_read;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longer than any response in a scenario takes on a busy machine. It only determines when a hanging scenario fails.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

/// How often a waiting side checks whether the scenario has ended.
const LOOK: Duration = Duration::from_millis(50);

/// A received head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Received {
    pub(crate) start: String,
    pub(crate) fields: Vec<(String, String)>,
}

impl Received {
    /// The status of a response.
    pub(crate) fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    /// The values of all lines with this name.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        let lines = self.fields.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name));
        lines.map(|(_, value)| value.as_str()).collect()
    }

    fn has_word(&self, name: &str, word: &str) -> bool {
        self.values(name).iter().any(|value| value.to_ascii_lowercase().split(',').any(|part| part.trim() == word))
    }

    /// Returns true if the connection ends after this message.
    pub(crate) fn closes(&self) -> bool {
        self.has_word("Connection", "close")
            || (self.start.contains("HTTP/1.0") && !self.has_word("Connection", "keep-alive"))
    }
}

/// A received message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    pub(crate) interims: Vec<Received>,
    pub(crate) head: Received,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    /// True if its framing shows that it is complete.
    pub(crate) complete: bool,
}

/// How the content of a message is framed.
#[derive(Clone, Copy)]
enum Framing {
    None,
    Bytes(usize),
    Chunked,
    UntilClose,
}

/// Tells whether a connection continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    GoesOn,
    Over,
}

/// One side of a connection.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
    pub(crate) ended: bool,
    stage: Arc<Stage>,
    /// An origin waits for requests until the scenario ends.
    is_origin: bool,
    /// True if the message being written is chunked.
    chunked: bool,
    /// True if the message being written has no content, whatever its head declares.
    pub(crate) bodyless: bool,
    closes_behind: bool,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream, stage: Arc<Stage>, is_origin: bool) -> Result<Self, String> {
        stream.set_read_timeout(Some(LOOK)).map_err(|error| error.to_string())?;
        stream.set_write_timeout(Some(TIMEOUT)).map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(Self {
            stream,
            buffer: Vec::new(),
            ended: false,
            stage,
            is_origin,
            chunked: false,
            bodyless: false,
            closes_behind: false,
        })
    }

    /// Reads more bytes into the buffer. Returns false if there will be none.
    fn fill(&mut self) -> Result<bool, String> {
        let (start, mut bytes) = (Instant::now(), vec![0; 64 * 1024]);
        while !self.ended {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.ended = true,
                Ok(count) => {
                    self.buffer.extend_from_slice(&bytes[..count]);
                    return Ok(true);
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if self.stage.is_over() {
                        self.ended = true;
                    } else if !self.is_origin && start.elapsed() > TIMEOUT {
                        return Err(format!("nothing came for {TIMEOUT:?}"));
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.ended = true,
            }
        }
        Ok(false)
    }

    /// Returns true if the other side closes the connection without sending anything more.
    pub(crate) fn closes(&mut self) -> Result<bool, String> {
        Ok(self.buffer.is_empty() && !self.fill()?)
    }

    /// Reads until the buffer has this many bytes.
    pub(crate) fn read_bytes(&mut self, count: usize) -> Result<(), String> {
        while self.buffer.len() < count {
            if !self.fill()? {
                return Err(format!("the connection ended after {} bytes", self.buffer.len()));
            }
        }
        Ok(())
    }

    /// A line without its line ending. `None` if the connection ended before.
    fn read_line(&mut self) -> Result<Option<String>, String> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                let line = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
                self.buffer.drain(..end + 2);
                return Ok(Some(line));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Field lines up to the empty line. `None` if the connection ended before.
    fn read_fields(&mut self) -> Result<Option<Vec<(String, String)>>, String> {
        let mut fields = Vec::new();
        loop {
            match self.read_line()? {
                None => return Ok(None),
                Some(line) if line.is_empty() => return Ok(Some(fields)),
                Some(line) => {
                    let Some((name, value)) = line.split_once(':') else {
                        return Err(format!("a field line without a colon came: {line}"));
                    };
                    fields.push((name.to_owned(), value.trim().to_owned()));
                }
            }
        }
    }

    /// The next head. `None` if the connection ended before it started.
    pub(crate) fn read_head(&mut self) -> Result<Option<Received>, String> {
        let Some(start) = self.read_line()? else {
            let within = Err("the connection ended within a head".to_owned());
            return if self.buffer.is_empty() { Ok(None) } else { within };
        };
        match self.read_fields()? {
            Some(fields) => Ok(Some(Received { start, fields })),
            None => Err("the connection ended within a head".to_owned()),
        }
    }

    /// The next response to a request with this method, including the interim responses before it.
    pub(crate) fn read_response(&mut self, method: &str) -> Result<Message, String> {
        let mut message = Message::default();
        loop {
            let head = self.read_head()?.ok_or("the connection ended without an answer")?;
            let status = head.status();
            if !head.start.starts_with("HTTP/1.1 ") || status == 0 {
                return Err(format!("no status line came: {}", head.start));
            }
            if (100..200).contains(&status) && status != 101 {
                message.interims.push(head);
                continue;
            }
            message.head = head;
            let is_empty = method == "HEAD" || matches!(status, 101 | 204 | 304);
            let framing = if is_empty { Framing::None } else { framing(&message.head, Framing::UntilClose)? };
            self.read_content(&mut message, framing)?;
            return Ok(message);
        }
    }

    /// Reads the content of the request with this head.
    pub(crate) fn read_request_content(&mut self, head: Received) -> Result<Message, String> {
        let mut message = Message { head, ..Message::default() };
        let framing = framing(&message.head, Framing::None)?;
        self.read_content(&mut message, framing)?;
        Ok(message)
    }

    fn read_content(&mut self, message: &mut Message, framing: Framing) -> Result<(), String> {
        message.complete = match framing {
            Framing::None => true,
            Framing::Bytes(count) => self.move_bytes(count, &mut message.body)?,
            Framing::Chunked => self.read_chunks(message)?,
            Framing::UntilClose => {
                while self.fill()? {}
                message.body.append(&mut self.buffer);
                true
            }
        };
        Ok(())
    }

    /// Takes this many bytes. Returns false if the connection ended before.
    fn move_bytes(&mut self, count: usize, body: &mut Vec<u8>) -> Result<bool, String> {
        while self.buffer.len() < count && self.fill()? {}
        let there = self.buffer.len().min(count);
        body.extend(self.buffer.drain(..there));
        Ok(there == count)
    }

    fn read_chunks(&mut self, message: &mut Message) -> Result<bool, String> {
        loop {
            let Some(line) = self.read_line()? else { return Ok(false) };
            let digits = line.split(';').next().unwrap_or("").trim();
            let size = usize::from_str_radix(digits, 16).map_err(|_| format!("no chunk begins so: {line}"))?;
            if size == 0 {
                let Some(trailers) = self.read_fields()? else { return Ok(false) };
                message.trailers = trailers;
                return Ok(true);
            }
            if !self.move_bytes(size, &mut message.body)? {
                return Ok(false);
            }
            match self.read_line()? {
                None => return Ok(false),
                Some(line) if line.is_empty() => {}
                Some(line) => return Err(format!("behind a chunk came {line}")),
            }
        }
    }

    /// Performs an action of the scenario.
    pub(crate) fn act(&mut self, action: &Action) -> Result<Flow, String> {
        match action {
            Action::Head(head) => self.write_head(head)?,
            Action::Body(_) if self.bodyless => {}
            Action::Body(bytes) if self.chunked => {
                let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
                chunk.extend_from_slice(bytes);
                chunk.extend_from_slice(b"\r\n");
                self.write(&chunk)?;
            }
            Action::Body(bytes) | Action::Send(bytes) => self.write(bytes)?,
            Action::End(trailers) => {
                if self.chunked && !self.bodyless {
                    let lines: String = trailers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
                    self.write(format!("0\r\n{lines}\r\n").as_bytes())?;
                }
                if self.closes_behind {
                    return Ok(Flow::Over);
                }
            }
            Action::Receive(bytes) => {
                let mut came = Vec::new();
                self.move_bytes(bytes.len(), &mut came)?;
                if came != *bytes {
                    return Err(format!("instead came {:?}", String::from_utf8_lossy(&came)));
                }
            }
            Action::Pause(duration) => {
                wait_until_read(&self.stream);
                self.stage.pause(*duration);
            }
            Action::Hold(name) => self.stage.hold(name)?,
            Action::Close => return Ok(Flow::Over),
            Action::Reset => {
                let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
                return Ok(Flow::Over);
            }
            Action::Stall => {
                self.stage.wait_until_over();
                return Ok(Flow::Over);
            }
        }
        Ok(Flow::GoesOn)
    }

    /// Writes a head, with required fields that the scenario does not list.
    fn write_head(&mut self, head: &Head) -> Result<(), String> {
        let mut lines: Vec<(String, String)> = head.fields.clone();
        let lacks = |name: &str| head.field(name).is_none() && !head.without.iter().any(|other| other == name);
        let final_response = head.status >= 200;
        if head.status == 0 && lacks("Host") {
            lines.insert(0, ("Host".to_owned(), "example.com".to_owned()));
        }
        if final_response && lacks("Date") {
            let date = flatout_http::date::format_date(super::now_s());
            lines.push(("Date".to_owned(), String::from_utf8_lossy(&date).into_owned()));
        }
        let content_bytes = match head.content_bytes {
            None if final_response && !matches!(head.status, 204 | 304) => Some(0),
            other => other,
        };
        let mut unframed = false;
        if let Some(count) = content_bytes.filter(|_| !head.is_chunked()) {
            if lacks("Content-Length") {
                lines.push(("Content-Length".to_owned(), count.to_string()));
            }
            unframed = final_response && head.without.iter().any(|name| name == "Content-Length");
        }
        if !head.is_interim() {
            self.chunked = head.is_chunked();
            let connection = head.field("Connection").unwrap_or("").to_ascii_lowercase();
            self.closes_behind = final_response && (unframed || connection.contains("close"));
        }
        let mut text = format!("{}\r\n", head.start);
        for (name, value) in &lines {
            text.push_str(name);
            text.push_str(": ");
            text.push_str(value);
            text.push_str("\r\n");
        }
        self.write(format!("{text}\r\n").as_bytes())
    }

    /// Ignores errors because the other side is gone: its response says more than the error.
    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        match self.stream.write_all(bytes) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(format!("nobody took what was written for {TIMEOUT:?}"))
            }
            Err(error) if self.is_origin => Err(error.to_string()),
            _ => Ok(()),
        }
    }

    /// Closes this side of the connection.
    pub(crate) fn finish(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

/// RFC 9112 §6.3, for a message that may have content.
fn framing(head: &Received, otherwise: Framing) -> Result<Framing, String> {
    let lengths = head.values("Content-Length");
    if head.has_word("Transfer-Encoding", "chunked") {
        return if lengths.is_empty() { Ok(Framing::Chunked) } else { Err("chunked, and with a length".to_owned()) };
    }
    match lengths.as_slice() {
        [] => Ok(otherwise),
        [length] => length.parse().map(Framing::Bytes).map_err(|_| format!("Content-Length is {length}")),
        _ => Err("Content-Length comes twice".to_owned()),
    }
}
