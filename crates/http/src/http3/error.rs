//! HTTP/3 and QPACK error codes (RFC 9114 §8.1, RFC 9204 §6), and the rules whose violation closes a connection.

use crate::http2::error::StreamError;

flatout_reason::reasons! {
    /// An HTTP/3 or QPACK error code. Unknown codes are treated as `NoError` (RFC 9114 §9).
    pub enum ErrorCode {
        name,
        /// The number in CONNECTION_CLOSE, RESET_STREAM and STOP_SENDING.
        number: u64,
    }
    NoError, "H3_NO_ERROR", 0x100;
    GeneralProtocol, "H3_GENERAL_PROTOCOL_ERROR", 0x101;
    Internal, "H3_INTERNAL_ERROR", 0x102;
    StreamCreation, "H3_STREAM_CREATION_ERROR", 0x103;
    ClosedCriticalStream, "H3_CLOSED_CRITICAL_STREAM", 0x104;
    FrameUnexpected, "H3_FRAME_UNEXPECTED", 0x105;
    Frame, "H3_FRAME_ERROR", 0x106;
    ExcessiveLoad, "H3_EXCESSIVE_LOAD", 0x107;
    Id, "H3_ID_ERROR", 0x108;
    Settings, "H3_SETTINGS_ERROR", 0x109;
    MissingSettings, "H3_MISSING_SETTINGS", 0x10a;
    RequestRejected, "H3_REQUEST_REJECTED", 0x10b;
    RequestCancelled, "H3_REQUEST_CANCELLED", 0x10c;
    RequestIncomplete, "H3_REQUEST_INCOMPLETE", 0x10d;
    Message, "H3_MESSAGE_ERROR", 0x10e;
    Connect, "H3_CONNECT_ERROR", 0x10f;
    VersionFallback, "H3_VERSION_FALLBACK", 0x110;
    QpackDecompressionFailed, "QPACK_DECOMPRESSION_FAILED", 0x200;
    QpackEncoderStream, "QPACK_ENCODER_STREAM_ERROR", 0x201;
    QpackDecoderStream, "QPACK_DECODER_STREAM_ERROR", 0x202;
}

impl ErrorCode {
    /// Returns the error code with the number `number`.
    pub fn from_number(number: u64) -> Self {
        Self::ALL.iter().copied().find(|code| code.number() == number).unwrap_or(Self::NoError)
    }
}

impl From<StreamError> for ErrorCode {
    /// Returns the error code with which to reset the stream.
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Incomplete => Self::RequestIncomplete,
            // The client may retry such a request.
            StreamError::SectionsTooLarge => Self::RequestRejected,
            _ => Self::Message,
        }
    }
}

/// The category of a connection error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The peer violated the protocol.
    Protocol,
    /// A field section or frame is far too large, or content that is discarded comes in tiny frames.
    Excess,
    /// There are too many frames, resets or instructions of one kind.
    Flood,
}

