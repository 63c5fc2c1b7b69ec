//! Handling of QUIC events and received bytes.

use super::settings::{STREAMS_MANY, STREAMS_MAX};
use super::task::Http3Task;
use super::transport::{Http3Stream, code, stream_id};
use crate::counters::Counters;
use bytes::Bytes;
use flatout_handler::Handler;
use flatout_handler::ending::CloseReason;
use flatout_handler::response::trailer_lines;
use flatout_http::http3::connection::{Accepted, Event};
use flatout_http::http3::error::ErrorCode;
use flatout_net::tls::TlsFailure;
use quinn_proto::{Chunk, ConnectionError as QuicError, Dir, ReadError, StreamEvent, TransportErrorCode, VarInt};
use std::rc::Rc;

/// Maximum bytes of one stream that are read at once.
pub(super) const READ_BYTES: usize = 16 * 1024;

/// The reason reading from a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadEnd {
    /// More bytes may be available.
    More,
    /// No more bytes have arrived.
    Blocked,
    /// The client has ended the stream.
    Fin,
    /// The client has reset the stream with this code.
    Reset(u64),
}

/// The range of TLS alerts among the QUIC error codes (RFC 9001 §4.8).
const CRYPTO_ERRORS: std::ops::Range<u64> = 0x100..0x200;

impl<H: Handler> Http3Task<H> {
    /// Handles everything that QUIC has received. Returns whether there was anything.
    pub(super) fn receive(&mut self) -> Result<bool, CloseReason> {
        let mut has_moved = false;
        while let Some(event) = self.streams.transport.quic.poll() {
            has_moved = true;
            self.handle_quic_event(event)?;
        }
        // Streams are read in the order in which they became readable.
        while !self.streams.transport.readable.is_empty() {
            has_moved = true;
            for id in std::mem::take(&mut self.streams.transport.readable) {
                self.read(id)?;
            }
        }
        Ok(has_moved)
    }

    fn handle_quic_event(&mut self, event: quinn_proto::Event) -> Result<(), CloseReason> {
        let now_ms = self.streams.now_ms();
        match event {
            quinn_proto::Event::Connected => self.handle_connected(),
            quinn_proto::Event::ConnectionLost { reason } => {
                return Err(reason_of_loss(&self.streams.worker.counters, self.is_established, &reason));
            }
            quinn_proto::Event::Stream(StreamEvent::Opened { dir }) => {
                while let Some(id) = self.streams.transport.quic.streams().accept(dir) {
                    self.accept(now_ms, id.into(), dir)?;
                }
                let quic = &mut self.streams.transport.quic;
                if quic.streams().remote_open_streams(Dir::Bi) >= STREAMS_MANY {
                    quic.set_max_concurrent_streams(Dir::Bi, STREAMS_MAX.into());
                }
            }
            quinn_proto::Event::Stream(StreamEvent::Readable { id }) => {
                let id = id.into();
                let readable = &mut self.streams.transport.readable;
                if !readable.contains(&id) {
                    readable.push(id);
                }
            }
            quinn_proto::Event::Stream(StreamEvent::Writable { id }) => {
                self.streams.transport.handle_writable(id.into());
            }
            quinn_proto::Event::Stream(StreamEvent::Stopped { id, error_code }) => {
                let id = u64::from(id);
                let core = &mut self.streams.transport.core;
                let event = core
                    .handle_stopped(now_ms, id, error_code.into())
                    .map_err(|error| self.streams.transport.note(error))?;
                self.streams.transport.forget_output(id);
                if let Some(event) = event {
                    self.handle_event(event)?;
                }
            }
            // Streams may be available now; the end of the turn tries again.
            quinn_proto::Event::Stream(StreamEvent::Available { .. } | StreamEvent::Finished { .. })
            | quinn_proto::Event::HandshakeDataReady
            | quinn_proto::Event::DatagramReceived
            | quinn_proto::Event::DatagramsUnblocked => {}
        }
        Ok(())
    }

