//! Fuzzers of the sans-IO cores, in one table.
//!
//! The invariant of every decoder is the same: fed whole, byte by byte and with trailing bytes it decides the same,
//! uses no more than it was given, and never panics. `smoke` runs all of them over seeds and their mutations, with a
//! canary that must fail; `make fuzz FUZZER=name` runs one under libFuzzer.

mod agent;
mod cache;
mod config;
mod content;
mod disk;
mod fastcgi;
mod http3;
mod load;
pub mod mutate;
mod operator;
mod pages;
mod proxy;

use flatout_http::body::BodyDecoder;
use flatout_http::chunked::ChunkedDecoder;
use flatout_http::connection::{Connection, ConnectionState, TRANSITIONS};
use flatout_http::date::{format_date, parse_cookie_date, parse_date};
use flatout_http::digest::{DigestAlgorithm, choose_digest};
use flatout_http::encoding::{AcceptedCodings, ContentCoding};
use flatout_http::etag::list_matches;
use flatout_http::feed::{DecodeResult, assert_pieces_agree, assert_three_ways};
use flatout_http::framing::Framing;
use flatout_http::head::FieldStorage;
use flatout_http::host::check_host;
use flatout_http::http2::connection::{Config, Connection as Http2Connection, Event as Http2Event, Role};
use flatout_http::http2::fields::FieldBlock;
use flatout_http::http2::frame::{HEAD_BYTES, PAYLOAD_BYTES_MAX, PREFACE};
use flatout_http::http2::window::Windows;
use flatout_http::limits::Limits;
use flatout_http::path::{SLASH_IN_SEGMENT, decode_path};
use flatout_http::proxy_protocol::{
    PROXY_HEADER_BYTES_MAX, ProxyClient, ProxyVersion, append_proxy_header, parse_proxy_header,
};
use flatout_http::ranges::{RangesDecision, decide_ranges};
use flatout_http::refusal::Refusal;
use flatout_http::request::parse_request_head;
use flatout_http::response::parse_response_head;
use flatout_http::target::{Target, parse_target};

/// One fuzzer: what it is called, what it starts from, and what it checks.
pub struct Fuzzer {
    /// The name, for the command line.
    pub name: &'static str,
    /// Inputs to mutate.
    pub seeds: &'static [&'static [u8]],
    /// Panics when an invariant does not hold for these bytes.
    pub check: fn(&[u8]),
    /// True if it is the canary: a decoder with a known defect, which the smoke run must find.
    pub must_fail: bool,
}

/// Limits small enough that mutated inputs reach them.
const LIMITS: Limits = Limits {
    head_bytes_max: 256,
    target_bytes_max: 64,
    method_bytes_max: 16,
    fields_max: 8,
    body_bytes_max: 128,
    body_rate_min: 0,
    chunk_extension_bytes_max: 24,
    trailer_bytes_max: 64,
    pipelined_max: 4,
    output_bytes_max: 256,
    unknown_codings: false,
};

