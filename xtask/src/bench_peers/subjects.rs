//! The subjects: who is measured, by which configuration, asked how.

use super::site::File;

/// One who takes turns with others: a program, a configuration of it, and what it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subject {
    /// What the tables call it.
    pub(super) name: &'static str,
    /// The program and its configuration. Two subjects with the same share one process.
    pub(super) setup: Setup,
    /// Field lines of the request, beside what every request has.
    pub(super) asks: &'static [&'static str],
    /// What its answer must show before anything is measured; what is not listed here, it must not have.
    pub(super) shows: &'static [Mark],
}

/// A program and its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Setup {
    /// Our own loop without a server around it: the floor.
    Bare,
    /// `flatout serve`.
    Serve,
    /// `flatout run -c`.
    Run(Settings),
    Nginx(NginxSettings),
    Lighttpd,
    Apache {
        /// ContentDigest.
        digest: bool,
    },
    H2o,
    /// `flatout accelerate`, in front of an origin, as are those below.
    Accelerate,
    Varnish,
    NginxProxy {
        /// Without it, nginx reads what it keeps and sends it together with the head.
        sendfile: bool,
    },
    Haproxy,
    TrafficServer,
    /// `flatout run -c` with a folder of pages.
    Pages,
    /// nginx with its Lua module.
    NginxLua,
    /// nginx with PHP-FPM behind it; both count.
    NginxPhp,
    /// A client: `flatout bench`.
    FlatoutBench,
    /// The same by the clock: 10,000 requests a second, whatever the server does.
    FlatoutBenchOpen,
    /// A client.
    Wrk,
    /// A client of HTTP/2.
    H2load,
}

impl Setup {
    /// Returns true if it makes its answer again for each request.
    pub(super) fn is_active(self) -> bool {
        matches!(self, Self::Pages | Self::NginxLua | Self::NginxPhp)
    }

    /// Returns true if an origin stands behind it.
    pub(super) fn is_front(self) -> bool {
        matches!(self, Self::Accelerate | Self::Varnish | Self::NginxProxy { .. } | Self::Haproxy | Self::TrafficServer)
    }
}

/// What our configuration file says, beside the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Settings {
    /// Sites of one listener. A single one answers for every host.
    pub(super) sites: usize,
    /// Routes in each site; the last leads to a folder of its own.
    pub(super) routes: usize,
    pub(super) log: bool,
    /// Repr-Digest and Content-MD5, unasked.
    pub(super) digests: bool,
    /// Brotli on the fly.
    pub(super) compress: bool,
}

/// What nginx's configuration says, beside the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NginxSettings {
    /// Without it, nginx reads a small file and sends it together with the head.
    pub(super) sendfile: bool,
    pub(super) log: NginxLog,
}

/// What nginx logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NginxLog {
    Off,
    /// Combined, a buffer at a time, as its manual advises.
    Buffered,
    /// Combined, a line at a time, as it does unless told otherwise.
    Unbuffered,
    /// Only whether a handshake was a full one.
    Reuse,
}

/// What an answer may have to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// Repr-Digest with the content's SHA-256.
    ReprDigest,
    /// Content-MD5 with the content's MD5.
    ContentMd5,
    /// Content-Encoding: br.
    Brotli,
}

impl Mark {
    pub(super) const ALL: &[Self] = &[Self::ReprDigest, Self::ContentMd5, Self::Brotli];

    /// The field's name, in lower case.
    pub(super) fn field(self) -> &'static str {
        match self {
            Self::ReprDigest => "repr-digest",
            Self::ContentMd5 => "content-md5",
            Self::Brotli => "content-encoding",
        }
    }
}

const PLAIN: Settings = Settings { sites: 1, routes: 0, log: false, digests: false, compress: false };

const fn subject(name: &'static str, setup: Setup) -> Subject {
    Subject { name, setup, asks: &[], shows: &[] }
}

const fn run(name: &'static str, settings: Settings) -> Subject {
    subject(name, Setup::Run(settings))
}

const fn nginx(name: &'static str, sendfile: bool, log: NginxLog) -> Subject {
    subject(name, Setup::Nginx(NginxSettings { sendfile, log }))
}

pub(super) const BARE: Subject = subject("bare loop", Setup::Bare);
pub(super) const FLATOUT: Subject = subject("flatout", Setup::Serve);
pub(super) const NGINX: Subject = nginx("nginx", true, NginxLog::Off);
pub(super) const NGINX_READING: Subject = nginx("nginx, sendfile off", false, NginxLog::Off);
pub(super) const LIGHTTPD: Subject = subject("lighttpd", Setup::Lighttpd);
pub(super) const H2O: Subject = subject("h2o", Setup::H2o);

