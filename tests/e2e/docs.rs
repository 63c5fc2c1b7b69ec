//! The documents that are printed from tables in the code say what the tables say.

use flatout_balance::group::Change;
use flatout_cache::reason::{Lookup, NoStore};
use flatout_config::{Code, MemorySource, format, load};
use flatout_data::DataReason;
use flatout_handler::ending::CloseReason;
use flatout_http::refusal::Refusal;
use flatout_load::judge::InvalidReason;
use flatout_net::tls::TlsFailure;
use flatout_pages::PageOutcome;
use flatout_pages::api::refusal::PageRefusal;
use flatout_pages::sandbox::FailureKind;
use flatout_proxy::esi::EsiError;
use flatout_proxy::outcome::ForwardOutcome;
use flatout_serve::outcome::FileOutcome;
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
    text.push_str("\n## Closed connections\n\n| name | cuts | meaning |\n|---|---|---|\n");
    for reason in CloseReason::ALL {
        let cuts = if reason.cuts() { "yes" } else { "" };
        writeln!(text, "| `{}` | {cuts} | {} |", reason.name(), reason.text()).unwrap();
    }
    text.push_str("\n## Cache lookups\n\n| name | meaning | how to change it |\n|---|---|---|\n");
    for reason in Lookup::ALL {
        writeln!(text, "| `{}` | {} | {} |", reason.name(), reason.text(), reason.change()).unwrap();
    }
    text.push_str("\n## Responses that are not stored\n\n| name | meaning | how to change it |\n|---|---|---|\n");
    for reason in NoStore::ALL {
        writeln!(text, "| `{}` | {} | {} |", reason.name(), reason.text(), reason.change()).unwrap();
    }
    text.push_str("\n## Outcomes of forwarding\n\nStatus 0 means the origin's status.\n\n");
    text.push_str("| name | status | meaning |\n|---|---|---|\n");
    for outcome in ForwardOutcome::ALL {
        writeln!(text, "| `{}` | {} | {} |", outcome.name(), outcome.status(), outcome.text()).unwrap();
    }
    text.push_str("\n## Origin failures\n\n");
    text.push_str(
        "A name that is also listed under closed connections means the same failure there, after the head.\n\n",
    );
    text.push_str("| name | status | meaning |\n|---|---|---|\n");
    for failure in OriginFailure::ALL {
        writeln!(text, "| `{}` | {} | {} |", failure.name(), failure.status(), failure.text()).unwrap();
    }
    text.push_str("\n## Unhealthy and recovered origins\n\nEach change is reported on standard error.\n\n");
    text.push_str("| name | meaning |\n|---|---|\n");
    for change in Change::ALL {
        writeln!(text, "| `{}` | {} |", change.name(), change.text()).unwrap();
    }
    text.push_str("\n## Volume events\n\n");
    text.push_str("Each event is reported on standard error. An event of a single entry is reported ten times, and from then on at each\n");
    text.push_str("power of ten (100, 1,000, …). `flatout_store_volume_events_total` counts all events.\n\n| name | meaning |\n|---|---|\n");
    for event in VolumeEvent::ALL {
        writeln!(text, "| `{}` | {} |", event.name(), event.text()).unwrap();
    }
    text.push_str("\n## ESI errors\n\n| name | meaning |\n|---|---|\n");
    for error in EsiError::ALL {
        writeln!(text, "| `{}` | {} |", error.name(), error.text()).unwrap();
    }
    text.push_str("\n## Outcomes of active pages\n\n");
    text.push_str(
        "Status 0 means the page's status. Each failure is reported on standard error, with the file and the line.\n\n",
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
    text.push_str("The page receives the error and may catch it.\n\n| name | meaning |\n|---|---|\n");
    for reason in DataReason::ALL {
        writeln!(text, "| `{}` | {} |", reason.name(), reason.text()).unwrap();
    }
    text.push_str("\n## TLS failures\n\n| name | meaning |\n|---|---|\n");
    for failure in TlsFailure::ALL {
        writeln!(text, "| `{}` | {} |", failure.name(), failure.text()).unwrap();
    }
    text.push_str("\n## Outcomes of FastCGI requests\n\n");
    text.push_str("Status 0 means the script's status.\n\n| name | status | meaning |\n|---|---|---|\n");
    for outcome in flatout_fastcgi::PhpOutcome::ALL {
        writeln!(text, "| `{}` | {} | {} |", outcome.name(), outcome.status(), outcome.text()).unwrap();
    }
    text.push_str(LAB);
    writeln!(text, "\n### Figures that do not hold\n\n| name | meaning | what to do |\n|---|---|---|").unwrap();
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

These names appear in the results of `flatout bench`, with hyphens as in older load generators. The first eight failures of
a request are httperf's. `flatout help client-saturated` says which figures that reason affects.
";

type Table = (&'static str, &'static [&'static str], &'static [&'static str]);

fn lab_tables() -> [Table; 4] {
    use flatout_lab::agent::coordinator::AgentLoss;
    use flatout_load::judge::failing::Finding;
    use flatout_net::tls::ClientTlsFailure;
    [
        ("Failures and notes of a run", Finding::NAMES, Finding::TEXTS),
        ("Failed requests", flatout_load::FailureKind::NAMES, flatout_load::FailureKind::TEXTS),
        ("TLS failures of the client", ClientTlsFailure::NAMES, ClientTlsFailure::TEXTS),
        ("Lost and rejected agents", AgentLoss::NAMES, AgentLoss::TEXTS),
    ]
}

/// The lab's texts are parts of sentences, to stand behind a figure.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).chain(['.']).collect())
}

#[test]
fn every_reason_is_documented() {
    check_generated("docs/reasons.md", &reasons());
}

/// Ends the hand-written part of a document; the rest is generated.
const MARKER: &str = "<!-- Generated by `cargo xtask reasons`; do not edit below this line. -->\n\n";

/// Set by `cargo xtask reasons`: write the documents instead of comparing them.
const WRITE: &str = "FLATOUT_WRITE_DOCS";

/// Compares the part of a document below its marker with the text generated from the tables, or writes that part.
fn check_generated(name: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let document = std::fs::read_to_string(&path).unwrap();
    let (introduction, found) = document.split_once(MARKER).unwrap_or_else(|| panic!("{name} has no line {MARKER}"));
    if found == generated {
        return;
    }
    assert!(std::env::var_os(WRITE).is_some(), "{name} differs from the tables in the code; run: cargo xtask reasons");
    std::fs::write(&path, format!("{introduction}{MARKER}{generated}")).unwrap();
    println!("wrote {name}");
}

/// A name stands in two tables only where one event is seen from two sides: what an origin's connection met is also why
/// the client's was cut.
#[test]
fn every_name_is_in_one_table() {
    let tables: [(&str, Vec<&str>); 15] = [
        ("files", FileOutcome::ALL.iter().map(|one| one.name()).collect()),
        ("steps", flatout_engine::RouteOutcome::ALL.iter().map(|one| one.name()).collect()),
        ("refusals", Refusal::ALL.iter().map(|one| one.name()).collect()),
        ("endings", CloseReason::ALL.iter().map(|one| one.name()).collect()),
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

#[test]
fn every_code_is_documented() {
    check_generated("docs/config.md", &codes());
}

/// A block of the document is a whole configuration, settings of the top level, or settings of a site.
#[test]
fn every_example_of_a_configuration_is_valid() {
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

/// The tables in docs/performance.md are those of the kept results; `FLATOUT_BLESS=1` writes them.
#[test]
fn the_tables_of_the_documents_are_those_of_kept_results() {
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

/// The document with the tables of its kept results.
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