    fn accept(&mut self, now_ms: u64, id: u64, dir: Dir) -> Result<(), CloseReason> {
        match self.streams.transport.core.accept(now_ms, id).map_err(|error| self.streams.transport.note(error))? {
            Accepted::Open => {
                if dir == Dir::Bi {
                    self.heads.push((id, now_ms));
                }
                self.streams.transport.readable.push(id);
            }
            Accepted::Refused => self.streams.transport.cut(id, ErrorCode::RequestRejected),
        }
        Ok(())
    }

    /// Reads from a stream while its handler has room for content.
    fn read(&mut self, id: u64) -> Result<(), CloseReason> {
        let mut chunks = Vec::new();
        loop {
            if let Some(stream) = self.streams.transport.core.get_mut(id) {
                if stream.stash.is_some() {
                    return Ok(());
                }
                if stream.is_saturated() {
                    stream.is_paused = true;
                    return Ok(());
                }
            }
            let end = self.read_chunks(id, &mut chunks);
            let last = chunks.len().saturating_sub(1);
            for (index, chunk) in chunks.drain(..).enumerate() {
                self.streams.transport.credit.begin_delivery(chunk.bytes.len());
                self.handle_input(id, &chunk.bytes, end == ReadEnd::Fin && index == last)?;
            }
            match end {
                ReadEnd::More => {}
                ReadEnd::Blocked | ReadEnd::Fin => return Ok(()),
                ReadEnd::Reset(code) => {
                    let now_ms = self.streams.now_ms();
                    let core = &mut self.streams.transport.core;
                    let event =
                        core.handle_reset(now_ms, id, code).map_err(|error| self.streams.transport.note(error))?;
                    return event.map_or(Ok(()), |event| self.handle_event(event));
                }
            }
        }
    }

    /// Reads up to `READ_BYTES`. The end of the stream comes with a chunk, which may be empty.
    fn read_chunks(&mut self, id: u64, chunks: &mut Vec<Chunk>) -> ReadEnd {
        let mut stream = self.streams.transport.quic.recv_stream(stream_id(id));
        // Fails for a stream that is closed already.
        let Ok(mut reader) = stream.read(true) else { return ReadEnd::Blocked };
        let mut bytes_left = READ_BYTES;
        let end = loop {
            match reader.next(bytes_left.max(1)) {
                Ok(Some(chunk)) => {
                    bytes_left = bytes_left.saturating_sub(chunk.bytes.len());
                    chunks.push(chunk);
                    if bytes_left == 0 {
                        break ReadEnd::More;
                    }
                }
                Ok(None) => break ReadEnd::Fin,
                Err(ReadError::Blocked) => break ReadEnd::Blocked,
                Err(ReadError::Reset(code)) => break ReadEnd::Reset(code.into()),
            }
        };
        // Frames that this requires are sent at the end of the turn.
        let _ = reader.finalize();
        self.streams.transport.credit.handle_read(chunks.iter().map(|chunk| chunk.bytes.len() as u64).sum());
        if end == ReadEnd::Fin && chunks.is_empty() {
            chunks.push(Chunk { offset: 0, bytes: Bytes::new() });
        }
        end
    }

