//! The `php` handler: the application server, the scripts, and their limits.

use super::network::{TRUST, trusted_proxy};
use super::parse::{digits, host_fault};
use super::pool;
use super::reader::Reader;
use super::setting::{Inner, List, Parsed, Setting, read_block, write_block};
use super::shape::Shape;
use crate::code::Code;
use crate::diagnostic::Span;
use crate::encode::writer::{SettingWriter, path, quote};
use crate::model::{Handler, Php, PhpAddress, Site, Step, StepKind, TrustedProxy};
use crate::syntax::{Node, Scalar, Value};
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

/// The largest value of sizes, in bytes; more than any script accepts.
const BYTES_MAX: u64 = 1 << 40;

/// The smallest value of `spool-total`, in bytes. Requests use half of it, and a file counts as at least 1 MiB.
const SPOOL_TOTAL_BYTES_MIN: u64 = 2 << 20;

/// The largest value of `spool-limit`, in bytes.
const SPOOL_BYTES_MAX: u64 = 1 << 30;

pub(super) const SHAPE: Shape =
    Shape::value("php \"unix:/run/php/php-fpm.sock\", or php \"tcp:127.0.0.1:9000\" { root \"/srv/www\" }")
        .may_have_block();
const INDEX: Shape = Shape::values(0, "index \"index.php\"").with(&["off"]);

/// The expected form of an application server's address, for messages.
const FORM: &str = "as in \"unix:/run/php/php-fpm.sock\" or \"tcp:127.0.0.1:9000\"";

/// The settings of `php`.
pub(super) const SETTINGS: &[Setting<Php>] = &[
    Setting::custom(
        "root",
        Shape::value("root \"/srv/www\""),
        |reader, node, php| php.root = reader.path(&node.arguments[0]).unwrap_or_default(),
        |writer, name, php| writer.begin(name).text(&path(&php.root)).end(),
    ),
    Setting::path("script-root", "script-root \"/srv/www\"", |php| &mut php.script_root),
    Setting::list("index", INDEX, &List("this name", script_name, String::clone, |php: &mut Php| &mut php.index)),
    Setting::list(
        "script-extensions",
        Shape::values(1, "script-extensions \".php\""),
        &List("this extension", suffix, String::clone, |php: &mut Php| &mut php.split),
    ),
    Setting::value(
        "front-controller",
        "front-controller \"/index.php\"",
        &Parsed {
            read: |reader, value| script(reader, value).map(Some),
            show: |script| quote(&format!("/{}", script.as_deref().unwrap_or_default())),
            field: |php: &mut Php| &mut php.front_controller,
        },
    ),
    Setting::custom("env", Shape::value("env \"APP_ENV\" \"production\"").takes(2, 2), env, |writer, name, php| {
        for (variable, value) in &php.env {
            writer.begin(name).text(variable).text(value).end();
        }
    })
    .repeated(),
    Setting::flag("underscores-in-headers", "underscores-in-headers #true", |php| &mut php.underscores_in_headers),
    Setting::list(
        "trusted-proxies",
        TRUST,
        &List("this proxy", trusted_proxy, TrustedProxy::to_string, |php: &mut Php| &mut php.trusted),
    ),
    Setting::group("timeouts", &Inner(&pool::TIMEOUTS, |php: &mut Php| &mut php.timeouts)),
    Setting::number("idle-connections", "idle-connections 2", 0..=65_535, |php| &mut php.idle_connections_max),
    Setting::number("connections", "connections 1024", 1..=1_000_000, |php| &mut php.connections_max),
    Setting::size("content-limit", "content-limit \"128MiB\"", 0..=BYTES_MAX, |php| &mut php.content_bytes_max),
    Setting::size("spool-limit", "spool-limit \"128MiB\"", 0..=SPOOL_BYTES_MAX, |php| &mut php.spool_bytes_max),
    Setting::size("response-spool-limit", "response-spool-limit \"1GiB\"", 0..=BYTES_MAX, |php| {
        &mut php.response_spool_bytes_max
    }),
    Setting::size("spool-total", "spool-total \"1GiB\"", SPOOL_TOTAL_BYTES_MIN..=BYTES_MAX, |php| {
        &mut php.spool_total_bytes_max
    }),
    Setting::list(
        "sendfile",
        Shape::values(1, "sendfile \"/srv/private\""),
        &List("this folder", folder, |folder| path(folder), |php: &mut Php| &mut php.sendfile),
    ),
    Setting::custom(
        "accel-redirect",
        Shape::value("accel-redirect \"/protected/\" \"/srv/private\"").takes(2, 2),
        accel,
        |writer, name, php| {
            for (prefix, folder) in &php.accel {
                writer.begin(name).text(prefix).text(&path(folder)).end();
            }
        },
    )
    .repeated(),
];

pub(super) fn read(reader: &mut Reader<'_>, node: &Node) -> Option<Php> {
    let mut php = Php::default();
    read_block(reader, node, SETTINGS, &mut php);
    if let Some(controller) = &php.front_controller
        && !php.split.iter().any(|suffix| controller.ends_with(suffix.as_str()))
        && let Some(child) = node.children.iter().flatten().find(|child| child.name == "front-controller")
    {
        reader
            .report
            .add(Code::Contradiction, child.span, "the front controller is not a script")
            .label(format!("the name of a script must end with {}", php.split.join(" or ")));
    }
    php.address = address(reader, node.arguments.first()?)?;
    Some(php)
}

/// Sets the root of `php` steps that have none: to the root of the site's first `files` step, or else to the folder
/// that contains the configuration file.
pub(super) fn settle_roots(reader: &Reader<'_>, span: Span, site: &mut Site) {
    let root = site.steps().find_map(|step| match &step.kind {
        StepKind::Handler(Handler::Files(files)) => Some(files.root.clone()),
        _ => None,
    });
    fill_roots(&mut site.block, &root.unwrap_or_else(|| reader.resolve(span, ".")));
}

