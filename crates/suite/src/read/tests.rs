//! Valid files are read completely, and all mistakes in invalid files are reported.

use super::read;
use crate::Suite;
use crate::combine;
use crate::model::{Against, Bound};
use flatout_config::{Diagnostics, MemorySource};
use std::path::Path;

fn load(text: &str) -> Result<Suite, Diagnostics> {
    let path = Path::new("a.kdl");
    read(path, &MemorySource::new().file(path, text))
}

/// Returns the messages, with line and column.
fn mistakes(text: &str) -> Vec<String> {
    let found = load(text).unwrap_err();
    let shown =
        |found: &flatout_config::Diagnostic| format!("{}:{} {}", found.place.line, found.place.column, found.message);
    found.list.iter().map(shown).collect()
}

/// Returns the suites in the documentation.
fn documented() -> Vec<String> {
    let page = include_str!("../../../../docs/suites.md");
    page.split("```kdl\n").skip(1).filter_map(|rest| rest.split("```").next()).map(str::to_owned).collect()
}

#[test]
fn the_documented_suites_are_good() {
    let blocks = documented();
    let suite = load(&blocks[0]).unwrap();
    assert_eq!((suite.servers.len(), suite.steps.len(), suite.checks.len()), (2, 1, 1));
    let nginx = suite.server("nginx").unwrap();
    assert_eq!(nginx.program.version.as_ref().unwrap().at_least, [1, 18]);
    assert!(nginx.configs[0].content.text.contains("listen {address}:{port}"));
    let step = suite.step("hits").unwrap();
    assert_eq!(combine::combinations(&suite, step, false).len(), 3);
    assert_eq!(combine::combinations(&suite, step, true), [vec![("size".to_owned(), "317".to_owned())]]);
    assert_eq!(suite.checks[0].bound, Bound::AtMost(1.0));
    assert!(matches!(&suite.checks[0].against, Against::Server(server) if server.text == "nginx"));
    let servers = "server \"flatout\" { program \"flatout\" }; server \"nginx\" { program \"nginx\" }";
    let like = load(&format!("suite \"x\" {{ {}\nstep \"s\" {{ servers \"nginx-read\" }} }}", blocks[1])).unwrap();
    assert_eq!(like.server("nginx-read").unwrap().values[0].1.text, "off");
    let knee = load(&format!("suite \"x\" {{ {servers}\n{} }}", blocks[2])).unwrap();
    let beyond = knee.step("beyond").unwrap();
    assert_eq!((beyond.takes[0].measure.as_str(), beyond.failures_expected), ("knee-per-s", true));
    assert_eq!(combine::combinations(&knee, beyond, false).len(), 4);
    let clients = "server \"flatout-bench\" { program \"nginx\" }; server \"wrk\" like=\"flatout-bench\"";
    let clients = load(&format!("suite \"x\" {{ {clients}\n{} }}", blocks[3])).unwrap();
    assert!(clients.steps[0].client_for("wrk").is_some() && clients.steps[0].client_for("flatout-bench").is_none());
}

#[test]
fn the_documentation_has_every_measure() {
    let page = include_str!("../../../../docs/suites.md");
    for measure in crate::measure::Measure::ALL {
        let row = format!("| `{}` | {} | {} |", measure.name(), measure.unit(), measure.text());
        assert!(page.contains(&row), "{row}");
    }
}

#[test]
fn all_mistakes_are_told_at_once_with_their_places() {
    let text = r#"suite "x" {
    repetition 5
    seconds 0
    let "port" 1
    let "size" 1 2 2
    quick { keep "size" 3; keep "sise" 1 }
    server "a" { program "a"; start "{prot}" "{size}" "{port:b}"; after "c"; address "10.0.0.1" }
    server "a" { start "x" }
    step "s" { servers "a" "b"; bench "--json" "x" "{nope}"; path "x"; view "httpref"; testbed "wire" }
    check "c" { step "t"; measure "hits"; of "a"; at-most 1; at-least 2; times "z" }
}
"#;
    assert_eq!(
        mistakes(text),
        [
            "2:5 unknown setting `repetition`",
            "3:5 0 seconds are out of range",
            "4:5 `{port}` is a built-in name",
            "5:20 the value 2 is repeated",
            "6:25 `size` has no value 3",
            "6:33 there is no variable `sise`",
            "7:37 there is no `{prot}` here",
            "7:55 there is no server `b`",
            "7:73 there is no server `c`",
            "7:78 \"10.0.0.1\" is not an address in 127.0.0.0/8",
            "8:5 the server `a` has no `program`",
            "8:5 there is already a server `a`",
            "9:28 there is no server `b`",
            "9:39 --json is not allowed in a step of a suite",
            "9:52 there is no `{nope}` here",
            "9:67 a path must begin with `/`",
            "9:72 there is no view called \"httpref\"",
            "9:96 there is no testbed `wire`",
            "10:22 there is no step `t`",
            "10:35 there is no measure called \"hits\"",
            "10:62 a check may have only one bound, but this is a second one",
            "10:80 there is no server `z`",
        ]
    );
}