/// All fuzzers.
pub const FUZZERS: &[Fuzzer] = &[
    Fuzzer { name: "request_head", seeds: REQUEST_SEEDS, check: check_request_head, must_fail: false },
    Fuzzer { name: "response_head", seeds: RESPONSE_SEEDS, check: check_response_head, must_fail: false },
    Fuzzer { name: "exchange", seeds: REQUEST_SEEDS, check: check_exchange, must_fail: false },
    Fuzzer { name: "chunked", seeds: CHUNKED_SEEDS, check: check_chunked, must_fail: false },
    Fuzzer { name: "target", seeds: TARGET_SEEDS, check: check_target, must_fail: false },
    Fuzzer { name: "host", seeds: HOST_SEEDS, check: check_host_bytes, must_fail: false },
    Fuzzer { name: "proxy_header", seeds: PROXY_HEADER_SEEDS, check: check_proxy_header, must_fail: false },
    Fuzzer { name: "value", seeds: VALUE_SEEDS, check: check_values, must_fail: false },
    Fuzzer {
        name: "connection",
        seeds: &[b"\0\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a"],
        check: check_connection,
        must_fail: false,
    },
    Fuzzer { name: "http2", seeds: HTTP2_SEEDS, check: check_http2, must_fail: false },
    Fuzzer {
        name: "http2_oracle",
        seeds: flatout_http2_oracle::SEEDS,
        check: flatout_http2_oracle::check,
        must_fail: false,
    },
    Fuzzer { name: "http3", seeds: http3::CONNECTION_SEEDS, check: http3::check_connection, must_fail: false },
    Fuzzer { name: "qpack", seeds: http3::QPACK_SEEDS, check: http3::check_qpack, must_fail: false },
    Fuzzer { name: "esi", seeds: proxy::ESI_SEEDS, check: proxy::check_esi, must_fail: false },
    Fuzzer { name: "links", seeds: proxy::LINK_SEEDS, check: proxy::check_links, must_fail: false },
    Fuzzer { name: "cache_fields", seeds: cache::FIELD_SEEDS, check: cache::check_fields, must_fail: false },
    Fuzzer { name: "cache_stored", seeds: cache::STORED_SEEDS, check: cache::check_stored, must_fail: false },
    Fuzzer { name: "cache_decisions", seeds: cache::EXCHANGE_SEEDS, check: cache::check_decisions, must_fail: false },
    Fuzzer { name: "forward", seeds: proxy::FORWARD_SEEDS, check: proxy::check_forward, must_fail: false },
    Fuzzer { name: "fcgi_records", seeds: fastcgi::RECORD_SEEDS, check: fastcgi::check_records, must_fail: false },
    Fuzzer { name: "fcgi_params", seeds: fastcgi::PARAM_SEEDS, check: fastcgi::check_params, must_fail: false },
    Fuzzer { name: "cgi_head", seeds: fastcgi::HEAD_SEEDS, check: fastcgi::check_head, must_fail: false },
    Fuzzer { name: "pages", seeds: pages::SEEDS, check: pages::check_page, must_fail: false },
    Fuzzer { name: "escapes", seeds: pages::VALUES, check: pages::check_escapes, must_fail: false },
    Fuzzer { name: "multipart", seeds: content::MULTIPART_SEEDS, check: content::check_multipart, must_fail: false },
    Fuzzer { name: "content_fields", seeds: content::FIELD_SEEDS, check: content::check_fields, must_fail: false },
    Fuzzer { name: "agent_frames", seeds: agent::FRAME_SEEDS, check: agent::check_frames, must_fail: false },
    Fuzzer {
        name: "agent_coordinator",
        seeds: agent::COORDINATOR_SEEDS,
        check: agent::check_coordinator,
        must_fail: false,
    },
    Fuzzer { name: "lists", seeds: load::LIST_SEEDS, check: load::check_lists, must_fail: false },
    Fuzzer { name: "histograms", seeds: load::HISTOGRAM_SEEDS, check: load::check_histograms, must_fail: false },
    Fuzzer { name: "histogram_logs", seeds: load::HLOG_SEEDS, check: load::check_histogram_logs, must_fail: false },
    Fuzzer { name: "results", seeds: load::RESULT_SEEDS, check: load::check_results, must_fail: false },
    Fuzzer { name: "logs", seeds: load::LOG_SEEDS, check: load::check_logs, must_fail: false },
    Fuzzer { name: "volume_record", seeds: disk::RECORD_SEEDS, check: disk::check_record, must_fail: false },
    Fuzzer { name: "volume_index", seeds: disk::INDEX_SEEDS, check: disk::check_index, must_fail: false },
    Fuzzer { name: "digest_store", seeds: disk::DIGEST_SEEDS, check: disk::check_digest_entry, must_fail: false },
    Fuzzer { name: "admin", seeds: operator::ADMIN_SEEDS, check: operator::check_request, must_fail: false },
    Fuzzer { name: "basic_auth", seeds: operator::BASIC_SEEDS, check: operator::check_basic, must_fail: false },
    Fuzzer { name: "config", seeds: config::SEEDS, check: config::check_config, must_fail: false },
    Fuzzer { name: "canary", seeds: REQUEST_SEEDS, check: check_canary, must_fail: true },
];

/// Runs the fuzzer called `name` on `bytes`.
///
/// # Panics
/// When the invariant does not hold, or no fuzzer has that name.
#[allow(clippy::panic)]
pub fn run(name: &str, bytes: &[u8]) {
    match FUZZERS.iter().find(|fuzzer| fuzzer.name == name) {
        Some(fuzzer) => (fuzzer.check)(bytes),
        None => panic!("no fuzzer is called {name}"),
    }
}

