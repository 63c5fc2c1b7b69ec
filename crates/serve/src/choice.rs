//! Selects the representation that a client gets.

use crate::file_request::FileRequest;
use crate::outcome::FileOutcome;
use crate::representation::Representation;
use crate::services::{LazyEncoding, Services};
use crate::thread_pool::Urgency;
use crate::version::{EncodingState, OfferedEncoding, Version};
use flatout_http::encoding::{AcceptedCodings, ContentCoding};
use flatout_http::request::Asked;
use std::sync::Arc;

/// Maximum size of a file that is encoded while its first client waits, in bytes. This takes a few milliseconds.
const WAIT_BYTES_MAX: u64 = 256 * 1024;

/// The result of the selection.
pub(crate) enum EncodingChoice<'a> {
    /// Send this representation. The outcome, if any, replaces that of the lookup.
    Take(&'a Representation, Option<FileOutcome>),
    /// Wait for the encoding in this coding, and use it if it is ready before the wait times out.
    Wait(ContentCoding, LazyEncoding),
}

/// Selects the representation for `question`. Sets `grown` if the version needs more memory than before, because it has
/// adopted an encoding or has requested one.
pub(crate) fn choose<'a>(
    version: &'a Version,
    question: &FileRequest<'_>,
    services: &Services,
    grown: &mut bool,
) -> EncodingChoice<'a> {
    let plain = EncodingChoice::Take(&version.plain, None);
    if version.offered().is_empty() || !question.asked.any(Asked::ENCODING) {
        return plain;
    }
    let accepted = AcceptedCodings::parse(question.fields.all("accept-encoding"));
    // A range selects the plain file. Otherwise, the representation that a client gets parts of would depend on which
    // encodings other clients have requested, and clients that decode by Content-Encoding cannot decode a part.
    if question.requests_range() && accepted.weight(ContentCoding::Identity) > 0 {
        return plain;
    }
    // Encoding a version whose content may still change without a change of its identity would be wasted work. A client
    // that accepts none of the representations gets the plain file (RFC 9110 §12.4.1).
    let Some(offer) = preferred(version, accepted, version.settled, grown) else { return plain };
    match version.standing(offer, grown) {
        EncodingState::Ready(representation) => EncodingChoice::Take(representation, Some(FileOutcome::Encoded)),
        EncodingState::Useless => plain,
        EncodingState::Possible => begin(version, offer, services, grown)
            .unwrap_or_else(|outcome| EncodingChoice::Take(second_best(version, accepted, grown), Some(outcome))),
    }
}

/// Submits the encoding `offer` to the thread pool. The response waits for it if the file is small; otherwise, returns
/// the outcome of a response without it.
fn begin<'a>(
    version: &'a Version,
    offer: &OfferedEncoding,
    services: &Services,
    grown: &mut bool,
) -> Result<EncodingChoice<'a>, FileOutcome> {
    let Some((compression, slot)) = &offer.encoder else { return Err(FileOutcome::EncodingPending) };
    let soon = version.plain.size_bytes <= WAIT_BYTES_MAX;
    let urgency = if soon { Urgency::Prompt } else { Urgency::Patient };
    let under_way = services
        .make_encoded(slot, *compression, urgency, || version.plain.source())
        .map_err(|_refused| FileOutcome::ThreadPoolFull)?;
    // An encoding counts from the time it is requested.
    *grown |= under_way;
    if !soon || !under_way {
        return Err(FileOutcome::EncodingPending);
    }
    Ok(EncodingChoice::Wait(offer.coding, Arc::clone(slot)))
}

/// Returns the best representation that exists.
fn second_best<'a>(version: &'a Version, accepted: AcceptedCodings, grown: &mut bool) -> &'a Representation {
    match preferred(version, accepted, false, grown).map(|offer| version.standing(offer, grown)) {
        Some(EncodingState::Ready(representation)) => representation,
        _ => &version.plain,
    }
}

/// Returns the encoding that the client prefers among those that exist or, if `creates` is true, can be created.
/// Returns `None` if the client prefers the plain file.
fn preferred<'a>(
    version: &'a Version,
    accepted: AcceptedCodings,
    creates: bool,
    grown: &mut bool,
) -> Option<&'a OfferedEncoding> {
    let useful = version.offered().iter().filter(|offer| match version.standing(offer, grown) {
        EncodingState::Ready(_) => true,
        EncodingState::Possible => creates,
        EncodingState::Useless => false,
    });
    accepted.choose(useful.map(|offer| offer.coding)).and_then(|coding| version.offer(coding))
}
