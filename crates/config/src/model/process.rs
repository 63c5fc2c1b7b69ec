//! Settings of the whole process.

use super::{
    Block, Certificate, Cidr, ListenAddress, Place, Site, SocketAccess, Step, StepKind, StoreBudget, TrustedProxy,
    is_listed,
};
use flatout_http::access::{LogDestination, LogSettings};
use flatout_http::limits::Limits;
use flatout_http::timeouts::Timeouts;
use std::net::IpAddr;
use std::path::PathBuf;

flatout_reason::defaults! {
    /// A complete configuration.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Config {
        /// The number of worker threads; `None` for one per core that the process may use.
        pub workers: Option<u16>,
        /// The user that the process switches to after it has opened sockets and files.
        pub user: Option<String>,
        /// The group that the process switches to; `None` for the user's primary group.
        pub group: Option<String>,
        /// The requested limit of open descriptors; `None` for as many as the kernel allows.
        pub open_files: Option<u64>,
        /// True if a supervisor starts a separate worker process that serves requests. Applies only if the
        /// configuration is read from a file.
        pub worker_process: bool = true,
        /// True if Landlock is on; `None` if the configuration does not say, see [`Config::landlock`].
        pub landlock: Option<bool>,
        /// True if a seccomp filter denies the worker process the system calls that serving never needs.
        pub seccomp: bool = true,
        /// The folder for data that survives a restart: digests, the local certificate authority. `None` if nothing is
        /// stored.
        pub state: Option<PathBuf>,
        /// The admin socket.
        pub admin: Admin,
        /// Timeouts of client connections.
        pub timeouts: Timeouts,
        /// Limits on each request head.
        pub request_head: RequestHeadLimits,
        /// `request-body`.
        pub request_body: RequestBodyLimits,
        /// Proxies in front of this server, whose Forwarded and X-Forwarded fields name the client. Every handler that
        /// trusts proxies trusts these, too.
        pub trusted: Vec<TrustedProxy>,
        /// Limits for each client and for all clients together.
        pub limit_connections: ConnectionLimits,
        /// Socket options of listeners and connections.
        pub sockets: Sockets,
        /// Limits of the metadata caches, per worker.
        pub cache: CacheBudget,
        /// The limits, over all workers, of output of active pages that clients have not received yet.
        pub page_output: PageOutputBudget,
        /// The limits of the cache store, which all workers share.
        pub store: StoreBudget,
        /// The logs, to which sites refer by index.
        pub logs: Vec<Log>,
        /// The listeners, to which sites refer by index. No two have the same address.
        pub listeners: Vec<Listener>,
        /// The sites in written order.
        pub sites: Vec<Site>,
        /// Every file that was read, for messages and for detecting changes.
        pub files: Vec<PathBuf>,
        /// The contents of the files that `(file)"…"` values refer to. They must never be shown.
        pub secrets: Vec<String>,
    }
}

impl Config {
    /// Returns whether Landlock restricts the worker process to the configured files and to the ports of origins, on
    /// kernels that support it. By default, it does. A process without a supervisor restricts its worker threads to the
    /// configured folders, but not by default: a reload could not add a folder, as no other process can take over.
    pub fn landlock(&self) -> bool {
        self.landlock.unwrap_or(self.worker_process)
    }

    /// Adds the proxies that all sites trust to those of each handler.
    pub(crate) fn share_trust(&mut self) {
        let mut blocks: Vec<&mut Block> = self.sites.iter_mut().map(|site| &mut site.block).collect();
        while let Some(block) = blocks.pop() {
            for step in block {
                let trusted = match &mut step.kind {
                    StepKind::Route(route) => {
                        blocks.push(&mut route.block);
                        continue;
                    }
                    StepKind::Handler(handler) => handler.trusted_mut(),
                    _ => None,
                };
                let Some(trusted) = trusted else { continue };
                for proxy in &self.trusted {
                    if !trusted.contains(proxy) {
                        trusted.push(*proxy);
                    }
                }
            }
        }
    }

    /// Returns the Unix sockets to which every user may write, although a site trusts what their clients say.
    pub fn exposed_sockets(&self) -> impl Iterator<Item = &Listener> {
        let trusts = |site: &Site| {
            let mut handlers = site.steps().filter_map(|step| match &step.kind {
                StepKind::Handler(handler) => Some(handler.clone()),
                _ => None,
            });
            self.trusted.contains(&TrustedProxy::Unix)
                || handlers
                    .any(|mut handler| handler.trusted_mut().is_some_and(|all| all.contains(&TrustedProxy::Unix)))
        };
        let is_exposed = move |&(id, listener): &(usize, &Listener)| {
            let is_open = listener.address.path().is_some() && listener.access.mode & 0o002 != 0;
            let is_trusted = || self.sites.iter().any(|site| site.listeners.contains(&id) && trusts(site));
            is_open && (listener.proxy_protocol.is_some() || is_trusted())
        };
        self.listeners.iter().enumerate().filter(is_exposed).map(|(_, listener)| listener)
    }

