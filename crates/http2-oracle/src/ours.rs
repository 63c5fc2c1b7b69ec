//! This core as an [`Endpoint`].

use super::{Endpoint, FieldList, OWN_REQUESTS, SECTION_BYTES_MAX, STREAMS_MAX, Verdict};
use flatout_http::head::FieldStorage;
use flatout_http::http2::connection::{Config, Connection, Event, Role};
use flatout_http::http2::fields::FieldBlock;
use flatout_http::http2::frame::{ErrorCode, PREFACE};
use flatout_http::http2::hpack::{encode_field, encode_status};
use flatout_http::http2::window::Windows;
use flatout_http::limits::Limits;

pub(crate) struct Ours {
    role: Role,
    connection: Connection<u8>,
    fields: FieldBlock,
    stash: Vec<u8>,
    output: Vec<u8>,
}

impl Ours {
    pub(crate) fn new(role: Role) -> Self {
        let config = Config {
            streams_max: STREAMS_MAX,
            windows: Windows { stream: 65_535, connection: 65_535 },
            section_bytes_max: SECTION_BYTES_MAX as usize,
        };
        let mut output = Vec::new();
        let mut connection = Connection::new(role, config, &mut output);
        let mut fields = FieldBlock::new();
        if role == Role::Client {
            for (_, method, ends) in OWN_REQUESTS {
                if let Some(id) = connection.open(method == "HEAD") {
                    connection.send_fields(id, ends, &mut output, |block| {
                        let pseudo = [(":method", method), (":scheme", "http"), (":authority", "a"), (":path", "/")];
                        for (name, value) in pseudo {
                            encode_field(name.as_bytes(), value.as_bytes(), block);
                        }
                    });
                }
            }
        } else {
            let _ = connection.handle(0, &mut &PREFACE[..], &mut fields, &mut output);
        }
        Self { role, connection, fields, stash: Vec::new(), output }
    }
}

impl Endpoint for Ours {
    fn receive(&mut self, bytes: &[u8]) -> Verdict {
        self.stash.extend_from_slice(bytes);
        let stash = std::mem::take(&mut self.stash);
        let (mut rest, mut found) = (&stash[..], Verdict::Nothing);
        loop {
            match self.connection.handle(0, &mut rest, &mut self.fields, &mut self.output) {
                Ok(Some(event)) => {
                    found = verdict(self.role, &event, &self.fields);
                    let (Event::Response { stream, .. } | Event::Data { stream, .. } | Event::Trailers { stream }) =
                        event
                    else {
                        continue;
                    };
                    self.connection.take_done(stream);
                }
                Ok(None) => break,
                Err(error) => {
                    found = Verdict::ConnectionError { code: error.code(), name: error.name().to_owned() };
                    break;
                }
            }
        }
        self.stash = rest.to_vec();
        found
    }

    fn end(&mut self, stream: u32) {
        match self.role {
            Role::Server => {
                self.connection.send_fields(stream, true, &mut self.output, |block| encode_status(200, block));
            }
            Role::Client => {
                self.connection.send_data(stream, 0, true);
            }
        }
    }

    fn reset(&mut self, stream: u32) {
        self.connection.reset(stream, ErrorCode::Cancel, &mut self.output);
    }
}

fn verdict(role: Role, event: &Event<'_, u8>, fields: &FieldBlock) -> Verdict {
    match *event {
        Event::Request { stream, ends } => match request(fields, ends) {
            Ok(fields) => Verdict::Message { stream, fields, ends },
            Err(refusal) => Verdict::Refused(refusal),
        },
        Event::Response { stream, ends } => {
            let mut list = regular(fields);
            list.push((":status".to_owned(), fields.status().unwrap_or(0).to_string().into_bytes()));
            list.sort_by(|a, b| a.0.cmp(&b.0));
            Verdict::Message { stream, fields: list, ends }
        }
        Event::Data { bytes: [], ends: false, .. } | Event::Acknowledged(_) | Event::GoAway { .. } => Verdict::Nothing,
        Event::Data { stream, bytes, ends } => Verdict::Data { stream, content: bytes.to_vec(), ends },
        // A server's caller refuses trailers that are too large.
        Event::Trailers { .. } if role == Role::Server && fields.is_too_large() => {
            Verdict::Refused("TrailersTooLarge".to_owned())
        }
        Event::Trailers { stream } => Verdict::Trailers { stream, fields: regular(fields) },
        Event::Reset { stream, code, error: None, .. } => Verdict::Reset { stream, code },
        Event::Reset { stream, code, error: Some(error), .. } => {
            Verdict::StreamError { stream, code, name: error.name().to_owned() }
        }
        Event::Rejected { stream, error } => {
            Verdict::StreamError { stream, code: error.code(), name: error.name().to_owned() }
        }
    }
}

fn regular(fields: &FieldBlock) -> FieldList {
    let mut list: FieldList = fields.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
    list.sort_by(|a, b| a.0.cmp(&b.0));
    list
}

/// The fields of a request as other implementations report them, or the name of its refusal.
fn request(fields: &FieldBlock, ends: bool) -> Result<FieldList, String> {
    let mut storage = FieldStorage::new();
    let head =
        fields.request_head(ends, &Limits::DEFAULT, &mut storage).map_err(|refusal| refusal.name().to_owned())?;
    let mut list: FieldList = regular(fields).into_iter().filter(|(name, _)| name != "host").collect();
    let mut add = |name: &str, value: &[u8]| list.push((name.to_owned(), value.to_vec()));
    add(":authority", head.host.unwrap_or_default());
    let line = fields.request_line();
    let method = line.split(|&byte| byte == b' ').next().unwrap_or_default();
    add(":method", method);
    if let Some(protocol) = fields.protocol() {
        add(":protocol", protocol);
    }
    if method != b"CONNECT" || fields.protocol().is_some() {
        add(":path", head.target_text);
    }
    list.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(list)
}
