//! Sending a request's content on a stream, which does the framing.

use crate::upload::UploadSink;
use flatout_handler::response::encode_fields;
use flatout_net::http2::{ClientStream, StreamError};
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

fn broken(_: StreamError) -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}

impl UploadSink for ClientStream {
    fn begin_frame(&mut self, _: usize, _: bool, _: &mut Vec<u8>) {}

    fn end(&mut self, trailers: Option<&[u8]>, _: bool, _: &mut Vec<u8>) {
        match trailers {
            Some(lines) => self.send_trailers(|output| encode_fields(lines, None, output)),
            None => self.send(b"", true),
        }
    }

    fn poll_send(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>], ends: bool) -> Poll<io::Result<usize>> {
        let content = slices.last().map_or(&[][..], |slice| slice);
        let room = ready!(self.poll_room(context)).map_err(broken)?.min(content.len());
        self.send(&content[..room], ends && room == content.len());
        Poll::Ready(Ok(room))
    }

    fn poll_closed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.poll_error(context).map(drop)
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.poll_error(context) {
            Poll::Ready(error) => Poll::Ready(Err(broken(error))),
            Poll::Pending => Poll::Ready(Ok(())),
        }
    }
}
