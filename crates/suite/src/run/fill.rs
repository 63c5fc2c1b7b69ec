//! Replacement of placeholders for a server or a step.

use crate::combine::Values;
use crate::template::Name;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The addresses and the folder of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Whereabouts {
    pub(super) server: String,
    pub(super) address: SocketAddr,
    pub(super) port2: u16,
    /// True if the server uses TLS.
    pub(super) tls: bool,
    pub(super) dir: PathBuf,
}

/// The values with which placeholders are replaced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill<'f> {
    /// Name of the server to which placeholders without a colon refer.
    pub(super) server: &'f str,
    /// All servers that already have an address.
    pub(super) servers: &'f [Whereabouts],
    /// Names and values of variables, including variables that are computed from figures.
    pub(super) values: &'f Values,
    /// Names and folders of the fixtures.
    pub(super) fixtures: &'f [(String, PathBuf)],
    /// Number of cores of the server.
    pub(super) cores: usize,
    /// Folder of the suite's file.
    pub(super) suite_dir: &'f Path,
    /// Path of the flatout executable.
    pub(super) own: &'f Path,
}

impl Fill<'_> {
    pub(super) fn value(&self, name: Name<'_>) -> Option<String> {
        let of = name.of.unwrap_or(self.server);
        let place = || self.servers.iter().find(|place| place.server == of);
        match name.name {
            "address" => place().map(|place| place.address.ip().to_string()),
            "port" => place().map(|place| place.address.port().to_string()),
            "port2" => place().map(|place| place.port2.to_string()),
            "dir" => place().map(|place| place.dir.display().to_string()),
            "url" => place().map(|place| format!("{}://{}", if place.tls { "https" } else { "http" }, place.address)),
            _ if name.of.is_some() => None,
            "cores" => Some(self.cores.to_string()),
            "flatout" => Some(self.own.display().to_string()),
            "suite-dir" => Some(self.suite_dir.display().to_string()),
            other => {
                let value = self.values.iter().find(|(known, _)| known == other).map(|(_, value)| value.clone());
                let folder = || self.fixtures.iter().find(|(known, _)| known == other);
                value.or_else(|| folder().map(|(_, path)| path.display().to_string()))
            }
        }
    }

    pub(super) fn fill(&self, text: &str) -> String {
        crate::template::expand(text, &|name| self.value(name))
    }
}

#[cfg(test)]
mod tests {
    use super::{Fill, Whereabouts};
    use std::path::{Path, PathBuf};

    #[test]
    fn names_stand_for_what_the_server_and_the_step_have() {
        let place = |server: &str, port| Whereabouts {
            server: server.to_owned(),
            address: ([127, 0, 0, 1], port).into(),
            port2: port + 1,
            tls: server == "b",
            dir: PathBuf::from("/d").join(server),
        };
        let (servers, values) = ([place("a", 80), place("b", 90)], vec![("size".to_owned(), "317".to_owned())]);
        let fixtures = [("site".to_owned(), PathBuf::from("/s"))];
        let fill = Fill {
            server: "a",
            servers: &servers,
            values: &values,
            fixtures: &fixtures,
            cores: 2,
            suite_dir: Path::new("/suites"),
            own: Path::new("/bin/flatout"),
        };
        let text = "{address}:{port} {port2} {dir} {url:b} {cores} {size} {site} {suite-dir} {path} {url:c} {size:b}";
        let filled = "127.0.0.1:80 81 /d/a https://127.0.0.1:90 2 317 /s /suites {path} {url:c} {size:b}";
        assert_eq!(fill.fill(text), filled);
    }
}
