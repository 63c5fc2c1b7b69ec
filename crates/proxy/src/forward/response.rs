//! The field lines that a client gets, or that are stored.

use super::names::{Kind, Name};
use super::request::write_via;
use super::{Connection, write_line};
use flatout_config::model::Proxy;
use flatout_http::date::DATE_BYTES;
use flatout_http::framing::Version;
use flatout_http::head::{FieldStorage, Fields, parse_fields};
use flatout_http::limits::Limits;

/// How one answer is passed on.
#[derive(Clone, Copy, Debug)]
pub struct Return<'a> {
    /// The version it came by, for Via.
    pub version: Version,
    /// Whether Content-Length stays: the content is framed by it, or there is none and it tells of another (HEAD, 304).
    pub keep_length: bool,
    /// Whether Upgrade stays: 101, or 426 when upgrades are passed on.
    pub keep_upgrade: bool,
    /// The Date it gets when it has none (RFC 9110 §6.6.1).
    pub date: Option<&'a [u8; DATE_BYTES]>,
}

/// Appends to `out` the field lines that the client gets, or that are stored, each `Name: value` and CR LF, without the
/// empty line: all but those of the connection, and Via.
pub fn write_response_lines(fields: Fields<'_>, settings: &Proxy, answer: &Return<'_>, out: &mut Vec<u8>) {
    let connection = Connection::new(fields);
    let (mut has_date, mut has_upgrade) = (false, false);
    for (name, value) in fields.iter() {
        let known = Name::new(name);
        // Here `_` disguises nothing: nobody turns an answer's fields into variables.
        let keep = match known.kind {
            _ if known.underscored => !connection.names(name),
            Kind::HopByHop => {
                let keep = answer.keep_upgrade && name.eq_ignore_ascii_case("upgrade");
                has_upgrade |= keep;
                keep
            }
            Kind::Te => false,
            Kind::Length => answer.keep_length,
            Kind::Plain => !connection.names(name),
            Kind::Date => {
                has_date = true;
                true
            }
            _ => true,
        };
        if keep {
            write_line(out, name, value);
        }
    }
    if has_upgrade {
        // RFC 9110 §7.8: Upgrade is of one connection. Over HTTP/2 both lines are left out.
        write_line(out, "Connection", b"upgrade");
    }
    if let Some(date) = answer.date.filter(|_| !has_date) {
        write_line(out, "Date", date);
    }
    if let Some(via) = &settings.via {
        write_via(out, via, answer.version);
    }
}

/// Appends those of `lines`, each `Name: value` and CR LF, that a client gets with an interim answer: all but those of the
/// connection, and those that frame content, as there is none (RFC 9110 §7.6.1, §15.2).
pub fn write_interim_lines(lines: &[u8], out: &mut Vec<u8>) {
    let mut storage = FieldStorage::new();
    // They were parsed when they came, under bounds no wider than these.
    let limits = Limits { head_bytes_max: usize::MAX, ..Limits::CLIENT };
    let section = [lines, b"\r\n"].concat();
    let fields = parse_fields(&section, &limits, &mut storage).unwrap_or(Fields::EMPTY);
    let connection = Connection::new(fields);
    for (name, value) in fields.iter() {
        let keep = match Name::new(name) {
            known if known.underscored => !connection.names(name),
            Name { kind: Kind::HopByHop | Kind::Te | Kind::Length, .. } => false,
            Name { kind: Kind::Plain, .. } => !connection.names(name),
            _ => true,
        };
        if keep {
            write_line(out, name, value);
        }
    }
}

/// Appends the lines of a trailer section that may be passed on, either way: those that nobody needed to know before
/// the content, nor may take for a part of the head (RFC 9110 §6.5.1).
pub fn write_trailer_lines(fields: Fields<'_>, out: &mut Vec<u8>) {
    const ALLOWED: [&str; 3] = ["content-digest", "content-md5", "etag"];
    for (name, value) in fields.iter() {
        let kind = Name::new(name).kind;
        if kind == Kind::Plain || ALLOWED.iter().any(|allowed| allowed.eq_ignore_ascii_case(name)) {
            write_line(out, name, value);
        }
    }
}
