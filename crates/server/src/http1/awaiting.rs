//! Pending responses and their interim responses.

use super::exchanges::{CONTINUE, Exchanges, Turn};
use super::receiving::Receiving;
use super::streaming::{ContentFraming, Flow, Streaming};
use crate::exchange::pace::Pace;
use crate::exchange::pending::PendingResponse;
use crate::exchange::record::ExchangeRecord;
use crate::exchange::streamed::StreamedResponse;
use flatout_handler::content::{InterimResponse, Interims};
use flatout_handler::ending::CloseReason;
use flatout_handler::response::{Body, Response};
use flatout_handler::stream::Stream;
use flatout_handler::{Handler, LaterResponse, Reply};
use flatout_http::connection::ConnectionEvent;
use flatout_http::framing::Version;
use flatout_http::status::reason;
use std::io::Write as _;
use std::task::{Context, Poll};

impl Exchanges {
    /// Starts waiting for `response`.
    pub(super) fn wait(&mut self, response: LaterResponse, request: ExchangeRecord, interims: Option<Interims>) {
        // HTTP/1.0 clients do not understand interim responses (RFC 9110 §15.2).
        let interims = interims.filter(|_| request.exchange.version != Version::Http10);
        self.awaiting = Some(Box::new(PendingResponse::new(response, interims, request)));
    }

    /// Polls the pending or the streamed response, and appends to the output what is ready.
    pub(crate) fn poll_answer<H: Handler>(&mut self, turn: &mut Turn<'_, H>, context: &mut Context<'_>) -> Flow {
        if let Some(awaiting) = self.awaiting.as_mut() {
            let polled = awaiting.poll(context, |interim| {
                append_interim(turn.output, interim);
                self.machine.advance(ConnectionEvent::Interim);
            });
            let Poll::Ready(response) = polled else {
                if self.take_continue() {
                    self.send_continue(turn);
                }
                return Flow::Wait;
            };
            let Some(awaiting) = self.awaiting.take() else { return Flow::Done };
            self.answer_awaited(turn, response, awaiting.record);
        }
        self.poll_stream(turn, context)
    }

    fn send_continue<H: Handler>(&mut self, turn: &mut Turn<'_, H>) {
        turn.output.extend_from_slice(CONTINUE);
        self.machine.advance(ConnectionEvent::Interim);
    }

    /// Appends a response to a request whose content may still be arriving.
    fn answer_awaited<H: Handler>(&mut self, turn: &mut Turn<'_, H>, response: Response, request: ExchangeRecord) {
        if self.intake.is_none() {
            self.answer_described(turn, response, request, None);
            return;
        }
        if let Some(decoder) = self.take_unwanted(turn.worker.settings.limits.body_bytes_max) {
            let (reply, pace) = (Reply::Now(response), Pace::new(&turn.worker.settings));
            self.receiving = Some(Box::new(Receiving { decoder, body_bytes: 0, pace, reply, request, interims: None }));
            return;
        }
        // The response precedes the rest of the content, so the connection cannot be used again. While the response is
        // streamed, its handler may continue to read the content.
        let goes_on = matches!(response.body, Body::Stream(_))
            && !request.exchange.to_head
            && self.intake.as_ref().is_some_and(|intake| intake.is_read());
        if !goes_on {
            self.cut_content(CloseReason::RefusedBody);
        } else if self.intake.as_ref().is_some_and(|intake| intake.owes_continue()) {
            // A final response would make the client withhold content that the handler may still read.
            self.send_continue(turn);
        }
        self.answer_described(turn, response, request, Some(CloseReason::RefusedBody));
    }

    /// Starts a streamed response.
    pub(super) fn begin_stream<H: Handler>(
        &mut self,
        turn: &mut Turn<'_, H>,
        response: &Response,
        source: Stream,
        request: ExchangeRecord,
        close: Option<CloseReason>,
    ) {
        let exchange = request.exchange;
        let (frame, line, close): (_, &[u8], _) = match source.length() {
            Some(_) => (ContentFraming::Length, b"", close),
            None if exchange.version == Version::Http10 => {
                (ContentFraming::UntilClose, b"", close.or(Some(CloseReason::NotPersistent)))
            }
            None => (ContentFraming::Chunked { open: false }, b"Transfer-Encoding: chunked\r\n", close),
        };
        turn.head_at = Some(turn.output.len());
        let ends = self.begin_answer(turn, response, exchange, close, line);
        let response = StreamedResponse::new(source, false, request, response);
        self.streaming = Some(Box::new(Streaming::new(response, frame, ends)));
    }
}

fn append_interim(output: &mut Vec<u8>, interim: &InterimResponse) {
    // Writing to a Vec cannot fail.
    let _ = write!(output, "HTTP/1.1 {} {}\r\n", interim.status, reason(interim.status));
    output.extend_from_slice(&interim.lines);
    output.extend_from_slice(b"\r\n");
}
