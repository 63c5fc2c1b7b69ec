//! A client's reader of responses, independent of `flatout_http`.

/// The head of a final response.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The status, of three digits.
    pub status: u16,
    /// The fields, with names in lower case.
    pub fields: Vec<(String, String)>,
}

impl Head {
    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// Bytes of content.
    Bytes(usize),
    /// A chunk's size line.
    Size,
    /// A chunk's content and the line end.
    Chunk(usize),
    /// The trailer section.
    Trailers,
    /// Everything up to the end of the connection.
    ToEnd,
}

/// Result of reading once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing more without further bytes.
    Nothing,
    /// The head of a response, complete.
    Head,
    /// The end of the content.
    End,
}

/// Reads the responses on one connection.
#[derive(Debug, Default)]
pub struct Reader {
    /// Bytes that were not read yet.
    pub input: Vec<u8>,
    /// The head of the current response.
    pub head: Option<Head>,
    /// Its content so far.
    pub body: Vec<u8>,
    left: Option<Left>,
}

impl Reader {
    /// Reads on. `is_to_head`: the request was HEAD.
    ///
    /// # Errors
    /// The bytes are not a response.
    pub fn read(&mut self, is_to_head: bool) -> Result<Found, String> {
        let Some(left) = self.left else { return self.read_head(is_to_head) };
        let line_end = self.input.windows(2).position(|pair| pair == b"\r\n");
        match left {
            Left::Bytes(0) => return Ok(Found::End),
            Left::Bytes(bytes) => {
                let taken = bytes.min(self.input.len());
                self.body.extend(self.input.drain(..taken));
                self.left = Some(Left::Bytes(bytes - taken));
                return Ok(if taken == bytes { Found::End } else { Found::Nothing });
            }
            Left::ToEnd => self.body.append(&mut self.input),
            Left::Size => {
                let Some(end) = line_end else { return Ok(Found::Nothing) };
                let line: Vec<u8> = self.input.drain(..end + 2).collect();
                let size = String::from_utf8_lossy(&line[..end]).into_owned();
                let size = usize::from_str_radix(&size, 16).map_err(|_| format!("a chunk of {size:?}"))?;
                self.left = Some(if size == 0 { Left::Trailers } else { Left::Chunk(size) });
                return self.read(is_to_head);
            }
            Left::Chunk(bytes) if self.input.len() >= bytes + 2 => {
                self.body.extend(self.input.drain(..bytes));
                if !self.input.starts_with(b"\r\n") {
                    return Err("a chunk is longer than declared".to_owned());
                }
                self.input.drain(..2);
                self.left = Some(Left::Size);
                return self.read(is_to_head);
            }
            Left::Trailers => {
                let Some(end) = line_end else { return Ok(Found::Nothing) };
                self.input.drain(..end + 2);
                return if end == 0 { Ok(Found::End) } else { self.read(is_to_head) };
            }
            Left::Chunk(_) => {}
        }
        Ok(Found::Nothing)
    }

    /// Begins the next response, and returns the current one.
    pub fn take(&mut self) -> (Option<Head>, Vec<u8>) {
        self.left = None;
        (self.head.take(), std::mem::take(&mut self.body))
    }

    /// Content that has arrived, including that of an unfinished chunk.
    pub fn arrived(&self) -> Vec<u8> {
        let rest = if matches!(self.left, Some(Left::Chunk(_))) { &self.input[..] } else { &[] };
        let bytes = if let Some(Left::Chunk(bytes)) = self.left { bytes.min(rest.len()) } else { 0 };
        [&self.body[..], &rest[..bytes]].concat()
    }

    fn read_head(&mut self, is_to_head: bool) -> Result<Found, String> {
        let Some(end) = self.input.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(Found::Nothing) };
        let bytes: Vec<u8> = self.input.drain(..end + 4).collect();
        let text = String::from_utf8(bytes).map_err(|_| "a head that is not text".to_owned())?;
        let mut lines = text.trim_end().split("\r\n");
        let line = lines.next().unwrap_or_default();
        let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|code| code.parse().ok());
        let status: u16 = status.ok_or_else(|| format!("a status line of {line:?}"))?;
        if status < 200 {
            return self.read(is_to_head);
        }
        let fields = lines.filter_map(|line| line.split_once(':'));
        let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
        let head = Head { status, fields };
        let length = head.field("content-length").and_then(|length| length.parse().ok());
        self.left = Some(if is_to_head || matches!(status, 204 | 304) {
            Left::Bytes(0)
        } else if head.field("transfer-encoding").is_some() {
            Left::Size
        } else {
            length.map_or(Left::ToEnd, Left::Bytes)
        });
        self.head = Some(head);
        Ok(Found::Head)
    }
}

#[cfg(test)]
mod tests {
    use super::{Found, Reader};

    #[test]
    fn responses_are_read_from_any_pieces() {
        let text = b"HTTP/1.1 103 X\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n\
            2\r\nde\r\n0\r\nT: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nfgHTTP/1.1 304 X\r\n\r\n";
        for piece in [1, 2, 7, text.len()] {
            let (mut reader, mut read) = (Reader::default(), Vec::new());
            for bytes in text.chunks(piece) {
                reader.input.extend_from_slice(bytes);
                loop {
                    match reader.read(false).unwrap() {
                        Found::Nothing => break,
                        Found::Head => {}
                        Found::End => {
                            let (head, body) = reader.take();
                            read.push((head.unwrap().status, String::from_utf8(body).unwrap()));
                        }
                    }
                }
            }
            let expected = [(200, "abcde"), (200, "fg"), (304, "")].map(|(status, body)| (status, body.to_owned()));
            assert_eq!(read, expected, "{piece}");
        }
    }
}
