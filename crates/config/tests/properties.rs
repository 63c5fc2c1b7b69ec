//! Properties of every configuration and every text: no panic, and printed text reads back as the same.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use flatout_config::encode::without_places;
use flatout_config::{Code, Config, Disk, MemorySource, Style, adapt, format, load, load_text, to_kdl};
use proptest::prelude::*;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The valid configurations of the end-to-end tests.
fn good() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/e2e/config/good");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "kdl"));
    assert!(paths.len() >= 3);
    paths
}

fn assert_same(left: &Config, right: &Config) {
    assert_eq!(without_places(left), without_places(right));
}

#[test]
fn a_printed_configuration_reads_as_the_same() {
    for path in good() {
        let config = load(&path, &Disk).unwrap();
        let printed = to_kdl(&config);
        let again = load_text(&printed).unwrap_or_else(|found| panic!("{}:\n{printed}\n{found}", path.display()));
        assert_same(&config, &again);
        // The printed text is formatted, and its JSON form means the same.
        assert_eq!(format::format("printed.kdl", &printed).unwrap(), printed);
        let json = adapt::kdl_to_json("printed.kdl", &printed).unwrap().to_string();
        let sources = MemorySource::new().file("twin.json", json.clone());
        assert_same(&config, &load(Path::new("twin.json"), &sources).unwrap());
        let kdl = adapt::json_to_kdl(&json).unwrap();
        assert_eq!(adapt::kdl_to_json("again.kdl", &kdl).unwrap().to_string(), json);
    }
}

/// A configuration without any settings must be readable, because the printed one relies on defaults.
#[test]
fn the_settings_of_flags_can_be_printed() {
    use flatout_config::model::{Files, Handler, Listener, Place, Protocol, Site, SocketAccess, Step, StepKind};
    let files = Files { root: "public".into(), ..Files::default() };
    let config = Config {
        listeners: vec![Listener {
            place: Place::default(),
            address: "127.0.0.1:0".parse().unwrap(),
            access: SocketAccess::default(),
            protocol: Protocol::Plain,
            http2_cleartext: false,
            redirect_https_port: None,
            http3: None,
            proxy_protocol: None,
        }],
        sites: vec![Site {
            hosts: vec!["*".into()],
            listeners: vec![0],
            block: vec![Step { place: Place::default(), kind: StepKind::Handler(Handler::Files(Box::new(files))) }],
            ..Site::default()
        }],
        ..Config::default()
    };
    assert_same(&config, &load_text(&to_kdl(&config)).unwrap());
}

#[test]
fn hostile_texts_are_refused_quickly() {
    let deep = |open: &str, close: &str, n: usize| format!("{}{}", open.repeat(n), close.repeat(n));
    for text in [
        deep("a {", "}", 100_000),
        deep("a {\n", "}\n", 100_000),
        deep("a /-{", "}", 100_000),
        deep("/- a {", "}", 100_000),
        deep("x; /- a {", "}", 30),
        deep("a /-{", "}", 30),
        "{".repeat(100_000),
        "}".repeat(100_000),
        "(".repeat(100_000),
        ")".repeat(100_000),
        "/*".repeat(100_000),
        "/-".repeat(100_000),
        "#".repeat(100_000),
        "\"".repeat(100_001),
        "a ".repeat(300_000),
        "a\n".repeat(300_000),
        "a=".repeat(300_000),
        ",".repeat(100_000),
        "\\".repeat(100_000),
        "\\\n".repeat(100_000),
        format!("site {{ header \"X\" \"{}\" }}", "y".repeat(900_000)),
        format!("site {{ {} }}", "route \"/a\" { respond 200; };".repeat(20_000)),
        format!("site {{ deny {} }}", "\"10.0.0.0/8\" ".repeat(50_000)),
        format!("site {{ {} }}", "deny \"10.0.0.0/8\";".repeat(50_000)),
        format!("site {{ proxy {} }}", "\"http://a\" ".repeat(60_000)),
        format!("site {{ proxy {{ {} }} }}", (1..=40_000).map(|n| format!("origin {n};")).collect::<String>()),
        format!("site {{ proxy 1 {{ trust {} }} }}", "\"10.0.0.0/8\" ".repeat(50_000)),
        format!("site {{ cache {{ tags {} }}; proxy 1 }}", "A ".repeat(9_000)),
        format!("site {{ {} proxy 1 }}", "cache off=#true ttl=1;".repeat(20_000)),
        format!("store {{ {} }}", (0..30_000).map(|n| format!("disk \"/{n}\" \"1GiB\";")).collect::<String>()),
        format!("site {} {{ files \".\" }}", "\"a.example\" ".repeat(50_000)),
    ] {
        let start = Instant::now();
        let found = load_text(&text).unwrap_err();
        let shown = found.render(Style::Plain);
        let _ = (format::format("x", &text), adapt::kdl_to_json("x", &text));
        let sample: String = text.chars().take(30).collect();
        assert!(shown.len() < 100_000 && found.list.len() <= 50, "{sample}");
        assert!(start.elapsed() < Duration::from_secs(20), "{sample} took {:?}", start.elapsed());
    }
    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(adapt::json_to_kdl(&nested).is_err());
}