    /// Handles bytes of a stream. Bytes that wait for the QPACK dynamic table are stashed.
    fn handle_input(&mut self, id: u64, bytes: &[u8], ends: bool) -> Result<(), CloseReason> {
        if let Some(stream) = self.streams.transport.core.get_mut(id) {
            stream.has_ended |= ends;
            if let Some(stash) = &mut stream.stash {
                stash.extend_from_slice(bytes);
                return Ok(());
            }
        }
        let worker = Rc::clone(&self.streams.worker);
        let now_ms = self.streams.now_ms();
        let mut input = bytes;
        let mut fields = worker.fields.borrow_mut();
        loop {
            let core = &mut self.streams.transport.core;
            let event = core
                .handle(now_ms, id, &mut input, ends, &mut fields)
                .map_err(|error| self.streams.transport.note(error))?;
            let Some(event) = event else { break };
            match event {
                Event::Request { stream, ends } => {
                    self.forget_head(stream);
                    self.streams.handle_request(stream, ends, &fields);
                }
                Event::Trailers { stream } => {
                    self.streams.handle_trailers(stream, trailer_lines(fields.iter()));
                }
                Event::Rejected { stream, error } => {
                    self.forget_head(stream);
                    self.streams.transport.cut(stream, error.into());
                    self.streams.handle_rejected(error, &fields);
                }
                event => self.handle_event(event)?,
            }
        }
        drop(fields);
        if !input.is_empty()
            && let Some(stream) = self.streams.transport.core.get_mut(id)
        {
            stream.stash = Some(input.to_vec());
        }
        for id in std::mem::take(&mut self.unblocked) {
            let Some(stream) = self.streams.transport.core.get_mut(id) else { continue };
            let (stash, ends) = (stream.stash.take().unwrap_or_default(), stream.has_ended);
            self.handle_input(id, &stash, ends)?;
            self.streams.transport.readable.push(id);
        }
        Ok(())
    }

    fn handle_event(&mut self, event: Event<'_, Http3Stream>) -> Result<(), CloseReason> {
        match event {
            Event::Data { stream, bytes, ends } => {
                self.streams.transport.count_delivered(stream, bytes.len());
                self.streams.handle_content(stream, bytes, ends)?;
            }
            Event::Reset { stream, error, data, .. } => {
                self.forget_head(stream);
                let code = error.map_or(ErrorCode::RequestCancelled, ErrorCode::from);
                self.streams.transport.cut(stream, code);
                self.streams.handle_reset(data.state, error);
            }
            Event::Unblocked { stream } => self.unblocked.push(stream),
            // Handled where the fields are available, or only sent to clients.
            Event::Request { .. }
            | Event::Rejected { .. }
            | Event::Trailers { .. }
            | Event::Response { .. }
            | Event::Stopped { .. }
            | Event::Settings
            | Event::GoAway { .. } => {}
        }
        Ok(())
    }

    /// Stops the timeout of a request head, which is complete or never will be.
    fn forget_head(&mut self, id: u64) {
        self.heads.retain(|(open, _)| *open != id);
    }
}

/// Returns the close reason for a connection that QUIC has lost. `is_established` is true if the handshake was
/// complete. Counts TLS failures.
pub(super) fn reason_of_loss(counters: &Counters, is_established: bool, reason: &QuicError) -> CloseReason {
    let is_crypto = |code: TransportErrorCode| CRYPTO_ERRORS.contains(&u64::from(code));
    let tls_failed = |failure: TlsFailure| {
        counters.tls_failures[failure as usize].add(1);
        CloseReason::TlsFailed
    };
    match reason {
        QuicError::TimedOut if !is_established => CloseReason::TlsHandshakeTimeout,
        QuicError::TimedOut => CloseReason::IdleTimeout,
        // Some clients send 0 instead of H3_NO_ERROR.
        QuicError::ApplicationClosed(close)
            if close.error_code == code(ErrorCode::NoError) || close.error_code == VarInt::from_u32(0) =>
        {
            CloseReason::ClientClosed
        }
        QuicError::ConnectionClosed(close) if close.error_code == TransportErrorCode::NO_ERROR => {
            CloseReason::ClientClosed
        }
        QuicError::ConnectionClosed(close) if is_crypto(close.error_code) => tls_failed(TlsFailure::ClientAlert),
        QuicError::TransportError(error) if is_crypto(error.code) => tls_failed(TlsFailure::Incompatible),
        QuicError::ApplicationClosed(_) | QuicError::ConnectionClosed(_) => CloseReason::H3ClientError,
        QuicError::TransportError(_) | QuicError::VersionMismatch => CloseReason::QuicProtocol,
        QuicError::Reset => CloseReason::ClientReset,
        QuicError::LocallyClosed | QuicError::CidsExhausted => CloseReason::SocketFailed,
    }
}
