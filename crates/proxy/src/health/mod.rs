//! What an active health check asks, when, and how its answer is judged. Who asks is the driver.

mod check;

pub use check::{CHECK_METHOD, CheckOutcome, CheckResult, due_ms, write_check_lines};