/// Files with deeply nested blocks that include one another inside those blocks: the depth of the whole tree is
/// limited.
#[test]
fn blocks_through_includes_are_bounded() {
    let mut sources = MemorySource::new().file("flatout.kdl", "site { include \"0.kdl\"; files \".\" }\n");
    for level in 0..15 {
        let include = format!("include \"{}.kdl\"", level + 1);
        let text = format!("{}{include}{}", "route \"/a\" { ".repeat(30), "}\n".repeat(30));
        sources = sources.file(format!("{level}.kdl"), text);
    }
    let found = load(Path::new("flatout.kdl"), &sources).unwrap_err();
    assert!(found.list.iter().any(|diagnostic| diagnostic.code == Code::TooDeep), "{found}");
}

#[test]
fn includes_are_bounded() {
    // Each of ten files includes all of the next ten twice: thousands, without a bound.
    let mut sources = MemorySource::new().file("flatout.kdl", "include \"0-*.kdl\"\nsite { files \".\" }\n");
    for level in 0..10 {
        for index in 0..10 {
            sources = sources.file(format!("{level}-{index}.kdl"), format!("include \"{}-*.kdl\"\n", level + 1));
        }
    }
    let found = load(Path::new("flatout.kdl"), &sources).unwrap_err();
    assert!(found.list.iter().all(|diagnostic| diagnostic.code == Code::IncludeTooMany), "{found}");
}

