//! Names of the rules whose violation closes a connection or resets a stream (RFC 9113 §5.4).

use super::frame::ErrorCode;

flatout_reason::reasons! {
    /// The reason an HTTP/2 connection must be closed.
    pub enum ConnectionError {
        name,
        /// The HTTP/2 error code, as a number.
        number: u32,
        text,
    }
    /// RFC 9113 §3.4.
    Preface, "h2_preface", 1, "The connection does not begin with the preface and SETTINGS.";
    /// RFC 9113 §4.2.
    FrameTooLarge, "h2_frame_too_large", 6, "A frame is longer than 16 KiB.";
    /// RFC 9113 §4.2, §6.
    FrameLength, "h2_frame_length", 6, "A frame has a length that its type does not permit.";
    /// RFC 9113 §6.1, §6.2.
    Padding, "h2_padding", 1, "The padding is longer than its frame.";
    /// RFC 9113 §4.3.
    SectionInterrupted, "h2_section_interrupted", 1, "Another frame arrived between HEADERS and its last CONTINUATION.";
    /// RFC 9113 §6.10.
    Continuation, "h2_continuation", 1, "A CONTINUATION frame arrived outside a field section.";
    /// RFC 9113 §6.
    StreamMissing, "h2_stream_missing", 1, "A frame that requires a stream has stream identifier 0.";
    /// RFC 9113 §6.
    StreamForbidden, "h2_stream_forbidden", 1, "SETTINGS, PING, GOAWAY or PRIORITY_UPDATE has a stream identifier other than 0.";
    /// RFC 9113 §8.4.
    PushPromise, "h2_push_promise", 1, "The peer sent PUSH_PROMISE, but server push is disabled.";
    /// RFC 9113 §5.1.1.
    StreamId, "h2_stream_id", 1, "HEADERS has a stream identifier that the peer must not use for a new stream.";
    /// RFC 9113 §5.1.
    StreamIdle, "h2_stream_idle", 1, "A frame refers to an idle stream.";
    /// RFC 9113 §5.1.
    StreamClosed, "h2_stream_closed", 5, "The peer sent HEADERS or DATA on a stream that it had already ended or reset.";
    /// RFC 7540 §5.3.1.
    SelfDependency, "h2_self_dependency", 1, "A PRIORITY frame for a stream that is not open makes the stream depend on itself.";
    /// RFC 9113 §6.9.1.
    WindowExceeded, "h2_window_exceeded", 3, "The peer sent more content than the connection's window permits.";
    /// RFC 9113 §6.9.1.
    WindowOverflow, "h2_window_overflow", 3, "WINDOW_UPDATE makes the connection's window larger than 2^31-1 bytes.";
    /// RFC 9113 §6.9.
    WindowIncrement, "h2_window_increment", 1, "The increment of WINDOW_UPDATE for the connection is 0.";
    /// RFC 9113 §6.5.2.
    SettingValue, "h2_setting_value", 1, "A setting has a value that is not allowed.";
    /// RFC 9113 §6.5.2, §6.9.2.
    SettingWindow, "h2_setting_window", 3, "The initial window size makes a stream's window larger than 2^31-1 bytes.";
    /// RFC 9218 §7.1.
    PriorityId, "h2_priority_id", 1, "The prioritized stream identifier in PRIORITY_UPDATE is 0.";
    /// RFC 9218 §7.1.
    PriorityUpdate, "h2_priority_update", 1, "The server sent PRIORITY_UPDATE, which only a client may send.";
    /// RFC 9113 §4.3.
    SectionInvalid, "h2_section_invalid", 9, "A field section cannot be decoded.";
    /// A field section must be decoded completely to keep the compression table consistent.
    SectionExcess, "h2_section_excess", 11, "A field section is many times larger than its limit.";
    /// RFC 9113 §10.5.
    DataExcess, "h2_data_excess", 11, "The client sent too many small DATA frames whose content the server discards.";
    /// CVE-2023-44487.
    RapidReset, "h2_rapid_reset", 11, "The client reset streams faster than the server could respond.";
    /// CVE-2025-8671.
    MadeYouReset, "h2_made_you_reset", 11, "The client caused too many stream errors, each of which made the server reset a stream.";
    /// RFC 9113 §10.5.
    PingFlood, "h2_ping_flood", 11, "The client sent too many PING frames.";
    /// RFC 9113 §10.5.
    SettingsFlood, "h2_settings_flood", 11, "The client sent too many SETTINGS frames.";
    /// CVE-2024-27316.
    ContinuationFlood, "h2_continuation_flood", 11, "The client split header sections into too many CONTINUATION frames.";
    /// RFC 9113 §10.5.
    EmptyDataFlood, "h2_empty_data_flood", 11, "The client sent too many empty DATA frames.";
    /// RFC 9113 §10.5.
    WindowUpdateFlood, "h2_window_update_flood", 11, "The client sent too many WINDOW_UPDATE frames.";
    /// RFC 7541 §4.2.
    TableSizeFlood, "h2_table_size_flood", 11, "The client changed the HPACK table size more than twice before a header section.";
    /// RFC 9113 §10.5.
    FrameFlood, "h2_frame_flood", 11, "The client sent too many PRIORITY, unknown or unsolicited frames.";
}

