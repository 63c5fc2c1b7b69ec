//! Flood protection: limits on frames that cost the client little and the server more (RFC 9113 §10.5).
//!
//! Each kind of frame has a budget: a burst, a rate per second, and credit for frames that the server sends, because
//! honest clients send PING, WINDOW_UPDATE and RST_STREAM in proportion to what they receive. Time is an argument.

use super::error::ConnectionError;
use super::frame::{FrameHead, flag, kind};

/// Maximum CONTINUATION frames per field section. A frame holds up to 16 KiB, which is also the limit on a whole
/// section, so a client that fills its frames needs only one.
pub const CONTINUATIONS_MAX: u32 = 5;

/// Parameters of a flood budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Maximum burst, in frames.
    pub(crate) burst: u32,
    /// Sustained rate, in frames per second.
    pub(crate) per_s: u32,
    /// Additional frames for each response head and DATA frame sent by the server.
    pub(crate) per_sent: u32,
}

/// Budget for RST_STREAM frames. Up to 128 streams may be open, and leaving a page resets all of them. Responses pay
/// for part of the resets: a client that reads every second response is not an attacker.
pub(crate) const RESETS: Terms = Terms { burst: 200, per_s: 20, per_sent: 0 };

/// Credit that one response head or DATA frame adds to the reset budget, in thousandths of a frame.
pub(crate) const RESET_MILLI_PER_SENT: u32 = 500;

/// Budget for resets that the server sends because of stream errors. No honest client violates stream rules regularly.
pub(crate) const PROVOKED_RESETS: Terms = Terms { burst: 100, per_s: 1, per_sent: 0 };

/// Budget for PING frames. Clients that measure bandwidth (gRPC) send one for each DATA frame received; others rarely
/// send any.
const PINGS: Terms = Terms { burst: 200, per_s: 10, per_sent: 1 };

/// Budget for SETTINGS frames: one at the start, and one when a window is resized. Acknowledgements do not count.
const SETTINGS: Terms = Terms { burst: 50, per_s: 2, per_sent: 0 };

/// Budget for empty DATA frames, which known clients send only to end a stream.
pub(crate) const EMPTY_DATA: Terms = Terms { burst: 100, per_s: 5, per_sent: 0 };

/// Budget for WINDOW_UPDATE frames beyond those for content. Some clients open a window for each request.
const WINDOW_UPDATES: Terms = Terms { burst: 1000, per_s: 100, per_sent: 4 };

/// Number of bytes of content sent for which the client may send one WINDOW_UPDATE. Programs that read a response in small
/// pieces return the window in steps of as many bytes, each to the stream and to the connection: Go in steps of 4 KiB.
const BYTES_PER_WINDOW_UPDATE: usize = 256;

/// Maximum number of bytes of content for which the client has not sent all of these frames, as large as usual windows.
const UPDATED_BYTES_MAX: usize = 8 << 20;

/// Budget for all other frames. Firefox sends six PRIORITY frames at the start, and some clients send one per request;
/// the number of acknowledgements follows the number of frames sent.
pub(crate) const OTHERS: Terms = Terms { burst: 500, per_s: 50, per_sent: 2 };

/// Budget for DATA frames smaller than [`SMALL_DATA_BYTES`] whose content the server discards.
pub(crate) const SMALL_DATA: Terms = Terms { burst: 10_000, per_s: 1000, per_sent: 0 };

/// Size below which handling a DATA frame costs more than its content, in bytes.
pub(crate) const SMALL_DATA_BYTES: usize = 64;

/// The number of frames of one kind that the peer may still send.
#[derive(Clone, Debug)]
pub(crate) struct FloodBudget {
    terms: Terms,
    /// Remaining budget, in thousandths of a frame.
    milli: u32,
    refilled_ms: u64,
}

impl FloodBudget {
    pub(crate) const fn new(terms: Terms) -> Self {
        Self { terms, milli: terms.burst * 1000, refilled_ms: 0 }
    }

    /// Adds `milli` thousandths of a frame. The budget never exceeds the burst.
    pub(crate) fn give(&mut self, milli: u32) {
        self.milli = self.milli.saturating_add(milli).min(self.terms.burst * 1000);
    }

    /// Adds the credit for a response head or DATA frame sent by the server.
    pub(crate) fn handle_sent(&mut self) {
        self.give(self.terms.per_sent * 1000);
    }

