//! The configurations of those who make a page again for each request: the time goes into the text of the case.

use super::cases::Load;
use super::configs::Ground;
use super::timed::ASKS_OPCACHE;
use super::{query, site};
use std::path::{Path, PathBuf};

/// Where Debian keeps nginx's modules.
const NGINX_MODULES: &str = "/usr/lib/nginx/modules";

/// nginx's and PHP's own names for what PHP must know of a request, from Debian's package.
const FASTCGI_PARAMETERS: &str = "/etc/nginx/fastcgi.conf";

fn root(ground: Ground<'_>) -> PathBuf {
    ground.folder.join(ground.case.file.root)
}

/// Our own pages of that folder.
pub(super) fn flatout(ground: Ground<'_>) -> String {
    let (port, root) = (ground.port, root(ground));
    let root = root.display();
    let pages = if ground.case.file == site::QUERY {
        let database = query::database(ground.folder);
        format!("pages \"{root}\" {{ database \"{}\"; }}", database.display())
    } else {
        format!("pages \"{root}\"")
    };
    format!("workers 1\nadmin off=#true\nsite \"*\" {{\n    listen \"127.0.0.1:{port}\"\n    {pages}\n}}\n")
}

/// Its Lua module as its manual advises: code kept, the page read before the worker starts, the length said, the time
/// from nginx's own cached clock.
pub(super) fn nginx_lua(ground: Ground<'_>) -> String {
    let root = root(ground);
    let root = root.display();
    let (path, stem) = (ground.case.file.path, ground.case.file.stem());
    let modules = format!(
        "load_module {NGINX_MODULES}/ndk_http_module.so;\nload_module {NGINX_MODULES}/ngx_http_lua_module.so;\n"
    );
    nginx(
        ground,
        &modules,
        &format!(
            "    lua_code_cache on;
    lua_package_path \"{root}/?.lua;;\";
    init_by_lua_block {{ require \"{stem}\" }}
"
        ),
        &format!("        location = /{path} {{ content_by_lua_block {{ require(\"{stem}\")() }} }}\n"),
    )
}

/// PHP-FPM behind it, with a connection kept to each of its children, and room in memory for the largest page.
pub(super) fn nginx_php(ground: Ground<'_>) -> String {
    let root = root(ground);
    let (socket, children) = (socket(ground), clients(ground));
    nginx(
        ground,
        "",
        &format!(
            "    upstream php {{
        server unix:{};
        keepalive {children};
        keepalive_requests 1000000000;
    }}
",
            socket.display()
        ),
        &format!(
            "        root {};
        location ~ \\.php$ {{
            include {FASTCGI_PARAMETERS};
            fastcgi_pass php;
            fastcgi_keep_conn on;
            fastcgi_buffer_size 16k;
            fastcgi_buffers 16 16k;
        }}
",
            root.display()
        ),
    )
}

fn nginx(ground: Ground<'_>, modules: &str, http: &str, server: &str) -> String {
    let folder = ground.folder.display();
    let Ground { slug: own, port, .. } = ground;
    format!(
        "{modules}daemon off;
worker_processes 1;
worker_rlimit_nofile 65536;
pid {folder}/{own}.pid;
error_log {folder}/{own}.error crit;
events {{
    worker_connections 8192;
}}
http {{
    types {{ text/html html; }}
    default_type text/html;
    access_log off;
    keepalive_timeout 65;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/{own}-1;
    proxy_temp_path {folder}/{own}-2;
    fastcgi_temp_path {folder}/{own}-3;
    uwsgi_temp_path {folder}/{own}-4;
    scgi_temp_path {folder}/{own}-5;
{http}    server {{
        listen 127.0.0.1:{port} backlog=4096 deferred;
{server}    }}
}}
"
    )
}

/// Where PHP-FPM listens.
pub(super) fn socket(ground: Ground<'_>) -> PathBuf {
    ground.folder.join(format!("{}.sock", ground.slug))
}

/// A child serves one connection at a time, and nginx keeps one for each client: with fewer children, requests would wait
/// behind connections on which nothing is asked.
fn clients(ground: Ground<'_>) -> usize {
    match ground.case.load {
        Load::Wrk { connections, .. } | Load::H2load { connections, .. } | Load::Ab { connections } => connections,
    }
}

/// As many children as there are clients, started once; scripts are compiled once and never looked at again.
pub(super) fn php_fpm(ground: Ground<'_>) -> String {
    let folder = ground.folder.display();
    let (own, socket, children) = (ground.slug, socket(ground), clients(ground));
    format!(
        "[global]
daemonize = no
error_log = {folder}/{own}.fpm
log_level = error
[www]
user = nobody
group = nogroup
listen = {}
listen.mode = 0666
listen.backlog = 4096
pm = static
pm.max_children = {children}
pm.max_requests = 0
php_admin_value[opcache.enable] = 1
php_admin_value[opcache.validate_timestamps] = 0
php_admin_value[expose_php] = 0
",
        socket.display()
    )
}

/// PHP-FPM has its version in its name.
pub(super) fn php_fpm_program() -> Option<PathBuf> {
    let folders = ["/usr/sbin", "/usr/local/sbin"].map(Path::new);
    let entries = folders.iter().filter_map(|folder| folder.read_dir().ok()).flatten().flatten();
    let named = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("php-fpm"));
    entries.map(|entry| entry.path()).filter(named).max()
}

/// The path that says whether the case's script is kept compiled.
pub(super) fn opcache_path(stem: &str) -> String {
    format!("/{ASKS_OPCACHE}?{stem}.php")
}

#[cfg(test)]
mod tests {
    use super::super::coyote;
    use super::*;

    #[test]
    fn every_peer_has_the_page_of_its_case() {
        for case in coyote::CASES {
            let ground = Ground { case, folder: Path::new("/bench"), slug: "own", port: 1, origin: 0 };
            let stem = case.file.stem();
            assert!(nginx_lua(ground).contains(&format!("location = /{stem}.html {{")), "{}", case.name);
            assert!(nginx_lua(ground).contains(&format!("require(\"{stem}\")()")), "{}", case.name);
            let children = clients(ground);
            assert!(children == 5 || children == 50);
            assert!(nginx_php(ground).contains(&format!("keepalive {children};")), "{}", case.name);
            assert!(php_fpm(ground).contains(&format!("max_children = {children}\n")), "{}", case.name);
            assert!(flatout(ground).contains("pages \"/bench/coyote\""), "{}", case.name);
        }
    }
}
