//! Chains and loops of accelerators, and what origins do because of the fields that an accelerator adds.

use super::super::harness::{Folder, Server, flatout, wait_until};
use super::super::nginx;
use super::super::process::{Running, free_port};
use super::super::tool::{run, tool};
use std::net::TcpStream;
use std::process::Stdio;

/// A page that can be compressed well.
fn page() -> String {
    "<p>flatout</p>\n".repeat(400)
}

/// Number of bytes of the response to a request with these fields that accepts gzip.
fn size(url: &str, fields: &[&str]) -> usize {
    let mut curl = tool("curl");
    curl.args(["-sf", "-H", "Accept-Encoding: gzip", "-o", "/dev/null", "-w", "%{size_download}", url]);
    for field in fields {
        curl.args(["-H", field]);
    }
    run(&mut curl).trim().parse().unwrap()
}

/// nginx compresses no response to a request with Via, unless it is configured to.
#[test]
fn nginx_compresses_as_without_the_accelerator() {
    let page = page();
    let folder = Folder::with(&[("html/index.html", page.as_bytes())]);
    let port = free_port();
    let settings = format!("gzip on; server {{ listen 127.0.0.1:{port}; root {}/html; }}", folder.path().display());
    let _nginx = nginx::start(&folder, &settings, || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let origin = format!("http://127.0.0.1:{port}");
    let direct = size(&format!("{origin}/"), &[]);
    assert!(direct < 200, "{direct}");
    assert_eq!(size(&format!("{origin}/"), &["Via: 1.1 flatout"]), page.len());
    for arguments in [&[][..], &["--no-cache"]] {
        let server = Server::accelerate(&origin, arguments);
        // Neither for this visitor nor for the next.
        assert_eq!(size(&server.url("/"), &["Via: 1.1 other"]), direct, "{arguments:?}");
        assert_eq!(size(&server.url("/"), &[]), direct, "{arguments:?}");
    }
}

/// Apache does not look at Via.
#[test]
fn apache_compresses_with_and_without_via() {
    const MODULES: [&str; 6] = ["mpm_event", "authz_core", "mime", "dir", "filter", "deflate"];
    let folder = Folder::with(&[("html/index.html", page().as_bytes())]);
    let port = free_port();
    let modules = MODULES.map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"));
    let root = folder.path().display();
    let settings = format!(
        "ServerRoot {root}\nServerName test\nListen 127.0.0.1:{port}\nPidFile pid\nErrorLog error.log\n{}\
         TypesConfig /dev/null\nAddType text/html .html\nDocumentRoot {root}/html\n\
         AddOutputFilterByType DEFLATE text/html\n",
        modules.concat()
    );
    folder.write("apache.conf", settings.as_bytes());
    let mut command = tool("apache2");
    command.arg("-DFOREGROUND").arg("-f").arg(folder.path().join("apache.conf"));
    let _apache = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_until("Apache listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let url = format!("http://127.0.0.1:{port}/");
    let [with, without] = [&["Via: 1.1 flatout"][..], &[]].map(|fields| size(&url, fields));
    assert!((1..200).contains(&with) && with == without, "{with} {without}");
}

/// The name and the configuration of accelerators in a chain may be the same.
#[test]
fn a_chain_is_no_loop_and_a_loop_ends() {
    let site = Folder::with(&[("a.txt", b"a")]);
    let mut servers = vec![Server::start(site.path(), &[])];
    for _ in 0..4 {
        let origin = servers.last().unwrap().url("");
        servers.push(Server::accelerate(&origin, &["--no-cache"]));
    }
    let response = servers.last().unwrap().get("/a.txt");
    assert_eq!((response.status, &*response.body), (200, &b"a"[..]));

    let port = free_port();
    let first = Server::accelerate(&format!("http://127.0.0.1:{port}"), &[]);
    let mut command = flatout();
    let listen = format!("127.0.0.1:{port}");
    command.args(["accelerate", &first.url(""), "--listen", &listen, "--workers", "1", "--admin", "off"]);
    let second = Server::spawn(command);
    let response = second.get("/");
    assert_eq!(response.status, 508);
    let status = response.field("cache-status").unwrap();
    assert!(status.contains("detail=loop_detected"), "{status}");
}
