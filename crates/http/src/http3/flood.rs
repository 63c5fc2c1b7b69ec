//! Flood protection: limits on frames, resets and instructions that cost the client little and the server more (RFC
//! 9114 §10.5, RFC 9204 §7). Kinds that also exist in HTTP/2 have the same budgets as there. Time is an argument.

use super::error::ConnectionError;
use crate::http2::flood::{
    EMPTY_DATA, FloodBudget, OTHERS, PROVOKED_RESETS, RESET_MILLI_PER_SENT, RESETS, SMALL_DATA, SMALL_DATA_BYTES, Terms,
};

/// Budget for QPACK instructions. A browser fills the table with about a hundred entries, then inserts a few for each
/// request.
const INSTRUCTIONS: Terms = Terms { burst: 2000, per_s: 200, per_sent: 8 };

/// Flood protection of one server connection: a budget for each kind of frame and instruction.
#[derive(Clone, Debug)]
pub(super) struct FloodGuard {
    resets: FloodBudget,
    provoked_resets: FloodBudget,
    empty_data: FloodBudget,
    small_data: FloodBudget,
    instructions: FloodBudget,
    others: FloodBudget,
}

impl FloodGuard {
    /// Creates a guard with full budgets.
    pub(super) const fn new() -> Self {
        Self {
            resets: FloodBudget::new(RESETS),
            provoked_resets: FloodBudget::new(PROVOKED_RESETS),
            empty_data: FloodBudget::new(EMPTY_DATA),
            small_data: FloodBudget::new(SMALL_DATA),
            instructions: FloodBudget::new(INSTRUCTIONS),
            others: FloodBudget::new(OTHERS),
        }
    }

    /// Counts a stream that the client has reset or stopped.
    pub(super) fn handle_reset(&mut self, now_ms: u64) -> Result<(), ConnectionError> {
        admit(&mut self.resets, now_ms, ConnectionError::RapidReset)
    }

    /// Counts a stream error of the client, because of which the server resets the stream.
    pub(super) fn handle_provoked_reset(&mut self, now_ms: u64) -> Result<(), ConnectionError> {
        admit(&mut self.provoked_resets, now_ms, ConnectionError::MadeYouReset)
    }

    /// Counts a DATA frame without content.
    pub(super) fn handle_empty_data(&mut self, now_ms: u64) -> Result<(), ConnectionError> {
        admit(&mut self.empty_data, now_ms, ConnectionError::EmptyDataFlood)
    }

    /// Counts content that is discarded.
    pub(super) fn handle_discarded(&mut self, now_ms: u64, content_bytes: usize) -> Result<(), ConnectionError> {
        if content_bytes == 0 || content_bytes >= SMALL_DATA_BYTES {
            return Ok(());
        }
        admit(&mut self.small_data, now_ms, ConnectionError::DataExcess)
    }

    /// Counts a QPACK instruction. Returns false if the client sent too many.
    pub(super) fn handle_instruction(&mut self, now_ms: u64) -> bool {
        self.instructions.take(now_ms)
    }

    /// Counts any other frame or stream, which the server ignores or which changes little.
    pub(super) fn handle_other(&mut self, now_ms: u64) -> Result<(), ConnectionError> {
        admit(&mut self.others, now_ms, ConnectionError::FrameFlood)
    }

    /// Credits the budgets for a response head or DATA frame sent by the server.
    pub(super) fn handle_sent(&mut self) {
        self.resets.give(RESET_MILLI_PER_SENT);
        self.instructions.handle_sent();
        self.others.handle_sent();
    }
}

fn admit(budget: &mut FloodBudget, now_ms: u64, error: ConnectionError) -> Result<(), ConnectionError> {
    if budget.take(now_ms) { Ok(()) } else { Err(error) }
}
