//! `flatout agent`: runs a share of a bench on another machine. Also contains the controller's part of such a bench.
//!
//! An agent runs `flatout bench` with the controller's arguments, a share of the plan and a start time. Its result has
//! the same format as any bench result.

use crate::bench::parse_duration;
use clap::{Args, Subcommand};
use flatout_client::watch_interrupts;
use flatout_lab::agent::controller::Controller;
use flatout_lab::agent::member::{AgentWork, Brought, serve};
use flatout_lab::agent::{merge, trust};
use flatout_lab::cores::cores_allowed;
use flatout_load::judge::Threshold;
use flatout_load::report::RunReport;
use flatout_report::command::{self, InputFile};
use flatout_report::output;
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use serde_json::{Value, json};
use std::fs::{self, DirBuilder, File};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Exit code if the agent failed.
const FAILED: u8 = 1;

/// Exit code for invalid usage.
const USAGE: u8 = 2;

/// Exit code of a bench for invalid usage, in which case it wrote no result.
const BENCH_USAGE: i32 = 2;

/// Maximum number of files in a task.
const FILES_MAX: usize = 16;
/// Maximum total size of the files in a task, in bytes.
const FILES_BYTES_MAX: usize = 4 << 20;

/// Maximum length of the output of a failed bench that is reported to the controller, in characters.
const WORDS_CHARS_MAX: usize = 2_000;

/// Generate part of the load for a `flatout bench` that runs on another machine
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  flatout agent init lab/                       create the certificates; copy lab/ to all machines
  flatout bench URL --rate 9000 --agents 3 --listen 0.0.0.0:7000 --certs lab/    on the controller
  flatout agent --join controller:7000 --certs lab/                              on each agent

An agent exits after one run. The controller and its agents must run the same version of flatout.

Exit codes:
  0  the agent delivered its result
  1  the agent failed
  2  the command line is invalid"
)]
pub(crate) struct AgentArgs {
    #[command(subcommand)]
    command: Option<AgentCommand>,
    /// Host name or address of the controller, and the port from its `flatout bench --listen`
    #[arg(long, value_name = "HOST:PORT", required = true)]
    join: Option<String>,
    /// Folder with the certificates from `flatout agent init`
    #[arg(long, value_name = "DIR", required = true)]
    certs: Option<PathBuf>,
    /// Name of this agent in the report [default: the hostname]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Maximum time to keep trying to connect to the controller
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = parse_duration)]
    wait: Duration,
}

#[derive(Subcommand, Debug)]
enum AgentCommand {
    /// Create the certificates for a controller and its agents
    Init {
        /// Folder for the certificates; must be new or empty
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

/// Runs the command.
pub(crate) fn run(args: &AgentArgs) -> ExitCode {
    let ended = match (&args.command, &args.join, &args.certs) {
        (Some(AgentCommand::Init { folder }), ..) => init(folder),
        (None, Some(controller), Some(trust)) => join(args, controller, trust),
        _ => return complain("specify --join HOST:PORT and --certs DIR", USAGE),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => complain(&text, FAILED),
    }
}

fn init(folder: &Path) -> Result<(), String> {
    let unix_s = flatout_os::clock::unix_s().unsigned_abs();
    trust::init(folder, unix_s).map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
    let told = format!(
        "The certificates in {} are valid for a year. Copy the folder to every machine that takes part. Keep it \
         private: anyone who has it can take part.\n",
        folder.display()
    );
    output::show(&told).map_err(|error| format!("cannot write the output: {error}"))
}

fn join(args: &AgentArgs, controller: &str, trust: &Path) -> Result<(), String> {
    let host = || flatout_os::procfs::sysctl("kernel.hostname").unwrap_or_default();
    let name = args.name.clone().unwrap_or_else(host);
    let mut share = BenchShare::new()?;
    serve(controller, args.wait, trust, &name, cores_allowed().len() as u32, &mut share)
}

/// A share of a bench, run as a child process of this program.
#[derive(Debug)]
struct BenchShare {
    /// Folder for the files of the task and for the result. It is private to this agent, and removed with it.
    folder: PathBuf,
    words: Vec<String>,
    child: Option<Child>,
    begun_ns: u64,
}

impl BenchShare {
    fn new() -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("flatout-agent-{}", std::process::id()));
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
        Ok(Self { folder, words: Vec::new(), child: None, begun_ns: 0 })
    }

