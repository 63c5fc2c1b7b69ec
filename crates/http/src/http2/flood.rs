//! Flood protection: limits on frames that cost the client little and the server more (RFC 9113 §10.5).
//!
//! Each kind of frame has a budget: a burst, a rate per second, and a credit for work done, since honest clients ping,
//! update windows and cancel in proportion to what they receive. The check runs on frame heads before the protocol
//! implementation sees the bytes, so a flood costs no more than scanning them. Time is an argument.

use super::frame::{Frame, Scanner, flag, kind};
use super::resizes::ResizeCounter;

flatout_reason::reasons! {
    /// Kind of flood.
    pub enum Flood { name, text, }
    RapidReset, "rapid_reset", "The client reset streams faster than the server could respond.";
    MadeYouReset, "made_you_reset", "The client provoked stream errors so that the server had to reset the streams.";
    Ping, "ping_flood", "The client sent too many PING frames.";
    Settings, "settings_flood", "The client sent too many SETTINGS frames.";
    Continuation, "continuation_flood", "The client cut a header section into very many CONTINUATION frames.";
    EmptyData, "empty_data_flood", "The client sent too many empty DATA frames.";
    WindowUpdate, "window_update_flood", "The client sent too many WINDOW_UPDATE frames.";
    TableSize, "table_size_flood", "The client changed the HPACK table size more than twice before a header section.";
    Other, "frame_flood", "The client sent too many PRIORITY, unknown or unsolicited frames.";
}

/// Reason to close a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offence {
    /// Too many frames of a kind.
    Flood(Flood),
    /// A frame has an invalid length for its type: a connection error (RFC 9113 §4.2).
    FrameSize,
    /// The first frame is not SETTINGS (RFC 9113 §3.4).
    NoSettings,
}

/// Maximum CONTINUATION frames per field section. A frame holds up to 16 KiB, as does the whole section, so one is
/// enough if frames are full.
pub const CONTINUATIONS_MAX: u32 = 5;

/// Parameters of a budget.
#[derive(Clone, Copy, Debug)]
struct Terms {
    /// Burst, in frames.
    burst: u32,
    /// Frames per second.
    per_s: u32,
    /// Additional frames for each response head and DATA frame sent by the server.
    per_sent: u32,
}

/// Up to 128 streams may be open, and leaving a page resets all. Responses pay for part of the resets: a client that
/// reads every second response is no attacker.
const RESETS: Terms = Terms { burst: 200, per_s: 20, per_sent: 0 };

/// Thousandths of a frame that one response head or DATA frame adds to the reset budget.
const RESET_MILLI_PER_SENT: u32 = 500;

/// No honest client violates stream rules regularly.
const PROVOKED_RESETS: Terms = Terms { burst: 100, per_s: 1, per_sent: 0 };

/// Clients that measure bandwidth (gRPC) ping once per received DATA frame; others rarely.
const PINGS: Terms = Terms { burst: 200, per_s: 10, per_sent: 1 };

/// One at the start, one when a window is resized; acknowledgements are not counted here.
const SETTINGS: Terms = Terms { burst: 50, per_s: 2, per_sent: 0 };

/// Known clients send these only to end a stream.
const EMPTY_DATA: Terms = Terms { burst: 100, per_s: 5, per_sent: 0 };

/// Two per DATA frame, for stream and connection, are common; some clients open a window for each request.
const WINDOW_UPDATES: Terms = Terms { burst: 1000, per_s: 100, per_sent: 4 };

/// Firefox sends six PRIORITY frames at first, some clients one per request; acknowledgements correspond to frames
/// sent.
const OTHERS: Terms = Terms { burst: 500, per_s: 50, per_sent: 2 };

const CANCEL: u32 = 0x8;
const NO_ERROR: u32 = 0x0;
const INTERNAL_ERROR: u32 = 0x2;

#[derive(Clone, Debug)]
struct FloodBudget {
    terms: Terms,
    /// Remaining budget, in thousandths of a frame.
    milli: u32,
    refilled_ms: u64,
}

impl FloodBudget {
    const fn new(terms: Terms) -> Self {
        Self { terms, milli: terms.burst * 1000, refilled_ms: 0 }
    }

    fn give(&mut self, milli: u32) {
        self.milli = self.milli.saturating_add(milli).min(self.terms.burst * 1000);
    }

    /// Takes one frame; `false` if none is left.
    fn take(&mut self, now_ms: u64) -> bool {
        // One frame per second is a thousandth of a frame per millisecond.
        let passed_ms = now_ms.saturating_sub(self.refilled_ms);
        self.refilled_ms = now_ms;
        let refill = passed_ms.saturating_mul(u64::from(self.terms.per_s));
        self.give(u32::try_from(refill).unwrap_or(u32::MAX));
        match self.milli.checked_sub(1000) {
            Some(left) => {
                self.milli = left;
                true
            }
            None => false,
        }
    }
}

/// Flood protection of one server connection, in both directions.
#[derive(Clone, Debug)]
pub struct FloodGuard {
    received: Scanner,
    sent: Scanner,
    resets: FloodBudget,
    provoked_resets: FloodBudget,
    pings: FloodBudget,
    settings: FloodBudget,
    empty_data: FloodBudget,
    window_updates: FloodBudget,
    others: FloodBudget,
    /// CONTINUATION frames of the current field section; `None` between sections.
    continuations: Option<u32>,
    /// Changes of the dynamic table size in that section.
    resizes: ResizeCounter,
    /// True if the client's first frame has arrived.
    begun: bool,
}

