//! Waiting for a permit from a concurrency limiter.

use crate::origin::OriginClient;
use flatout_balance::limit::{Permit, QueueRefusal, WaitingRequest};
use flatout_os::clock::Now;
use std::future::poll_fn;

/// Waits in the queue until a permit is granted or the request's deadline has passed, using the timers of `client`.
pub async fn wait_for_permit(client: &OriginClient, mut waiting: WaitingRequest) -> Result<Permit, QueueRefusal> {
    loop {
        let now_ms = Now::read().monotonic_ms;
        let timeout_ms = waiting.next_poll_ms(now_ms).saturating_sub(now_ms).saturating_add(1);
        let permit = poll_fn(|context| waiting.poll_permit(context, Now::read().monotonic_ms));
        if let Some(result) = client.within(timeout_ms, permit).await {
            return result;
        }
    }
}