const REQUEST_SEEDS: &[&[u8]] = &[
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"\r\nGET /a%20b?c HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"POST http://h:80/ HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
    b"GET / HTTP/1.1\r\nHost: [::1]:8\r\nTransfer-Encoding: chunked\r\n\r\n3;a=\"b\"\r\nabc\r\n0\r\nT: x\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1\r\nIf-None-Match: \"x\"\r\n\r\nGET / HTTP/1.0\r\n\r\n",
];
const PROXY_HEADER_SEEDS: &[&[u8]] = &[
    b"PROXY TCP4 - - - -\r\n",
    b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\nGET / HTTP/1.1\r\n",
    b"PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n",
    b"PROXY UNKNOWN ffff::1 2\r\n",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0f\xc0\0\x02\x01\xc6\x33\x64\x01\xdc\x04\x01\xbb\x04\0\0",
    b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
];
const RESPONSE_SEEDS: &[&[u8]] = &[
    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
    b"HTTP/1.0 304 Not Modified\r\nETag: \"x\"\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 206 \r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
];
const CHUNKED_SEEDS: &[&[u8]] =
    &[b"3\r\nabc\r\n0\r\n\r\n", b"a;b=c;d=\"e\\\"f\" ;g\r\n0123456789\r\n00\r\nX: y\r\nZ:\r\n\r\n"];
const TARGET_SEEDS: &[&[u8]] =
    &[b"/a/%2e%2e/b?c=d", b"http://u@h:80/../x#f", b"*", b"/.well-known//.x/..%2f%00", b"h:443"];
const HOST_SEEDS: &[&[u8]] = &[b"example.com:80", b"[::1]:8080", b"[v1.a:b]", b"%41.b"];
const VALUE_SEEDS: &[&[u8]] = &[
    b"bytes=0-1",
    b"bytes=-5",
    b"bytes=0-0,2-3, 5-,-1",
    b"br;q=0.5, gzip, *;q=0",
    b"sha-256=1, sha-512=3;a=\"b\"",
    b"W/\"a\", \"b\"",
    b"Sun, 06 Nov 1994 08:49:37 GMT",
    b"Sunday, 06-Nov-94 08:49:37 GMT",
];

const HTTP2_SEEDS: &[&[u8]] = &[
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\x05\0\0\0\x01\x82",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x08\x06\0\0\0\0\0abcdefgh\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08\0\0\0\x09\0\0\0\0\x01",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x0f\x01\x05\0\0\0\x01\x82\x84\x86\x41\x01a\x40\x01x\x01y\x54\x01z",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x03\0\x08\0\0\0\x01\x02\0\0\0\0\x04\x08\0\0\0\0\0\x7f\xff\xff\xff",
];

/// The same bytes have the same consequence however they were cut, for either role, and what they provoke is bounded.
fn check_http2(bytes: &[u8]) {
    // Again and again, until budgets end.
    let preface = PREFACE.len().min(bytes.len());
    let many = [bytes, &bytes[preface..].repeat(60.min(1 + 20_000 / bytes.len().max(1)))].concat();
    for role in [Role::Server, Role::Client] {
        let consequence = |size: usize| {
            let config = Config {
                streams_max: 8,
                windows: Windows { stream: 65_535, connection: 100_000 },
                section_bytes_max: 1000,
            };
            let mut output = Vec::new();
            let mut connection: Http2Connection<u8> = Http2Connection::new(role, config, &mut output);
            if role == Role::Client {
                connection.open(false);
            }
            let (mut stash, mut events, mut fields) = (Vec::new(), Vec::new(), FieldBlock::new());
            for piece in many.chunks(size) {
                stash.extend_from_slice(piece);
                let mut rest = &stash[..];
                while let Ok(Some(event)) = connection.handle(0, &mut rest, &mut fields, &mut output) {
                    events.push(format!("{event:?}"));
                    if let Http2Event::Data { stream, bytes, .. } = event {
                        connection.release(stream, bytes.len(), &mut output);
                    }
                }
                let used = stash.len() - rest.len();
                stash.drain(..used);
                assert!(stash.len() <= PAYLOAD_BYTES_MAX + HEAD_BYTES, "a stash of {}", stash.len());
            }
            assert!(connection.stream_count() <= 9 && output.len() <= 200 + 4 * many.len());
            (events, output, connection.has_failed())
        };
        let whole = consequence(usize::MAX);
        assert!([1, 7, 1000].into_iter().all(|size| consequence(size) == whole));
    }
}