    /// The steps of all sites, including those in routes, in written order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.sites.iter().flat_map(Site::steps)
    }

    /// Returns how the listener at this index serves HTTP/3. By default, it serves HTTP/3 if one of its sites has a
    /// certificate from a file, because clients use HTTP/3 only if they trust the certificate, and if its address is
    /// not a loopback address, where HTTP/3 would have no benefit. With `proxy-protocol`, it never does: a load balancer
    /// cannot name the clients of QUIC connections.
    pub fn http3(&self, listener: usize) -> Http3 {
        let speaks_quic = |on: &&Listener| on.protocol == Protocol::Tls && on.proxy_protocol.is_none();
        let Some(described) = self.listeners.get(listener).filter(speaks_quic) else {
            return Http3::Off;
        };
        let has_file = |site: &Site| {
            site.listeners.contains(&listener) && matches!(site.certificate, Some(Certificate::Files { .. }))
        };
        match described.http3 {
            Some(true) => Http3::On,
            None if described.address.ip().is_some_and(|on| !on.ip().is_loopback())
                && self.sites.iter().any(has_file) =>
            {
                Http3::Default
            }
            Some(false) | None => Http3::Off,
        }
    }

    /// The settings of all logs.
    pub fn log_settings(&self) -> Vec<LogSettings> {
        self.logs.iter().map(|log| log.settings.clone()).collect()
    }

    /// Returns true if a log writes to standard output, which must then contain nothing but log lines.
    pub fn logs_to_stdout(&self) -> bool {
        self.logs.iter().any(|log| log.settings.target == LogDestination::Stdout)
    }
}

/// How the admin socket is configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Admin {
    /// A socket at the default path, in the system's folder for runtime files.
    #[default]
    Default,
    /// No admin socket.
    Off,
    /// A socket at this path.
    Path(PathBuf),
}

/// A listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The place of the first setting that mentions the listener.
    pub place: Place,
    /// The address to listen on.
    pub address: ListenAddress,
    /// The permissions of the socket file; only for Unix sockets.
    pub access: SocketAccess,
    /// The protocol of the listener.
    pub protocol: Protocol,
    /// True if the listener also accepts HTTP/2 with prior knowledge; only without TLS.
    pub http2_cleartext: bool,
    /// The https port to which all requests are redirected, if any.
    pub redirect_https_port: Option<u16>,
    /// True if the listener also serves HTTP/3; `None` if the configuration does not say, see [`Config::http3`].
    pub http3: Option<bool>,
    /// The load balancers whose connections each begin with a PROXY header, which names the client; `None` if
    /// connections have no such header.
    pub proxy_protocol: Option<ProxySenders>,
}

/// The peers that may send PROXY headers to a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxySenders {
    /// Everyone who can connect.
    All,
    /// Peers in these networks.
    Networks(Vec<Cidr>),
}

impl ProxySenders {
    /// Returns whether `peer` may send a header.
    pub fn contains(&self, peer: Option<IpAddr>) -> bool {
        match self {
            Self::All => true,
            Self::Networks(networks) => is_listed(networks, peer),
        }
    }
}

impl Listener {
    /// Returns whether the other listener differs only in its address and place.
    pub fn is_like(&self, other: &Self) -> bool {
        let Self { place, address, .. } = other.clone();
        Self { place, address, ..self.clone() } == *other
    }
}

/// How a listener serves HTTP/3, on the UDP port with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http3 {
    /// HTTP/3 is not served.
    Off,
    /// HTTP/3 is served by default, if the UDP port is free.
    Default,
    /// HTTP/3 is served because the configuration requires it.
    On,
}

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP without TLS.
    Plain,
    /// HTTPS.
    Tls,
}

flatout_reason::defaults! {
    /// Socket options, which can be set in order to measure their effects. See `flatout_os::socket::ListenOptions` and
    /// `flatout_server::Settings` for their meaning.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct Sockets {
        pub reuseport: bool = true,
        pub defer_accept: bool = true,
        pub nodelay: bool = true,
        pub quickack: bool = false,
        pub sendfile: bool = true,
        pub backlog: u32 = 4096,
        pub accept_batch: u32 = 64,
        pub not_sent_bytes_max: u64 = 64 << 10,
        pub busy_poll_us: u32 = 0,
    }
}