impl FloodGuard {
    /// State for a connection that begins with the client preface.
    pub const fn new() -> Self {
        Self {
            received: Scanner::after_preface(),
            sent: Scanner::new(),
            resets: FloodBudget::new(RESETS),
            provoked_resets: FloodBudget::new(PROVOKED_RESETS),
            pings: FloodBudget::new(PINGS),
            settings: FloodBudget::new(SETTINGS),
            empty_data: FloodBudget::new(EMPTY_DATA),
            window_updates: FloodBudget::new(WINDOW_UPDATES),
            others: FloodBudget::new(OTHERS),
            continuations: None,
            resizes: ResizeCounter::new(),
            begun: false,
        }
    }

    /// Returns whether a field section is in progress.
    pub const fn is_within_fields(&self) -> bool {
        self.continuations.is_some()
    }

    /// Returns whether the client preface is complete: its first frame has arrived.
    pub const fn has_begun(&self) -> bool {
        self.begun
    }

    /// Handles bytes received from the client.
    pub fn handle_received(&mut self, now_ms: u64, mut bytes: &[u8]) -> Result<(), Offence> {
        while let Some(frame) = self.received.next_frame(&mut bytes) {
            if !std::mem::replace(&mut self.begun, true) && (frame.kind != kind::SETTINGS || frame.has(flag::ACK)) {
                return Err(Offence::NoSettings);
            }
            if has_wrong_size(&frame) {
                return Err(Offence::FrameSize);
            }
            self.handle_frame(now_ms, &frame).map_err(Offence::Flood)?;
        }
        Ok(())
    }

    fn handle_frame(&mut self, now_ms: u64, frame: &Frame) -> Result<(), Flood> {
        if matches!(frame.kind, kind::HEADERS | kind::CONTINUATION) && !self.resizes.handle_frame(frame) {
            return Err(Flood::TableSize);
        }
        let (budget, flood) = match frame.kind {
            kind::DATA if is_empty_data(frame) => (&mut self.empty_data, Flood::EmptyData),
            kind::DATA => return Ok(()),
            kind::HEADERS => {
                self.continuations = (!frame.has(flag::END_HEADERS)).then_some(0);
                return Ok(());
            }
            kind::CONTINUATION => {
                let count = self.continuations.map_or(1, |count| count + 1);
                self.continuations = (!frame.has(flag::END_HEADERS)).then_some(count);
                if count > CONTINUATIONS_MAX {
                    return Err(Flood::Continuation);
                }
                // Split sections are rare, and many of them are as suspect as one split into very many frames.
                (&mut self.others, Flood::Continuation)
            }
            kind::RST_STREAM => (&mut self.resets, Flood::RapidReset),
            kind::SETTINGS if !frame.has(flag::ACK) => (&mut self.settings, Flood::Settings),
            kind::PING if !frame.has(flag::ACK) => (&mut self.pings, Flood::Ping),
            kind::WINDOW_UPDATE => (&mut self.window_updates, Flood::WindowUpdate),
            _ => (&mut self.others, Flood::Other),
        };
        if budget.take(now_ms) { Ok(()) } else { Err(flood) }
    }

    /// Handles bytes sent by the server: credit for work, and resets provoked by the client.
    pub fn handle_sent(&mut self, now_ms: u64, mut bytes: &[u8]) -> Result<(), Flood> {
        while let Some(frame) = self.sent.next_frame(&mut bytes) {
            match frame.kind {
                kind::DATA | kind::HEADERS => {
                    self.resets.give(RESET_MILLI_PER_SENT);
                    for budget in [&mut self.pings, &mut self.window_updates, &mut self.others] {
                        budget.give(budget.terms.per_sent * 1000);
                    }
                }
                // The client must acknowledge each.
                kind::PING | kind::SETTINGS if !frame.has(flag::ACK) => self.others.give(1000),
                // The server's own decisions do not count against the client.
                kind::RST_STREAM if matches!(frame.lead_number(), NO_ERROR | INTERNAL_ERROR | CANCEL) => {}
                kind::RST_STREAM if !self.provoked_resets.take(now_ms) => return Err(Flood::MadeYouReset),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Default for FloodGuard {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns whether the frame's length is invalid for its type. Stream errors, and frames with fields, are left to the
/// protocol implementation.
const fn has_wrong_size(frame: &Frame) -> bool {
    match frame.kind {
        kind::SETTINGS if frame.has(flag::ACK) => frame.payload_bytes != 0,
        kind::SETTINGS => !frame.payload_bytes.is_multiple_of(6),
        kind::PING => frame.payload_bytes != 8,
        kind::RST_STREAM | kind::WINDOW_UPDATE => frame.payload_bytes != 4,
        kind::GOAWAY => frame.payload_bytes < 8,
        _ => false,
    }
}

/// Returns whether it has no content and does not end a stream. Padding is not content.
const fn is_empty_data(frame: &Frame) -> bool {
    let content = if frame.has(flag::PADDED) {
        frame.payload_bytes.saturating_sub(1).saturating_sub(frame.lead[0] as u32)
    } else {
        frame.payload_bytes
    };
    content == 0 && !frame.has(flag::END_STREAM)
}

#[cfg(test)]
mod tests;
