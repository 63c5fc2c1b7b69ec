//! Scripts that an application server runs, asked over FastCGI.

use super::{Cidr, OriginTimeouts};
use std::path::PathBuf;

/// Has an application server, such as PHP-FPM, run the scripts below a folder. What is no script goes on to the steps
/// that follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Php {
    /// Where the application server listens.
    pub address: PhpAddress,
    /// The folder with the scripts, absolute or relative to where the process was started. Unless it is set, that of the
    /// first `files` step of the site, and without one that of the configuration's file.
    pub root: PathBuf,
    /// The same folder as the application server sees it; `None`: under the same name.
    pub script_root: Option<PathBuf>,
    /// Names looked for in a folder, in this order.
    pub index: Vec<String>,
    /// How the names of scripts end; at least one, each with its dot.
    pub split: Vec<String>,
    /// The script that answers for whatever is not a file, below the root and without a first slash.
    pub front_controller: Option<String>,
    /// Variables for every script, beside those of CGI.
    pub env: Vec<(String, String)>,
    /// Neighbours whose word about who asks and how is believed.
    pub trusted: Vec<Cidr>,
    /// How long to wait for what.
    pub timeouts: OriginTimeouts,
    /// Connections that each worker keeps open without use, at most; 0: none is kept.
    pub idle_connections_max: u32,
    /// Requests under way at once, of all workers together, at most; others are answered 503.
    pub connections_max: u32,
    /// Bytes of a request's content at most; more is answered 413.
    pub content_bytes_max: u64,
    /// Bytes that are kept of a request's content whose length is not told, until it is known; 0: such a request is
    /// answered 411.
    pub spool_bytes_max: u64,
    /// Folders whose files scripts may name in X-Sendfile.
    pub sendfile: Vec<PathBuf>,
    /// Beginnings of addresses that scripts may name in X-Accel-Redirect, with the folder that each stands for. The
    /// addresses begin and end with a slash.
    pub accel: Vec<(String, PathBuf)>,
}

impl Default for Php {
    fn default() -> Self {
        Self {
            address: PhpAddress::Unix(PathBuf::from("/run/php/php-fpm.sock")),
            root: PathBuf::new(),
            script_root: None,
            index: vec!["index.php".to_owned()],
            split: vec![".php".to_owned()],
            front_controller: None,
            env: Vec::new(),
            trusted: Vec::new(),
            timeouts: OriginTimeouts::default(),
            idle_connections_max: 8,
            connections_max: 1_024,
            content_bytes_max: 128 * 1024 * 1024,
            spool_bytes_max: 8 * 1024 * 1024,
            sendfile: Vec::new(),
            accel: Vec::new(),
        }
    }
}

/// Where an application server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PhpAddress {
    /// A socket in the file system, absolute or relative to where the process was started.
    Unix(PathBuf),
    /// A host name or an address, without brackets, and a port.
    Tcp(String, u16),
}