fn decode_request(bytes: &[u8]) -> DecodeResult<String, Refusal> {
    let mut storage = FieldStorage::new();
    match parse_request_head(bytes, &LIMITS, &mut storage) {
        Ok(None) => None,
        Ok(Some(head)) => Some(Ok((format!("{head:?}"), head.head_bytes))),
        Err(refusal) => Some(Err(refusal)),
    }
}

fn check_request_head(bytes: &[u8]) {
    assert_three_ways(bytes, decode_request);
    // What was accepted has none of the forms that two readers may read in two ways.
    let mut storage = FieldStorage::new();
    if let Ok(Some(head)) = parse_request_head(bytes, &LIMITS, &mut storage) {
        let text = &bytes[..head.head_bytes];
        for (at, &byte) in text.iter().enumerate() {
            assert!(byte != b'\n' || text[at - 1] == b'\r', "a bare LF was accepted");
            assert!(byte != b'\r' || text[at + 1] == b'\n', "a bare CR was accepted");
            assert!(byte != 0, "a NUL was accepted");
        }
        let framed = |name: &'static str| head.fields.all(name).count();
        assert!(framed("content-length") + framed("transfer-encoding") <= 1 || head.framing == Framing::Chunked);
        assert!(framed("content-length") == 0 || framed("transfer-encoding") == 0);
    }
}

fn check_response_head(bytes: &[u8]) {
    for to_head in [false, true] {
        assert_three_ways(bytes, |bytes| {
            let mut storage = FieldStorage::new();
            match parse_response_head(bytes, to_head, &LIMITS, &mut storage) {
                Ok(None) => None,
                Ok(Some(head)) => Some(Ok((format!("{head:?}"), head.head_bytes))),
                Err(refusal) => Some(Err(refusal)),
            }
        });
    }
}

/// A head and its body, as a server reads them, wherever the receives are cut.
fn check_exchange(bytes: &[u8]) {
    assert_three_ways(bytes, |bytes| {
        let mut storage = FieldStorage::new();
        let head = match parse_request_head(bytes, &LIMITS, &mut storage) {
            Ok(None) => return None,
            Ok(Some(head)) => head,
            Err(refusal) => return Some(Err(refusal)),
        };
        let mut used = head.head_bytes;
        let mut content = Vec::new();
        let Some(mut decoder) = BodyDecoder::new(head.framing, &LIMITS) else { return Some(Ok((content, used))) };
        loop {
            match decoder.decode(&bytes[used..]) {
                Ok(step) => {
                    content.extend_from_slice(&bytes[used + step.data_start..][..step.data_bytes]);
                    used += step.consumed;
                    if step.done {
                        return Some(Ok((content, used)));
                    }
                    if used == bytes.len() {
                        return None;
                    }
                }
                Err(refusal) => return Some(Err(refusal)),
            }
        }
    });
}

fn check_chunked(bytes: &[u8]) {
    assert_pieces_agree(
        bytes,
        || ChunkedDecoder::new(&LIMITS),
        |decoder, piece, output| {
            let step = decoder.decode(piece)?;
            output.extend_from_slice(&piece[step.data_start..][..step.data_bytes]);
            Ok::<_, Refusal>((step.consumed, step.done))
        },
    );
}

fn check_target(bytes: &[u8]) {
    for method in [&b"GET"[..], b"OPTIONS", b"CONNECT"] {
        if let Ok(Target::Resource { path, .. }) = parse_target(method, bytes) {
            assert!(path.starts_with(b"/"));
            let mut decoded = Vec::new();
            if decode_path(path, &mut decoded).is_ok() {
                assert!(decoded.len() < path.len());
                // Nothing but an encoded slash becomes a zero.
                let slashes = path.windows(3).filter(|text| text.eq_ignore_ascii_case(b"%2f")).count();
                assert!(decoded.split(|&byte| byte == SLASH_IN_SEGMENT).count() <= slashes + 1);
                let climbs = decoded.split(|&byte| byte == b'/').any(|segment| segment == b".." || segment == b".");
                assert!(!climbs, "a climbing path was accepted");
            }
        }
    }
}

