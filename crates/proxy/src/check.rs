//! Active health checks: one worker checks each origin at every interval.

use crate::forward::write_host_lines;
use crate::step::ProxyStep;
use crate::worker::ProxyWorker;
use flatout_balance::health::{CheckOutcome, CheckResult, due_ms};
use flatout_config::model::{HostField, Origin, Proxy};
use flatout_http::lines::write_line;
use flatout_http::proxy_protocol::ProxyClient;
use flatout_os::clock::Now;
use flatout_upstream::origin::{IncomingPiece, OriginClient, OutgoingContent, OutgoingRequest};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::task::spawn_local;

/// Maximum bytes of content read from a health check's response so that the connection can be reused.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Method of a health check.
const CHECK_METHOD: &str = "GET";

/// Appends the field lines of a health check to `out`, each `Name: value` and CR LF: Host, as for a request of a visitor
/// of the site `site`, User-Agent, Accept and Cache-Control. Applications often refuse a host that is not theirs.
fn write_check_lines(settings: &Proxy, site: Option<&str>, origin: &Origin, out: &mut Vec<u8>) {
    match (site, &settings.host) {
        (Some(site), HostField::Client) => write_line("Host", site.as_bytes(), out),
        _ => write_host_lines(settings, origin, out),
    }
    out.extend_from_slice(b"User-Agent: flatout-health-check\r\nAccept: */*\r\nCache-Control: no-store\r\n");
}

/// Starts health checks of the origins of `step`, unless another worker has started them. The checks stop when the step
/// is no longer in use.
pub(crate) fn watch(worker: &Rc<ProxyWorker>, step: &Arc<ProxyStep>) {
    let Some(check) = step.settings.health_check.clone() else { return };
    if step.is_watched.swap(true, Ordering::AcqRel) {
        return;
    }
    let count = step.addresses.len();
    for index in 0..count {
        let client = worker.client(step);
        let accelerator = worker.shared();
        let step = Arc::downgrade(step);
        let check = check.clone();
        spawn_local(async move {
            let start_ms = Now::read().monotonic_ms;
            for number in 0.. {
                let due = due_ms(&check, start_ms, index, count, number);
                let wait_ms = due.saturating_sub(Now::read().monotonic_ms);
                client.pause(wait_ms).await;
                let Some(step) = step.upgrade() else { return };
                let outcome = ask(&client, &step, index).await;
                let now_ms = Now::read().monotonic_ms;
                let change = step.group.handle_check(index, outcome.is_good(), now_ms);
                // A good check alone is no response to the requests that fail.
                if outcome.is_good() && change.is_some() {
                    accelerator.tell_answer(&step, index, change, now_ms);
                } else {
                    accelerator.tell_change(change);
                }
            }
        });
    }
}

async fn ask(client: &OriginClient, step: &ProxyStep, index: usize) -> CheckOutcome {
    let (Some(check), Some(address), Some(origin)) =
        (&step.settings.health_check, step.addresses.get(index), step.settings.origins.get(index))
    else {
        return CheckOutcome::Failed;
    };
    let mut lines = Vec::new();
    write_check_lines(&step.settings, step.site_host(), origin, &mut lines);
    let mut request = OutgoingRequest {
        method: CHECK_METHOD,
        target: check.path.as_bytes(),
        lines: &lines,
        content: OutgoingContent::None,
        upgrade: None,
        head_left_ms: None,
        client: ProxyClient::Sender,
    };
    let begun_ms = Now::read().monotonic_ms;
    let asked = client.within(check.timeout_ms, client.exchange(address, &mut request, |_, _| {})).await;
    let result = match asked {
        None => CheckResult::TimedOut,
        Some(Err(_)) => CheckResult::Failed,
        Some(Ok(mut incoming)) => {
            let elapsed_ms = Now::read().monotonic_ms.saturating_sub(begun_ms);
            step.versions.note(index, incoming.version, incoming.status);
            let mut read = 0;
            let reading = async {
                while let IncomingPiece::Bytes(bytes) = poll_fn(|context| incoming.body.poll_piece(context)).await {
                    read += bytes.len();
                    if read > BODY_BYTES_MAX {
                        break;
                    }
                }
            };
            // Whether the content arrives completely or in time does not matter.
            let _ = client.within(check.timeout_ms, reading).await;
            CheckResult::Answered { status: incoming.status, elapsed_ms }
        }
    };
    CheckOutcome::judge(check, result)
}

#[cfg(test)]
mod tests {
    use super::write_check_lines;
    use flatout_config::model::{HostField, Origin, Proxy};

    #[test]
    fn the_host_is_as_for_requests_of_visitors() {
        let origin = Origin { secure: true, host: "a.example".to_owned(), port: 8443, weight: 1, backup: false };
        for (host, site, expected) in [
            (HostField::Client, Some("c.example"), "c.example"),
            (HostField::Client, None, "a.example:8443"),
            (HostField::Origin, Some("c.example"), "a.example:8443"),
            (HostField::Fixed("b.example".to_owned()), Some("c.example"), "b.example"),
        ] {
            let mut out = Vec::new();
            write_check_lines(&Proxy { host, ..Proxy::default() }, site, &origin, &mut out);
            assert!(String::from_utf8(out).unwrap().starts_with(&format!("Host: {expected}\r\n")));
        }
    }
}
