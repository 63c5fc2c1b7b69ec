//! Documents that are generated from tables in the code match these tables.

use flatout_balance::group::Change;
use flatout_cache::reason::{Lookup, NoStore};
use flatout_config::{Code, MemorySource, format, load};
use flatout_data::DataReason;
use flatout_handler::ending::CloseReason;
use flatout_http::access::AccessField;
use flatout_http::http2::error::{self as http2, StreamError};
use flatout_http::http3::error as http3;
use flatout_http::refusal::Refusal;
use flatout_load::judge::InvalidReason;
use flatout_net::tls::TlsFailure;
use flatout_pages::PageOutcome;
use flatout_pages::api::refusal::PageRefusal;
use flatout_pages::sandbox::FailureKind;
use flatout_proxy::esi::EsiError;
use flatout_proxy::outcome::ForwardOutcome;
use flatout_serve::outcome::FileOutcome;
use flatout_server::AcceptProblem;
use flatout_store::notice::VolumeEvent;
use flatout_upstream::origin::OriginFailure;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

fn reasons() -> String {
    let mut text = String::from("## Outcomes of files\n\n| name | meaning |\n|---|---|\n");
    for outcome in FileOutcome::ALL {
        writeln!(text, "| `{}` | {} |", outcome.name(), outcome.text()).unwrap();
    }
    text.push_str("\n## Outcomes of other handlers\n\n| name | meaning |\n|---|---|\n");
    for outcome in flatout_engine::RouteOutcome::ALL {
        writeln!(text, "| `{}` | {} |", outcome.name(), outcome.text()).unwrap();
    }
    text.push_str("\n## Refused requests\n\n| name | status | meaning |\n|---|---|---|\n");
    for refusal in Refusal::ALL {
        writeln!(text, "| `{}` | {} | {} |", refusal.name(), refusal.status(), refusal.text()).unwrap();
    }
    text.push_str("\n## Closed connections\n\nThe second column says whether a request or a response was incomplete.\n\n| name | cut short | meaning |\n|---|---|---|\n");
    for reason in CloseReason::ALL {
        let cuts = if reason.cuts() { "yes" } else { "" };
        writeln!(text, "| `{}` | {cuts} | {} |", reason.name(), reason.text()).unwrap();
    }
    text.push_str("\n## Connections that are not accepted\n\n| name | meaning |\n|---|---|\n");
    for problem in AcceptProblem::ALL {
        writeln!(text, "| `{}` | {} |", problem.name(), problem.text()).unwrap();
    }
    text.push_str("\n## Violations of HTTP/2\n\n| name | error code | meaning |\n|---|---|---|\n");
    for violation in http2::ConnectionError::ALL {
        writeln!(text, "| `{}` | `{}` | {} |", violation.name(), violation.code().name(), violation.text()).unwrap();
    }
    text.push_str("\n## Stream errors\n\n");
    text.push_str("The server resets one HTTP/2 or HTTP/3 stream, and the connection stays open. If a cell is empty, that version of HTTP has no such error.\n\n");
    text.push_str("| name | HTTP/2 error code | HTTP/3 error code | meaning |\n|---|---|---|---|\n");
    for error in StreamError::ALL {
        // Empty: this version of HTTP has no such error.
        let two = if error.is_of_http2() { format!("`{}`", error.code().name()) } else { String::new() };
        let three =
            if error.is_of_http3() { format!("`{}`", http3::ErrorCode::from(*error).name()) } else { String::new() };
        writeln!(text, "| `{}` | {two} | {three} | {} |", error.name(), error.text()).unwrap();
    }
    text.push_str("\n## Violations of HTTP/3\n\n| name | error code | meaning |\n|---|---|---|\n");
    for violation in http3::ConnectionError::ALL {
        writeln!(text, "| `{}` | `{}` | {} |", violation.name(), violation.code().name(), violation.text()).unwrap();
    }
    text.push_str("\n## Cache lookups\n\n| name | meaning | how to change it |\n|---|---|---|\n");
    for reason in Lookup::ALL {
        writeln!(text, "| `{}` | {} | {} |", reason.name(), reason.text(), reason.change()).unwrap();
    }
    text.push_str("\n## Responses that are not stored\n\n| name | meaning | how to change it |\n|---|---|---|\n");
    for reason in NoStore::ALL {
        writeln!(text, "| `{}` | {} | {} |", reason.name(), reason.text(), reason.change()).unwrap();
    }
    text.push_str(
        "\n## Outcomes of forwarding\n\nStatus 0 means that the client gets the status of the origin's response.\n\n",
    );
    text.push_str("| name | status | meaning |\n|---|---|---|\n");
    for outcome in ForwardOutcome::ALL {
        writeln!(text, "| `{}` | {} | {} |", outcome.name(), outcome.status(), outcome.text()).unwrap();
    }
    text.push_str("\n## Origin failures\n\n");
    text.push_str(
        "Some names are also listed under closed connections; there, the failure occurred after the response head.\n\n",
    );
    text.push_str("| name | status | meaning |\n|---|---|---|\n");
    for failure in OriginFailure::ALL {
        writeln!(text, "| `{}` | {} | {} |", failure.name(), failure.status(), failure.text()).unwrap();
    }
    text.push_str("\n## Unhealthy and recovered origins\n\nflatout reports each change on standard error.\n\n");
    text.push_str("| name | meaning |\n|---|---|\n");
    for change in Change::ALL {
        writeln!(text, "| `{}` | {} |", change.name(), change.text()).unwrap();
    }
    text.push_str("\n## Volume events\n\n");
    text.push_str(
        "flatout reports each event on standard error. It reports an event that concerns a single entry the first\n",
    );
    text.push_str("ten times, and then at each power of ten (100, 1,000, …).\n");
    text.push_str("The metric `flatout_store_volume_events_total` counts all events.\n\n");
    text.push_str("| name | meaning |\n|---|---|\n");
    for event in VolumeEvent::ALL {
        writeln!(text, "| `{}` | {} |", event.name(), event.text()).unwrap();
    }
    text.push_str("\n## ESI errors\n\n| name | meaning |\n|---|---|\n");
    for error in EsiError::ALL {
        writeln!(text, "| `{}` | {} |", error.name(), error.text()).unwrap();
    }
    text.push_str("\n## Outcomes of active pages\n\n");
    text.push_str(
        "Status 0 means that the page sets the status. flatout reports each failure on standard error, with the file and the line.\n\n",
    );
    text.push_str("| name | status | meaning |\n|---|---|---|\n");
    let own = PageOutcome::ALL.iter().map(|&outcome| outcome.into());
    let failures = FailureKind::ALL.iter().map(|&kind| kind.into());
    let refusals = PageRefusal::ALL.iter().map(|&refusal| refusal.into());
    for refusal in own.chain(failures).chain(refusals) {
        let flatout_handler::routed::Refusal { status, outcome, .. } = refusal;
        writeln!(text, "| `{}` | {status} | {} |", outcome.name(), outcome.text()).unwrap();
    }
    text.push_str("\n## Database errors\n\n");
    text.push_str("The page gets these errors and can catch them.\n\n| name | meaning |\n|---|---|\n");
    for reason in DataReason::ALL {
        writeln!(text, "| `{}` | {} |", reason.name(), reason.text()).unwrap();
    }
    text.push_str("\n## TLS failures\n\n| name | meaning |\n|---|---|\n");
    for failure in TlsFailure::ALL {
        writeln!(text, "| `{}` | {} |", failure.name(), failure.text()).unwrap();
    }
    text.push_str("\n## Outcomes of FastCGI requests\n\n");
    text.push_str("Status 0 means that the script sets the status.\n\n| name | status | meaning |\n|---|---|---|\n");
    for outcome in flatout_fastcgi::PhpOutcome::ALL {
        writeln!(text, "| `{}` | {} | {} |", outcome.name(), outcome.status(), outcome.text()).unwrap();
    }
    text.push_str(LAB);
    writeln!(text, "\n### Figures that are not valid\n\n| name | meaning | what to do |\n|---|---|---|").unwrap();
    for reason in InvalidReason::ALL {
        let (meaning, remedy) = (sentence(reason.text()), sentence(reason.remedy()));
        writeln!(text, "| `{}` | {meaning} | {remedy} |", reason.name()).unwrap();
    }
    for (heading, names, texts) in lab_tables() {
        writeln!(text, "\n### {heading}\n\n| name | meaning |\n|---|---|").unwrap();
        for (name, meaning) in names.iter().zip(texts) {
            writeln!(text, "| `{name}` | {} |", sentence(meaning)).unwrap();
        }
    }
    text
}