impl ConnectionError {
    /// Returns the error code to send in GOAWAY.
    pub fn code(self) -> ErrorCode {
        ErrorCode::from_number(self.number())
    }
}

flatout_reason::reasons! {
    /// The reason a stream of HTTP/2 or HTTP/3 was reset: an error of the peer that does not affect the connection.
    pub enum StreamError {
        name,
        /// The HTTP/2 error code, as a number.
        number: u32,
        text,
    }
    /// RFC 9113 §8.2.1.
    FieldName, "stream_field_name", 1, "A field name is not a lowercase token.";
    /// RFC 9113 §8.2.1.
    FieldValue, "stream_field_value", 1, "A field value contains a control character.";
    /// RFC 9113 §8.2.1.
    FieldSpace, "stream_field_space", 1, "A field value begins or ends with white space.";
    /// RFC 9113 §8.2.2.
    ConnectionField, "stream_connection_field", 1, "A field is connection-specific, or TE has a value other than trailers.";
    /// RFC 9113 §8.3.
    PseudoField, "stream_pseudo_field", 1, "A pseudo-header field is unknown, or not allowed in this section.";
    /// RFC 9113 §8.3.
    PseudoOrder, "stream_pseudo_order", 1, "A pseudo-header field follows a regular field.";
    /// RFC 9113 §8.3.
    PseudoRepeated, "stream_pseudo_repeated", 1, "A pseudo-header field occurs twice.";
    /// RFC 9113 §8.3.1, §8.3.2, §8.5; RFC 8441 §4.
    PseudoMissing, "stream_pseudo_missing", 1, "A required pseudo-header field is missing or empty, or the method does not allow a pseudo-header field that is present.";
    /// RFC 9113 §8.3.2.
    Status, "stream_status", 1, "The status of a response is not a number from 100 to 999, or is 101.";
    /// RFC 9110 §8.6.
    LengthInvalid, "stream_length_invalid", 1, "Content-Length is not a decimal number.";
    /// RFC 9110 §8.6.
    LengthsDiffer, "stream_lengths_differ", 1, "Content-Length has two different values.";
    /// RFC 9113 §8.1.1.
    ContentTooLong, "stream_content_too_long", 1, "The content is longer than its Content-Length.";
    /// RFC 9113 §8.1.1.
    ContentTooShort, "stream_content_too_short", 1, "The content is shorter than its Content-Length.";
    /// RFC 9113 §8.1.
    DataFirst, "stream_data_first", 1, "DATA precedes the header section of the response.";
    /// RFC 9113 §8.1.
    TrailersOpen, "stream_trailers_open", 1, "A trailer section does not end the stream.";
    /// RFC 9113 §8.1.
    InterimEnd, "stream_interim_end", 1, "An interim response ends the stream.";
    /// RFC 9114 §4.1.
    Incomplete, "stream_incomplete", 1, "The stream ends before its header section is complete.";
    /// RFC 9113 §10.5.1.
    SectionTooLarge, "stream_section_too_large", 1, "The trailer section or the response's fields exceed the limit.";
    /// RFC 9113 §10.5.1. The request has not been handled at all, so the client may retry it.
    SectionsTooLarge, "stream_sections_too_large", 7, "The incomplete header sections of a connection together exceed the limit.";
    /// RFC 9113 §5.1.2.
    StreamsExceeded, "stream_limit", 7, "The client opened more streams than permitted.";
    /// RFC 9113 §5.1.
    Closed, "stream_closed", 5, "A HEADERS or DATA frame follows the end of the stream.";
    /// RFC 9113 §4.2.
    FrameTooLarge, "stream_frame_too_large", 6, "A DATA frame is longer than 16 KiB.";
    /// RFC 9113 §6.3.
    FrameLength, "stream_frame_length", 6, "The length of a PRIORITY frame is not five bytes.";
    /// RFC 7540 §5.3.1.
    SelfDependency, "stream_self_dependency", 1, "A stream depends on itself.";
    /// RFC 9113 §6.9.1.
    WindowExceeded, "stream_window_exceeded", 3, "The peer sent more content than the stream's window permits.";
    /// RFC 9113 §6.9.1.
    WindowOverflow, "stream_window_overflow", 3, "WINDOW_UPDATE makes the stream's window larger than 2^31-1 bytes.";
    /// RFC 9113 §6.9.
    WindowIncrement, "stream_window_increment", 1, "The increment of WINDOW_UPDATE for the stream is 0.";
}

