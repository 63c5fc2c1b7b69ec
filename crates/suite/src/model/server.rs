//! A server in a suite's file: its command, its readiness check, and its requirements.

use super::Placed;
use flatout_config::model::Place;

/// A server.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// Its name in the suite.
    pub name: String,
    /// Its place in the file.
    pub place: Place,
    /// Its description for reports; empty if its name suffices.
    pub about: String,
    /// The program to start.
    pub program: Program,
    /// Files written into `{dir}` before it starts.
    pub configs: Vec<ConfigFile>,
    /// Arguments, with names in braces.
    pub start: Vec<Placed>,
    /// Environment variables beside those of this process.
    pub environment: Vec<(String, Placed)>,
    /// Its readiness check.
    pub ready: Ready,
    /// Servers that run beside it and start before it, such as an application server or an origin.
    pub after: Vec<Placed>,
    /// The address it listens on where there is no testbed.
    pub address: String,
    /// Its port, where it cannot be any free one.
    pub port: Option<u16>,
    /// Its cores, if different from the suite's.
    pub cores: Option<Vec<usize>>,
    /// True if its URL begins with `https`.
    pub tls: bool,
    /// The path of its counts of requests: its metrics, or the status page of nginx.
    pub counts: Option<Placed>,
    /// Values of names in its `config` files.
    pub values: Vec<(String, Placed)>,
    /// A signal for an orderly stop, as the kernel counts it: 15 unless the file says otherwise.
    pub stop_signal: i32,
}

/// A program on this machine.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Its name, looked for in `PATH` and in the folders of the system's programs; with a slash, a path. `flatout` is
    /// this program itself.
    pub name: Placed,
    /// The Debian package that brings it.
    pub package: Option<String>,
    /// Files that must be there beside it, such as a module, each with the package that brings it.
    pub needs: Vec<(Placed, Option<String>)>,
    /// Its required minimum version.
    pub version: Option<VersionAsked>,
}

/// A minimum version of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionAsked {
    /// Numbers of the version, the greatest first.
    pub at_least: Vec<u64>,
    /// As it is written.
    pub text: String,
    /// The arguments by which the program says its version.
    pub from: Vec<String>,
    /// Its place in the file.
    pub place: Place,
}

/// A file that a server reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFile {
    /// Its name within `{dir}`.
    pub name: String,
    /// Its content, with names in braces.
    pub content: Placed,
}

/// A server's readiness check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// A path that is answered with a status below 400; without one, a connection is enough.
    pub path: Option<Placed>,
    /// A socket in the file system that takes connections, instead of the port.
    pub socket: Option<Placed>,
    /// Its timeout, in milliseconds.
    pub timeout_ms: u64,
}
