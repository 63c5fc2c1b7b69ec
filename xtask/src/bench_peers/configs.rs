//! The configurations, each as its server's manual advises for static files.

use super::cases::{Case, Kind, Speech};
use super::site::SITE;
use super::subjects::{NginxLog, NginxSettings, Settings};
use std::fmt::Write as _;
use std::path::Path;

/// Where nginx says how many requests it has counted.
pub(super) const STATUS_PATH: &str = "/status";

/// The certificate and its key, in the bench's folder.
pub(super) const CERTIFICATE: &str = "cert.pem";
pub(super) const KEY: &str = "key.pem";

/// Where Debian keeps apache2's modules.
const APACHE_MODULES: &str = "/usr/lib/apache2/modules";

/// What every configuration needs to know.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ground<'a> {
    pub(super) case: &'a Case,
    /// The bench's folder, in which everything is written.
    pub(super) folder: &'a Path,
    /// For the names of files.
    pub(super) slug: &'a str,
    pub(super) port: u16,
    /// The port of the origin, for those who stand in front of one; 0 for the others.
    pub(super) origin: u16,
}

impl Ground<'_> {
    /// The log of requests, for those who keep one.
    pub(super) fn access_log(&self) -> std::path::PathBuf {
        self.folder.join(format!("{}.access", self.slug))
    }
}

/// For `flatout run -c`.
pub(super) fn flatout(settings: Settings, ground: Ground<'_>) -> String {
    let folder = ground.folder.display();
    let mut text = String::from("workers 1\nadmin off=#true\n");
    if settings.log {
        let _ = writeln!(text, "log \"{}\" format=\"combined\"", ground.access_log().display());
    }
    for site in 1..=settings.sites {
        let host = if settings.sites == 1 { "*".to_owned() } else { format!("s{site}.example") };
        let _ = writeln!(text, "site \"{host}\" {{");
        let listen = match ground.case.speech {
            Speech::Http1 => "",
            Speech::Http2 => " h2c=#true",
            Speech::Http1Tls | Speech::Http2Tls => " tls=#true",
        };
        let _ = writeln!(text, "    listen \"127.0.0.1:{}\"{listen}", ground.port);
        if ground.case.speech.is_tls() {
            let _ = writeln!(text, "    tls cert=\"{folder}/{CERTIFICATE}\" key=\"{folder}/{KEY}\"");
        }
        for route in 1..settings.routes {
            let _ = writeln!(text, "    route \"/r{route}/*\" {{ files \"{folder}/{SITE}\"; }}");
        }
        if settings.routes > 0 {
            let last = ground.case.file.root;
            let _ = writeln!(text, "    route \"/last/*\" {{ files \"{folder}/{last}\"; }}");
        }
        let mut files = String::new();
        if settings.digests {
            files.push_str("        digest #true always=#true\n        content-md5 #true\n");
        }
        if settings.compress {
            files.push_str("        compress \"br\"\n");
        }
        if files.is_empty() {
            let _ = writeln!(text, "    files \"{folder}/{SITE}\"");
        } else {
            let _ = writeln!(text, "    files \"{folder}/{SITE}\" {{\n{files}    }}");
        }
        text.push_str("}\n");
    }
    text
}

/// As nginx's manual advises for static files, except that `tcp_nopush` is kept for large ones: around a small answer it
/// only adds two system calls.
pub(super) fn nginx(settings: NginxSettings, ground: Ground<'_>) -> String {
    let sending = match (settings.sendfile, ground.case.kind) {
        (false, _) => "sendfile off;\n    output_buffers 1 32k;",
        (true, Kind::ServerPerMebibyte) => "sendfile on;\n    tcp_nopush on;",
        (true, _) => "sendfile on;",
    };
    let file = ground.access_log();
    let file = file.display();
    let log = match settings.log {
        NginxLog::Off => "access_log off;".to_owned(),
        NginxLog::Buffered => format!("access_log {file} combined buffer=64k flush=1s;"),
        NginxLog::Unbuffered => format!("access_log {file} combined;"),
        NginxLog::Reuse => format!("log_format reuse '$ssl_session_reused';\n    access_log {file} reuse;"),
    };
    let folder = ground.folder.display();
    let (own, port) = (ground.slug, ground.port);
    let speech = ground.case.speech;
    let listen = match speech {
        Speech::Http1 => "",
        Speech::Http1Tls => " ssl",
        Speech::Http2 => " http2",
        Speech::Http2Tls => " ssl http2",
    };
    let mut more = String::new();
    if speech.is_tls() {
        let _ = writeln!(more, "        ssl_certificate {folder}/{CERTIFICATE};");
        let _ = writeln!(more, "        ssl_certificate_key {folder}/{KEY};");
        let _ = writeln!(more, "        ssl_protocols TLSv1.3;");
    }
    if speech.is_http2() {
        let _ = writeln!(more, "        http2_max_concurrent_streams 128;");
    }
    format!(
        "daemon off;
worker_processes 1;
worker_rlimit_nofile 65536;
pid {folder}/{own}.pid;
error_log {folder}/{own}.error crit;
events {{
    worker_connections 8192;
}}
http {{
    types {{ text/html html; application/octet-stream bin; }}
    {log}
    {sending}
    keepalive_timeout 65;
    keepalive_requests 1000000000;
    open_file_cache max=1000 inactive=60s;
    open_file_cache_valid 60s;
    open_file_cache_min_uses 1;
    client_body_temp_path {folder}/{own}-1;
    proxy_temp_path {folder}/{own}-2;
    fastcgi_temp_path {folder}/{own}-3;
    uwsgi_temp_path {folder}/{own}-4;
    scgi_temp_path {folder}/{own}-5;
    server {{
        listen 127.0.0.1:{port}{listen} backlog=4096 deferred;
{more}        root {folder}/{SITE};
        location = {STATUS_PATH} {{ stub_status; }}
    }}
}}
"
    )
}

