//! Builds the response to a request from a version of a file. Preconditions are evaluated before the range (RFC 9110
//! §13.2.2).

use crate::file_request::FileRequest;
use crate::outcome::FileOutcome;
use crate::representation::{Extra, Representation};
use crate::rules::FileRules;
use crate::services::Services;
use crate::version::Version;
use flatout_handler::response::{Body, Response, Segment};
use flatout_handler::routed::Refusal;
use flatout_handler::shared::SharedBytes;
use flatout_http::conditional::{Precondition, decide_precondition, if_range_holds};
use flatout_http::digest::{DigestAlgorithm, choose_digest};
use flatout_http::encoding::ContentCoding;
use flatout_http::ranges::{
    ByteRange, RangesDecision, Unranged, decide_ranges, format_part_head, format_parts_end, make_boundary,
};
use flatout_http::request::Asked;
use flatout_os::clock::Now;
use std::cell::Cell;

/// The inputs of a response apart from the version and the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Means<'a> {
    pub(crate) rules: &'a FileRules,
    pub(crate) services: &'a Services,
    /// Number of multipart responses so far, which makes each boundary different.
    pub(crate) parts_answered: &'a Cell<u64>,
    pub(crate) now: Now,
}

/// Returns the response to `question` with `representation` of `version`, or the refusal if a precondition is false or
/// the range is outside the file. `outcome` is that of a complete response.
pub(crate) fn answer(
    means: &Means<'_>,
    version: &Version,
    representation: &Representation,
    question: &FileRequest<'_>,
    outcome: FileOutcome,
) -> Result<Response, Refusal> {
    let common = &version.common;
    let mut outcome = outcome;
    if question.asked.any(Asked::CONDITION) {
        match decide_precondition(&question.fields, &representation.validators(common)) {
            Precondition::Proceed => {}
            Precondition::NotModified => {
                let extra = Extra {
                    content_digest: None,
                    content_md5: false,
                    ..extra(means, version, representation, question)
                };
                let head = representation.not_modified_head.clone();
                let mut response = Response::new(304, head, Body::Empty, FileOutcome::NotModified);
                response.extra = representation.extra_lines(common, extra);
                return Ok(response);
            }
            Precondition::Failed => {
                return Err(Refusal::new(
                    412,
                    "The file is not the version that the request requires.",
                    FileOutcome::PreconditionFailed,
                ));
            }
        }
    }
    let extra = extra(means, version, representation, question);
    // An encoding is always sent whole, unless the file is stored encoded. A request with Range selects one only if the
    // client refuses the plain file.
    if question.requests_range()
        && representation.coding == version.plain.coding
        && !is_ambiguous(version, question)
        && if_range_holds(&question.fields, &representation.validators(common), means.now.unix_s)
    {
        let size_bytes = representation.size_bytes;
        match decide_ranges(question.fields.first("range").unwrap_or_default(), size_bytes) {
            RangesDecision::Whole(Unranged::Malformed) => {}
            RangesDecision::Whole(_) => outcome = FileOutcome::RangeRefused,
            RangesDecision::One(part) => return Ok(answer_part(version, representation, part, extra, outcome)),
            // Content-Encoding would be that of the parts, which not all clients look for there.
            RangesDecision::Many(_) if representation.coding != ContentCoding::Identity => {
                outcome = FileOutcome::RangeRefused;
            }
            RangesDecision::Many(parts) => {
                return Ok(answer_parts(means, version, representation, parts.as_slice(), extra));
            }
            RangesDecision::Unsatisfiable => {
                let error =
                    Refusal::new(416, "The requested range is outside the file.", FileOutcome::RangeUnsatisfiable);
                return Err(error.with("Content-Range", format!("bytes */{size_bytes}")));
            }
        }
    }
    let body = representation.body(0, representation.size_bytes);
    let mut response = Response::new(200, representation.ok_head.clone(), body, outcome);
    response.extra = representation.extra_lines(common, extra);
    Ok(response)
}