flatout_reason::defaults! {
    /// Limits on the head of a request, in any HTTP version.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RequestHeadLimits {
        /// The maximum size in bytes. For HTTP/2 and HTTP/3, this is the size of the uncompressed fields (RFC 9113
        /// §6.5.2).
        pub bytes_max: usize = Limits::DEFAULT.head_bytes_max,
        /// The maximum number of field lines.
        pub fields_max: usize = Limits::DEFAULT.fields_max,
    }
}

flatout_reason::defaults! {
    /// Limits on the content of a request, in any HTTP version.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RequestBodyLimits {
        /// The minimum rate in bytes per second, on average over each body timeout; 0 for none.
        pub rate_min: u64 = Limits::DEFAULT.body_rate_min,
    }
}

/// Limits on the number of connections, incomplete handshakes, incomplete heads and requests, over all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Open connections, of TCP and QUIC.
    pub connections: HeldLimit,
    /// Connections with an incomplete TLS handshake.
    pub handshakes: HeldLimit,
    /// Connections with an incomplete request head.
    pub heads: HeldLimit,
    /// Requests that are waiting for an origin, a page or an application, or receiving its response.
    pub requests: HeldLimit,
}

/// The limits on the number of items of one kind, such as connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLimit {
    /// The limit per IPv4 address and per IPv6 /64 network; 0 for no limit. `None` for the default, which does not
    /// apply to loopback addresses and trusted proxies.
    pub per_address: Option<u32>,
    /// The limit for all clients together; 0 for no limit.
    pub total: u32,
}

impl ConnectionLimits {
    /// The default of `connections per-address=` and of `requests per-address=`: far more than a browser needs, and
    /// enough for many users who share an address.
    pub const PER_ADDRESS: u32 = 8192;
    /// The default of `handshakes per-address=` and of `heads per-address=`: handshakes and heads are normally complete
    /// within a few round trips.
    pub const INCOMPLETE_PER_ADDRESS: u32 = 2048;
    /// The default of `handshakes total=`: an incomplete TLS handshake takes about 10 KiB of memory.
    pub const HANDSHAKES_TOTAL: u32 = 16_384;

    /// The default of `heads total=`.
    pub const HEADS_TOTAL: u32 = 8192;

    /// Returns the same limits, except that the default of `heads total=` is reduced if heads may be larger than by
    /// default, so that all incomplete heads together take no more memory.
    #[must_use]
    pub fn for_heads(self, head: &RequestHeadLimits) -> Self {
        let mut limits = self;
        if limits.heads.total == Self::HEADS_TOTAL {
            let times = head.bytes_max.div_ceil(Limits::DEFAULT.head_bytes_max).max(1);
            limits.heads.total /= u32::try_from(times).unwrap_or(u32::MAX);
        }
        limits
    }
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        let unlimited = HeldLimit { per_address: None, total: 0 };
        let handshakes = HeldLimit { per_address: None, total: Self::HANDSHAKES_TOTAL };
        let heads = HeldLimit { per_address: None, total: Self::HEADS_TOTAL };
        Self { connections: unlimited, handshakes, heads, requests: unlimited }
    }
}

flatout_reason::defaults! {
    /// Limits of each worker's metadata cache.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CacheBudget {
        /// The maximum number of cached file versions.
        pub entries_max: usize = 16_384,
        /// The approximate maximum size in bytes, including encoded variants.
        pub bytes_max: usize = 64 * 1024 * 1024,
    }
}

flatout_reason::defaults! {
    /// Limits of output that active pages have written and clients have not received yet.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PageOutputBudget {
        /// The maximum size in memory, in bytes.
        pub memory_bytes_max: u64 = 256 << 20,
        /// The maximum size in unlinked files, in bytes. They are used when the memory limit has been reached.
        pub disk_bytes_max: u64 = 1 << 30,
    }
}

/// An access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The place of the setting.
    pub place: Place,
    /// The log's target, format and rotation.
    pub settings: LogSettings,
}

#[cfg(test)]
mod tests {
    use super::{Http3, StepKind};
    use crate::load_text;

