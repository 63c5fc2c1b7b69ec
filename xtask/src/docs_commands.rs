//! The documents' commands, run for real: a manual that lies is a defect like any other.
//!
//! In README.md and docs/*.md, the lines of a ```` ```console ```` block that begin with `$ ` are commands. Each
//! block runs in a folder of its own that holds a link to demo/; each command must exit 0, or with the code given
//! at its end as `# exit 5` (or `# exit 0 or 5`). A server started with `&` is waited for before the next command
//! and must stop cleanly at the end of the block. Ports are mapped to free ones, so a busy port fails nothing.
//! What the commands print is for people and is not compared.

use crate::failure::{Context, Outcome};
use crate::{markdown, shell};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A block that takes longer hangs.
const BLOCK_TIMEOUT: Duration = Duration::from_mins(1);

/// The port of `flatout serve` and `flatout accelerate` when no `--listen` is given.
const DEFAULT_PORT: u16 = 8080;

/// One command of a block.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    /// Its line in the document.
    line: usize,
    /// As written, without the prompt and the expected code.
    command: String,
    /// The exit codes that are right.
    codes: Vec<u8>,
}

/// `cargo xtask docs-commands [FILE...]`.
pub(crate) fn run(args: &[String]) -> Outcome<()> {
    let binary = std::env::var_os("FLATOUT_BIN").map_or_else(newest_binary, PathBuf::from);
    if args.is_empty() {
        return check(&binary);
    }
    let files: Vec<PathBuf> = args.iter().map(PathBuf::from).collect();
    check_files(&binary, &files)
}

/// Runs every block of README.md and docs/.
pub(crate) fn check(binary: &Path) -> Outcome<()> {
    let root = shell::root();
    let mut files = vec![root.join("README.md")];
    for entry in std::fs::read_dir(root.join("docs")).into_iter().flatten().flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "md") {
            files.push(entry.path());
        }
    }
    files.sort();
    check_files(binary, &files)
}

/// The binary built last, so that anyone who has just built one tests that one.
fn newest_binary() -> PathBuf {
    let built = |profile| shell::target_dir().join(profile).join("flatout");
    let age = |path: &PathBuf| path.metadata().and_then(|m| m.modified()).ok();
    let candidates = [built("debug"), built("release")];
    let newest = candidates.into_iter().max_by_key(age);
    newest.unwrap_or_default()
}

fn check_files(binary: &Path, files: &[PathBuf]) -> Outcome<()> {
    if !binary.is_file() {
        return Err(format!("there is no {} to run: cargo build --package flatout", binary.display()).into());
    }
    let (mut blocks, mut broken) = (0, 0);
    for file in files {
        let name = file.strip_prefix(shell::root()).unwrap_or(file).display().to_string();
        let text = std::fs::read_to_string(file).cannot(&format!("read {name}"))?;
        for block in markdown::blocks(&text) {
            let steps = steps(&block)?;
            if block.language != "console" || steps.is_empty() {
                continue;
            }
            blocks += 1;
            match run_block(binary, &steps)? {
                None => println!("    ok  {name}:{}, {} commands", block.line, steps.len()),
                Some(said) => {
                    broken += 1;
                    println!("BROKEN  {name}:{}\n{said}", block.line);
                }
            }
        }
    }
    match (blocks, broken) {
        (0, _) => Err("docs-commands: not one ```console block to run".into()),
        (_, 0) => Ok(()),
        _ => Err(format!("docs-commands: {broken} of {blocks} blocks do not do what they say").into()),
    }
}

/// The commands of a block, continued lines joined.
fn steps(block: &markdown::Block) -> Outcome<Vec<Step>> {
    let mut found = Vec::new();
    let mut lines = block.lines.iter().enumerate();
    while let Some((index, line)) = lines.next() {
        let Some(command) = line.strip_prefix("$ ") else { continue };
        let mut command = command.to_owned();
        while command.ends_with('\\') {
            let Some((_, more)) = lines.next() else { break };
            command.push('\n');
            command.push_str(more.strip_prefix("> ").unwrap_or(more));
        }
        let line = block.line + 1 + index;
        let (command, codes) = match command.rsplit_once("# exit ") {
            None => (command.as_str(), vec![0]),
            Some((command, list)) => {
                let codes: Result<Vec<u8>, _> = list.split(" or ").map(|code| code.trim().parse()).collect();
                (command, codes.cannot(&format!("read the exit code on line {line}"))?)
            }
        };
        let command = command.trim().to_owned();
        found.push(Step { line, command, codes });
    }
    Ok(found)
}

