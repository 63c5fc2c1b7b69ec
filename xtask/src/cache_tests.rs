//! The npm package http-cache-tests against us and our peers, into docs/conformance.md.
//!
//! The end-to-end tests run the same package against us alone and fail when the document says something else.

use crate::failure::{Context, Failure, Outcome};
use crate::shell;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const DOC: &str = "docs/conformance.md";
const BEGIN: &str = "<!-- cache-tests:begin -->";
const END: &str = "<!-- cache-tests:end -->";
const PACKAGE: &str = "target/tools/cache-tests/node_modules/http-cache-tests";
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// A cache in front of the package's origin.
struct Subject {
    /// As the tests call it as well.
    name: &'static str,
    program: &'static str,
    /// What prints its version.
    version: &'static [&'static str],
    /// Its configuration; `{origin}`, `{port}` and `{folder}` are filled in.
    config: &'static str,
    file: &'static str,
    /// Its arguments, filled in likewise.
    arguments: &'static [&'static str],
}

const SUBJECTS: &[Subject] = &[
    Subject {
        name: "flatout accelerate",
        program: "flatout",
        version: &["--version"],
        config: "",
        file: "",
        arguments: &["accelerate", "http://127.0.0.1:{origin}", "--listen", "127.0.0.1:{port}", "--workers", "1"],
    },
    Subject {
        name: "flatout with additional settings",
        program: "flatout",
        version: &["--version"],
        config: "workers 1
admin off=#true
site \"*\" {
    listen \"127.0.0.1:{port}\"
    cache {
        set-cookie \"store\"; language-select #true; mismatched-ranges #true
    }
    proxy \"http://127.0.0.1:{origin}\" { unknown-codings #true; }
}
",
        file: "flatout.kdl",
        arguments: &["run", "-c", "{folder}/flatout.kdl"],
    },
    Subject {
        name: "nginx, `proxy_cache`",
        program: "nginx",
        version: &["-v"],
        config: "daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1;
events {}
http {
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    proxy_cache_path {folder}/cache levels=1:2 keys_zone=cache:8m max_size=1000m inactive=600m;
    server {
        listen 127.0.0.1:{port};
        location / {
            proxy_pass http://127.0.0.1:{origin};
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_cache cache;
            proxy_cache_revalidate on;
        }
    }
}
",
        file: "nginx.conf",
        arguments: &["-p", "{folder}", "-c", "{folder}/nginx.conf"],
    },
    Subject {
        name: "Varnish",
        program: "varnishd",
        version: &["-V"],
        config: "vcl 4.1;
backend default { .host = \"127.0.0.1\"; .port = \"{origin}\"; }
",
        file: "default.vcl",
        arguments: &[
            "-F",
            "-j",
            "none",
            "-n",
            "{folder}/work",
            "-f",
            "{folder}/default.vcl",
            "-a",
            "127.0.0.1:{port}",
            "-s",
            "malloc,64m",
        ],
    },
    Subject {
        name: "HAProxy, `http-request cache-use`",
        program: "haproxy",
        version: &["-v"],
        config: "defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
cache store
    total-max-size 64
    max-object-size 1000000
    process-vary on
frontend front
    bind 127.0.0.1:{port}
    default_backend back
backend back
    http-request cache-use store
    http-response cache-store store
    server origin 127.0.0.1:{origin}
",
        file: "haproxy.cfg",
        arguments: &["-db", "-f", "{folder}/haproxy.cfg"],
    },
];

/// Stops when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // SIGTERM, so that one with children of its own takes them along.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// One subject's verdicts.
struct Verdicts {
    name: &'static str,
    version: String,
    /// Held and all, by kind.
    counts: BTreeMap<String, (usize, usize)>,
    /// Names of those that did not hold, by kind.
    failures: BTreeMap<String, Vec<String>>,
}

/// `cargo xtask cache-tests`.
pub(crate) fn run(args: &[String]) -> Outcome<()> {
    if !args.is_empty() {
        return Err("cache-tests takes no options".into());
    }
    let package = shell::root().join(PACKAGE);
    if !package.join("cli.mjs").is_file() {
        return Err("http-cache-tests is not installed; please run: tools/setup.sh test".into());
    }
    let folder = std::env::temp_dir().join(format!("flatout-cache-tests-{}", std::process::id()));
    fs::create_dir_all(&folder).cannot("make a folder")?;
    let outcome = SUBJECTS.iter().map(|subject| verdicts(subject, &package, &folder)).collect::<Outcome<Vec<_>>>();
    let _ = fs::remove_dir_all(&folder);
    let (package_version, verdicts) = {
        let mut all = outcome?;
        let version = all.first().map(|(version, _)| version.clone()).cannot("find a subject")?;
        (version, all.drain(..).map(|(_, verdicts)| verdicts).collect::<Vec<_>>())
    };
    let report = report(&package_version, &verdicts);
    println!("{report}");
    let file = shell::root().join(DOC);
    let text = fs::read_to_string(&file).cannot(&format!("read {DOC}"))?;
    let missing = format!("find `{BEGIN}` and `{END}` in {DOC}");
    let (before, rest) = text.split_once(BEGIN).cannot(&missing)?;
    let (_, after) = rest.split_once(END).cannot(&missing)?;
    fs::write(&file, format!("{before}{BEGIN}\n{}\n{END}{after}", report.trim_end())).cannot(&format!("write {DOC}"))
}

fn script(package: &Path, role: &str) -> Command {
    let mut command = Command::new("node");
    command.arg(shell::root().join("tests/clients/cache_tests.mjs")).arg(package).arg(role);
    command
}

