//! The documents that are printed from tables in the code say what the tables say.

use flatout_http::refusal::Refusal;
use flatout_net::ending::CloseReason;
use flatout_net::tls::TlsFailure;
use flatout_serve::outcome::Outcome;
use std::fmt::Write as _;

fn reasons() -> String {
    let mut text = String::from("## Outcomes: why a file's answer was what it was\n\n| name | meaning |\n|---|---|\n");
    for outcome in Outcome::ALL {
        writeln!(text, "| `{}` | {} |", outcome.name(), outcome.text()).unwrap();
    }
    text.push_str("\n## Refusals: why a request was not read\n\n| name | status | meaning |\n|---|---|---|\n");
    for refusal in Refusal::ALL {
        writeln!(text, "| `{}` | {} | {} |", refusal.name(), refusal.status(), refusal.text()).unwrap();
    }
    text.push_str("\n## Endings: why a connection was closed\n\n| name | cuts | meaning |\n|---|---|---|\n");
    for reason in CloseReason::ALL {
        let cuts = if reason.cuts() { "yes" } else { "" };
        writeln!(text, "| `{}` | {cuts} | {} |", reason.name(), reason.text()).unwrap();
    }
    text.push_str("\n## Failures of TLS: why there was no session\n\n| name | meaning |\n|---|---|\n");
    for failure in TlsFailure::ALL {
        writeln!(text, "| `{}` | {} |", failure.name(), failure.text()).unwrap();
    }
    text
}

#[test]
fn every_reason_is_documented() {
    let document = include_str!("../../docs/reasons.md");
    let reasons = reasons();
    assert!(
        document.ends_with(&reasons),
        "docs/reasons.md is stale; after its first paragraphs it should hold:\n{reasons}"
    );
}
