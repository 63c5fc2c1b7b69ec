//! Field lines of a response for clients or the store.

use super::names::{FieldClass, Name};
use super::request::write_via;
use super::{ConnectionNames, write_line};
use flatout_config::model::Proxy;
use flatout_http::date::DATE_BYTES;
use flatout_http::framing::Version;
use flatout_http::head::{FieldStorage, Fields, parse_fields};
use flatout_http::limits::Limits;

/// Parameters for forwarding one response.
#[derive(Clone, Copy, Debug)]
pub struct Return<'a> {
    /// Its HTTP version, for Via.
    pub version: Version,
    /// True to retain Content-Length: it frames the content, or describes the content of another response (HEAD,
    /// 304).
    pub keep_length: bool,
    /// True to retain Upgrade: in a 101, or a 426 if upgrades are forwarded.
    pub keep_upgrade: bool,
    /// Date to add if it is missing (RFC 9110 §6.6.1).
    pub date: Option<&'a [u8; DATE_BYTES]>,
}

/// Appends the field lines for the client or the store to `out`, each `Name: value` and CR LF, without the empty line:
/// all except those of the connection, plus Via.
pub fn write_response_lines(fields: Fields<'_>, settings: &Proxy, answer: &Return<'_>, out: &mut Vec<u8>) {
    let connection = ConnectionNames::new(fields);
    let (mut has_date, mut has_upgrade) = (false, false);
    for (name, value) in fields.iter() {
        let known = Name::new(name);
        // Here `_` needs no special treatment: response fields do not become variables.
        let keep = match known.kind {
            _ if known.underscored => !connection.names(name),
            FieldClass::HopByHop => {
                let keep = answer.keep_upgrade && name.eq_ignore_ascii_case("upgrade");
                has_upgrade |= keep;
                keep
            }
            FieldClass::Te => false,
            FieldClass::Length => answer.keep_length,
            FieldClass::Plain => !connection.names(name),
            FieldClass::Date => {
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
        // RFC 9110 §7.8: Upgrade requires this. Over HTTP/2 both lines are omitted.
        write_line(out, "Connection", b"upgrade");
    }
    if let Some(date) = answer.date.filter(|_| !has_date) {
        write_line(out, "Date", date);
    }
    if let Some(via) = &settings.via {
        write_via(out, via, answer.version);
    }
}

/// Appends the lines of an interim response, each `Name: value` and CR LF, for the client: all except those of the
/// connection and those that frame content, which it does not have (RFC 9110 §7.6.1, §15.2).
pub fn write_interim_lines(lines: &[u8], out: &mut Vec<u8>) {
    let mut storage = FieldStorage::new();
    // They were parsed on receipt with limits at least as strict.
    let limits = Limits { head_bytes_max: usize::MAX, ..Limits::CLIENT };
    let section = [lines, b"\r\n"].concat();
    let fields = parse_fields(&section, &limits, &mut storage).unwrap_or(Fields::EMPTY);
    let connection = ConnectionNames::new(fields);
    for (name, value) in fields.iter() {
        let keep = match Name::new(name) {
            known if known.underscored => !connection.names(name),
            Name { kind: FieldClass::HopByHop | FieldClass::Te | FieldClass::Length, .. } => false,
            Name { kind: FieldClass::Plain, .. } => !connection.names(name),
            _ => true,
        };
        if keep {
            write_line(out, name, value);
        }
    }
}

/// Appends the trailer lines that may be forwarded, in either direction: those not needed before the content, and not
/// mistakable for part of the head (RFC 9110 §6.5.1).
pub fn write_trailer_lines(fields: Fields<'_>, out: &mut Vec<u8>) {
    const ALLOWED: [&str; 3] = ["content-digest", "content-md5", "etag"];
    for (name, value) in fields.iter() {
        let kind = Name::new(name).kind;
        if kind == FieldClass::Plain || ALLOWED.iter().any(|allowed| allowed.eq_ignore_ascii_case(name)) {
            write_line(out, name, value);
        }
    }
}