/// A text that may need quotes: anything printable, and characters that need escapes.
fn texts() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop::sample::select(vec!["a", "Z", "9", "-", " ", "\"", "\\", "{", "ü", "…", "#", "/"]),
        1..12,
    )
    .prop_map(|pieces| pieces.concat().trim().to_owned())
    .prop_filter("not empty", |text| !text.is_empty())
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn steps() -> impl Strategy<Value = String> {
    let step = prop_oneof![
        texts().prop_map(|text| format!("header \"X-A\" {}", quoted(&text))),
        (texts(), 200..600_u16).prop_map(|(text, status)| format!(
            "route \"/r{status}\" {{ respond {} {}; }}",
            if matches!(status, 204 | 205 | 304) { 200 } else { status },
            quoted(&text)
        )),
        (1..1000_u32, 1..90_000_u64, 1..1000_u32).prop_map(|(requests, period, burst)| format!(
            "rate-limit requests={requests} period=\"{period}ms\" burst={burst}"
        )),
        (any::<u32>(), 0..=32_u32).prop_map(|(address, bits)| {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            format!("access {{ allow \"{}/{bits}\"; }}", std::net::Ipv4Addr::from(address & mask))
        }),
        texts().prop_map(|text| format!("error 404 file={}", quoted(&text))),
        texts().prop_map(|text| format!(
            "rewrite to={}",
            quoted(&format!("/{}", text.replace('{', "{{").trim_start_matches('/')))
        )),
        (0..100_000_u64).prop_map(|seconds| format!("files \"a\" {{ pass #true; expires \"*\" \"{seconds}s\" }}")),
        (1..=65_535_u16, 1..=1_000_u16, 0..=10_u8, 1..100_u32).prop_map(|(port, weight, retries, min)| format!(
            "route \"/p{port}\" {{ proxy \":{port}\" {{ origin \"https://[::1]\" weight={weight}; retries {retries}; \
             concurrency min={min}; slow-start \"{weight}ms\"; balance \"consistent-hash\" cookie=\"c{port}\" }}; }}"
        )),
        (0..1_000_000_u32, texts(), 1..1_000_000_u64).prop_map(|(ttl, text, size)| format!(
            "route \"/c{ttl}\" {{ cache ttl=\"{ttl}s\" {{ object-max \"{}KiB\"; stale-if-error \"{ttl}s\"; }}; \
             proxy 3000 {{ request-header \"X-A\" {}; }}; }}",
            size,
            quoted(&text)
        )),
        Just("cors \"*\" max-age=\"1h\"".to_owned()),
        Just("redirect \"/a/*\" to=\"https://{host}/{rest}\" 308".to_owned()),
    ];
    prop::collection::vec(step, 0..6).prop_map(|steps| steps.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_printed_configuration_reads_as_the_same(
        blocks in prop::collection::vec(steps(), 1..4),
        interval_ms in 0..100_000_u64,
        memory in 65_536..10_000_000_000_u64,
        idle in 1..86_400_000_u64,
    ) {
        let mut text = format!("cache memory=\"{memory}B\"\ntimeouts {{ idle \"{idle}ms\" }}\n");
        writeln!(text, "store memory=\"{}B\" {{ disk \"d\" \"{}MiB\" }}", memory + (1 << 20), interval_ms + 16).unwrap();
        for (index, block) in blocks.iter().enumerate() {
            writeln!(text, "site \"s{index}.example\" {{\nfile-check-interval \"{interval_ms}ms\"\n{block}\nfiles \"www\"\n}}").unwrap();
        }
        // Two routes may have the same conditions by chance, and then it is refused.
        if let Ok(config) = load_text(&text) {
            let printed = to_kdl(&config);
            let again = load_text(&printed);
            prop_assert!(again.is_ok(), "{}\n{}", printed, again.unwrap_err());
            prop_assert_eq!(without_places(&config), without_places(&again.unwrap()));
            let json = adapt::kdl_to_json("x", &text).unwrap();
            let kdl = adapt::json_to_kdl(&json.to_string()).unwrap();
            prop_assert_eq!(without_places(&config), without_places(&load_text(&kdl).unwrap()));
            let neat = format::format("x", &text).unwrap();
            prop_assert_eq!(without_places(&config), without_places(&load_text(&neat).unwrap()));
            prop_assert_eq!(format::format("x", &neat).unwrap(), neat);
        } else {
            prop_assert!(load_text(&text).unwrap_err().list.iter().all(|found| found.code == Code::Unreachable));
        }
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,80}|[a-z{}\"\\\\/\\-*#=;() \n\r\t0-9.]{0,120}") {
        if let Err(found) = load_text(&text) {
            prop_assert!(!found.list.is_empty());
            found.render(Style::Colour);
            found.to_json();
        }
        if let Ok(neat) = format::format("x", &text) {
            let twin = |text: &str| adapt::kdl_to_json("x", text).ok();
            prop_assert_eq!(twin(&neat), twin(&text));
            prop_assert_eq!(format::format("x", &neat).unwrap(), neat.clone());
        }
        let _ = adapt::json_to_kdl(&text);
    }
}