    fn result(&self) -> PathBuf {
        self.folder.join("result.json")
    }
}

impl Drop for BenchShare {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // The bench may already have exited.
            let _killed = child.kill();
            let _waited = child.wait();
        }
        let _removed = fs::remove_dir_all(&self.folder);
    }
}

impl AgentWork for BenchShare {
    fn prepare(&mut self, index: u32, agents: u32, task: &Value) -> Result<(), String> {
        let no_task = || "this version of flatout does not understand the task".to_owned();
        let words: Option<Vec<String>> = task["arguments"]
            .as_array()
            .ok_or_else(no_task)?
            .iter()
            .map(|word| word.as_str().map(str::to_owned))
            .collect();
        let files = task["files"].as_array().ok_or_else(no_task)?;
        if files.len() > FILES_MAX {
            return Err(format!("the task has {} files, more than the limit of {FILES_MAX}", files.len()));
        }
        for (number, content) in files.iter().enumerate() {
            let content = content.as_str().and_then(to_bytes).ok_or_else(no_task)?;
            let path = self.folder.join(number.to_string());
            fs::write(&path, content).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        }
        // Whatever a controller says, the bench must not write to, or read from, any other place on this machine.
        let place = |number: usize, _: &str| self.folder.join(number.to_string()).display().to_string();
        self.words = command::for_agent(&words.ok_or_else(no_task)?, place);
        self.words.push(format!("--share={index}/{agents}"));
        Ok(())
    }

    fn begin(&mut self, at_ns: u64) -> Result<(), String> {
        self.begun_ns = at_ns;
        let failed = |error: std::io::Error| format!("the bench could not be started: {error}");
        let words = File::create(self.folder.join("stderr")).map_err(failed)?;
        let child = Command::new(std::env::current_exe().map_err(failed)?)
            .arg("bench")
            .args(&self.words)
            .arg(format!("--begin-at={at_ns}"))
            .arg("--json")
            .arg(self.result())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(words)
            .spawn();
        self.child = Some(child.map_err(failed)?);
        Ok(())
    }

    fn stop(&mut self) {
        let pid = self.child.as_ref().and_then(|child| Pid::from_raw(child.id().cast_signed()));
        if let Some(pid) = pid {
            // If the bench has exited, there is nothing to stop.
            let _signalled = kill_process(pid, Signal::INT);
        }
    }

    fn poll(&mut self) -> Option<Result<Brought, String>> {
        let status = match self.child.as_mut()?.try_wait() {
            Ok(None) => return None,
            Ok(Some(status)) => status,
            Err(error) => return Some(Err(format!("could not wait for the bench process: {error}"))),
        };
        self.child = None;
        let record = fs::read(self.result());
        if let (true, Ok(record)) = (status.code() != Some(BENCH_USAGE), record) {
            return Some(Ok(Brought { begun_ns: self.begun_ns, facts: json!({ "exit_code": status.code() }), record }));
        }
        let words = fs::read_to_string(self.folder.join("stderr")).unwrap_or_default();
        let words: String = words.trim().chars().take(WORDS_CHARS_MAX).collect();
        Some(Err(if words.is_empty() { format!("the bench failed ({status})") } else { words }))
    }
}

/// Makes the kernel stop this process, which is the bench of a share, when its agent exits for any reason, so that no
/// uncounted load continues.
pub(crate) fn end_with_agent() -> Result<(), String> {
    let agent = getppid();
    let set = set_parent_process_death_signal(Some(Signal::TERM));
    set.map_err(|error| format!("cannot have the kernel stop this process when its agent exits: {error}"))?;
    // If the agent exited before the kernel was asked, there will be no signal.
    if getppid() == agent && agent.is_some() { Ok(()) } else { Err("the agent has exited".to_owned()) }
}

/// Converts bytes to text for JSON. Each byte becomes the character with the same number.
fn to_text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

fn to_bytes(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|character| u8::try_from(character).ok()).collect()
}

