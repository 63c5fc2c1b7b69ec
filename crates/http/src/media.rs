//! Media types of long-lived streams (server-sent events, gRPC), which may be idle for a long time.

use crate::token::trim;

/// Returns the type and subtype of a Content-Type (RFC 9110 §8.3.1), without parameters.
fn essence(content_type: &[u8]) -> &[u8] {
    trim(content_type.split(|byte| *byte == b';').next().unwrap_or_default())
}

/// Returns whether `content_type`, or a media range of Accept, denotes server-sent events.
pub fn is_event_stream(content_type: &[u8]) -> bool {
    essence(content_type).eq_ignore_ascii_case(b"text/event-stream")
}

/// Returns whether `content_type` denotes gRPC: `application/grpc`, with or without a suffix (`application/grpc+proto`,
/// `application/grpc-web`).
pub fn is_grpc(content_type: &[u8]) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let essence = essence(content_type);
    match essence.split_at_checked(GRPC.len()) {
        Some((begins, rest)) => begins.eq_ignore_ascii_case(GRPC) && matches!(rest.first(), None | Some(b'+' | b'-')),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{is_event_stream, is_grpc};

    #[test]
    fn types_are_compared_without_parameters_and_case() {
        for (content_type, events, grpc) in [
            (&b"text/event-stream"[..], true, false),
            (b"Text/Event-Stream ; charset=utf-8", true, false),
            (b"text/event-streams", false, false),
            (b"application/grpc", false, true),
            (b"application/gRPC+proto;x=y", false, true),
            (b"application/grpc-web-text", false, true),
            (b"application/grpcs", false, false),
            (b"", false, false),
        ] {
            assert_eq!((is_event_stream(content_type), is_grpc(content_type)), (events, grpc), "{content_type:?}");
        }
    }
}
