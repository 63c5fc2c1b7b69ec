//! A running server. It is started on its cores and in its network, and stopped with all its descendants.

use super::{group, ready};
use crate::document::Why;
use crate::why::Reason;
use flatout_lab::cores::cores_allowed;
use flatout_os::procfs::sysctl;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Timeout for a server to stop before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval at which a server is polled while it starts or stops.
const LOOK: Duration = Duration::from_millis(10);

/// Number of log lines that are shown with an error.
const TAIL_LINES: usize = 12;

/// Maximum number of bytes at the end of a log that are read for these lines.
const TAIL_BYTES: u64 = 16 * 1024;

/// The parameters for starting a server.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Name of the server.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Names and values of additional environment variables.
    pub environment: Vec<(String, String)>,
    /// Working folder of the server.
    pub dir: PathBuf,
    /// Path of the file for the server's output.
    pub log: PathBuf,
    /// Cores of the server. If empty, the kernel chooses.
    pub cores: Vec<usize>,
    /// Words before the command that start the server in its network, if it has one.
    pub within: Option<Vec<String>>,
    /// Address on which the server listens.
    pub address: SocketAddr,
    /// Path that is requested to check readiness. If `None`, a connection is enough.
    pub ready_path: Option<String>,
    /// Path of a Unix socket to connect to instead.
    pub ready_socket: Option<PathBuf>,
    /// The program that checks readiness from the client's namespace, with the words that precede address and path.
    pub prober: Option<Vec<String>>,
    /// Maximum time to wait for the server to become ready.
    pub ready_timeout: Duration,
    /// Number of the signal that stops the server.
    pub stop_signal: i32,
}

/// A running server, which is stopped when the value is dropped.
#[derive(Debug)]
pub struct Instance {
    /// The parameters with which the server was started.
    pub launch: Launch,
    child: Child,
    /// Exit status of the started process, if it has exited.
    ended: Option<ExitStatus>,
}

/// The result of stopping a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Description of the process that still listens on the server's port, if there is one.
    pub port_holder: Option<String>,
}

