//! The parts of its request that a page has read, and the consequences for caches: Vary (RFC 9110 §12.5.5) for fields
//! with values that many visitors share, `private` for data of one visitor.
//!
//! The method and the parts of the URL (scheme, host, path, query) are not recorded, because they are part of every
//! cache's key.

use super::policy;
use crate::exchange::Exchange;
use crate::sandbox::wait::NativeError;
use flatout_http::forwarded::{ADDRESS_FIELDS, CLAIM_FIELDS, CLAIM_PREFIXES};
use flatout_http::token::is_token;

/// Maximum number of field names in a Vary field. If a page reads more fields, the response is sent with `Vary: *`.
const NAMES_MAX: usize = 32;
/// Maximum length of a field name in Vary, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// Fields with credentials of one visitor, and information about the client that proxies add. A cache in front of such a
/// proxy never sees the added fields, so Vary cannot protect the response.
const PRIVATE_FIELDS: [&[&str]; 3] =
    [&["cookie", "authorization", "proxy-authorization", "forwarded"], &ADDRESS_FIELDS, &CLAIM_FIELDS];

/// The parts of a request that its page has read.
#[derive(Debug, Default)]
struct Reads {
    /// Names of the fields that were read, in the usual capitalisation.
    names: Vec<Box<[u8]>>,
    /// True if all fields were read in a loop, or if more fields were read than are recorded.
    all: bool,
    /// True if data of one visitor was read.
    private: bool,
}

impl Reads {
    fn covers(&self, name: &[u8]) -> bool {
        self.all || self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// Returns whether fields with this name identify one visitor.
pub(super) fn is_private(name: &[u8]) -> bool {
    let begins_with =
        |prefix: &&str| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()));
    PRIVATE_FIELDS.iter().copied().flatten().any(|private| name.eq_ignore_ascii_case(private.as_bytes()))
        || CLAIM_PREFIXES.iter().any(begins_with)
}

/// Returns `name` in the usual capitalisation: each word begins with a capital letter.
fn capitalised(name: &[u8]) -> Box<[u8]> {
    let mut begins = true;
    let capitalise = |&byte: &u8| {
        let was_first = std::mem::replace(&mut begins, byte == b'-');
        if was_first { byte.to_ascii_uppercase() } else { byte.to_ascii_lowercase() }
    };
    name.iter().map(capitalise).collect()
}

/// Returns whether the head has been sent with a policy that allows sharing, so that further reads cannot be declared.
fn is_too_late(exchange: &Exchange) -> bool {
    exchange.head_sent && policy::is_shared(&exchange.draft)
}

/// Records that the page reads the request field `name`, whether it is present or not.
///
/// # Errors
/// If the head has been sent with a policy that allows caches to share the response, and its Vary does not contain the
/// field.
pub(super) fn note_field(exchange: &mut Exchange, name: &[u8]) -> Result<(), NativeError> {
    // The host is part of the URL, and a request cannot have a field whose name is not a token.
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
            "cache() and flush() have already declared what the response depends on: read the request's headers before \
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

/// Records that the page reads all fields of the request.
///
/// # Errors
/// Like [`note_field`].
pub(super) fn note_all_fields(exchange: &mut Exchange) -> Result<(), NativeError> {
    note_private(exchange)?;
    exchange.slot::<Reads>().all = true;
    Ok(())
}

/// Records that the page reads data of one visitor that is not a field, such as the client's address or the content.
///
/// # Errors
/// If the head has been sent with a policy that allows caches to share the response.
pub(super) fn note_private(exchange: &mut Exchange) -> Result<(), NativeError> {
    if exchange.slot::<Reads>().private {
        return Ok(());
    }
    if is_too_late(exchange) {
        return Err(
            "cache() and flush() have already declared the response public: read visitor-specific data before \
                    flush()"
                .into(),
        );
    }
    exchange.slot::<Reads>().private = true;
    Ok(())
}

/// Adds Vary to the head. If the page has read data of one visitor, has used its session (`used_session`) or sets a
/// cookie, makes the response private, regardless of the policy that the page has set.
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
    // The record stays so that a later read of the same field counts as declared.
    if let Some(reads) = exchange.slot_if::<Reads>() {
        *reads = Reads { names, all, private };
    }
}
