//! Flood protection: limits on frames that cost the client little and the server more (RFC 9113 §10.5).
//!
//! Each kind of frame has a budget: a burst, a rate per second, and a credit for work done, since honest clients ping,
//! update windows and cancel in proportion to what they receive. Time is an argument.

use super::frame::{FrameHead, flag, kind};

flatout_reason::reasons! {
    /// Kind of flood.
    pub enum Flood { name, text, }
    RapidReset, "rapid_reset", "The client reset streams faster than the server could respond.";
    MadeYouReset, "made_you_reset", "The client caused too many stream errors, for which the server had to reset the streams.";
    Ping, "ping_flood", "The client sent too many PING frames.";
    Settings, "settings_flood", "The client sent too many SETTINGS frames.";
    Continuation, "continuation_flood", "The client split header sections into too many CONTINUATION frames.";
    EmptyData, "empty_data_flood", "The client sent too many empty DATA frames.";
    WindowUpdate, "window_update_flood", "The client sent too many WINDOW_UPDATE frames.";
    TableSize, "table_size_flood", "The client changed the HPACK table size more than twice before a header section.";
    Other, "frame_flood", "The client sent too many PRIORITY, unknown or unsolicited frames.";
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

/// DATA frames that a client may send to a request whose content nobody reads, if they are smaller than
/// [`SMALL_DATA_BYTES`].
const SMALL_DATA: Terms = Terms { burst: 10_000, per_s: 1000, per_sent: 0 };

/// Smaller frames cost more than their content.
const SMALL_DATA_BYTES: usize = 64;

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
    resets: FloodBudget,
    provoked_resets: FloodBudget,
    pings: FloodBudget,
    settings: FloodBudget,
    empty_data: FloodBudget,
    small_data: FloodBudget,
    window_updates: FloodBudget,
    others: FloodBudget,
    /// CONTINUATION frames of the current field section.
    continuations: u32,
}

impl FloodGuard {
    /// Full budgets.
    pub const fn new() -> Self {
        Self {
            resets: FloodBudget::new(RESETS),
            provoked_resets: FloodBudget::new(PROVOKED_RESETS),
            pings: FloodBudget::new(PINGS),
            settings: FloodBudget::new(SETTINGS),
            empty_data: FloodBudget::new(EMPTY_DATA),
            small_data: FloodBudget::new(SMALL_DATA),
            window_updates: FloodBudget::new(WINDOW_UPDATES),
            others: FloodBudget::new(OTHERS),
            continuations: 0,
        }
    }

    /// Handles a received frame. `content_bytes` is the payload without padding.
    pub fn handle_received(&mut self, now_ms: u64, frame: FrameHead, content_bytes: usize) -> Result<(), Flood> {
        let (budget, flood) = match frame.kind {
            kind::DATA if content_bytes == 0 && !frame.has(flag::END_STREAM) => {
                (&mut self.empty_data, Flood::EmptyData)
            }
            kind::DATA => return Ok(()),
            kind::HEADERS => {
                self.continuations = 0;
                return Ok(());
            }
            kind::CONTINUATION => {
                self.continuations += 1;
                if self.continuations > CONTINUATIONS_MAX {
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

    /// Handles a DATA frame whose content nobody reads. Returns whether such frames are large enough.
    pub fn handle_discarded(&mut self, now_ms: u64, content_bytes: usize) -> bool {
        content_bytes >= SMALL_DATA_BYTES || self.small_data.take(now_ms)
    }

    /// Handles a response head or DATA frame sent by the server: credit for work.
    pub fn handle_sent(&mut self) {
        self.resets.give(RESET_MILLI_PER_SENT);
        for budget in [&mut self.pings, &mut self.window_updates, &mut self.others] {
            budget.give(budget.terms.per_sent * 1000);
        }
    }

    /// Handles a sent PING or SETTINGS, which the client must acknowledge.
    pub fn handle_sent_request(&mut self) {
        self.others.give(1000);
    }

    /// Handles a stream error of the client, for which the server resets the stream.
    pub fn handle_provoked_reset(&mut self, now_ms: u64) -> Result<(), Flood> {
        if self.provoked_resets.take(now_ms) { Ok(()) } else { Err(Flood::MadeYouReset) }
    }
}

impl Default for FloodGuard {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
