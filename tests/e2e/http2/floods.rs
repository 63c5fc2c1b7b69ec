//! Frames that cost the client little: each kind ends in GOAWAY with ENHANCE_YOUR_CALM, under its own name.

use super::client::{
    ACK, CONTINUATION, Client, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PRIORITY, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, literal, request,
};
use super::{count_of, h2c, site};
use crate::e2e::harness::Server;

const ENHANCE_YOUR_CALM: u32 = 0xb;

/// Maximum number of frames until a flood is stopped. The limits are rates, so a slow client may send more frames.
const FRAMES_MAX: usize = 10_000;

/// Maximum number of rounds that are sent before the server has read them.
const ROUNDS_AT_ONCE: u32 = 16;

/// Sends rounds of frames until the server closes the connection. Returns how many frames were sent.
fn flood(server: &Server, mut round: impl FnMut(&mut Client, u32) -> usize) -> usize {
    let mut client = Client::connect(server, &[]);
    let mut sent = 0;
    for stream in (1..).step_by(2) {
        sent += round(&mut client, stream);
        if let Some(code) = client.goaway_by_now() {
            assert_eq!(code, ENHANCE_YOUR_CALM);
            return sent;
        }
        assert!(sent <= 20 * FRAMES_MAX, "no GOAWAY after {sent} frames");
    }
    unreachable!()
}

/// Regularly waits until the server has read everything, so that frames that the server has not read are not counted.
fn check(name: &str, rounds_of: impl Fn(&mut Client, u32) -> usize) {
    let folder = site();
    let server = h2c(&folder);
    let frames = flood(&server, |client, stream| {
        let sent = rounds_of(client, stream);
        // Clients use odd stream numbers.
        if stream % (2 * ROUNDS_AT_ONCE) == 1 {
            client.wait_until_read();
        }
        sent
    });
    println!("{name}: GOAWAY after {frames} frames");
    assert!(frames <= FRAMES_MAX, "{name}: {frames} frames");
    let (_, text) = server.stop();
    assert_eq!((count_of(&text, name), count_of(&text, "closed_h2_flood")), (1, 1), "{text}");
}

#[test]
fn rapid_reset_is_stopped() {
    check("h2_rapid_reset", |client, stream| {
        client.get(stream, "/1k");
        client.send_frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]);
        2
    });
}

#[test]
fn made_you_reset_is_stopped() {
    // A window that overflows, and an increment of zero: stream errors, for which the server must reset the stream.
    check("h2_made_you_reset", |client, stream| {
        client.send_frame(HEADERS, END_HEADERS, stream, &request("POST", "/1k"));
        client.send_frame(WINDOW_UPDATE, 0, stream, &[0x7f, 0xff, 0xff, 0xff]);
        2
    });
    check("h2_made_you_reset", |client, stream| {
        let fields = [request("GET", "/"), literal(b"connection", b"close")].concat();
        client.send_frame(HEADERS, END_HEADERS | END_STREAM, stream, &fields);
        1
    });
}

#[test]
fn a_ping_flood_is_stopped() {
    check("h2_ping_flood", |client, _| {
        client.send_frame(PING, 0, 0, &[0; 8]);
        1
    });
}

#[test]
fn a_settings_flood_is_stopped() {
    check("h2_settings_flood", |client, _| {
        client.send_frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]);
        1
    });
}

#[test]
fn a_continuation_flood_is_stopped() {
    check("h2_continuation_flood", |client, stream| {
        if stream == 1 {
            client.send_frame(HEADERS, END_STREAM, 1, &request("GET", "/1k"));
        }
        client.send_frame(CONTINUATION, 0, 1, &literal(b"a", b"b"));
        1
    });
    // Complete field sections, each in a few frames.
    check("h2_continuation_flood", |client, stream| {
        client.send_frame(HEADERS, END_STREAM, stream, &request("HEAD", "/1k"));
        client.send_frame(CONTINUATION, 0, stream, &[]);
        client.send_frame(CONTINUATION, 0, stream, &[]);
        client.send_frame(CONTINUATION, 0, stream, &[]);
        client.send_frame(CONTINUATION, END_HEADERS, stream, &[]);
        5
    });
}

#[test]
fn an_empty_data_flood_is_stopped() {
    check("h2_empty_data_flood", |client, stream| {
        if stream == 1 {
            client.send_frame(HEADERS, END_HEADERS, 1, &request("POST", "/1k"));
        }
        client.send_frame(DATA, 0, 1, &[]);
        1
    });
}

#[test]
fn window_update_and_other_floods_are_stopped() {
    check("h2_window_update_flood", |client, _| {
        client.send_frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]);
        1
    });
    check("h2_frame_flood", |client, stream| {
        client.send_frame(PRIORITY, 0, stream, &[0, 0, 0, 0, 16]);
        client.send_frame(0x77, 0, 0, b"unknown");
        2
    });
}

#[test]
fn a_table_size_update_flood_is_stopped() {
    check("h2_table_size_flood", |client, stream| {
        let fields = [vec![0x20; 3], request("GET", "/1k")].concat();
        client.send_frame(HEADERS, END_HEADERS | END_STREAM, stream, &fields);
        1
    });
}

/// Small references to large fields, which decode to far more than was sent.
#[test]
fn an_hpack_bomb_uses_no_extra_memory() {
    const BYTES: usize = 1536 * 1024;
    let folder = site();
    let server = h2c(&folder);
    let rss_anon = || server.memory_kb("RssAnon") * 1024;
    assert_eq!(server.get("/1k").status, 200);
    let before = rss_anon();
    let mut sent = 0;
    let mut peak = before;
    let mut connections = 0;
    while sent < BYTES {
        connections += 1;
        // A window of zero, so no content can be sent.
        let mut client = Client::connect(&server, &[(4, 0)]);
        // 3.9 KB of cookie in the dynamic table, and as many references to it as a frame holds.
        let mut name_and_value = vec![0x40, 6];
        name_and_value.extend_from_slice(b"cookie");
        name_and_value.extend_from_slice(&[0x7f, 0x80 + 0x31, 0x1d]);
        name_and_value.extend(std::iter::repeat_n(b'c', 127 + 0x31 + (0x1d << 7)));
        let mut first = request("GET", "/50k");
        first.extend_from_slice(&name_and_value);
        for stream in (1..512).step_by(2) {
            let mut fields = if stream == 1 { first.clone() } else { request("GET", "/50k") };
            fields.resize(16_000, 0x80 + 62);
            if !client.send_frame(HEADERS, END_HEADERS | END_STREAM, stream, &fields) {
                break;
            }
            sent += fields.len();
            peak = peak.max(rss_anon());
            if sent >= BYTES {
                break;
            }
        }
        // Once this is acknowledged, or the connection has ended, all previous frames have been processed.
        client.send_frame(PING, 0, 0, b"the last");
        while let Some(frame) = client.frame() {
            peak = peak.max(rss_anon());
            if frame.kind == PING && frame.flags == ACK {
                break;
            }
            if frame.kind == GOAWAY {
                assert_eq!(frame.number(4), ENHANCE_YOUR_CALM);
                break;
            }
        }
        peak = peak.max(rss_anon());
    }
    let grown = peak.saturating_sub(before);
    println!("{sent} bytes sent on {connections} connections; memory grew by {grown} bytes");
    assert!(grown <= 2 * BYTES as u64, "{grown}");
    assert_eq!(server.get("/1k").status, 200);
}
