//! The parts of its request that a page reads, and their consequence for caches: Vary (RFC 9110 §12.5.5) for fields
//! shared by many visitors, `private` for data of one visitor.
//!
//! The method and the parts of the URL (scheme, host, path, query) are not recorded, as they are part of a cache's
//! key.

use super::policy;
use crate::exchange::Exchange;
use crate::sandbox::wait::NativeError;
use flatout_http::token::is_token;

/// Upper bound of field names in one Vary; a page that reads more is sent with `Vary: *`.
const NAMES_MAX: usize = 32;
/// Upper bound of such a name, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// Fields that identify one visitor: credentials, and client data added by proxies. A cache in front of such a proxy
/// never sees the latter, so Vary cannot protect them.
const PRIVATE_FIELDS: [&str; 10] = [
    "cookie",
    "authorization",
    "proxy-authorization",
    "forwarded",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "fastly-client-ip",
];
/// Every field with this prefix is one of them.
const PRIVATE_PREFIX: &[u8] = b"x-forwarded-";

/// The parts of one request that its page has read.
#[derive(Debug, Default)]
struct Reads {
    /// Names of fields, in the usual capitalisation.
    names: Vec<Box<[u8]>>,
    /// All fields were read in a loop, or more than are recorded.
    all: bool,
    /// Data of one visitor was read.
    private: bool,
}

impl Reads {
    fn covers(&self, name: &[u8]) -> bool {
        self.all || self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// Returns whether a field of this name identifies one visitor.
pub(super) fn is_private(name: &[u8]) -> bool {
    PRIVATE_FIELDS.iter().any(|private| name.eq_ignore_ascii_case(private.as_bytes()))
        || name.get(..PRIVATE_PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PRIVATE_PREFIX))
}

/// `name` in the usual capitalisation: each word with a capital.
fn capitalised(name: &[u8]) -> Box<[u8]> {
    let mut begins = true;
    let capitalise = |&byte: &u8| {
        let was_first = std::mem::replace(&mut begins, byte == b'-');
        if was_first { byte.to_ascii_uppercase() } else { byte.to_ascii_lowercase() }
    };
    name.iter().map(capitalise).collect()
}

/// Returns whether the head has been sent with a shareable policy, so that further reads cannot be declared.
fn is_too_late(exchange: &Exchange) -> bool {
    exchange.head_sent && policy::is_shared(&exchange.draft)
}

/// Records that the page reads the request's field `name`, present or not.
///
/// # Errors
/// If the head has been sent with a policy that lets caches share the response, and does not name the field.
pub(super) fn note_field(exchange: &mut Exchange, name: &[u8]) -> Result<(), NativeError> {
    // The host is part of the URL, and a request has no field whose name is not a token.
    if name.eq_ignore_ascii_case(b"host") || !is_token(name) {
        return Ok(());
    }
    let too_late = is_too_late(exchange);
    let reads = exchange.slot::<Reads>();
    if reads.covers(name) {
        return Ok(());
    }
    if too_late {
        return Err(
            "cache() and flush() have told caches what the response depends on: read the request's headers before \
                    flush()"
                .into(),
        );
    }
    reads.private |= is_private(name);
    if reads.names.len() == NAMES_MAX || name.len() > NAME_BYTES_MAX {
        reads.all = true;
    } else {
        reads.names.push(capitalised(name));
    }
    Ok(())
}

/// Records that the page reads all of the request's fields.
///
/// # Errors
/// As [`note_field`].
pub(super) fn note_all_fields(exchange: &mut Exchange) -> Result<(), NativeError> {
    note_private(exchange)?;
    exchange.slot::<Reads>().all = true;
    Ok(())
}

/// Records that the page reads data of one visitor that is not a field: the address, the content.
///
/// # Errors
/// If the head has been sent with a policy that lets caches share the response.
pub(super) fn note_private(exchange: &mut Exchange) -> Result<(), NativeError> {
    if exchange.slot::<Reads>().private {
        return Ok(());
    }
    if is_too_late(exchange) {
        return Err(
            "cache() and flush() have told caches that the response is for everybody: read what belongs to one \
                    visitor before flush()"
                .into(),
        );
    }
    exchange.slot::<Reads>().private = true;
    Ok(())
}

/// Adds Vary to the head, and makes the response private if the page read data of one visitor, used its session
/// (`used_session`) or sets a cookie, whatever policy the page set.
pub(super) fn finish(exchange: &mut Exchange, used_session: bool) {
    let Reads { names, all, mut private } = exchange.slot_if::<Reads>().map(std::mem::take).unwrap_or_default();
    let draft = &mut exchange.draft;
    if all {
        draft.set_field(b"Vary", b"*");
    }
    for name in &names {
        policy::vary(draft, name);
    }
    if used_session {
        policy::vary(draft, b"Cookie");
        private = true;
    }
    if private || draft.field(b"Set-Cookie").is_some() {
        policy::make_private(draft);
    }
    // The record is retained: a later read of the same field is already declared.
    if let Some(reads) = exchange.slot_if::<Reads>() {
        *reads = Reads { names, all, private };
    }
}