/// Runs a block; what it said if it broke.
fn run_block(binary: &Path, steps: &[Step]) -> Outcome<Option<String>> {
    let folder = Folder::create()?;
    let ports = Ports::map(steps)?;
    let commands = folder.path.join("bin");
    let here = folder.path.join("here");
    for new in [&commands, &here] {
        std::fs::create_dir(new).cannot("create a folder")?;
    }
    symlink(shell::root().join("demo"), here.join("demo")).cannot("link demo/")?;
    let shim = commands.join("flatout");
    std::fs::write(&shim, shim_script(binary, ports.of(DEFAULT_PORT))).cannot("write the shim")?;
    std::fs::set_permissions(&shim, PermissionsExt::from_mode(0o755)).cannot("mark the shim executable")?;
    let script = folder.path.join("block.sh");
    std::fs::write(&script, block_script(steps, &ports)).cannot("write the block's script")?;
    // A file, not a pipe: a server left behind would hold a pipe open.
    let log = folder.path.join("log");
    let out = File::create(&log).cannot("create the log")?;
    let err = out.try_clone().cannot("create the log")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let child = Command::new("bash")
        .arg(&script)
        .current_dir(&here)
        .env("PATH", format!("{}:{path}", commands.display()))
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .process_group(0)
        .spawn()
        .cannot("start bash")?;
    let status = wait(child)?;
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    Ok(match status {
        Some(status) if status.success() => None,
        Some(_) => Some(indented(&said)),
        None => Some(format!("{}        still running after {BLOCK_TIMEOUT:?}", indented(&said))),
    })
}