fn check_host_bytes(bytes: &[u8]) {
    if check_host(bytes).is_ok() {
        assert!(!bytes.is_empty() && bytes.iter().all(|byte| byte.is_ascii_graphic() && !b"/?#@\\".contains(byte)));
    }
}

fn check_proxy_header(bytes: &[u8]) {
    let decode =
        |bytes: &[u8]| parse_proxy_header(bytes).map(|found| found.map(|header| (header.client, header.bytes)));
    assert_three_ways(bytes, |bytes| decode(bytes).transpose());
    match parse_proxy_header(bytes) {
        Ok(Some(header)) => {
            assert!(header.bytes <= bytes.len().min(PROXY_HEADER_BYTES_MAX));
            let server = ([192, 0, 2, 1], 443).into();
            for version in [ProxyVersion::V1, ProxyVersion::V2] {
                let mut written = Vec::new();
                append_proxy_header(version, header.client, server, &mut written);
                // Version 1 has no LOCAL.
                let is_unknown = (version, header.client) == (ProxyVersion::V1, ProxyClient::Sender);
                let client = if is_unknown { ProxyClient::Hidden } else { header.client };
                assert_eq!(decode(&written), Ok(Some((client, written.len()))), "what is written is read");
            }
        }
        Ok(None) => assert!(bytes.len() < PROXY_HEADER_BYTES_MAX, "more than the largest header is incomplete"),
        Err(_) => {}
    }
}

fn check_values(bytes: &[u8]) {
    for length in [0, 1, 10, 1000, u64::MAX] {
        match decide_ranges(bytes, length) {
            RangesDecision::One(part) => assert!(part.first <= part.last && part.last < length),
            RangesDecision::Many(parts) => {
                let parts = parts.as_slice();
                assert!(!parts.is_empty() && parts.iter().all(|part| part.first <= part.last && part.last < length));
            }
            RangesDecision::Whole(_) | RangesDecision::Unsatisfiable => {}
        }
    }
    let accepted = AcceptedCodings::parse([bytes]);
    if let Some(coding) = accepted.choose(ContentCoding::ALL.iter().copied()) {
        assert_eq!(accepted.choose([coding]), Some(coding), "chosen among all, refused alone");
    }
    // An algorithm is only chosen when it is named.
    if let Some(algorithm) = choose_digest([bytes]) {
        let name: &[u8] = if algorithm == DigestAlgorithm::Sha256 { b"sha-256" } else { b"sha-512" };
        assert!(bytes.windows(name.len()).any(|window| window == name));
    }
    let mut tags = 0_usize;
    list_matches(bytes, |tag| {
        assert!(!tag.opaque.contains(&b'"'));
        tags += 1;
        false
    });
    assert!(tags <= bytes.len() / 2);
    let _ = parse_cookie_date(bytes);
    if let Some(seconds) = parse_date(bytes) {
        assert_eq!(parse_date(&format_date(seconds)), Some(seconds));
        assert_eq!(parse_cookie_date(&format_date(seconds)), Some(seconds));
    }
}

/// Whatever events come, as far as the table allows them, the connection is somewhere in the table.
fn check_connection(bytes: &[u8]) {
    let mut connection = Connection::new();
    for &byte in bytes {
        let (_, event, _) = TRANSITIONS[usize::from(byte) % TRANSITIONS.len()];
        if connection.allows(event) {
            connection.advance(event);
        }
        let known = TRANSITIONS.iter().any(|(from, _, _)| *from == connection.state());
        assert!(known || connection.state() == ConnectionState::Closed);
    }
}

/// A decoder that depends on how its input was cut: it takes a lone LF for a line end, but looks one byte back only
/// when it has it.
fn check_canary(bytes: &[u8]) {
    assert_three_ways(bytes, |bytes| {
        let end = bytes.iter().rposition(|&byte| byte == b'\n')?;
        Some(Ok::<_, ()>((bytes[..end].to_vec(), end + 1)))
    });
}
