//! Parsing of servers.

use super::Reader;
use super::setting::Row;
use crate::model::{ConfigFile, Placed, Ready, Server, VersionAsked};
use flatout_config::syntax::{Node, Value};
use flatout_config::{Code, Shape, property};

/// The form of a server in a file.
pub(super) const SHAPE: Shape =
    Shape::value("server \"nginx\" { program \"nginx\"; start \"-c\" \"{dir}/nginx.conf\" }")
        .with(&["like"])
        .may_have_block();

/// The settings of a server.
static SERVER: &[Row<Server>] = &[
    Row::text("about", "about \"One worker\"", |server| &mut server.about),
    Row::custom("program", Shape::value("program \"nginx\""), |reader, node, server| {
        server.program.name = reader.template_of(node);
    }),
    Row::custom("package", Shape::value("package \"nginx\""), |reader, node, server| {
        server.program.package = Some(reader.text_of(node));
    }),
    Row::repeated("needs", Shape::value("needs \"/usr/lib/module.so\"").with(&["package"]), |reader, node, server| {
        let package = property(node, "package").and_then(|property| reader.word(&property.value));
        server.program.needs.extend(reader.placed(&node.arguments[0]).map(|path| (path, package)));
    }),
    Row::custom("at-least", Shape::value("at-least \"1.22\"").may_have_block(), |reader, node, server| {
        server.program.version = reader.version(node);
    }),
    Row::repeated("config", Shape::none("config \"nginx.conf\" \"…\"").takes(2, 2), |reader, node, server| {
        if let (Some(name), Some(content)) = (reader.file_name(&node.arguments[0]), reader.placed(&node.arguments[1])) {
            server.configs.retain(|known| known.name != name);
            server.configs.push(ConfigFile { name, content });
        }
    }),
    Row::repeated("set", Shape::none("set \"sendfile\" \"off\"").takes(2, 2), |reader, node, server| {
        if let (Some(name), Some(value)) = (reader.name(&node.arguments[0]), reader.placed(&node.arguments[1])) {
            server.values.retain(|(known, _)| *known != name);
            server.values.push((name, value));
        }
    }),
    Row::custom("cores", Shape::value("cores \"0,2\""), |reader, node, server| {
        server.cores = reader.core_list(&node.arguments[0]);
    }),
    Row::flag("tls", |server| &mut server.tls),
    Row::custom("counts", Shape::value("counts \"/status\""), |reader, node, server| {
        server.counts = reader.placed(&node.arguments[0]);
        if let Some(path) = server.counts.as_ref().filter(|path| !path.text.starts_with('/')) {
            let message = format!("{:?} is not a path", path.text);
            reader.report.add(Code::TextBad, node.span, message).note("as in: counts \"/status\"");
        }
    }),
    Row::custom("start", Shape::values(1, "start \"-c\" \"{dir}/nginx.conf\""), |reader, node, server| {
        server.start = reader.strict(node);
    }),
    Row::repeated("env", Shape::none("env \"LANG\" \"C\"").takes(2, 2), |reader, node, server| {
        if let (Some(name), Some(value)) = (reader.word(&node.arguments[0]), reader.placed(&node.arguments[1])) {
            server.environment.push((name, value));
        }
    }),
    Row::custom(
        "ready",
        Shape::none("ready \"/\"").takes(0, 1).with(&["socket", "timeout"]),
        |reader, node, server| {
            reader.ready(&mut server.ready, node);
        },
    ),
    Row::custom("after", Shape::values(1, "after \"php\""), |reader, node, server| {
        server.after.extend(reader.referred_words("server", node));
    }),
    Row::custom("address", Shape::value("address \"127.0.0.2\""), |reader, node, server| {
        let text = reader.text_of(node);
        if text.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback()) {
            server.address = text;
        } else {
            let message = format!("{text:?} is not an address in 127.0.0.0/8");
            let draft = reader.report.add(Code::AddressBad, node.span, message);
            draft.note("for other networks, use a `testbed`, where servers have their host's address");
        }
    }),
    Row::custom("port", Shape::value("port 8080"), |reader, node, server| {
        server.port = reader.count_of(node, 1, 65_535).map(|port| port as u16);
    }),
    Row::custom("stop-signal", Shape::value("stop-signal \"QUIT\""), |reader, node, server| {
        let name = reader.text_of(node);
        let known = SIGNALS.iter().find(|(known, _)| *known == name.trim_start_matches("SIG"));
        if let Some((_, number)) = known {
            server.stop_signal = *number;
        } else {
            let known: Vec<&str> = SIGNALS.iter().map(|(name, _)| *name).collect();
            let message = format!("{name:?} is not a supported signal");
            let note = format!("use one of: {}", known.join(", "));
            reader.report.add(Code::WordUnknown, node.span, message).note(note);
        }
    }),
];

