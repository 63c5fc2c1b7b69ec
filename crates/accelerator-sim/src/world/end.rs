//! A non-blocking end of a connection.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;

/// One end of a connection.
#[derive(Debug)]
pub(super) struct End {
    /// `None` once it is closed.
    pub(super) stream: Option<UnixStream>,
    /// Bytes that the kernel has not taken yet.
    pub(super) unsent: Vec<u8>,
}

/// Result of a receive.
pub(super) enum Input {
    Nothing,
    Bytes,
    Closed,
}

impl End {
    pub(super) const fn new(stream: UnixStream) -> Self {
        Self { stream: Some(stream), unsent: Vec::new() }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
        self.flush();
    }

    /// Writes what the kernel takes. A peer that is gone takes everything.
    pub(super) fn flush(&mut self) {
        let Some(stream) = &mut self.stream else { return self.unsent.clear() };
        while !self.unsent.is_empty() {
            match stream.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.unsent.clear(),
            }
        }
    }

    pub(super) fn receive(&mut self, input: &mut Vec<u8>) -> Input {
        let Some(stream) = &mut self.stream else { return Input::Nothing };
        let before = input.len();
        let mut buffer = [0; 16 * 1024];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return Input::Closed,
                Ok(count) => input.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Input::Closed,
            }
        }
        if input.len() > before { Input::Bytes } else { Input::Nothing }
    }
}
