//! A visitor: curl with a cookie jar.

use crate::harness::{Folder, Server};
use crate::tool::tool;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The host in all requests of visitors.
pub(super) const HOST: &str = "www.example";

pub(super) struct Visitor {
    pub(super) name: String,
    address: SocketAddr,
    jar: PathBuf,
}

impl Visitor {
    /// A visitor of `server` without cookies.
    pub(super) fn new(folder: &Folder, server: &Server, name: &str) -> Self {
        let jar = folder.path().join(format!("jar-{name}-{}", server.address.port()));
        Self { name: name.to_owned(), address: server.address, jar }
    }

    /// Adds a cookie, written `name=value`, before the first request.
    pub(super) fn with_cookie(self, cookie: &str) -> Self {
        let (name, value) = cookie.split_once('=').unwrap();
        // Netscape's format: host, whether subdomains match, path, TLS only, expiry, name and value.
        fs::write(&self.jar, format!("{HOST}\tFALSE\t/\tFALSE\t0\t{name}\t{value}\n")).unwrap();
        self
    }

    pub(super) fn get(&self, target: &str) -> Page {
        self.fetch(target, &[])
    }

    /// Sends a form with POST.
    pub(super) fn post(&self, target: &str, form: &[(&str, &str)]) -> Page {
        let fields: Vec<String> = form.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let arguments: Vec<&str> = fields.iter().flat_map(|field| ["--data-urlencode", field.as_str()]).collect();
        self.fetch(target, &arguments)
    }

    /// The final response to one request. Redirects are not followed. `arguments` are passed to curl.
    pub(super) fn fetch(&self, target: &str, arguments: &[&str]) -> Page {
        let mut curl = tool("curl");
        curl.args(["--silent", "--show-error", "--include", "--path-as-is", "--globoff", "--max-time", "60"])
            .arg("--cookie-jar")
            .arg(&self.jar)
            .arg("--cookie")
            .arg(&self.jar)
            .args(["--connect-to", &format!("{HOST}:80:{}", self.address)]);
        let output = curl.args(arguments).arg(format!("http://{HOST}{target}")).output().unwrap();
        assert!(output.status.success(), "{target}: {}", String::from_utf8_lossy(&output.stderr));
        Page::parse(&String::from_utf8_lossy(&output.stdout))
    }
}

/// A response in the form that curl prints.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) status: u16,
    head: String,
    pub(super) text: String,
}

impl Page {
    fn parse(mut printed: &str) -> Self {
        loop {
            let (head, text) = printed.split_once("\r\n\r\n").unwrap_or((printed, ""));
            let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
            let status: u16 = status.unwrap_or_else(|| panic!("no response: {printed:?}"));
            if status >= 200 {
                return Self { status, head: head.to_owned(), text: text.to_owned() };
            }
            printed = text;
        }
    }

    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.into_iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Returns true if the response came from the cache, without a request to the origin.
    pub(super) fn is_hit(&self) -> bool {
        self.field("Cache-Status").is_some_and(|status| status.contains("; hit"))
    }

    #[track_caller]
    pub(super) fn expect_hit(&self, what: &str) {
        assert!(self.is_hit(), "{what} is no hit: {}", self.head);
    }
}