    /// Takes one frame from the budget at the time `now_ms`. Returns `false` if the budget is used up.
    pub(crate) fn take(&mut self, now_ms: u64) -> bool {
        // One frame per second is one thousandth of a frame per millisecond.
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

/// Flood protection of one server connection: a budget for each kind of frame.
#[derive(Clone, Debug)]
pub struct FloodGuard {
    resets: FloodBudget,
    provoked_resets: FloodBudget,
    pings: FloodBudget,
    settings: FloodBudget,
    empty_data: FloodBudget,
    small_data: FloodBudget,
    window_updates: FloodBudget,
    /// Number of bytes of content sent for which the client may still send WINDOW_UPDATE frames.
    updated_bytes: usize,
    others: FloodBudget,
    /// Number of CONTINUATION frames of the current field section.
    continuations: u32,
}

impl FloodGuard {
    /// Creates a guard with full budgets.
    pub const fn new() -> Self {
        Self {
            resets: FloodBudget::new(RESETS),
            provoked_resets: FloodBudget::new(PROVOKED_RESETS),
            pings: FloodBudget::new(PINGS),
            settings: FloodBudget::new(SETTINGS),
            empty_data: FloodBudget::new(EMPTY_DATA),
            small_data: FloodBudget::new(SMALL_DATA),
            window_updates: FloodBudget::new(WINDOW_UPDATES),
            updated_bytes: 0,
            others: FloodBudget::new(OTHERS),
            continuations: 0,
        }
    }

    /// Counts a received frame. `content_bytes` is the length of the payload without padding.
    pub fn handle_received(
        &mut self,
        now_ms: u64,
        frame: FrameHead,
        content_bytes: usize,
    ) -> Result<(), ConnectionError> {
        let (budget, error) = match frame.kind {
            kind::DATA if content_bytes == 0 && !frame.has(flag::END_STREAM) => {
                (&mut self.empty_data, ConnectionError::EmptyDataFlood)
            }
            kind::DATA => return Ok(()),
            kind::HEADERS => {
                self.continuations = 0;
                return Ok(());
            }
            kind::CONTINUATION => {
                self.continuations += 1;
                if self.continuations > CONTINUATIONS_MAX {
                    return Err(ConnectionError::ContinuationFlood);
                }
                // Split sections are rare, and many split sections are as suspect as one section split into many
                // frames.
                (&mut self.others, ConnectionError::ContinuationFlood)
            }
            kind::RST_STREAM => (&mut self.resets, ConnectionError::RapidReset),
            kind::SETTINGS if !frame.has(flag::ACK) => (&mut self.settings, ConnectionError::SettingsFlood),
            kind::PING if !frame.has(flag::ACK) => (&mut self.pings, ConnectionError::PingFlood),
            kind::WINDOW_UPDATE if self.updated_bytes >= BYTES_PER_WINDOW_UPDATE => {
                self.updated_bytes -= BYTES_PER_WINDOW_UPDATE;
                return Ok(());
            }
            kind::WINDOW_UPDATE => (&mut self.window_updates, ConnectionError::WindowUpdateFlood),
            _ => (&mut self.others, ConnectionError::FrameFlood),
        };
        if budget.take(now_ms) { Ok(()) } else { Err(error) }
    }

    /// Counts a DATA frame whose content is discarded. Returns false if the client sent too many small frames.
    pub fn handle_discarded(&mut self, now_ms: u64, content_bytes: usize) -> bool {
        content_bytes >= SMALL_DATA_BYTES || self.small_data.take(now_ms)
    }

    /// Credits the budgets for a response head or DATA frame sent by the server.
    pub fn handle_sent(&mut self) {
        self.resets.give(RESET_MILLI_PER_SENT);
        for budget in [&mut self.pings, &mut self.window_updates, &mut self.others] {
            budget.handle_sent();
        }
    }

    /// Credits the budget for WINDOW_UPDATE frames for content sent by the server.
    pub fn handle_content_sent(&mut self, bytes: usize) {
        self.updated_bytes = self.updated_bytes.saturating_add(bytes).min(UPDATED_BYTES_MAX);
    }

    /// Credits the budgets for a PING or SETTINGS sent by the server, which the client must acknowledge.
    pub fn handle_sent_request(&mut self) {
        self.others.give(1000);
    }

    /// Counts a stream error of the client, because of which the server resets the stream.
    pub fn handle_provoked_reset(&mut self, now_ms: u64) -> Result<(), ConnectionError> {
        if self.provoked_resets.take(now_ms) { Ok(()) } else { Err(ConnectionError::MadeYouReset) }
    }
}

impl Default for FloodGuard {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