/// Starts the package's origin, which says where it listens.
fn start_origin(package: &Path) -> Outcome<(Running, String)> {
    let mut child = script(package, "origin").stdout(Stdio::piped()).spawn().cannot("start node")?;
    let stdout = child.stdout.take().cannot("read what node says")?;
    let running = Running(child);
    let mut stdout = BufReader::new(stdout);
    let mut line = String::new();
    stdout.read_line(&mut line).cannot("read what node says")?;
    let port = line.trim().trim_end_matches('/').rsplit(':').next().cannot("find the origin's port")?.to_owned();
    std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
    Ok((running, port))
}

fn program(name: &str) -> Outcome<PathBuf> {
    if name == "flatout" {
        return shell::release_binary();
    }
    shell::locate(name).cannot(&format!("find {name} (tools/setup.sh bench)"))
}

fn verdicts(subject: &Subject, package: &Path, folder: &Path) -> Outcome<(String, Verdicts)> {
    let (_origin, origin) = start_origin(package)?;
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).cannot("find a port")?;
    let port = free.port().to_string();
    let own = folder.join(&port);
    fs::create_dir_all(&own).cannot("make a folder")?;
    let fill = |text: &str| {
        let own = own.to_string_lossy();
        text.replace("{origin}", &origin).replace("{port}", &port).replace("{folder}", &own)
    };
    if !subject.file.is_empty() {
        fs::write(own.join(subject.file), fill(subject.config)).cannot("write a configuration")?;
    }
    let program = program(subject.program)?;
    let version = Command::new(&program).args(subject.version).output().cannot("ask for a version")?;
    let said = [version.stdout, version.stderr].concat();
    let version = String::from_utf8_lossy(&said).lines().next().unwrap_or("").trim().to_owned();
    let mut command = Command::new(program);
    command.args(subject.arguments.iter().map(|argument| fill(argument)));
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().cannot("start a cache")?;
    let mut running = Running(child);
    let start = Instant::now();
    while TcpStream::connect(free).is_err() {
        if start.elapsed() > START_TIMEOUT || running.0.try_wait().cannot("look after a cache")?.is_some() {
            return Err(Failure::from(format!("{} does not listen", subject.name)));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    eprintln!("{}: {version}", subject.name);
    let text = shell::output_of(script(package, "client").arg(format!("http://{free}")))?;
    let result: Value = serde_json::from_str(&text).cannot("read the verdicts")?;
    let package_version = result["version"].as_str().unwrap_or("").to_owned();
    Ok((package_version, Verdicts::of(subject.name, version, &result)))
}

impl Verdicts {
    fn of(name: &'static str, version: String, result: &Value) -> Self {
        let mut verdicts = Self { name, version, counts: BTreeMap::new(), failures: BTreeMap::new() };
        // The whole suite counts: a case that depends on one that did not hold does not hold either.
        for case in result["cases"].as_array().into_iter().flatten() {
            let word = |key: &str| case[key].as_str().unwrap_or("").to_owned();
            let (held, all) = verdicts.counts.entry(word("kind")).or_default();
            *all += 1;
            if case["held"] == Value::Bool(true) {
                *held += 1;
            } else {
                verdicts.failures.entry(word("kind")).or_default().push(word("id"));
            }
        }
        verdicts
    }

    /// The row of the table, which the end-to-end tests look for.
    fn row(&self) -> String {
        let cell =
            |kind: &str| self.counts.get(kind).map_or_else(String::new, |(held, all)| format!("{held} of {all}"));
        format!("| {} | {} | {} |", self.name, cell("required"), cell("optimal"))
    }
}

fn report(package_version: &str, all: &[Verdicts]) -> String {
    let mut text = format!("http-cache-tests {package_version}\n\n| cache | required | optimal |\n|---|---|---|\n");
    for verdicts in all {
        let _ = writeln!(text, "{}", verdicts.row());
    }
    text.push_str("\nVersions:\n\n");
    for verdicts in all {
        let _ = writeln!(text, "- {}: `{}`", verdicts.name, verdicts.version);
    }
    text.push_str("\nTests that flatout fails:\n\n");
    for verdicts in all.iter().filter(|verdicts| verdicts.name.starts_with("flatout")) {
        for kind in ["required", "optimal"] {
            let failures = verdicts.failures.get(kind).map(Vec::as_slice).unwrap_or_default();
            let named = failures.iter().map(|id| format!("`{id}`")).collect::<Vec<_>>().join(", ");
            let named = if named.is_empty() { "none".to_owned() } else { named };
            let _ = writeln!(text, "- {}, {kind}: {named}", verdicts.name);
        }
    }
    text.push_str("\nConfigurations (the ports are those of one run):\n");
    for subject in SUBJECTS {
        let arguments = subject.arguments.join(" ");
        let shown = format!("{} {arguments}", subject.program);
        let fill = |text: &str| text.replace("{origin}", "8000").replace("{port}", "8080").replace("{folder}", ".");
        let _ = write!(text, "\n{}: `{}`\n", subject.name, fill(&shown));
        if !subject.config.is_empty() {
            let _ = write!(text, "\n```text\n{}```\n", fill(subject.config));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_case_that_did_not_hold_is_counted_and_named() {
        let case = |id: &str, kind: &str, held: bool| json!({ "id": id, "kind": kind, "held": held });
        let cases = [case("a", "required", true), case("b", "required", false), case("c", "optimal", true)];
        let verdicts = Verdicts::of("flatout", "1".to_owned(), &json!({ "version": "0", "cases": cases }));
        assert_eq!(verdicts.row(), "| flatout | 1 of 2 | 1 of 1 |");
        assert!(report("0", &[verdicts]).contains("- flatout, required: `b`\n"));
    }
}