const LAB: &str = "
## The load lab

These names appear in the results of `flatout bench`. They contain hyphens, as in older load generators, and the first
eight names of failed requests come from httperf. `flatout help client-saturated` lists the figures that a saturated
client affects.
";

type Table = (&'static str, &'static [&'static str], &'static [&'static str]);

fn lab_tables() -> [Table; 5] {
    use flatout_client::QuicFailure;
    use flatout_lab::agent::coordinator::AgentLoss;
    use flatout_load::judge::failing::Finding;
    use flatout_net::tls::ClientTlsFailure;
    [
        ("Failures and notes of a run", Finding::NAMES, Finding::TEXTS),
        ("Failed requests", flatout_load::FailureKind::NAMES, flatout_load::FailureKind::TEXTS),
        ("TLS failures of the client", ClientTlsFailure::NAMES, ClientTlsFailure::TEXTS),
        ("QUIC failures of the client", QuicFailure::NAMES, QuicFailure::TEXTS),
        ("Lost and rejected agents", AgentLoss::NAMES, AgentLoss::TEXTS),
    ]
}

/// Turns a text of the lab, which is a sentence fragment to be printed after a figure, into a sentence.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).chain(['.']).collect())
}

#[test]
fn every_reason_is_documented() {
    check_generated("docs/reasons.md", &[reasons()]);
}

/// Begins a generated part of a document.
const MARKER: &str = "<!-- Generated by `cargo xtask reasons`; do not edit below this line. -->\n\n";

/// Ends a generated part that is not the last one.
const END: &str = "\n<!-- End of the generated part. -->\n";

/// Set by `cargo xtask reasons`: write the documents instead of comparing them.
const WRITE: &str = "FLATOUT_WRITE_DOCS";

/// Compares the parts of a document below its markers with the texts generated from the tables, or writes these parts.
fn check_generated(name: &str, generated: &[String]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let document = std::fs::read_to_string(&path).unwrap();
    let mut parts = document.split(MARKER);
    let mut expected = parts.next().unwrap().to_owned();
    let parts: Vec<&str> = parts.collect();
    assert_eq!(parts.len(), generated.len(), "the lines in {name} with {MARKER}");
    for (part, generated) in parts.iter().zip(generated) {
        let rest = part.find(END).map_or("", |end| &part[end..]);
        expected = [&expected, MARKER, generated, rest].concat();
    }
    if document == expected {
        return;
    }
    assert!(std::env::var_os(WRITE).is_some(), "{name} differs from the tables in the code; run: cargo xtask reasons");
    std::fs::write(&path, expected).unwrap();
    println!("wrote {name}");
}

/// A name is in two tables only if both describe one event: a failure on an origin's connection is also the reason why
/// the client's response was truncated.
#[test]
fn every_name_is_in_only_one_table() {
    let tables: [(&str, Vec<&str>); 18] = [
        ("files", FileOutcome::ALL.iter().map(|one| one.name()).collect()),
        ("steps", flatout_engine::RouteOutcome::ALL.iter().map(|one| one.name()).collect()),
        ("refusals", Refusal::ALL.iter().map(|one| one.name()).collect()),
        ("endings", CloseReason::ALL.iter().map(|one| one.name()).collect()),
        ("http/2", http2::ConnectionError::NAMES.to_vec()),
        ("streams", StreamError::NAMES.to_vec()),
        ("http/3", http3::ConnectionError::NAMES.to_vec()),
        ("tls", TlsFailure::ALL.iter().map(|one| one.name()).collect()),
        ("look-ups", Lookup::NAMES.to_vec()),
        ("not stored", NoStore::NAMES.to_vec()),
        ("forwarding", ForwardOutcome::NAMES.to_vec()),
        ("origins", OriginFailure::NAMES.to_vec()),
        ("changes", Change::NAMES.to_vec()),
        ("volumes", VolumeEvent::NAMES.to_vec()),
        ("esi", EsiError::NAMES.to_vec()),
        ("pages", [PageOutcome::NAMES, FailureKind::NAMES, PageRefusal::NAMES].concat()),
        ("data", DataReason::NAMES.to_vec()),
        ("scripts", flatout_fastcgi::PhpOutcome::NAMES.to_vec()),
    ];
    let mut seen: HashMap<&str, &str> = HashMap::new();
    let mut twice = Vec::new();
    for (table, names) in &tables {
        for name in names {
            if let Some(other) = seen.insert(name, table) {
                twice.push((*name, other, *table));
            }
        }
    }
    twice.sort_unstable();
    let expected = [
        ("file_failed", "files", "endings"),
        ("origin_body_malformed", "endings", "origins"),
        ("origin_body_timeout", "endings", "origins"),
        ("origin_cut_body", "endings", "origins"),
        ("path_above_root", "files", "refusals"),
        ("target_nul", "files", "refusals"),
    ];
    assert_eq!(twice, expected);
}

fn codes() -> String {
    let mut text = String::from("| code | what | meaning |\n|---|---|---|\n");
    for code in Code::ALL {
        let meaning = code.text().replace('|', "\\|");
        writeln!(text, "| `{}` | {} | {meaning} |", code.id(), code.title()).unwrap();
    }
    text
}

fn log_fields() -> String {
    let mut text = String::from("| field | meaning |\n|---|---|\n");
    for field in AccessField::ALL {
        writeln!(text, "| `{}` | {} |", field.name(), field.text()).unwrap();
    }
    text
}

#[test]
fn every_log_field_and_code_is_documented() {
    check_generated("docs/config.md", &[log_fields(), codes()]);
}

/// A code block in the document is a complete configuration, global settings, or settings of a site.
#[test]
fn every_example_configuration_is_valid() {
    let documents = [
        include_str!("../../docs/config.md"),
        include_str!("../../docs/accelerator.md"),
        include_str!("../../docs/pages.md"),
        include_str!("../../docs/php.md"),
    ];
    let examples = documents.map(|document| {
        let blocks = document.split("```kdl\n").skip(1).filter_map(|rest| rest.split_once("```\n"));
        blocks.map(|(block, _)| block).collect::<Vec<&str>>()
    });
    let counts = examples.iter().map(Vec::len).collect::<Vec<usize>>();
    assert!(counts[0] > 15 && counts[1] > 8 && counts[2] > 4, "{counts:?}");
    let hash = "$2b$12$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy\n";
    for example in examples.concat() {
        let wholes = [
            example.to_owned(),
            format!("{example}\nsite {{ files \".\" }}\n"),
            format!("site {{\n{example}\n}}\n"),
            format!("site {{\n{example}\nfiles \".\"\n}}\n"),
        ];
        let load_whole = |whole: &String| {
            let sources = MemorySource::new().file("flatout.kdl", whole.clone()).file("/etc/flatout/ann.hash", hash);
            let sources = sources.file("sticky.key", "x".repeat(32));
            load(Path::new("flatout.kdl"), &sources)
        };
        assert!(
            wholes.iter().any(|whole| load_whole(whole).is_ok()),
            "{example}\n{}",
            load_whole(&wholes[0]).unwrap_err()
        );
        assert_eq!(format::format("example", example).unwrap(), example);
    }
}

/// The tables in docs/performance.md match the stored results. `FLATOUT_BLESS=1` writes them.
#[test]
fn tables_in_documents_match_the_stored_results() {
    for document in ["docs/performance.md", "docs/reliability.md"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
        let text = std::fs::read_to_string(&path).unwrap();
        let expected = with_tables(&text);
        if std::env::var_os("FLATOUT_BLESS").is_some() {
            std::fs::write(path, &expected).unwrap();
        } else {
            assert!(expected == text, "{document} is not what the kept results say: FLATOUT_BLESS=1 writes it");
        }
    }
}

/// Returns the document with the tables of its stored results.
fn with_tables(document: &str) -> String {
    const BEGIN: &str = "<!-- tables: ";
    const END: &str = "<!-- end of tables -->";
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut parts = document.split(BEGIN);
    let mut made = parts.next().unwrap().to_owned();
    for part in parts {
        let (folder, rest) = part.split_once(" -->\n").unwrap();
        let (_, rest) = rest.split_once(END).unwrap();
        let unpacked = super::harness::Folder::new();
        let packed = root.join(folder).join("suite.json.xz");
        let xz = std::process::Command::new("xz").args(["--decompress", "--stdout"]).arg(&packed).output().unwrap();
        assert!(xz.status.success(), "{}: {}", packed.display(), String::from_utf8_lossy(&xz.stderr));
        unpacked.write("suite.json", &xz.stdout);
        let tables = super::harness::flatout().args(["suite", "tables"]).arg(unpacked.path()).output().unwrap();
        assert!(tables.status.success(), "{}", String::from_utf8_lossy(&tables.stderr));
        let tables = String::from_utf8(tables.stdout).unwrap();
        write!(made, "{BEGIN}{folder} -->\n{}\n\n{END}{rest}", tables.trim_end()).unwrap();
    }
    made
}
