//! Parsing of servers.

use super::Reader;
use crate::model::{ConfigFile, Placed, Program, Ready, Server, VersionAsked};
use flatout_config::Code;
use flatout_config::syntax::Node;

/// Settings of a server.
const SETTINGS: &[&str] = &[
    "about",
    "program",
    "package",
    "needs",
    "at-least",
    "config",
    "start",
    "env",
    "ready",
    "after",
    "address",
    "port",
    "cores",
    "tls",
    "counts",
    "set",
    "stop-signal",
];

/// Default timeout of a server's readiness, in milliseconds, sufficient on a busy machine.
const READY_TIMEOUT_MS: u64 = 20_000;

/// Signals that servers end by in order, with the kernel's numbers on Linux.
const SIGNALS: &[(&str, i32)] = &[("TERM", 15), ("INT", 2), ("QUIT", 3), ("HUP", 1), ("WINCH", 28), ("KILL", 9)];

impl Reader<'_> {
    /// A server; one of `earlier` may be its pattern.
    pub(super) fn server(&mut self, node: &Node, earlier: &[Server]) -> Server {
        self.plain(node, &["like"]);
        let pattern = self.pattern(node, earlier).cloned();
        let mut server = pattern.unwrap_or_else(|| Server {
            address: "127.0.0.1".to_owned(),
            stop_signal: 15,
            ready: Ready { timeout_ms: READY_TIMEOUT_MS, ..Ready::default() },
            ..Server::default()
        });
        server.name = self.name_of(node).unwrap_or_default();
        server.place = self.texts.place(node.span);
        server.about.clear();
        let mut seen = Vec::new();
        if node.children.is_none() && !server.program.name.text.is_empty() {
            return server;
        }
        for setting in self.block(node, "server \"nginx\" { program \"nginx\"; start \"-c\" \"{dir}/nginx.conf\" }") {
            let many = matches!(setting.name.as_str(), "config" | "env" | "needs" | "set");
            if many || self.first(&mut seen, setting) {
                self.server_setting(&mut server, setting);
            }
        }
        if server.program.name.text.is_empty() && node.children.is_some() {
            self.report
                .add(Code::PropertyMissing, node.span, format!("the server `{}` has no `program`", server.name))
                .note("as in: program \"nginx\"");
        }
        server
    }

    fn server_setting(&mut self, server: &mut Server, node: &Node) {
        match node.name.as_str() {
            "about" => server.about = self.text_of(node),
            "program" => server.program.name = self.template_of(node).unwrap_or_default(),
            "package" => server.program.package = Some(self.text_of(node)),
            "needs" => self.needs(&mut server.program, node),
            "at-least" => server.program.version = self.version(node),
            "config" => {
                if let Some(file) = self.config_file(node) {
                    server.configs.retain(|known| known.name != file.name);
                    server.configs.push(file);
                }
            }
            "set" => {
                self.plain(node, &[]);
                self.no_block(node);
                let [name, value] = node.arguments.as_slice() else {
                    let message = "`set` needs a name and a value";
                    self.report.add(Code::ValueMissing, node.span, message).note("as in: set \"sendfile\" \"off\"");
                    return;
                };
                if let (Some(name), Some(value)) = (self.name(name), self.placed(value)) {
                    server.values.retain(|(known, _)| *known != name);
                    server.values.push((name, value));
                }
            }
            "cores" => {
                if let Some(value) = self.only(node) {
                    server.cores = self.core_list(value);
                }
            }
            "tls" => {
                self.none(node);
                self.no_block(node);
                server.tls = true;
            }
            "counts" => {
                server.counts = self.template_of(node);
                if let Some(path) = server.counts.as_ref().filter(|path| !path.text.starts_with('/')) {
                    let message = format!("{:?} is not a path", path.text);
                    self.report.add(Code::TextBad, node.span, message).note("as in: counts \"/status\"");
                }
            }
            "start" => server.start = self.strict(node),
            "env" => {
                self.plain(node, &[]);
                self.no_block(node);
                if let [name, value] = node.arguments.as_slice() {
                    if let (Some(name), Some(value)) = (self.word(name), self.placed(value)) {
                        server.environment.push((name, value));
                    }
                } else {
                    let message = "`env` needs a name and a value";
                    self.report.add(Code::ValueMissing, node.span, message).note("as in: env \"LANG\" \"C\"");
                }
            }
            "ready" => self.ready(&mut server.ready, node),
            "after" => {
                for (word, span) in self.words_of_spans(node) {
                    self.refer("server", &word.text, span);
                    server.after.push(word);
                }
            }
            "address" => {
                let text = self.text_of(node);
                let is_ours = text.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback());
                if is_ours {
                    server.address = text;
                } else {
                    let message = format!("{text:?} is not an address of 127.0.0.0/8");
                    let draft = self.report.add(Code::AddressBad, node.span, message);
                    draft.note("for other networks use a `testbed`, where servers have the address of their host");
                }
            }
            "port" => server.port = self.count_of(node, 1, 65_535).map(|port| port as u16),
            "stop-signal" => {
                let name = self.text_of(node);
                let known = SIGNALS.iter().find(|(known, _)| *known == name.trim_start_matches("SIG"));
                if let Some((_, number)) = known {
                    server.stop_signal = *number;
                } else {
                    let known: Vec<&str> = SIGNALS.iter().map(|(name, _)| *name).collect();
                    let message = format!("{name:?} is not a supported signal");
                    let note = format!("there are: {}", known.join(", "));
                    self.report.add(Code::WordUnknown, node.span, message).note(note);
                }
            }
            _ => self.unknown(node, SETTINGS),
        }
    }

    /// The earlier server that the property `like` names.
    fn pattern<'s>(&mut self, node: &Node, earlier: &'s [Server]) -> Option<&'s Server> {
        let property = node.properties.iter().find(|property| property.name == "like")?;
        let name = self.word(&property.value)?;
        let found = earlier.iter().find(|server| server.name == name);
        if found.is_none() {
            let message = format!("no server `{name}` comes before this one");
            self.report.add(Code::WordUnknown, property.value.span, message);
        }
        found
    }

    /// Words whose names in braces must be known.
    pub(super) fn strict(&mut self, node: &Node) -> Vec<Placed> {
        let words = self.words_of_spans(node);
        for (word, span) in &words {
            self.refer_text(&word.text, *span, &[]);
        }
        words.into_iter().map(|(word, _)| word).collect()
    }

    fn needs(&mut self, program: &mut Program, node: &Node) {
        self.plain(node, &["package"]);
        self.no_block(node);
        let package = node.properties.iter().find(|property| property.name == "package");
        let package = package.and_then(|property| self.word(&property.value));
        let Some(value) = self.one(node) else { return };
        if let Some(path) = self.placed(value) {
            program.needs.push((path, package));
        }
    }

    fn version(&mut self, node: &Node) -> Option<VersionAsked> {
        self.plain(node, &[]);
        let value = self.one(node)?;
        let text = self.word(value)?;
        let at_least = crate::server::version::parse(&text);
        if at_least.is_empty() {
            self.report
                .add(Code::WordUnknown, value.span, format!("{text:?} is not a version"))
                .note("as in: at-least \"1.22\"");
            return None;
        }
        let mut from = vec!["-v".to_owned()];
        for setting in node.children.iter().flatten() {
            match setting.name.as_str() {
                "from" => from = self.words_of(setting).into_iter().map(|word| word.text).collect(),
                _ => self.unknown(setting, &["from"]),
            }
        }
        Some(VersionAsked { at_least, text, from, place: self.texts.place(node.span) })
    }

    fn config_file(&mut self, node: &Node) -> Option<ConfigFile> {
        self.plain(node, &[]);
        self.no_block(node);
        let [name, content] = node.arguments.as_slice() else {
            let message = "`config` needs a file's name and its content";
            self.report.add(Code::ValueMissing, node.span, message).note("as in: config \"nginx.conf\" \"…\"");
            return None;
        };
        let file = self.file_name(name)?;
        Some(ConfigFile { name: file, content: self.placed(content)? })
    }

    /// A name of a file below our folder, perhaps in subfolders.
    pub(super) fn file_name(&mut self, value: &flatout_config::syntax::Value) -> Option<String> {
        let name = self.word(value)?;
        let is_below = !name.is_empty()
            && !name.starts_with('/')
            && !name.chars().any(char::is_control)
            && name.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
        if !is_below {
            let message = format!("{name:?} is not a file name below the folder");
            self.report.add(Code::TextBad, value.span, message).note("no `/` in front, no `..`");
        }
        is_below.then_some(name)
    }

    fn ready(&mut self, ready: &mut Ready, node: &Node) {
        self.plain(node, &["socket", "timeout"]);
        self.no_block(node);
        for property in &node.properties {
            match property.name.as_str() {
                "socket" => {
                    ready.socket = self.placed(&property.value);
                    if let Some(socket) = &ready.socket {
                        let text = socket.text.clone();
                        self.refer_text(&text, property.value.span, &[]);
                    }
                }
                "timeout" => {
                    let seconds = self.word(&property.value).and_then(|text| text.parse::<f64>().ok());
                    if let Some(seconds) = seconds.filter(|seconds| (0.1..=3_600.0).contains(seconds)) {
                        ready.timeout_ms = (seconds * 1e3) as u64;
                    } else {
                        let message = "`timeout` takes seconds";
                        self.report.add(Code::NumberBounds, property.value.span, message).label("0.1 to 3600");
                    }
                }
                _ => {}
            }
        }
        if let Some(extra) = node.arguments.get(1) {
            self.report.add(Code::ValueUnexpected, extra.span, "`ready` takes one path");
        }
        let Some(value) = node.arguments.first() else { return };
        let Some(path) = self.placed(value) else { return };
        self.refer_text(&path.text, value.span, &[]);
        if path.text.starts_with('/') {
            ready.path = Some(path);
        } else {
            self.report.add(Code::TextBad, value.span, "a path begins with `/`").note("as in: ready \"/\"");
        }
    }
}