#[test]
fn a_check_names_what_its_step_has() {
    let text = r#"suite "x" {
    let "n" 1 2
    let "m" 1 2
    server "a" { program "a" }
    server "b" { program "b" }
    step "s" { servers "a"; path "/{n}"; take "port" { step "s"; measure "memory" } }
    check "c" { step "s"; measure "memory"; of "b"; at-most 1; times-peak "m" }
    check "d" { step "s"; measure "memory"; of "a"; where "m" 1; at-most 1; times "b"; times-peak "n" }
    check "e" { step "s"; measure "requests-per-s"; client-limit "bytes-per-s"; of "a"; at-least 1; times "a" }
    check "f" { step "s"; measure "requests-per-s"; client-limit "memory"; of "a"; at-least 1 }
    check "g" { step "s"; measure "requests-per-s"; client-limit "requests-per-cpu-s"; of "a"; at-least 1; times "a" }
    check "h" { step "s"; measure "requests-per-s"; client-limit "memory"; of "a"; at-least 1; times "best" }
}
"#;
    assert_eq!(
        mistakes(text),
        [
            "6:42 `{port}` already has a meaning",
            "6:61 no step `s` comes before this one",
            "7:48 the step `s` has no server `b`",
            "7:75 the step `s` has no variable `m`",
            "8:59 the step `s` has no variable `m`",
            "8:83 the step `s` has no server `b`",
            "8:88 a check may compare with only one figure, but this is a second one",
            "9:66 bytes-per-s is unknown if the client is saturated",
            "10:66 memory needs a multiple to invert, but this check has none: add `times`",
            "11:66 requests-per-cpu-s and requests-per-s improve in the same direction, so the bound cannot be inverted",
        ]
    );
}