/// Waits for the block's end, then makes sure that nothing of its process group is left.
fn wait(mut child: Child) -> Outcome<Option<ExitStatus>> {
    let start = Instant::now();
    let status = loop {
        match child.try_wait().cannot("wait for a block")? {
            Some(status) => break Some(status),
            None if start.elapsed() > BLOCK_TIMEOUT => break None,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let group = child.id();
    Command::new("sh")
        .args(["-c", &format!("kill -KILL -- -{group} 2>/dev/null")])
        .status()
        .cannot("stop a block's servers")?;
    if status.is_none() {
        child.wait().cannot("wait for a block")?;
    }
    Ok(status)
}

fn indented(text: &str) -> String {
    text.lines().fold(String::new(), |mut all, line| {
        let _ = writeln!(all, "        {line}");
        all
    })
}

/// Stands before the real binary and gives a server without `--listen` the block's free port.
fn shim_script(binary: &Path, port: u16) -> String {
    format!(
        "#!/bin/sh\n\
         if [ \"$1\" = serve ] || [ \"$1\" = accelerate ]; then\n\
           for word in \"$@\"; do\n\
             case \"$word\" in --listen|--listen=*) exec '{0}' \"$@\" ;; esac\n\
           done\n\
           exec '{0}' \"$@\" --listen 127.0.0.1:{port}\n\
         fi\n\
         exec '{0}' \"$@\"\n",
        binary.display()
    )
}

const PRELUDE: &str = r#"
# Servers must stop cleanly when asked, and a block is only right if they do.
stop() {
  local code=$? pid
  for pid in $(jobs -p); do
    kill -TERM "$pid" 2>/dev/null
    wait "$pid" || { echo "a server ended with $? when asked to stop"; [ "$code" -ne 0 ] || code=98; }
  done
  exit "$code"
}
trap stop EXIT
ready() { # PORT PID
  local tries
  for tries in $(seq 100); do
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return 0
    kill -0 "$2" 2>/dev/null || { echo "the server did not stay up"; exit 97; }
    sleep 0.1
  done
  echo "nothing listens on port $1"
  exit 97
}
"#;

/// The block as one script: each command shown, run and judged.
fn block_script(steps: &[Step], ports: &Ports) -> String {
    let mut script = PRELUDE.to_owned();
    for Step { line, command, codes } in steps {
        let command = ports.replaced_in(command);
        let shown = command.replace('\'', r"'\''");
        let _ = writeln!(script, "printf '%s\\n' 'line {line}: $ {shown}'");
        if let Some(server) = command.strip_suffix('&') {
            let _ = writeln!(script, "{server} &");
            if server.contains("flatout serve") || server.contains("flatout accelerate") {
                let port = ports.listened_by(server);
                let _ = writeln!(script, "ready {port} $!");
            }
            continue;
        }
        let right = codes.iter().map(|code| format!("[ $code -eq {code} ]")).collect::<Vec<_>>().join(" || ");
        let wanted = codes.iter().map(u8::to_string).collect::<Vec<_>>().join(" or ");
        let _ = writeln!(script, "{command}\ncode=$?");
        let _ = writeln!(script, "{right} || {{ echo \"exit $code, not {wanted}\"; exit 99; }}");
    }
    script
}

/// Which free port stands for each port of the document.
struct Ports(BTreeMap<u16, u16>);

impl Ports {
    const HOSTS: [&'static str; 3] = ["127.0.0.1:", "localhost:", "[::1]:"];

    fn map(steps: &[Step]) -> Outcome<Self> {
        let mut wanted = vec![DEFAULT_PORT];
        for step in steps {
            for host in Self::HOSTS {
                wanted.extend(step.command.split(host).skip(1).filter_map(leading_number));
            }
        }
        // All are held until all are found, so that no two are the same.
        let mut held = Vec::new();
        let mut ports = BTreeMap::new();
        for port in wanted {
            let listener = TcpListener::bind("127.0.0.1:0").cannot("find a free port")?;
            let free = listener.local_addr().cannot("find a free port")?.port();
            ports.entry(port).or_insert(free);
            held.push(listener);
        }
        Ok(Self(ports))
    }

    fn of(&self, port: u16) -> u16 {
        self.0.get(&port).copied().unwrap_or(port)
    }

    fn replaced_in(&self, command: &str) -> String {
        let mut text = command.to_owned();
        for host in Self::HOSTS {
            let mut parts = text.split(host);
            let mut replaced = parts.next().unwrap_or("").to_owned();
            for part in parts {
                replaced.push_str(host);
                match leading_number(part) {
                    Some(port) => {
                        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
                        let _ = write!(replaced, "{}{rest}", self.of(port));
                    }
                    None => replaced.push_str(part),
                }
            }
            text = replaced;
        }
        text
    }

    /// The port of the first `--listen`, already replaced, or the default's.
    fn listened_by(&self, command: &str) -> u16 {
        let address = command.split("--listen").nth(1).and_then(|rest| {
            let word = rest.trim_start_matches(['=', ' ']).split_whitespace().next()?;
            word.rsplit(':').next()?.parse().ok()
        });
        address.unwrap_or_else(|| self.of(DEFAULT_PORT))
    }
}

fn leading_number(text: &str) -> Option<u16> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// A temporary folder that goes when dropped.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn create() -> Outcome<Self> {
        let made = shell::output_of(Command::new("mktemp").args(["-d", "-t", "flatout-docs.XXXXXX"]))?;
        Ok(Self { path: PathBuf::from(made.trim()) })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Left behind at worst; the system clears its temporary folder.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(lines: &[&str]) -> Option<String> {
        let block = markdown::Block {
            language: "console".to_owned(),
            line: 1,
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
        };
        let run = steps(&block).and_then(|steps| run_block(Path::new("/bin/echo"), &steps));
        run.unwrap_or_else(|failure| Some(failure.to_string()))
    }

    #[test]
    fn a_block_that_does_what_it_says_passes() {
        assert_eq!(outcome(&["$ true", "what it prints", "$ test 1 = \\", "> 1"]), None);
        assert_eq!(outcome(&["$ (exit 5)   # exit 5", "$ false # exit 0 or 1"]), None);
        assert_eq!(outcome(&["$ mkdir a && cd a", "$ touch b", "$ ls b ../demo"]), None);
        assert_eq!(outcome(&["$ flatout bench | grep -q bench"]), None);
    }

    #[test]
    fn a_wrong_exit_code_is_found() {
        for lines in [&["$ false"][..], &["$ true # exit 5"], &["$ (exit 4) # exit 5"], &["$ no-such-command"]] {
            assert!(outcome(lines).is_some(), "{lines:?}");
        }
    }

    #[test]
    fn a_server_that_stops_badly_or_does_not_start_is_found() {
        let bad = outcome(&["$ (trap 'exit 3' TERM; while :; do sleep 0.05; done) &", "$ sleep 0.3"]);
        assert!(bad.is_some_and(|said| said.contains("ended with 3")));
        let bad = outcome(&["$ flatout serve x &"]);
        assert!(bad.is_some_and(|said| said.contains("did not stay up")));
    }

    #[test]
    fn ports_are_mapped_everywhere_alike() {
        let ports = Ports(BTreeMap::from([(8080, 1), (9000, 2)]));
        let command = "flatout serve . --listen 127.0.0.1:9000 --x http://localhost:8080/ 127.0.0.1:x";
        let replaced = ports.replaced_in(command);
        assert_eq!(replaced, "flatout serve . --listen 127.0.0.1:2 --x http://localhost:1/ 127.0.0.1:x");
        assert_eq!(ports.listened_by(&replaced), 2);
        assert_eq!(ports.listened_by("flatout serve ."), 1);
    }
}