/// The parameters of a bench with agents.
#[derive(Debug)]
pub(crate) struct AgentsPlan<'a> {
    /// The command line, without the names of the program and the command.
    pub(crate) words: &'a [String],
    /// Number of agents to wait for.
    pub(crate) agents: u32,
    /// Address to listen on for agents.
    pub(crate) listen: SocketAddr,
    /// Folder created by `flatout agent init`.
    pub(crate) trust: &'a Path,
    /// Requirements on the merged result.
    pub(crate) require: &'a [Threshold],
}

/// Waits for all agents, starts the load on all of them, and merges their results.
pub(crate) fn bench(plan: &AgentsPlan) -> Result<RunReport, String> {
    let inputs = command::inputs(plan.words);
    let read = |file: &InputFile| fs::read(&file.name).map_err(|error| format!("cannot read {}: {error}", file.name));
    let files: Vec<Vec<u8>> = inputs.iter().map(read).collect::<Result<_, _>>()?;
    let bytes: usize = files.iter().map(Vec::len).sum();
    if files.len() > FILES_MAX || bytes > FILES_BYTES_MAX {
        return Err(format!(
            "agents accept at most {FILES_MAX} files with {FILES_BYTES_MAX} bytes in total; this bench has {} files \
             with {bytes} bytes",
            files.len()
        ));
    }
    let files: Vec<String> = files.iter().map(|content| to_text(content)).collect();
    let arguments = command::for_agent(plan.words, |_, name| name.to_owned());
    let controller =
        Controller::listen(plan.listen, plan.trust, plan.agents, json!({ "arguments": arguments, "files": files }));
    let controller = controller.map_err(|error| format!("cannot listen for agents at {}: {error}", plan.listen))?;
    let address = controller.address().map_err(|error| error.to_string())?;
    eprintln!("flatout bench: waiting for {} agents at {address}", plan.agents);
    let interrupts = Arc::new(AtomicU32::new(0));
    let told = Arc::clone(&interrupts);
    watch_interrupts(move |count| told.store(count, Ordering::Relaxed)).map_err(|error| error.to_string())?;
    let (mut here, mut has_begun) = (0, false);
    let results = controller.run(&interrupts, |coordinator| {
        if std::mem::replace(&mut here, coordinator.here()) != here && coordinator.begins_ns().is_none() {
            eprintln!("flatout bench: {here} of {} agents have joined", plan.agents);
        }
        if !std::mem::replace(&mut has_begun, coordinator.begins_ns().is_some()) && has_begun {
            eprintln!("flatout bench: all agents have started");
        }
    });
    let results = results.map_err(|error| error.to_string())?;
    let mut report = merge::merge(&results).map_err(|error| error.to_string())?;
    report.command = ["flatout".to_owned(), "bench".to_owned()].into_iter().chain(command::kept(plan.words)).collect();
    report.require(plan.require);
    Ok(report)
}

fn complain(text: &str, code: u8) -> ExitCode {
    output::complain("agent", text);
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::{BenchShare, to_bytes, to_text};
    use flatout_lab::agent::member::AgentWork;
    use serde_json::json;
    use std::fs;

    #[test]
    fn any_bytes_travel_as_text() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(to_bytes(&to_text(&all)), Some(all));
        assert_eq!(to_bytes("€"), None);
    }

    #[test]
    fn a_share_writes_and_reads_nowhere_but_in_its_own_folder() {
        let mut share = BenchShare::new().unwrap();
        let folder = share.folder.clone();
        let task = json!({
            "arguments": ["http://a/", "--urls", "/etc/passwd", "--html=/tmp/x", "--bundle", "/tmp/y", "--rate", "5"],
            "files": ["/one\n"],
        });
        share.prepare(1, 3, &task).unwrap();
        let list = folder.join("0").display().to_string();
        assert_eq!(share.words, ["http://a/", "--urls", &list, "--rate", "5", "--share=1/3"]);
        assert_eq!(fs::read_to_string(&list).unwrap(), "/one\n");
        for task in [json!({}), json!({ "arguments": [1], "files": [] }), json!({ "arguments": [], "files": [1] })] {
            assert!(share.prepare(0, 1, &task).is_err());
        }
        drop(share);
        assert!(!folder.exists());
    }
}