#[test]
fn every_kind_of_block_says_what_it_lacks() {
    let mut different = Vec::new();
    for (text, message) in [
        ("", "the file has no `suite`"),
        ("sweet \"x\" {}", "unknown setting `sweet`"),
        ("suite \"x\"", "`suite` needs a block"),
        ("suite \"X\" { about \"x\" }", "\"X\" is not a valid name"),
        ("suite \"x\" { about \"x\" }", "the suite has no `step`, so there is nothing to measure"),
        ("suite \"x\" { about \"x\"; about \"y\" }", "`about` occurs twice"),
        ("suite \"x\" { about (env)\"HOME\" }", "a suite accepts only literal values, not `(env)`"),
        ("suite \"x\" { about #true }", "expected a string or a number, found a boolean"),
        ("suite \"x\" { repetitions 1.5 }", "`repetitions` takes a whole number, but this is a number with a fraction"),
        ("suite \"x\" { repetitions 0 }", "0 is out of range"),
        ("suite \"x\" { cores server=\"0-\" }", "\"0-\" is not a list of cores"),
        ("suite \"x\" { cores servers=0 }", "`cores` has no property `servers`"),
        ("suite \"x\" { let \"a\" }", "`let` needs one more value"),
        ("suite \"x\" { fixture \"f\" { bytes \"../x\" 1 } }", "\"../x\" is not a valid file name inside the folder"),
        ("suite \"x\" { fixture \"f\" { bytes \"x\" -1 } }", "\"-1\" is not a length in bytes"),
        (
            "suite \"x\" { fixture \"f\" { text \"x\" \"y\" bytes=9 } }",
            "a string with a fixed length needs `{fill}` for the filler text",
        ),
        ("suite \"x\" { testbed \"t\" { mtu 12 } }", "\"12\" is not an MTU: use 68 to 65535 bytes"),
        (
            "suite \"x\" { testbed \"t\" { rate \"fast\" } }",
            "\"fast\" is not a rate: write a whole number with kbit, mbit or gbit, such as 100mbit",
        ),
        ("suite \"x\" { testbed \"t\" { hosts 3 } }", "3 is out of range"),
        (
            "suite \"x\" { testbed \"t\" { hosts 1; delay \"1ms\" } }",
            "a link with a delay needs two hosts: remove `hosts 1` or `delay`",
        ),
        (
            "suite \"x\" { testbed \"t\" { sysctl \"vm.swappiness=0\" } }",
            "\"vm.swappiness=0\" is not a kernel setting of a network: write its name, which begins with net., an equals \
             sign and its value, such as net.ipv4.tcp_sack=0",
        ),
        ("suite \"x\" { server \"s\" { program \"s\"; at-least \"new\" } }", "\"new\" is not a version"),
        ("suite \"x\" { server \"s\" { program \"s\"; stop-signal \"BANG\" } }", "\"BANG\" is not a supported signal"),
        (
            "suite \"x\" { server \"s\" { program \"s\"; config \"/etc/passwd\" \"\" } }",
            "\"/etc/passwd\" is not a valid file name inside the folder",
        ),
        ("suite \"x\" { server \"s\" { program \"s\"; ready \"/\" timeout=0 } }", "`timeout` takes seconds"),
        ("suite \"x\" { step \"s\" { path \"/\" } }", "the step `s` has no `servers`"),
        ("suite \"x\" { check \"c\" { of \"s\" } }", "the check needs a `step`"),
        ("suite \"x\" {", "this block is never closed"),
    ] {
        let found = mistakes(text);
        if !found.iter().any(|found| found.ends_with(message)) {
            different.push(format!("{text}: expected {message:?}, found {found:?}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn a_suite_that_would_never_end_is_refused() {
    let values: String = (0..400).map(|value| format!(" {value}")).collect();
    let text = format!(
        "suite \"x\" {{ repetitions 10; let \"a\"{values}; let \"b\"{values}; server \"s\" {{ program \"s\" }}
        step \"t\" {{ servers \"s\"; path \"/\"; bench \"{{a}}\" \"{{b}}\" }} }}"
    );
    assert!(mistakes(&text)[0].contains("the suite has 1600000 measurements, more than the limit of 100000"));
}

#[test]
fn servers_that_name_one_another_are_all_needed_once() {
    let text = "suite \"x\" { let \"n\" 1 2
        server \"php\" { program \"php\"; start \"{n}\" }
        server \"origin\" { program \"o\"; after \"php\" }
        server \"front\" { program \"f\"; start \"{url:origin}\" \"{dir:front}\"; after \"php\" }
        step \"s\" { servers \"front\"; path \"/\" } }";
    let suite = load(text).unwrap();
    let names: Vec<&str> = combine::needed(&suite, "front").iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["php", "origin", "front"]);
    assert_eq!(combine::combinations(&suite, suite.step("s").unwrap(), false).len(), 2, "by php's variable");
}

#[test]
fn a_server_like_another_has_its_settings_and_its_own() {
    let suite = load(
        r#"suite "x" {
            server "a" { about "first"; program "nginx"; set "sendfile" "on"; set "log" "off"; config "a.conf" "sendfile {sendfile};"; start "-c" "{dir}/a.conf"; cores "0,2"; tls; counts "/status"; }
            server "b" like="a" { set "sendfile" "off"; config "b.conf" ""; }
            server "c" like="b"
            step "s" { servers "a" "b" "c"; client "wrk" "-t1"; client "h2load" "-m10" for="c"; compare "b"; reaches "a" "none"; }
        }"#,
    )
    .unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| suite.server(name).unwrap());
    let set = |server: &crate::model::Server| {
        server.values.iter().map(|(name, value)| format!("{name}={}", value.text)).collect::<Vec<_>>()
    };
    assert_eq!(set(a), ["sendfile=on", "log=off"]);
    assert_eq!((set(b), set(c)), (vec!["log=off".to_owned(), "sendfile=off".to_owned()], set(b)));
    assert_eq!((b.configs.len(), c.configs.len(), b.about.as_str()), (2, 2, ""));
    assert_eq!((c.program.name.text.as_str(), c.tls, c.cores.as_deref()), ("nginx", true, Some(&[0, 2][..])));
    let step = suite.step("s").unwrap();
    assert_eq!(step.client_for("a").unwrap().program.name(), "wrk");
    assert_eq!(step.client_for("c").unwrap().program.name(), "h2load");
    assert_eq!(step.compare[0].text, "b");
}

#[test]
fn mistakes_about_clients_and_expectations() {
    let of = |parts: &str| mistakes(&format!("suite \"x\" {{ server \"a\" {{ program \"nginx\" }}\n{parts}\n}}"));
    let step = |setting: &str| of(&format!("step \"s\" {{ servers \"a\"; {setting} }}"));
    assert_eq!(step("client \"httperf\""), ["2:32 \"httperf\" is not a supported client"]);
    assert_eq!(step("client"), ["2:25 `client` needs a value"]);
    assert_eq!(step("client \"wrk\" \"{size}\""), ["2:38 there is no `{size}` here"]);
    assert_eq!(step("reaches \"a\" \"some\""), ["2:25 `reaches` takes a server, and `none` or `all`"]);
    assert_eq!(step("compare \"b\""), ["2:33 there is no server `b`"]);
    assert_eq!(step("expect { fild \"x\" }"), ["2:34 unknown setting `fild`"]);
    assert_eq!(step("expect { field }"), ["2:34 `field` needs a value"]);
    assert_eq!(of("server \"b\" like=\"c\" { program \"x\" }")[0], "2:17 no server `c` comes before this one");
    assert_eq!(of("server \"b\" like=\"a\" { set \"x\" }")[0], "2:23 `set` needs one more value");
    assert_eq!(of("server \"b\" like=\"a\" { counts \"x\" }")[0], "2:23 \"x\" is not a path");
    assert_eq!(of("fixture \"f\" { certificate \"c.pem\" }")[0], "2:15 `certificate` needs a `key`");
}