    #[test]
    fn incomplete_heads_take_no_more_memory_if_they_may_be_larger() {
        for (text, total) in [
            ("", 8192),
            ("request-head size=\"4KiB\"", 8192),
            ("request-head size=\"64KiB\" fields=200", 4096),
            ("request-head size=\"256KiB\"", 1024),
            ("request-head size=\"256KiB\"\nlimit-connections { heads total=5000 }", 5000),
        ] {
            let config = load_text(&format!("{text}\nsite {{\n respond 200 \"x\"\n}}")).unwrap();
            assert_eq!(config.limit_connections.for_heads(&config.request_head).heads.total, total, "{text}");
        }
        for bad in ["size=\"1KiB\"", "size=\"257KiB\"", "fields=15", "fields=1001", ""] {
            assert!(load_text(&format!("request-head {bad}\nsite {{\n respond 200 \"x\"\n}}")).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_all_sites_trust_every_handler_trusts() {
        let text = "site {\n route \"/a\" {\n route \"/b\" { proxy \"http://127.0.0.1:1\" { trusted-proxies \"::1\"; }; }\n\
            php \"127.0.0.1:9000\" { root \"/srv\"; }\n }\n route \"/c\" { page \"c.lhtml\"; }\n pages \"site\"\n}\n\
            trusted-proxies \"10.0.0.0/8\" \"::1\" \"unix\"";
        let mut config = load_text(text).unwrap();
        let handlers = config.sites[0].steps().filter_map(|step| match &step.kind {
            StepKind::Handler(handler) => {
                handler.clone().trusted_mut().map(|trusted| (handler.clone(), trusted.clone()))
            }
            _ => None,
        });
        let handlers: Vec<_> = handlers.collect();
        assert_eq!(handlers.len(), 4);
        for (handler, mut trusted) in handlers {
            trusted.sort_by_key(ToString::to_string);
            assert_eq!(trusted, config.trusted, "{handler:?}");
        }
        let before = config.clone();
        config.share_trust();
        assert_eq!(config, before);
    }

    #[test]
    fn landlock_is_the_default_of_a_worker_process() {
        for (text, expected) in [
            ("", true),
            ("worker-process #false", false),
            ("worker-process #false\nlandlock #true", true),
            ("landlock #false", false),
        ] {
            let config = load_text(&format!("{text}\nsite {{\n respond 200 \"x\"\n}}")).unwrap();
            assert_eq!(config.landlock(), expected, "{text}");
        }
    }

    #[test]
    fn http3_is_the_default_with_a_certificate_from_a_file_and_never_on_loopback() {
        for (listen, tls, expected) in [
            ("\"0.0.0.0:443\" tls=#true", "cert=\"a\" key=\"b\"", Http3::Default),
            ("\"127.0.0.1:443\" tls=#true", "cert=\"a\" key=\"b\"", Http3::Off),
            ("\"0.0.0.0:443\" tls=#true", "\"internal\"", Http3::Off),
            ("\"0.0.0.0:443\" tls=#true http3=#false", "cert=\"a\" key=\"b\"", Http3::Off),
            ("\"[::1]:0\" tls=#true http3=#true", "\"internal\"", Http3::On),
            ("\"0.0.0.0:443\" tls=#true proxy-protocol=#true", "cert=\"a\" key=\"b\"", Http3::Off),
        ] {
            let config = load_text(&format!("site {{\n listen {listen}\n tls {tls}\n respond 200 \"x\"\n}}")).unwrap();
            assert_eq!(config.http3(0), expected, "{listen} {tls}");
        }
        assert!(load_text("site {\n listen \"0.0.0.0:80\" http3=#true\n respond 200 \"x\"\n}").is_err());
        let both = "site {\n listen \"0.0.0.0:443\" tls=#true http3=#true proxy-protocol=#true\n tls \"internal\"\n\
            respond 200 \"x\"\n}";
        assert_eq!(load_text(both).unwrap_err().list[0].message, "`proxy-protocol` is for TCP connections");
    }

    #[test]
    fn sockets_that_everyone_may_write_are_exposed_if_their_clients_are_trusted() {
        let exposed = |global: &str, listen: &str, inside: &str| {
            let text = format!("{global}\nsite {{\n listen {listen}\n {inside}\n}}");
            let config = load_text(&text).unwrap_or_else(|errors| panic!("{errors:?}"));
            config.exposed_sockets().map(|on| on.address.to_string()).collect::<Vec<_>>()
        };
        let (trust, proxy) = ("trusted-proxies \"unix\"", "proxy \"http://127.0.0.1:1\" { trusted-proxies \"unix\"; }");
        assert_eq!(exposed(trust, "\"unix:/a\"", "respond 200 \"a\""), ["unix:/a"]);
        assert_eq!(exposed("", "\"unix:/a\" mode=\"0777\"", proxy), ["unix:/a"]);
        assert_eq!(exposed("", "\"unix:/a\" proxy-protocol=#true", "respond 200 \"a\""), ["unix:/a"]);
        assert!(exposed(trust, "\"unix:/a\" mode=\"0660\"", proxy).is_empty());
        assert!(exposed("trusted-proxies \"10.0.0.0/8\"", "\"unix:/a\"", "respond 200 \"a\"").is_empty());
        assert!(exposed(trust, "\"127.0.0.1:1\"", proxy).is_empty());
    }
}