impl Instance {
    /// Starts a server and waits until it is ready. Polls `is_stopped` while it waits.
    pub fn start(launch: Launch, is_stopped: &dyn Fn() -> bool) -> Result<Self, Why> {
        if launch.within.is_none() && launch.ready_socket.is_none() {
            free(&launch)?;
        }
        let failed = |error: io::Error| {
            Reason::StartFailed.why(format!("{} could not be started: {error}", launch.command.join(" ")))
        };
        if let Some(folder) = launch.log.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let out = File::create(&launch.log).map_err(failed)?;
        let mut words: Vec<String> = Vec::new();
        words.extend(launch.within.iter().flatten().cloned());
        words.extend(launch.command.iter().cloned());
        let (program, arguments) = words.split_first().ok_or_else(|| failed(io::Error::other("no program")))?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(&launch.dir)
            .envs(launch.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(out.try_clone().map_err(failed)?)
            .stderr(out);
        let child = spawn_pinned(&mut command, &launch.cores).map_err(failed)?;
        let mut instance = Self { launch, child, ended: None };
        instance.wait_until_ready(is_stopped)?;
        Ok(instance)
    }

    fn wait_until_ready(&mut self, is_stopped: &dyn Fn() -> bool) -> Result<(), Why> {
        let begun = Instant::now();
        loop {
            let answer = self.probe();
            if !self.is_running() {
                let (name, ending) = (&self.launch.name, self.ending());
                return Err(Reason::DiedStarting.why(format!("{name} exited before it was ready ({ending})")));
            }
            let Err(fault) = answer else { return Ok(()) };
            if is_stopped() {
                return Err(Reason::Interrupted
                    .why(format!("the suite was interrupted while {} was starting", self.launch.name)));
            }
            if begun.elapsed() > self.launch.ready_timeout {
                let seconds = self.launch.ready_timeout.as_secs_f64();
                let name = &self.launch.name;
                return Err(Reason::NeverReady.why(format!("{name} was not ready within {seconds} s: {fault}")));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn probe(&self) -> Result<(), String> {
        if let Some(socket) = &self.launch.ready_socket {
            return ready::probe_socket(socket);
        }
        let Some(prober) = &self.launch.prober else {
            return ready::probe(self.launch.address, self.launch.ready_path.as_deref());
        };
        let (program, arguments) = prober.split_first().ok_or("no probe program is named")?;
        let output = Command::new(program)
            .args(arguments)
            .arg(self.launch.address.to_string())
            .args(&self.launch.ready_path)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    }

    /// Returns whether the started process is still running.
    pub fn is_running(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended.is_none()
    }

    /// Describes how the started process exited, or says that it is still running.
    pub fn ending(&self) -> String {
        self.ended.map_or_else(|| "it is still running".to_owned(), |status| status.to_string())
    }

    /// Returns the processes of the server.
    pub fn members(&self) -> BTreeSet<u32> {
        group::members(self.child.id())
    }

    /// Returns the ID of the process that was started.
    pub fn leader(&self) -> u32 {
        self.child.id()
    }

    /// Returns the last lines of the server's log.
    pub fn log_tail(&self) -> Vec<String> {
        tail(&self.launch.log)
    }

    /// Stops the server: first with its signal, then by SIGKILL after a timeout. In any case, stops all processes that
    /// are left.
    pub fn stop(mut self) -> Stopped {
        self.end();
        let launch = &self.launch;
        let is_ours = launch.within.is_none() && launch.ready_socket.is_none();
        let port_holder = is_ours.then(|| free(launch).err()).flatten().map(|why| why.text);
        Stopped { port_holder }
    }

    fn end(&mut self) {
        let leader = self.child.id();
        let members = self.members();
        if self.is_running() {
            // Only the leader gets the signal. Workers that receive it directly may stop serving before the leader
            // does.
            group::signal(0, &BTreeSet::from([leader]), self.launch.stop_signal);
            let begun = Instant::now();
            while self.is_running() && begun.elapsed() < STOP_TIMEOUT {
                std::thread::sleep(LOOK);
            }
        }
        let mut left = group::members(leader);
        // Processes that left the process group became children of this process when their parent exited.
        let ours = group::members_below(std::process::id());
        left.extend(members.into_iter().filter(|pid| ours.contains(pid)));
        if self.ended.is_some() {
            left.remove(&leader);
        }
        if !left.is_empty() {
            group::signal(if self.ended.is_none() { leader } else { 0 }, &left, KILL);
        }
        if self.ended.is_none() {
            self.ended = self.child.wait().ok();
        }
    }
}

const KILL: i32 = 9;

impl Drop for Instance {
    fn drop(&mut self) {
        if self.ended.is_none() || !self.members().is_empty() {
            self.end();
        }
    }
}

/// Checks that the server's port is free.
fn free(launch: &Launch) -> Result<(), Why> {
    // Like servers themselves, this can bind a port on which connections of a stopped server linger.
    match TcpListener::bind(launch.address) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let holder = flatout_os::socket::find_port_owner(launch.address.port());
            let holder = holder.map_or_else(String::new, |(pid, name)| format!(" by {name} (process {pid})"));
            Err(Reason::PortTaken.why(format!("{}: {} is already in use{holder}", launch.name, launch.address)))
        }
        Err(error) => {
            Err(Reason::PortTaken.why(format!("{}: cannot listen on {}: {error}", launch.name, launch.address)))
        }
    }
}

/// Number of ports among which [`free_port`] chooses.
const PORTS: u16 = 2_048;

/// Returns a port that is free at this address now. It is below the ports that the kernel gives to outgoing connections,
/// so that none of these takes it before a server uses it.
///
/// # Errors
/// Fails if all of these ports are in use.
pub fn free_port(address: IpAddr) -> io::Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let range = sysctl("net.ipv4.ip_local_port_range").unwrap_or_default();
    let first = range.split_ascii_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768_u16);
    let lowest = first.saturating_sub(PORTS).max(1_024);
    for _ in 0..PORTS {
        // Several suites may run at the same time.
        let number = std::process::id().wrapping_mul(61).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = lowest + (number % u32::from(PORTS)) as u16;
        if TcpListener::bind((address, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(io::Error::other(format!("all ports from {lowest} to {} are in use", lowest + PORTS - 1)))
}

/// Starts a child process in its own process group, on these cores.
///
/// # Errors
/// Fails if the kernel refuses.
pub fn spawn_pinned(command: &mut Command, cores: &[usize]) -> io::Result<Child> {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
    if cores.is_empty() {
        return command.spawn();
    }
    // From its first instruction on, a child inherits the core affinity of the thread that starts it. So start it from
    // another thread, whose affinity may be changed.
    std::thread::scope(|scope| {
        let spawned = scope.spawn(|| {
            pin_to_cores(cores)?;
            command.spawn()
        });
        spawned.join().unwrap_or_else(|_| Err(io::Error::other("the thread that starts servers has exited")))
    })
}

/// Pins the calling thread to these cores.
///
/// # Errors
/// Fails if this process may use none of them.
pub fn pin_to_cores(cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cores.iter().filter(|core| **core < CpuSet::MAX_CPU).for_each(|core| set.set(*core));
    Ok(sched_setaffinity(None, &set)?)
}

/// Returns the cores in the list that this process may not use.
pub fn cores_missing(cores: &[usize]) -> Vec<usize> {
    let allowed = cores_allowed();
    cores.iter().copied().filter(|core| !allowed.contains(core)).collect()
}

/// Returns the last lines of a log.
pub fn tail(log: &Path) -> Vec<String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let text = String::from_utf8_lossy(&read().unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let shown = lines.len().saturating_sub(TAIL_LINES);
    let printable = |line: &&str| line.chars().filter(|c| !c.is_control() || *c == '\t').collect::<String>();
    lines[shown..].iter().map(printable).collect()
}
