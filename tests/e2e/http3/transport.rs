//! h3spec's cases for QUIC servers, run with aioquic.

use super::{python, serve_files, site};
use crate::e2e::http2::count_of;
use crate::e2e::tls::Certificate;
use crate::e2e::tool::run;
use serde_json::Value;

/// QUIC error codes (RFC 9000 §20.1), and TLS alerts in QUIC (RFC 9001 §4.8).
const FLOW_CONTROL: u64 = 0x3;
const STREAM_LIMIT: u64 = 0x4;
const STREAM_STATE: u64 = 0x5;
const FRAME_ENCODING: u64 = 0x7;
const TRANSPORT_PARAMETER: u64 = 0x8;
const PROTOCOL_VIOLATION: u64 = 0xa;
const UNEXPECTED_MESSAGE: u64 = 0x10a;
const MISSING_EXTENSION: u64 = 0x16d;
const NO_APPLICATION_PROTOCOL: u64 = 0x178;

/// Each case, and the error code with which the server closes the connection.
const CASES: [(&str, u64); 32] = [
    ("flow control", FLOW_CONTROL),
    ("stream limit", STREAM_LIMIT),
    ("initial_source_connection_id missing", TRANSPORT_PARAMETER),
    ("original_destination_connection_id", TRANSPORT_PARAMETER),
    ("preferred_address", TRANSPORT_PARAMETER),
    ("retry_source_connection_id", TRANSPORT_PARAMETER),
    ("stateless_reset_token", TRANSPORT_PARAMETER),
    ("max_udp_payload_size below 1200", TRANSPORT_PARAMETER),
    ("ack_delay_exponent above 20", TRANSPORT_PARAMETER),
    ("max_ack_delay of 2^14", TRANSPORT_PARAMETER),
    ("unknown frame", FRAME_ENCODING),
    ("no frames", PROTOCOL_VIOLATION),
    ("reserved bits in Handshake", PROTOCOL_VIOLATION),
    ("PATH_CHALLENGE in Handshake", PROTOCOL_VIOLATION),
    ("reserved bits in Short", PROTOCOL_VIOLATION),
    ("RESET_STREAM of a send-only stream", STREAM_STATE),
    ("STOP_SENDING of a missing stream", STREAM_STATE),
    ("NEW_TOKEN", PROTOCOL_VIOLATION),
    ("STREAM of a server's stream", STREAM_STATE),
    ("STREAM of a send-only stream", STREAM_STATE),
    ("MAX_STREAM_DATA of a missing stream", STREAM_STATE),
    ("MAX_STREAM_DATA of a receive-only stream", STREAM_STATE),
    ("MAX_STREAMS invalid", FRAME_ENCODING),
    ("STREAMS_BLOCKED invalid", FRAME_ENCODING),
    ("Retire_Prior_To invalid", FRAME_ENCODING),
    ("connection ID of no bytes", FRAME_ENCODING),
    ("HANDSHAKE_DONE", PROTOCOL_VIOLATION),
    ("KeyUpdate in Handshake", UNEXPECTED_MESSAGE),
    ("KeyUpdate in 1-RTT", UNEXPECTED_MESSAGE),
    ("application protocol unknown", NO_APPLICATION_PROTOCOL),
    ("transport parameters missing", MISSING_EXTENSION),
    ("EndOfEarlyData", UNEXPECTED_MESSAGE),
];

#[test]
fn each_quic_violation_has_its_error_code() {
    let (folder, certificate) = (site(), Certificate::new());
    let server = serve_files(&folder, &certificate, 1);
    let mut command = python("transport.py");
    command.arg(server.address.to_string()).args(CASES.map(|(case, _)| case));
    let ended: Value = serde_json::from_str(run(&mut command).trim()).unwrap();
    for (case, code) in CASES {
        assert_eq!((&ended[case]["code"], &ended[case]["quic"]), (&code.into(), &true.into()), "{case}: {ended:#}");
    }
    let (_, text) = server.stop();
    let closes = ["closed_quic_protocol", "closed_tls_failed"].map(|name| count_of(&text, name));
    assert_eq!(closes.iter().sum::<u64>(), CASES.len() as u64, "{text}");
}
