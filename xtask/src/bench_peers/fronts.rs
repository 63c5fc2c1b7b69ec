//! The configurations of those who stand in front of an origin, each as its manual advises, with one worker and no log.

use super::cases::{Behind, Kind};
use super::configs::Ground;
use crate::failure::{Context, Outcome};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Where Debian keeps Traffic Server's modules.
const TRAFFIC_SERVER_MODULES: &str = "/usr/lib/trafficserver/modules";

/// Varnish writes a line of its shared log for each of these while it answers a request, even if nothing reads them.
pub(super) const VARNISH_UNLOGGED: &str = "vsl_mask=-Begin,-End,-ReqStart,-ReqMethod,-ReqURL,-ReqProtocol,-ReqHeader,\
    -ReqUnset,-ReqAcct,-RespProtocol,-RespStatus,-RespReason,-RespHeader,-RespUnset,-VCL_call,-VCL_return,-VCL_use,\
    -Hit,-Timestamp,-Length,-SessOpen,-SessClose,-Link,-Filters,-Storage";

fn keeps(ground: Ground<'_>) -> bool {
    ground.case.behind == Some(Behind::Kept)
}

pub(super) fn varnish(ground: Ground<'_>) -> String {
    format!("vcl 4.1;\nbackend default {{ .host = \"127.0.0.1\"; .port = \"{}\"; }}\n", ground.origin)
}

pub(super) fn nginx(sendfile: bool, ground: Ground<'_>) -> String {
    let sending = match (sendfile, ground.case.kind) {
        (false, _) => "sendfile off;\n    output_buffers 1 32k;",
        (true, Kind::ServerPerMebibyte) => "sendfile on;\n    tcp_nopush on;",
        (true, _) => "sendfile on;",
    };
    let folder = ground.folder.display();
    let Ground { slug: own, port, origin, .. } = ground;
    let (mut zone, mut cache) = (String::new(), "");
    if keeps(ground) {
        let _ = writeln!(
            zone,
            "    proxy_cache_path {folder}/{own}-cache levels=1:2 keys_zone=cache:10m max_size=1g inactive=1d use_temp_path=off;"
        );
        cache = "            proxy_cache cache;\n            proxy_cache_lock on;\n";
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
    access_log off;
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
{zone}    upstream origin {{
        server 127.0.0.1:{origin};
        keepalive 64;
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096 deferred;
        location / {{
            proxy_pass http://origin;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
{cache}        }}
    }}
}}
"
    )
}

/// Its `max-age` would otherwise cut every lifetime to a minute, and its `max-object-size` keep out all that is large.
pub(super) fn haproxy(ground: Ground<'_>) -> String {
    let Ground { port, origin, .. } = ground;
    let (mut store, mut rules) = ("", "");
    if keeps(ground) {
        store = "cache store\n    total-max-size 256\n    max-object-size 33554432\n    max-age 86400\n";
        rules = "    http-request cache-use store\n    http-response cache-store store\n";
    }
    format!(
        "global
    nbthread 1
    maxconn 4096
defaults
    mode http
    timeout connect 5s
    timeout client 65s
    timeout server 65s
    timeout http-keep-alive 65s
    http-reuse always
{store}frontend front
    bind 127.0.0.1:{port} defer-accept
    default_backend back
backend back
{rules}    server origin 127.0.0.1:{origin}
"
    )
}

/// Traffic Server's own folder, with all that it reads written: the folder, and the text for the report.
pub(super) fn traffic_server(ground: Ground<'_>) -> Outcome<(PathBuf, String)> {
    let own = ground.folder.join(ground.slug);
    let at = own.display();
    let Ground { port, origin, .. } = ground;
    for part in ["etc", "run", "log", "cache", "var"] {
        std::fs::create_dir_all(own.join(part)).cannot("create a server's folders")?;
    }
    let layout = format!(
        "prefix: {at}
exec_prefix: /usr
bindir: /usr/bin
sbindir: /usr/sbin
sysconfdir: {at}/etc
datadir: {at}/cache
includedir: /usr/include
libdir: /usr/lib/trafficserver
libexecdir: {TRAFFIC_SERVER_MODULES}
localstatedir: {at}/var
runtimedir: {at}/run
logdir: {at}/log
cachedir: {at}/cache
"
    );
    let records = format!(
        "CONFIG proxy.config.admin.user_id STRING #-1
CONFIG proxy.config.http.server_ports STRING {port}:ip-in=127.0.0.1
CONFIG proxy.config.exec_thread.autoconfig INT 0
CONFIG proxy.config.exec_thread.limit INT 1
CONFIG proxy.config.accept_threads INT 0
CONFIG proxy.config.task_threads INT 1
CONFIG proxy.config.cache.threads_per_disk INT 1
CONFIG proxy.config.cache.ram_cache.size INT 268435456
CONFIG proxy.config.cache.ram_cache_cutoff INT 33554432
CONFIG proxy.config.http.wait_for_cache INT 1
CONFIG proxy.config.reverse_proxy.enabled INT 1
CONFIG proxy.config.url_remap.remap_required INT 1
CONFIG proxy.config.log.logging_enabled INT 0
CONFIG proxy.config.crash_log_helper STRING NULL
"
    );
    let files = [
        ("runroot.yaml", layout),
        ("etc/records.config", records),
        ("etc/remap.config", format!("map / http://127.0.0.1:{origin}/\n")),
        ("etc/storage.config", format!("{at}/cache 256M\n")),
        (
            "etc/ip_allow.yaml",
            "ip_allow:\n  - apply: in\n    ip_addrs: 127.0.0.1\n    action: allow\n    methods: ALL\n".to_owned(),
        ),
    ];
    let mut shown = String::new();
    for (name, text) in files {
        std::fs::write(own.join(name), &text).cannot("write a configuration")?;
        let _ = write!(shown, "# {name}\n{text}");
    }
    Ok((own, shown))
}

#[cfg(test)]
mod tests {
    use super::super::cases::CASES;
    use super::*;
    use std::path::Path;

    #[test]
    fn only_where_answers_are_kept_has_a_peer_a_cache() {
        for (name, keeps) in [("hit", true), ("hit-large", true), ("forward", false)] {
            let case = CASES.iter().find(|case| case.name == name).unwrap();
            let ground = Ground { case, folder: Path::new("/bench"), slug: "own", port: 1, origin: 2 };
            assert_eq!(nginx(true, ground).contains("proxy_cache cache;"), keeps, "{name}");
            assert_eq!(haproxy(ground).contains("cache-use"), keeps, "{name}");
            for text in [nginx(true, ground), haproxy(ground)] {
                assert!(text.contains("127.0.0.1:1 ") && text.contains("127.0.0.1:2"), "{text}");
            }
        }
    }
}
