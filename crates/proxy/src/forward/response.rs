//! Field lines of a response to a client or for the store.

use super::ConnectionNames;
use super::names::{FieldClass, Name, may_be_special_in_response};
use super::request::write_via;
use flatout_config::model::Proxy;
use flatout_http::date::format_date;
use flatout_http::framing::Version;
use flatout_http::head::{FieldStorage, Fields, parse_fields};
use flatout_http::limits::Limits;
use flatout_http::lines::{FieldOp, each_line, write_line};
use flatout_http::token::is_named;
use std::rc::Rc;

/// Parameters for forwarding a response.
#[derive(Clone, Copy, Debug)]
pub struct Return {
    /// HTTP version of the response, for Via.
    pub version: Version,
    /// True to retain Content-Length, because it frames the content or describes the content that a GET would return
    /// (in a response to HEAD, or a 304).
    pub keep_length: bool,
    /// True to retain Upgrade, in a 101, or in a 426 if upgrades are forwarded.
    pub keep_upgrade: bool,
    /// Time for the Date field to add if Date is missing (RFC 9110 §6.6.1), in seconds since 1970.
    pub date_s: Option<i64>,
}

/// Appends the field lines for the client or the store to `out`, each `Name: value` and CR LF, without the final empty
/// line. Omits hop-by-hop fields and adds Via.
pub fn write_response_lines(fields: Fields<'_>, settings: &Proxy, answer: &Return, out: &mut Vec<u8>) {
    let connection = ConnectionNames::new(fields);
    let (mut has_date, mut has_upgrade) = (false, false);
    fields.copy_lines(out, |name, _| {
        if !connection.names_any && !may_be_special_in_response(name) {
            return true;
        }
        // Almost every response has these two fields, so check for them first. Connection cannot remove them.
        if is_named(name, b"date") {
            has_date = true;
            return true;
        }
        if is_named(name, b"content-length") {
            return answer.keep_length;
        }
        let known = Name::new(name);
        // Names with `_` need no special treatment here, because response fields do not become CGI variables.
        match known.kind {
            _ if known.underscored => !connection.names(name),
            FieldClass::HopByHop => {
                let keep = answer.keep_upgrade && name.eq_ignore_ascii_case("upgrade");
                has_upgrade |= keep;
                keep
            }
            FieldClass::Te => false,
            FieldClass::Length => answer.keep_length,
            FieldClass::Plain => !connection.names(name),
            _ => true,
        }
    });
    if has_upgrade {
        // RFC 9110 §7.8: Upgrade requires this line. Over HTTP/2, both lines are omitted.
        write_line("Connection", b"upgrade", out);
    }
    if let Some(date_s) = answer.date_s.filter(|_| !has_date) {
        write_line("Date", &format_date(date_s), out);
    }
    if let Some(via) = &settings.via {
        write_via(out, via, answer.version);
    }
}

/// Appends the field lines of an interim response for the client to `out`, each `Name: value` and CR LF. Omits
/// hop-by-hop fields and framing fields, since an interim response has no content (RFC 9110 §7.6.1, §15.2).
pub fn write_interim_lines(lines: &[u8], out: &mut Vec<u8>) {
    let mut storage = FieldStorage::new();
    // The lines were parsed on receipt with limits at least as strict.
    let limits = Limits { head_bytes_max: usize::MAX, ..Limits::CLIENT };
    let section = [lines, b"\r\n"].concat();
    let fields = parse_fields(&section, &limits, &mut storage).unwrap_or(Fields::EMPTY);
    let connection = ConnectionNames::new(fields);
    fields.copy_lines(out, |name, _| match Name::new(name) {
        known if known.underscored => !connection.names(name),
        Name { kind: FieldClass::HopByHop | FieldClass::Te | FieldClass::Length, .. } => false,
        Name { kind: FieldClass::Plain, .. } => !connection.names(name),
        _ => true,
    });
}

/// Returns the trailer field lines among `lines` that may be forwarded, in requests and responses, or `None` if there are
/// none. Omits fields that must precede the content or could be mistaken for header fields (RFC 9110 §6.5.1), and fields
/// that `operations` change.
pub fn forwarded_trailers(lines: &[u8], operations: &[FieldOp]) -> Option<Rc<[u8]>> {
    const ALLOWED: [&str; 3] = ["content-digest", "content-md5", "etag"];
    let is_allowed = |name: &str| {
        let is_harmless = Name::new(name).kind == FieldClass::Plain || is_any_of(name, &ALLOWED);
        is_harmless && !operations.iter().any(|operation| is_spelt_alike(operation.name(), name))
    };
    let mut forwarded = Vec::with_capacity(lines.len());
    for (name, line) in each_line(lines) {
        if std::str::from_utf8(name).is_ok_and(is_allowed) {
            forwarded.extend_from_slice(line);
        }
    }
    (!forwarded.is_empty()).then(|| forwarded.into())
}

fn is_any_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|other| other.eq_ignore_ascii_case(name))
}

/// Returns whether two names are equal, ignoring case and the difference between `_` and `-`.
fn is_spelt_alike(one: &str, other: &str) -> bool {
    let fold = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    one.bytes().map(fold).eq(other.bytes().map(fold))
}
