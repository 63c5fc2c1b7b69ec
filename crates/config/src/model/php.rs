//! Settings of scripts that an application server runs over FastCGI.

use super::{OriginTimeouts, TrustedProxy};
use std::path::PathBuf;

flatout_reason::defaults! {
    /// Runs the scripts below a folder in an application server such as PHP-FPM. Requests for anything else pass to the
    /// next step.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Php {
        /// The address at which the application server listens.
        pub address: PhpAddress = PhpAddress::Unix(PathBuf::from("/run/php/php-fpm.sock")),
        /// The folder with the scripts, absolute, or relative to the folder in which the process was started. The
        /// default is the root of the site's first `files` step, or else the folder of the configuration file.
        pub root: PathBuf,
        /// The path of this folder as seen by the application server, if it is different, for example in a container.
        pub script_root: Option<PathBuf>,
        /// File names that serve as the index of a folder, in order of preference.
        pub index: Vec<String> = vec!["index.php".to_owned()],
        /// The file name extensions of scripts, each with its dot; never empty.
        pub split: Vec<String> = vec![".php".to_owned()],
        /// The script that handles every path that matches no file, relative to the root and without a leading slash.
        pub front_controller: Option<String>,
        /// Additional FastCGI parameters for every script.
        pub env: Vec<(String, String)>,
        /// True if request fields whose names contain underscores become variables.
        pub underscores_in_headers: bool,
        /// Proxies whose Forwarded and X-Forwarded fields are trusted.
        pub trusted: Vec<TrustedProxy>,
        /// Timeouts for connecting, for the response headers and between pieces of content.
        pub timeouts: OriginTimeouts,
        /// The maximum number of idle connections per worker; 0 if connections are not reused. An idle connection holds
        /// a process of PHP-FPM.
        pub idle_connections_max: u32 = 0,
        /// The maximum number of concurrent requests over all workers. Further requests get 503.
        pub connections_max: u32 = 1_024,
        /// The maximum size of request content, in bytes. A larger request gets 413.
        pub content_bytes_max: u64 = 128 * 1024 * 1024,
        /// The maximum number of bytes of request content of known length that are buffered before the script runs; 0 if
        /// none are. Content of unknown length is buffered completely, except that such a request gets 411 if this is 0.
        pub spool_bytes_max: u64 = 128 * 1024 * 1024,
        /// The maximum number of bytes of a response that are buffered for a client that is slower than the script; 0 if
        /// the script waits for the client.
        pub response_spool_bytes_max: u64 = 1024 * 1024 * 1024,
        /// The maximum number of bytes that are buffered for all requests and responses together, over all workers.
        pub spool_total_bytes_max: u64 = 1024 * 1024 * 1024,
        /// Folders whose files scripts may name in X-Sendfile.
        pub sendfile: Vec<PathBuf>,
        /// Path prefixes that scripts may use in X-Accel-Redirect, each with the folder that it maps to. Prefixes begin
        /// and end with a slash.
        pub accel: Vec<(String, PathBuf)>,
    }
}

/// The address at which an application server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PhpAddress {
    /// The path of a Unix socket; absolute, or relative to the folder in which the process was started.
    Unix(PathBuf),
    /// A host name or an IP address, without brackets, and a port.
    Tcp(String, u16),
}
