use super::{MergeError, merge};
use crate::agent::coordinator::{AgentLoss, AgentResult};
use crate::view::fixture;
use serde_json::Value;

fn result(index: u32, record: Vec<u8>) -> AgentResult {
    AgentResult {
        name: format!("lab{index}"),
        cores: 2,
        index,
        skew_ns: Some(1_000 * i64::from(index)),
        skew_error_ns_max: 40_000,
        facts: Value::Null,
        record,
        lost: None,
    }
}

fn record() -> Vec<u8> {
    fixture::failing().encode().unwrap().into_bytes()
}

#[test]
fn counts_are_added_and_histograms_merged() {
    let one = fixture::failing();
    let whole = merge(&[result(0, record()), result(1, record())]).unwrap();
    let (part, sum) = (&one.steps[0], &whole.steps[0]);
    assert_eq!((whole.agents, whole.threads), (2, 2 * one.threads));
    assert_eq!(sum.record.counts.responses, 2 * part.record.counts.responses);
    assert_eq!(sum.record.counts.failures_total(), 24);
    assert_eq!(sum.record.response.histogram().len(), 2 * part.record.response.histogram().len());
    assert_eq!(sum.response.unwrap().p50_ns, part.response.unwrap().p50_ns);
    assert_eq!(sum.tally.visits, 600);
    assert!((sum.responses_per_s - 2.0 * part.responses_per_s).abs() < 1e-6);
    assert_eq!(sum.client.cpu.user_ns, 2 * part.client.cpu.user_ns);
    assert_eq!(sum.client.agents.iter().map(|agent| agent.skew_ns).collect::<Vec<_>>(), [0, 1_000]);
    assert!(sum.server.is_none() && sum.notes.iter().any(|note| note.text.contains("± 40.0 µs")));
}

#[test]
fn the_longest_stop_of_an_agent_counts() {
    let mut stopped = fixture::failing();
    let stopped_ns = stopped.steps[0].elapsed_ns / 2;
    stopped.steps[0].client.stopped_ns = stopped_ns;
    let stopped = result(1, stopped.encode().unwrap().into_bytes());
    let whole = merge(&[result(0, record()), stopped, result(2, record())]).unwrap();
    let step = &whole.steps[0];
    assert_eq!(step.client.stopped_ns, stopped_ns);
    assert!(step.invalid.iter().any(|invalid| invalid.reason.name() == "client-stopped"), "{:?}", step.invalid);
}

#[test]
fn a_lost_agent_makes_it_invalid() {
    let mut lost = result(1, Vec::new());
    lost.lost = Some((AgentLoss::Silent, String::new()));
    let whole = merge(&[result(0, record()), lost]).unwrap();
    let step = &whole.steps[0];
    assert!(step.invalid.iter().any(|invalid| invalid.reason.name() == "agent-lost"), "{:?}", step.invalid);
    assert_eq!(step.evidence.agents_lost, 1);
    assert!(step.client.agents[1].lost && step.client.agents[1].responses == 0);
    assert!(step.notes.iter().any(|note| note.text == "agent lab1 was lost: it sent nothing for ten seconds"));
}

#[test]
fn an_agent_that_could_not_run_every_level_leaves_the_others_theirs() {
    let whole = fixture::sweep("sweep", 10);
    let mut short = whole.clone();
    short.steps.truncate(4);
    short.steps[3].add_missing("part of the run could not be measured: no ports".to_owned());
    for (index, reports) in [[&whole, &short], [&short, &whole]].into_iter().enumerate() {
        let records = reports.map(|report| report.encode().unwrap().into_bytes());
        let merged = merge(&[result(0, records[0].clone()), result(1, records[1].clone())]).unwrap();
        assert_eq!(merged.steps.len(), 4);
        let text = merged.steps[3].evidence.part_missing.as_deref().unwrap();
        assert_eq!(text, format!("agent lab{}: part of the run could not be measured: no ports", 1 - index));
        assert!(!merged.is_valid() && merged.steps[2].evidence.part_missing.is_none());
    }
}

#[test]
fn different_runs_are_not_merged() {
    let sweep = fixture::sweep("sweep", 10).encode().unwrap().into_bytes();
    let error = merge(&[result(0, record()), result(1, sweep)]).unwrap_err();
    assert_eq!(error, MergeError::Different("lab1".to_owned(), "lab0".to_owned()));
    for bytes in [&b"\xff"[..], b"{}", b""] {
        assert!(matches!(merge(&[result(0, bytes.to_vec())]), Err(MergeError::Unreadable(..))));
    }
    let mut lost = result(0, Vec::new());
    lost.lost = Some((AgentLoss::Failed, "no such file".to_owned()));
    assert_eq!(
        merge(&[lost]).unwrap_err().to_string(),
        "no agent returned a result: lab0: it could not generate its load no such file"
    );
    assert!(merge(&[]).is_err());
}