impl StreamError {
    /// Returns the error code to send in RST_STREAM.
    pub fn code(self) -> ErrorCode {
        ErrorCode::from_number(self.number())
    }

    /// Returns whether this error can occur on an HTTP/2 stream.
    pub const fn is_of_http2(self) -> bool {
        !matches!(self, Self::Incomplete | Self::SectionsTooLarge)
    }

    /// Returns whether this error can occur on an HTTP/3 stream. In HTTP/3, QUIC detects the others, or they are
    /// connection errors.
    pub const fn is_of_http3(self) -> bool {
        !matches!(
            self,
            Self::DataFirst
                | Self::TrailersOpen
                | Self::StreamsExceeded
                | Self::Closed
                | Self::FrameTooLarge
                | Self::FrameLength
                | Self::SelfDependency
                | Self::WindowExceeded
                | Self::WindowOverflow
                | Self::WindowIncrement
        )
    }
}

/// Subtracts `bytes` from the rest of the declared length. At the end of the content, the rest must be 0 (RFC 9113
/// §8.1.1, RFC 9114 §4.1.2).
pub(crate) const fn check_length(left: &mut Option<u64>, bytes: u64, ends: bool) -> Result<(), StreamError> {
    let Some(left) = left else { return Ok(()) };
    match left.checked_sub(bytes) {
        None => Err(StreamError::ContentTooLong),
        Some(1..) if ends => Err(StreamError::ContentTooShort),
        Some(rest) => {
            *left = rest;
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ConnectionError, StreamError};
    use crate::http2::frame::ErrorCode;
    use std::collections::HashSet;

    #[test]
    fn every_error_has_a_code_and_a_name() {
        let names: HashSet<_> = ConnectionError::NAMES.iter().chain(StreamError::NAMES).collect();
        assert_eq!(names.len(), ConnectionError::ALL.len() + StreamError::ALL.len());
        for error in ConnectionError::ALL {
            assert!(error.name().starts_with("h2_") && error.text().ends_with('.'), "{error:?}");
            assert!(!matches!(error.code(), ErrorCode::NoError | ErrorCode::Internal), "{error:?}");
        }
        for error in StreamError::ALL {
            assert!(error.name().starts_with("stream_") && error.text().ends_with('.'), "{error:?}");
            assert!(error.is_of_http2() || error.is_of_http3(), "{error:?}");
            assert!(!matches!(error.code(), ErrorCode::NoError | ErrorCode::Internal), "{error:?}");
        }
    }
}
