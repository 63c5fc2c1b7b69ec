//! A server in a suite's file: its command, its readiness check and its requirements.

use super::Placed;
use flatout_config::model::Place;

/// A server of the suite.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// Name of the server in the suite.
    pub name: String,
    /// Place of the server in the file.
    pub place: Place,
    /// Description of the server for reports; empty if the name suffices.
    pub about: String,
    /// The program to start.
    pub program: Program,
    /// Files that are written into `{dir}` before the server starts.
    pub configs: Vec<ConfigFile>,
    /// Arguments of the program, with placeholders.
    pub start: Vec<Placed>,
    /// Names and values of additional environment variables.
    pub environment: Vec<(String, Placed)>,
    /// The readiness check of the server.
    pub ready: Ready,
    /// Servers that start before this server and run at the same time, such as an application server or an origin.
    pub after: Vec<Placed>,
    /// Address on which the server listens outside a testbed.
    pub address: String,
    /// Port of the server, if it cannot be any free port.
    pub port: Option<u16>,
    /// Cores of the server, if they differ from the suite's.
    pub cores: Option<Vec<usize>>,
    /// True if the server's URL begins with `https`.
    pub tls: bool,
    /// Path of a page on which the server reports its number of requests: its metrics, or nginx's `stub_status`.
    pub counts: Option<Placed>,
    /// Names and values of placeholders in the `config` files.
    pub values: Vec<(String, Placed)>,
    /// Number of the signal that stops the server in an orderly way; 15 (SIGTERM) by default.
    pub stop_signal: i32,
}

/// A program on this machine.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Name of the program, which is looked up in `PATH` and in the system's folders for servers. With a slash, it is a
    /// path. `flatout` is this program itself.
    pub name: Placed,
    /// Debian package that contains the program.
    pub package: Option<String>,
    /// Other required files, such as a module, each with the package that contains the file.
    pub needs: Vec<(Placed, Option<String>)>,
    /// Minimum version that is required.
    pub version: Option<VersionAsked>,
}

/// A minimum version of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionAsked {
    /// Components of the version, beginning with the major version.
    pub at_least: Vec<u64>,
    /// The version as written.
    pub text: String,
    /// Arguments with which the program prints its version.
    pub from: Vec<String>,
    /// Place of the version in the file.
    pub place: Place,
}

/// A file that a server reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFile {
    /// Name of the file within `{dir}`.
    pub name: String,
    /// Content of the file, with placeholders.
    pub content: Placed,
}

/// The readiness check of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Path that must give a response with a status below 400. If `None`, a connection is enough.
    pub path: Option<Placed>,
    /// Path of a Unix socket to connect to instead of the port.
    pub socket: Option<Placed>,
    /// Maximum time to wait for the server to become ready, in milliseconds.
    pub timeout_ms: u64,
}