flatout_reason::reasons! {
    /// The reason an HTTP/3 connection must be closed.
    pub enum ConnectionError {
        name,
        /// The error code, as a number.
        number: u64,
        text,
    }
    /// RFC 9114 §6.2.1.
    MissingSettings, "h3_missing_settings", 0x10a, "The first frame of the control stream is not SETTINGS.";
    /// RFC 9114 §7.2.4.
    SettingsRepeated, "h3_settings_repeated", 0x105, "The peer sent SETTINGS twice.";
    /// RFC 9114 §7.2.4.
    SettingRepeated, "h3_setting_repeated", 0x109, "A setting occurs twice.";
    /// RFC 9114 §7.2.4.1.
    SettingReserved, "h3_setting_reserved", 0x109, "A setting has the identifier of an HTTP/2 setting that does not exist in HTTP/3.";
    /// RFC 8441 §3, RFC 9220 §3.
    SettingValue, "h3_setting_value", 0x109, "A setting has a value that is not allowed.";
    /// RFC 9114 §6.2.1, RFC 9204 §4.2.
    StreamRepeated, "h3_stream_repeated", 0x103, "The peer opened a control or QPACK stream twice.";
    /// RFC 9114 §6.2.2. Only servers push.
    PushStream, "h3_push_stream", 0x103, "The client opened a push stream.";
    /// RFC 9114 §6.2.2, §7.2.5. This client permits no pushes.
    PushForbidden, "h3_push_forbidden", 0x108, "The server pushed a response, but the client had not permitted it.";
    /// RFC 9114 §6.1.
    ServerStream, "h3_server_stream", 0x103, "The server opened a bidirectional stream.";
    /// RFC 9114 §6.2.1, RFC 9204 §4.2.
    CriticalStreamClosed, "h3_critical_stream_closed", 0x104, "The peer closed a control or QPACK stream.";
    /// RFC 9114 §7.2.
    ControlFrame, "h3_control_frame", 0x105, "The control stream contains a frame that is not allowed there.";
    /// RFC 9114 §7.2.
    RequestFrame, "h3_request_frame", 0x105, "A request stream contains a frame that is not allowed there.";
    /// RFC 9114 §7.2.8.
    Http2Frame, "h3_http2_frame", 0x105, "A frame has an HTTP/2 type that does not exist in HTTP/3.";
    /// RFC 9114 §4.1.
    DataFirst, "h3_data_first", 0x105, "A DATA frame precedes the header section.";
    /// RFC 9114 §4.1.
    AfterTrailers, "h3_after_trailers", 0x105, "A HEADERS or DATA frame follows the trailer section.";
    /// RFC 9114 §7.1.
    FrameTruncated, "h3_frame_truncated", 0x106, "A stream ends within a frame.";
    /// RFC 9114 §7.1.
    FrameLength, "h3_frame_length", 0x106, "The length of a frame does not match the length of its fields.";
    /// RFC 9114 §5.2.
    GoawayIncreased, "h3_goaway_increased", 0x108, "The identifier in GOAWAY is higher than in the peer's previous GOAWAY.";
    /// RFC 9114 §5.2.
    GoawayId, "h3_goaway_id", 0x108, "The identifier in GOAWAY is not a request's stream identifier.";
    /// RFC 9114 §7.2.7.
    MaxPushIdDecreased, "h3_max_push_id_decreased", 0x108, "The client lowered the identifier in MAX_PUSH_ID.";
    /// RFC 9114 §7.2.3.
    PushId, "h3_push_id", 0x108, "CANCEL_PUSH names a push, but the server has promised none.";
    /// RFC 9218 §7.2.
    PriorityId, "h3_priority_id", 0x108, "PRIORITY_UPDATE names a push, or a stream that cannot carry a request.";
    /// RFC 9204 §2.2.
    SectionInvalid, "h3_section_invalid", 0x200, "A field section cannot be decoded.";
    /// RFC 9204 §2.1.2.
    SectionsBlocked, "h3_sections_blocked", 0x200, "More field sections are blocked on the dynamic table than the limit permits.";
    /// RFC 9204 §4.3.
    EncoderInstruction, "h3_encoder_instruction", 0x201, "An instruction on the encoder stream is invalid.";
    /// RFC 9204 §4.4.
    DecoderInstruction, "h3_decoder_instruction", 0x202, "An instruction on the decoder stream is invalid.";
    /// The same limit as in HTTP/2.
    SectionExcess, "h3_section_excess", 0x107, "A field section is many times larger than its limit.";
    /// Applies to frames of the control stream whose payload is buffered.
    FrameExcess, "h3_frame_excess", 0x107, "A frame on the control stream is too large.";
    /// The same limit as in HTTP/2.
    DataExcess, "h3_data_excess", 0x107, "The client sent too many small DATA frames whose content the server discards.";
    /// CVE-2023-44487.
    RapidReset, "h3_rapid_reset", 0x107, "The client reset streams faster than the server could respond.";
    /// CVE-2025-8671.
    MadeYouReset, "h3_made_you_reset", 0x107, "The client caused too many stream errors, each of which made the server reset a stream.";
    /// The same limit as in HTTP/2.
    EmptyDataFlood, "h3_empty_data_flood", 0x107, "The client sent too many empty DATA frames.";
    /// RFC 9204 §7.
    InstructionFlood, "h3_instruction_flood", 0x107, "The client sent too many QPACK instructions.";
    /// RFC 9114 §10.5.
    FrameFlood, "h3_frame_flood", 0x107, "The client sent too many PRIORITY_UPDATE frames, or too many frames or streams of unknown types.";
}

impl ConnectionError {
    /// Returns the error code to send in CONNECTION_CLOSE.
    pub fn code(self) -> ErrorCode {
        ErrorCode::from_number(self.number())
    }

    /// Returns the category of this error.
    pub const fn kind(self) -> ErrorKind {
        match self {
            Self::SectionExcess | Self::FrameExcess | Self::DataExcess => ErrorKind::Excess,
            Self::RapidReset
            | Self::MadeYouReset
            | Self::EmptyDataFlood
            | Self::InstructionFlood
            | Self::FrameFlood => ErrorKind::Flood,
            _ => ErrorKind::Protocol,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ConnectionError, ErrorCode, ErrorKind};
    use std::collections::HashSet;

    #[test]
    fn codes_have_their_numbers() {
        for &code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_number(code.number()), code);
        }
        assert_eq!(ErrorCode::from_number(0x21), ErrorCode::NoError, "a reserved code");
        assert_eq!(ErrorCode::VersionFallback.number(), 0x110);
    }

    #[test]
    fn every_error_has_a_code_a_name_and_a_kind() {
        let names: HashSet<_> = ConnectionError::NAMES.iter().collect();
        assert_eq!(names.len(), ConnectionError::ALL.len());
        for error in ConnectionError::ALL {
            assert_ne!(error.code(), ErrorCode::NoError, "{error:?}");
            assert!(error.name().starts_with("h3_") && error.text().ends_with('.'), "{error:?}");
            assert_eq!(error.code() == ErrorCode::ExcessiveLoad, error.kind() != ErrorKind::Protocol, "{error:?}");
        }
    }
}