/// Returns whether If-Range is a date, and therefore cannot tell which representation the client has a part of. All
/// codings of a version have the same date, so it is not a strong validator (RFC 9110 §8.8.2.2, §13.1.5).
fn is_ambiguous(version: &Version, question: &FileRequest<'_>) -> bool {
    version.common.vary.is_some() && question.fields.first("if-range").is_some_and(|value| !value.starts_with(b"\""))
}

/// Returns the field lines that are not part of the prebuilt head. If a digest has not been computed yet, submits the
/// computation and leaves out all digests, which a later response can contain.
fn extra(means: &Means<'_>, version: &Version, representation: &Representation, question: &FileRequest<'_>) -> Extra {
    let rules = means.rules;
    let expires_unix_s = version.common.expires_s.map(|seconds| means.now.unix_s.saturating_add(i64::from(seconds)));
    let mut extra = Extra { expires_unix_s, ..Extra::default() };
    if !rules.digest && !rules.content_md5 {
        return extra;
    }
    let wanted = question.asked.any(Asked::DIGEST);
    if wanted && rules.digest {
        extra.repr_digest = choose_digest(question.fields.all("want-repr-digest"));
        extra.content_digest = choose_digest(question.fields.all("want-content-digest"));
    }
    if rules.digest_always && extra.repr_digest.is_none() {
        extra.repr_digest = Some(DigestAlgorithm::Sha256);
    }
    extra.content_md5 = rules.content_md5;
    let asked = extra.repr_digest.is_some() || extra.content_digest.is_some() || extra.content_md5;
    if asked && representation.digests.get().is_none() {
        if version.settled {
            // If the thread pool refuses the job, the next response submits it again.
            let source = || representation.source();
            let _ = means.services.make_digests(&representation.digests, representation.kept_as, source);
        }
        return Extra { expires_unix_s, ..Extra::default() };
    }
    extra
}

/// Removes Content-Digest and Content-MD5, which would have to be those of a part. They are never computed for parts.
const fn of_part(extra: Extra) -> Extra {
    Extra { content_digest: None, content_md5: false, ..extra }
}

fn answer_part(
    version: &Version,
    representation: &Representation,
    part: ByteRange,
    extra: Extra,
    outcome: FileOutcome,
) -> Response {
    let (length, size_bytes) = (part.len().to_string(), representation.size_bytes);
    let content_range = format!("bytes {}-{}/{size_bytes}", part.first, part.last);
    let fields = [
        ("Content-Type", version.common.content_type.as_str()),
        ("Content-Length", &length),
        ("Content-Range", &content_range),
    ];
    let head = representation.partial_head(&version.common, &fields);
    let mut response = Response::new(206, head, representation.body(part.first, part.len()), outcome);
    response.extra = representation.extra_lines(&version.common, of_part(extra));
    response
}

/// Returns a response with several ranges as `multipart/byteranges` (RFC 9110 §14.6).
fn answer_parts(
    means: &Means<'_>,
    version: &Version,
    representation: &Representation,
    parts: &[ByteRange],
    extra: Extra,
) -> Response {
    let counter = means.parts_answered.get();
    means.parts_answered.set(counter.wrapping_add(1));
    let boundary = make_boundary(version.common.content_type.as_bytes(), counter);
    let own = format!("Content-Type: {}\r\n", version.common.content_type);
    let mut segments = Vec::with_capacity(2 * parts.len() + 1);
    let bytes = |text: String| Segment::Bytes(SharedBytes::from(text.into_bytes()));
    for (index, part) in parts.iter().enumerate() {
        segments.push(bytes(format_part_head(&boundary, &own, *part, representation.size_bytes, index == 0)));
        segments.push(representation.segment(part.first, part.len()));
    }
    segments.push(bytes(format_parts_end(&boundary)));
    let length = segments.iter().map(Segment::len).sum::<u64>().to_string();
    let content_type = format!("multipart/byteranges; boundary={boundary}");
    let fields = [("Content-Type", content_type.as_str()), ("Content-Length", &length)];
    let head = representation.partial_head(&version.common, &fields);
    let mut response = Response::new(206, head, Body::Segments(segments), FileOutcome::Parts);
    response.extra = representation.extra_lines(&version.common, of_part(extra));
    response
}

#[cfg(test)]
mod tests;