pub(super) const FLATOUT_BENCH: Subject = subject("flatout", Setup::FlatoutBench);
pub(super) const FLATOUT_BENCH_OPEN: Subject = subject("flatout, 10,000/s by the clock", Setup::FlatoutBenchOpen);
pub(super) const WRK: Subject = subject("wrk", Setup::Wrk);
pub(super) const H2LOAD: Subject = subject("h2load", Setup::H2load);

/// What speaks TLS or HTTP/2 needs a configuration.
pub(super) const FLATOUT_RUN: Subject = run("flatout", PLAIN);

pub(super) const FLATOUT_SITES: Subject =
    run("flatout, 100 sites of 10 routes", Settings { sites: 100, routes: 10, ..PLAIN });
pub(super) const FLATOUT_ROUTES: Subject = run("flatout, 1 site of 1,000 routes", Settings { routes: 1000, ..PLAIN });

pub(super) const FLATOUT_LOG_OFF: Subject = run("flatout, log off", PLAIN);
pub(super) const FLATOUT_LOG: Subject = run("flatout, log on", Settings { log: true, ..PLAIN });
pub(super) const NGINX_LOG: Subject = nginx("nginx, log buffered", true, NginxLog::Buffered);
pub(super) const NGINX_LOG_LINES: Subject = nginx("nginx, log unbuffered", true, NginxLog::Unbuffered);

pub(super) const FLATOUT_DIGESTS_OFF: Subject = run("flatout, digests off", PLAIN);
pub(super) const FLATOUT_DIGESTS: Subject = Subject {
    shows: &[Mark::ReprDigest, Mark::ContentMd5],
    ..run("flatout, digests on", Settings { digests: true, ..PLAIN })
};
pub(super) const APACHE: Subject = subject("apache2, ContentDigest Off", Setup::Apache { digest: false });
pub(super) const APACHE_DIGEST: Subject =
    Subject { shows: &[Mark::ContentMd5], ..subject("apache2, ContentDigest On", Setup::Apache { digest: true }) };

const COMPRESSING: Settings = Settings { compress: true, ..PLAIN };
pub(super) const FLATOUT_IDENTITY: Subject = run("flatout, plain", COMPRESSING);
pub(super) const FLATOUT_BROTLI: Subject =
    Subject { asks: &["Accept-Encoding: br"], shows: &[Mark::Brotli], ..run("flatout, brotli", COMPRESSING) };

pub(super) const FLATOUT_STATIC: Subject = subject("flatout, static file", Setup::Serve);
pub(super) const ACCELERATE: Subject = subject("flatout accelerate", Setup::Accelerate);
pub(super) const VARNISH: Subject = subject("Varnish", Setup::Varnish);
pub(super) const NGINX_CACHE: Subject = subject("nginx, proxy_cache", Setup::NginxProxy { sendfile: true });
pub(super) const NGINX_CACHE_READING: Subject =
    subject("nginx, proxy_cache, sendfile off", Setup::NginxProxy { sendfile: false });
pub(super) const NGINX_PROXY: Subject = subject("nginx, proxy_pass", Setup::NginxProxy { sendfile: true });
pub(super) const HAPROXY_CACHE: Subject = subject("HAProxy, cache", Setup::Haproxy);
pub(super) const HAPROXY: Subject = subject("HAProxy", Setup::Haproxy);
pub(super) const TRAFFIC_SERVER: Subject = subject("Traffic Server", Setup::TrafficServer);

/// A page with the time in it, made again for each request.
pub(super) const PAGES: Subject = subject("flatout, active page", Setup::Pages);
pub(super) const NGINX_LUA: Subject = subject("nginx, Lua module", Setup::NginxLua);
pub(super) const NGINX_PHP: Subject = subject("nginx and PHP-FPM", Setup::NginxPhp);

impl Subject {
    /// The path it is asked for, with its first slash. What is active has its own ending, or none.
    pub(super) fn path(self, file: File) -> String {
        match self.setup {
            Setup::Pages => format!("/{}", file.stem()),
            Setup::NginxPhp => format!("/{}.php", file.stem()),
            _ => format!("/{}", file.path),
        }
    }

    /// For file names.
    pub(super) fn slug(self) -> String {
        let kept = self.name.chars().filter(|c| *c != ',');
        kept.map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
    }
}
