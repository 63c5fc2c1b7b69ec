//! When frames that cost the client little and the server more are too many (RFC 9113 §10.5).
//!
//! Each kind has a budget: so many at once, so many more a second, and some for work that was done, since honest
//! clients ping, update windows and cancel in step with what they are sent. Bytes and time go in, and a decision comes
//! out, before the protocol's own machine has seen the bytes: so a flood costs no more than looking at frame heads.

use super::frame::{Frame, Scanner, flag, kind};
use super::resizes::ResizeCounter;

flatout_reason::reasons! {
    /// Too many of something.
    pub enum Flood { name, text, }
    RapidReset, "rapid_reset", "The client reset streams faster than it let them be answered.";
    MadeYouReset, "made_you_reset", "The client broke rules of streams so that the server had to reset them.";
    Ping, "ping_flood", "The client sent PING frames without end.";
    Settings, "settings_flood", "The client sent SETTINGS frames without end.";
    Continuation, "continuation_flood", "The client cut a header section into very many CONTINUATION frames.";
    EmptyData, "empty_data_flood", "The client sent DATA frames without content.";
    WindowUpdate, "window_update_flood", "The client sent WINDOW_UPDATE frames without end.";
    TableSize, "table_size_flood", "The client changed the HPACK table's size more than twice ahead of a header section.";
    Other, "frame_flood", "The client sent PRIORITY, unknown or unasked-for frames without end.";
}

/// What a watch ends a connection for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offence {
    /// Too many frames of a kind.
    Flood(Flood),
    /// A frame has a length that its type cannot have, which is the connection's error (RFC 9113 §4.2).
    FrameSize,
    /// The first frame is not SETTINGS (RFC 9113 §3.4).
    NoSettings,
}

/// CONTINUATION frames of one header section. Frames hold 16 KiB, as do all fields together, so one is enough for
/// whoever fills them.
pub const CONTINUATIONS_MAX: u32 = 5;

/// One budget's terms.
#[derive(Clone, Copy, Debug)]
struct Terms {
    /// Frames at once.
    burst: u32,
    /// Frames more a second.
    per_s: u32,
    /// Frames more for each response head, and each DATA frame, that the server has sent.
    per_sent: u32,
}

/// 128 streams may be open, and whoever leaves a page resets them all. Resets after an answer are paid for by it in
/// part: a client that reads one answer in two is no attacker.
const RESETS: Terms = Terms { burst: 200, per_s: 20, per_sent: 0 };

/// Milli-frames of the reset budget that one response head, or DATA frame, gives back.
const RESET_MILLI_PER_SENT: u32 = 500;

/// Breaking a stream's rules is nothing that a client does in step with anything.
const PROVOKED_RESETS: Terms = Terms { burst: 100, per_s: 1, per_sent: 0 };

/// Clients that measure bandwidth ping once for each DATA frame they get (gRPC does); others once in many seconds.
const PINGS: Terms = Terms { burst: 200, per_s: 10, per_sent: 1 };

/// One at the beginning, one when a window is resized; acknowledgements are not counted here.
const SETTINGS: Terms = Terms { burst: 50, per_s: 2, per_sent: 0 };

/// No known client sends any but to end a stream.
const EMPTY_DATA: Terms = Terms { burst: 100, per_s: 5, per_sent: 0 };

/// Two for each DATA frame, for its stream and the connection, is common; some open a window for each request.
const WINDOW_UPDATES: Terms = Terms { burst: 1000, per_s: 100, per_sent: 4 };

/// Firefox sends six PRIORITY frames at first, some clients one for each request; acknowledgements answer what was
/// sent.
const OTHERS: Terms = Terms { burst: 500, per_s: 50, per_sent: 2 };

const CANCEL: u32 = 0x8;
const NO_ERROR: u32 = 0x0;
const INTERNAL_ERROR: u32 = 0x2;

#[derive(Clone, Debug)]
struct Budget {
    terms: Terms,
    /// What is left, in thousandths of a frame.
    milli: u32,
    refilled_ms: u64,
}

impl Budget {
    const fn new(terms: Terms) -> Self {
        Self { terms, milli: terms.burst * 1000, refilled_ms: 0 }
    }

    fn give(&mut self, milli: u32) {
        self.milli = self.milli.saturating_add(milli).min(self.terms.burst * 1000);
    }

    /// Takes one frame; `false` when there is none left.
    fn take(&mut self, now_ms: u64) -> bool {
        // A frame a second is a thousandth of one a millisecond.
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

/// Watches one connection of a server, in both directions.
#[derive(Clone, Debug)]
pub struct Watch {
    received: Scanner,
    sent: Scanner,
    resets: Budget,
    provoked_resets: Budget,
    pings: Budget,
    settings: Budget,
    empty_data: Budget,
    window_updates: Budget,
    others: Budget,
    /// CONTINUATION frames of the header section at hand; `None` between sections.
    continuations: Option<u32>,
    /// Changes of the table's size in that section.
    resizes: ResizeCounter,
    /// Whether the client's first frame has come.
    begun: bool,
}

impl Watch {
    /// For a connection whose client begins with the preface.
    pub const fn new() -> Self {
        Self {
            received: Scanner::after_preface(),
            sent: Scanner::new(),
            resets: Budget::new(RESETS),
            provoked_resets: Budget::new(PROVOKED_RESETS),
            pings: Budget::new(PINGS),
            settings: Budget::new(SETTINGS),
            empty_data: Budget::new(EMPTY_DATA),
            window_updates: Budget::new(WINDOW_UPDATES),
            others: Budget::new(OTHERS),
            continuations: None,
            resizes: ResizeCounter::new(),
            begun: false,
        }
    }

    /// Whether a header section has begun and not ended.
    pub const fn is_within_fields(&self) -> bool {
        self.continuations.is_some()
    }

    /// Whether the client's preface is whole: its first frame has come.
    pub const fn has_begun(&self) -> bool {
        self.begun
    }

    /// Looks at what the client has sent.
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
                // Sections in pieces are rare, and many of them as suspect as one in very many pieces.
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

    /// Looks at what the server sends: work that it has done, and resets that it was made to send.
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
                // What the server itself has decided is nobody's fault.
                kind::RST_STREAM if matches!(frame.lead_number(), NO_ERROR | INTERNAL_ERROR | CANCEL) => {}
                kind::RST_STREAM if !self.provoked_resets.take(now_ms) => return Err(Flood::MadeYouReset),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether the frame's type cannot have its length. Those that are an error of their stream only, and those with
/// fields, are left to the protocol machine.
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

/// No content, and not the end of a stream either. Padding is no content.
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
