//! Selection of the representation for a client.

use crate::file_request::FileRequest;
use crate::outcome::FileOutcome;
use crate::representation::Representation;
use crate::services::Services;
use crate::thread_pool::{Notified, Signal, Urgency};
use crate::version::{EncodingState, Version};
use flatout_http::encoding::{AcceptedCodings, ContentCoding};
use flatout_http::request::Asked;
use std::sync::Arc;
use std::time::Duration;

/// Size up to which a file is encoded while its first client waits, in bytes: it takes a few milliseconds.
const WAIT_BYTES_MAX: u64 = 256 * 1024;

/// Upper bound of that wait.
const TIMEOUT: Duration = Duration::from_millis(50);

/// The result of the selection.
pub(crate) enum EncodingChoice<'a> {
    /// This representation, with an outcome if it differs from that of the lookup.
    Take(&'a Representation, Option<FileOutcome>),
    /// This coding, after it is encoded or the wait times out.
    Wait(ContentCoding, Notified),
}

/// Selects for `question`. Sets `grown` if the version has adopted an encoding created since.
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
    let mut useful = [ContentCoding::Identity; ContentCoding::ALL.len()];
    let mut count = 0;
    for &coding in version.offered() {
        // Encoding a version that may still change under its identity is wasted.
        let is_useful = match version.standing(coding, grown) {
            EncodingState::Ready(_) => true,
            EncodingState::Possible => version.settled,
            EncodingState::Useless => false,
        };
        if is_useful && count < useful.len() {
            useful[count] = coding;
            count += 1;
        }
    }
    // A client that accepts none of the representations gets the plain file (RFC 9110 §12.4.1).
    let Some(coding) = accepted.choose(useful[..count].iter().copied()) else { return plain };
    match version.standing(coding, grown) {
        EncodingState::Ready(representation) if coding == ContentCoding::Identity => {
            EncodingChoice::Take(representation, None)
        }
        EncodingState::Ready(representation) => EncodingChoice::Take(representation, Some(FileOutcome::Encoded)),
        EncodingState::Useless => plain,
        EncodingState::Possible => begin(version, coding, services, grown)
            .unwrap_or_else(|outcome| EncodingChoice::Take(second_best(version, accepted, grown), Some(outcome))),
    }
}

/// Requests the encoding in `coding`, and waits for it if that is quick.
fn begin<'a>(
    version: &'a Version,
    coding: ContentCoding,
    services: &Services,
    grown: &mut bool,
) -> Result<EncodingChoice<'a>, FileOutcome> {
    let Some(slot) = version.facts().encoded(coding) else { return Err(FileOutcome::EncodingPending) };
    let soon = version.plain.size_bytes <= WAIT_BYTES_MAX;
    let urgency = if soon { Urgency::Prompt } else { Urgency::Patient };
    let under_way = services
        .make_encoded(slot, coding, urgency, || version.plain.source())
        .map_err(|_refused| FileOutcome::ThreadPoolFull)?;
    // Promised encodings count already.
    *grown |= under_way;
    let signal = Arc::<Signal>::default();
    if !soon || !under_way || !services.thread_pool.ring_after(TIMEOUT, Arc::clone(&signal)) {
        return Err(FileOutcome::EncodingPending);
    }
    slot.ring_at_end(&signal);
    Ok(EncodingChoice::Wait(coding, Notified(signal)))
}

/// The best available representation.
fn second_best<'a>(version: &'a Version, accepted: AcceptedCodings, grown: &mut bool) -> &'a Representation {
    let mut ready = [ContentCoding::Identity; ContentCoding::ALL.len()];
    let mut count = 0;
    for &coding in version.offered() {
        if count < ready.len() && matches!(version.standing(coding, grown), EncodingState::Ready(_)) {
            ready[count] = coding;
            count += 1;
        }
    }
    match accepted.choose(ready[..count].iter().copied()).map(|coding| version.standing(coding, grown)) {
        Some(EncodingState::Ready(representation)) => representation,
        _ => &version.plain,
    }
}