pub(super) fn lighttpd(ground: Ground<'_>) -> String {
    let folder = ground.folder.display();
    let port = ground.port;
    format!(
        r#"server.document-root = "{folder}/{SITE}"
server.bind = "127.0.0.1"
server.port = {port}
server.pid-file = "{folder}/lighttpd.pid"
server.errorlog = "{folder}/lighttpd.error"
server.event-handler = "linux-sysepoll"
server.network-backend = "sendfile"
server.stat-cache-engine = "inotify"
server.defer-accept = 1
server.max-fds = 16384
server.max-keep-alive-requests = 65535
server.max-keep-alive-idle = 60
mimetype.assign = ( ".html" => "text/html", ".bin" => "application/octet-stream" )
"#
    )
}

/// One process of mpm_event, none of Debian's own sites.
pub(super) fn apache(digest: bool, ground: Ground<'_>) -> String {
    let folder = ground.folder.display();
    let (own, port) = (ground.slug, ground.port);
    let digest = if digest { "On" } else { "Off" };
    format!(
        "ServerRoot {folder}
DefaultRuntimeDir {folder}
PidFile {folder}/{own}.pid
ErrorLog {folder}/{own}.error
LogLevel crit
LoadModule mpm_event_module {APACHE_MODULES}/mod_mpm_event.so
LoadModule authz_core_module {APACHE_MODULES}/mod_authz_core.so
ServerName 127.0.0.1
Listen 127.0.0.1:{port}
User nobody
Group nogroup
StartServers 1
ServerLimit 1
ThreadsPerChild 64
MaxRequestWorkers 64
MinSpareThreads 1
MaxSpareThreads 64
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 65
EnableSendfile On
DocumentRoot {folder}/{SITE}
ContentDigest {digest}
"
    )
}

pub(super) fn h2o(ground: Ground<'_>) -> String {
    let folder = ground.folder.display();
    let (own, port) = (ground.slug, ground.port);
    let mut tls = String::new();
    if ground.case.speech.is_tls() {
        let _ = writeln!(tls, "  ssl:\n    certificate-file: {folder}/{CERTIFICATE}\n    key-file: {folder}/{KEY}");
        // Nobody answers for a certificate of our own making.
        let _ = writeln!(tls, "    ocsp-update-interval: 0");
    }
    format!(
        "num-threads: 1
error-log: {folder}/{own}.error
http2-max-concurrent-requests-per-connection: 128
listen:
  host: 127.0.0.1
  port: {port}
{tls}hosts:
  default:
    paths:
      \"/\":
        file.dir: {folder}/{SITE}
"
    )
}

#[cfg(test)]
mod tests {
    use super::super::cases::CASES;
    use super::super::subjects::{FLATOUT_ROUTES, FLATOUT_SITES, NGINX, NGINX_READING, Setup, Subject};
    use super::*;

    fn text(subject: Subject, name: &str) -> String {
        let case = CASES.iter().find(|case| case.name == name).unwrap();
        let ground = Ground { case, folder: Path::new("/bench"), slug: "own", port: 1, origin: 0 };
        match subject.setup {
            Setup::Run(settings) => flatout(settings, ground),
            Setup::Nginx(settings) => nginx(settings, ground),
            _ => String::new(),
        }
    }

    #[test]
    fn nginx_is_configured_for_what_it_serves() {
        let [alive, close, large] = ["keep-alive", "close", "large-file"].map(|name| text(NGINX, name));
        assert!(alive.contains("sendfile on;") && close.contains("sendfile on;") && large.contains("sendfile on;"));
        assert!(!alive.contains("tcp_nopush") && !close.contains("tcp_nopush") && large.contains("tcp_nopush on;"));
        assert!(text(NGINX_READING, "close").contains("sendfile off;"));
        for text in [alive, close, large] {
            assert!(text.contains("listen 127.0.0.1:1 backlog=4096 deferred;"), "{text}");
        }
        assert!(text(NGINX, "http2").contains("listen 127.0.0.1:1 http2 backlog"));
        assert!(text(NGINX, "tls-handshakes").contains("listen 127.0.0.1:1 ssl backlog"));
    }

    #[test]
    fn many_routes_are_many_and_only_the_last_leads_to_the_file() {
        for (subject, sites) in [(FLATOUT_SITES, 100), (FLATOUT_ROUTES, 1)] {
            let text = text(subject, "many-routes");
            assert_eq!(text.matches("    route ").count(), 1000, "{}", subject.name);
            assert_eq!(text.matches("/bench/last\"").count(), sites, "{}", subject.name);
        }
        assert!(text(FLATOUT_SITES, "many-routes").contains("site \"s73.example\" {"));
    }
}
