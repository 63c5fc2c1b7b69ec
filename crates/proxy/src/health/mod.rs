//! Active health checks: request, schedule and evaluation. The driver sends them.

mod check;

pub use check::{CHECK_METHOD, CheckOutcome, CheckResult, due_ms, write_check_lines};
