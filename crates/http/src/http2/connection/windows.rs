//! Flow control (RFC 9113 §5.2): credit for received content, and window growth.

use super::receiving::Handled;
use super::{Connection, ReceiveWindow, WINDOW_BYTES_MAX};
use crate::http2::error::{ConnectionError, StreamError};
use crate::http2::frame::{append_frame, kind, leading_number, setting};
use crate::http2::window::Windows;

impl<T> Connection<T> {
    /// Records that `bytes` of a stream's content were consumed, so that the peer may send as many bytes again. Credit
    /// is returned once it amounts to half a window.
    pub fn release(&mut self, id: u32, bytes: usize, output: &mut Vec<u8>) {
        let bytes = bytes as u32;
        self.release_connection(bytes, output);
        let half = self.stream_window / 2;
        let Some(stream) = self.streams.get_mut(id) else { return };
        stream.held_bytes = stream.held_bytes.saturating_sub(bytes);
        if stream.peer_done {
            return;
        }
        stream.owed_bytes += bytes;
        if stream.owed_bytes > 0 && stream.owed_bytes >= half {
            append_window_update(id, stream.owed_bytes, output);
            stream.receive_window += i64::from(std::mem::take(&mut stream.owed_bytes));
        }
    }

    /// Records that content was consumed whose stream gets no credit. With 0 bytes, only returns credit that is due.
    pub(super) fn release_connection(&mut self, bytes: u32, output: &mut Vec<u8>) {
        let receive = &mut self.receive;
        receive.owed_bytes += bytes;
        // Content that a slow reader leaves unread must not withhold credit from other streams.
        let is_low = receive.available <= i64::from(receive.size / 4);
        if receive.owed_bytes > 0 && (is_low || receive.owed_bytes >= receive.size / 2) {
            receive.return_credit(output);
        }
    }

    /// Announces new window sizes. A smaller connection window takes effect as the peer uses up the old window.
    pub fn set_windows(&mut self, windows: Windows, output: &mut Vec<u8>) {
        let before = std::mem::replace(&mut self.receive.size, windows.connection);
        if windows.connection > before {
            self.receive.owed_bytes += windows.connection - before;
            self.receive.return_credit(output);
        }
        let last = self.unacknowledged.back().copied().unwrap_or(self.stream_window);
        if windows.stream != last {
            let mut payload = [0; 6];
            payload[..2].copy_from_slice(&setting::INITIAL_WINDOW_SIZE.to_be_bytes());
            payload[2..].copy_from_slice(&windows.stream.to_be_bytes());
            append_frame(kind::SETTINGS, 0, 0, &payload, output);
            self.unacknowledged.push_back(windows.stream);
            if let Some(guard) = &mut self.guard {
                guard.handle_sent_request();
            }
        }
    }

    /// Returns whether the peer has acknowledged every announced setting.
    pub fn is_acknowledged(&self) -> bool {
        self.unacknowledged.is_empty()
    }
}

impl<T: Default> Connection<T> {
    /// Handles a WINDOW_UPDATE frame (RFC 9113 §6.9).
    pub(super) fn handle_credit(
        &mut self,
        now_ms: u64,
        id: u32,
        payload: &[u8],
        output: &mut Vec<u8>,
    ) -> Handled<'static, T> {
        let bytes = i64::from(leading_number(payload) & 0x7fff_ffff);
        if id == 0 {
            self.send_window += bytes;
            return match bytes {
                0 => Err(ConnectionError::WindowIncrement),
                _ if self.send_window > WINDOW_BYTES_MAX => Err(ConnectionError::WindowOverflow),
                _ => Ok(None),
            };
        }
        if self.is_idle(id) {
            return Err(ConnectionError::StreamIdle);
        }
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        stream.send_window += bytes;
        match bytes {
            0 => self.reset_for(now_ms, id, StreamError::WindowIncrement, output),
            _ if stream.send_window > WINDOW_BYTES_MAX => {
                self.reset_for(now_ms, id, StreamError::WindowOverflow, output)
            }
            _ => Ok(None),
        }
    }
}

impl ReceiveWindow {
    fn return_credit(&mut self, output: &mut Vec<u8>) {
        append_window_update(0, self.owed_bytes, output);
        self.available += i64::from(std::mem::take(&mut self.owed_bytes));
    }
}

fn append_window_update(stream: u32, bytes: u32, output: &mut Vec<u8>) {
    append_frame(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes(), output);
}