fn fill_roots(block: &mut [Step], root: &Path) {
    for step in block {
        match &mut step.kind {
            StepKind::Handler(Handler::Php(php)) if php.root.as_os_str().is_empty() => root.clone_into(&mut php.root),
            StepKind::Route(route) => fill_roots(&mut route.block, root),
            _ => {}
        }
    }
}

fn address(reader: &mut Reader<'_>, value: &Value) -> Option<PhpAddress> {
    let text = match (&value.scalar, value.annotation) {
        (Scalar::Integer(port), None) => port.to_string(),
        _ => reader.line(value)?,
    };
    match parse_php_address(&text) {
        Ok(PhpAddress::Unix(path)) => Some(PhpAddress::Unix(reader.resolve(value.span, &path.to_string_lossy()))),
        Ok(address) => Some(address),
        Err(fault) => {
            let message = format!("`{text}` is not a valid application server address");
            reader.report.add(Code::ServerBad, value.span, message).label(fault).note(FORM);
            None
        }
    }
}

/// Parses the address of an application server: `unix:` and a path, or `tcp:` with a host and a port. A path, a host
/// with a port, and a port on this machine are also accepted without the prefix.
///
/// # Errors
/// A description of the problem.
pub fn parse_php_address(text: &str) -> Result<PhpAddress, &'static str> {
    if let Some(path) = text.strip_prefix("unix:").or_else(|| text.starts_with(['/', '.']).then_some(text)) {
        return if path.is_empty() { Err("the socket's path is missing") } else { Ok(PhpAddress::Unix(path.into())) };
    }
    let rest = text.strip_prefix("tcp:").unwrap_or(text);
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let (host, port) = rest.rsplit_once(':').unwrap_or(("", rest));
    let port = digits(port).filter(|&port| port != 0).ok_or("a port is a number from 1 to 65535")?;
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    let fault = if host.contains(['*', '/']) { Some("use a single host") } else { host_fault(host) };
    if let Some(fault) = fault {
        return Err(fault);
    }
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Ok(PhpAddress::Tcp(host.to_ascii_lowercase(), port))
}

pub(crate) fn write(writer: &mut SettingWriter, php: &Php) {
    writer.begin("php").text(&show_address(&php.address));
    writer.block(|writer| write_block(writer, SETTINGS, php, &Php::default()));
}

fn show_address(address: &PhpAddress) -> String {
    match address {
        PhpAddress::Unix(socket) => format!("unix:{}", path(socket)),
        PhpAddress::Tcp(host, port) if host.parse::<Ipv6Addr>().is_ok() => format!("tcp:[{host}]:{port}"),
        PhpAddress::Tcp(host, port) => format!("tcp:{host}:{port}"),
    }
}

/// Reads the name of a file, without a path.
fn script_name(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
    let name = reader.line(value)?;
    if name.contains('/') || name.starts_with('.') {
        let draft = reader.report.add(Code::TextBad, value.span, format!("`{name}` is not a valid file name"));
        draft.label("use a file name without slashes, as in \"index.php\"");
        return None;
    }
    Some(name)
}

fn folder(reader: &mut Reader<'_>, value: &Value) -> Option<PathBuf> {
    reader.path(value)
}

/// Reads a file name extension of scripts.
fn suffix(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
    let suffix = reader.line(value)?;
    let is_ending = suffix
        .strip_prefix('.')
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.'));
    if !is_ending {
        let draft = reader.report.add(Code::TextBad, value.span, format!("`{suffix}` is not a valid file extension"));
        draft.label("use a dot and letters or digits: \".php\"");
        return None;
    }
    Some(suffix)
}

/// Reads a script's path relative to the root and returns it without its leading slash.
fn script(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
    let text = reader.line(value)?;
    let name = text.strip_prefix('/').unwrap_or(&text);
    if name.is_empty() || name.ends_with('/') || name.split('/').any(|part| part.is_empty() || part.starts_with('.')) {
        let draft = reader.report.add(Code::TextBad, value.span, format!("`{text}` is not a valid script path"));
        draft.label("use a path relative to the root, as in \"/index.php\"");
        return None;
    }
    Some(name.to_owned())
}

fn env(reader: &mut Reader<'_>, node: &Node, php: &mut Php) {
    let [name, value, ..] = &node.arguments[..] else { return };
    let (Some(text), Some(given)) = (reader.line(name), reader.text(value)) else { return };
    let is_name = !text.starts_with(|first: char| first.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_name {
        let draft = reader.report.add(Code::TextBad, name.span, format!("`{text}` is not a valid variable name"));
        draft.label("use letters, digits and underscores: \"APP_ENV\"");
    } else if php.env.iter().any(|(known, _)| *known == text) {
        reader.same_twice(name.span, "this variable");
    } else {
        php.env.push((text, given));
    }
}

fn accel(reader: &mut Reader<'_>, node: &Node, php: &mut Php) {
    let [prefix, folder, ..] = &node.arguments[..] else { return };
    let (Some(text), Some(folder)) = (reader.line(prefix), reader.path(folder)) else { return };
    let clean = text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')).is_some_and(|rest| {
        !rest.is_empty() && rest.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
    });
    if !clean {
        let draft = reader.report.add(Code::TextBad, prefix.span, format!("`{text}` is not a valid URL prefix"));
        draft.label("use a path that begins and ends with a slash: \"/protected/\"");
    } else if php.accel.iter().any(|(known, _)| *known == text) {
        reader.same_twice(prefix.span, "this prefix");
    } else {
        php.accel.push((text, folder));
    }
}