/// The settings of the version of a program.
static VERSION: &[Row<Vec<String>>] = &[Row::custom("from", Shape::values(1, "from \"-v\""), |reader, node, from| {
    *from = reader.words_of(node).into_iter().map(|word| word.text).collect();
})];

/// Default time in milliseconds for a server to become ready, which is enough on a busy machine.
const READY_TIMEOUT_MS: u64 = 20_000;

/// Signals that can stop a server, with their numbers on Linux.
const SIGNALS: &[(&str, i32)] = &[("TERM", 15), ("INT", 2), ("QUIT", 3), ("HUP", 1), ("WINCH", 28), ("KILL", 9)];

impl Reader<'_> {
    /// Reads a server. With `like`, it inherits the settings of one of the `earlier` servers.
    pub(super) fn server(&mut self, node: &Node, earlier: &[Server]) -> Server {
        let pattern = self.pattern(node, earlier).cloned();
        let mut server = pattern.unwrap_or_else(|| Server {
            address: "127.0.0.1".to_owned(),
            stop_signal: 15,
            ready: Ready { timeout_ms: READY_TIMEOUT_MS, ..Ready::default() },
            ..Server::default()
        });
        server.name = self.name_of(node);
        server.place = self.texts.place(node.span);
        server.about.clear();
        self.read_block(node, SERVER, &mut server);
        if server.program.name.text.is_empty() {
            self.report
                .add(Code::PropertyMissing, node.span, format!("the server `{}` has no `program`", server.name))
                .note("as in: program \"nginx\"");
        }
        server
    }

    /// Returns the earlier server that the property `like` names.
    fn pattern<'s>(&mut self, node: &Node, earlier: &'s [Server]) -> Option<&'s Server> {
        let property = property(node, "like")?;
        let name = self.word(&property.value)?;
        let found = earlier.iter().find(|server| server.name == name);
        if found.is_none() {
            let message = format!("no server `{name}` comes before this one");
            self.report.add(Code::WordUnknown, property.value.span, message);
        }
        found
    }

    /// Reads values whose placeholders must be known.
    fn strict(&mut self, node: &Node) -> Vec<Placed> {
        let words = self.words_of_spans(node);
        for (word, span) in &words {
            self.refer_text(&word.text, *span, &[]);
        }
        words.into_iter().map(|(word, _)| word).collect()
    }

    fn version(&mut self, node: &Node) -> Option<VersionAsked> {
        let value = &node.arguments[0];
        let text = self.word(value)?;
        let at_least = crate::server::version::parse(&text);
        if at_least.is_empty() {
            self.report
                .add(Code::WordUnknown, value.span, format!("{text:?} is not a version"))
                .note("as in: at-least \"1.22\"");
            return None;
        }
        let mut from = vec!["-v".to_owned()];
        self.read_block(node, VERSION, &mut from);
        Some(VersionAsked { at_least, text, from, place: self.texts.place(node.span) })
    }

    /// Reads the name of a file below the server's folder. The name may contain subfolders.
    pub(super) fn file_name(&mut self, value: &Value) -> Option<String> {
        let name = self.word(value)?;
        let is_below = !name.is_empty()
            && !name.starts_with('/')
            && !name.chars().any(char::is_control)
            && name.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
        if !is_below {
            let message = format!("{name:?} is not a valid file name inside the folder");
            self.report.add(Code::TextBad, value.span, message).note("it must not begin with `/` or contain `..`");
        }
        is_below.then_some(name)
    }

    fn ready(&mut self, ready: &mut Ready, node: &Node) {
        if let Some((socket, span)) = self.placed_property(node, "socket") {
            self.refer_text(&socket.text, span, &[]);
            ready.socket = Some(socket);
        }
        if let Some(property) = property(node, "timeout") {
            let seconds = self.word(&property.value).and_then(|text| text.parse::<f64>().ok());
            if let Some(seconds) = seconds.filter(|seconds| (0.1..=3_600.0).contains(seconds)) {
                ready.timeout_ms = (seconds * 1e3) as u64;
            } else {
                let message = "`timeout` takes seconds";
                self.report.add(Code::NumberBounds, property.value.span, message).label("0.1 to 3600");
            }
        }
        let Some(value) = node.arguments.first() else { return };
        let Some(path) = self.placed(value) else { return };
        self.refer_text(&path.text, value.span, &[]);
        if path.text.starts_with('/') {
            ready.path = Some(path);
        } else {
            self.report.add(Code::TextBad, value.span, "a path must begin with `/`").note("as in: ready \"/\"");
        }
    }
}
