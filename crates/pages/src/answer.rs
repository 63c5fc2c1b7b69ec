//! Construction of the response from a page's output: the head, and the content with as few copies as possible.
//!
//! Small content is gathered in a buffer, which is reused after the response has been sent. Large content stays in
//! place: static segments in the page, everything else in the output buffer. A `writev` of slices sends it.

use crate::api::policy::DEFAULT as CACHE_DEFAULT;
use crate::backlog::{BacklogFull, BufferedOutput};
use crate::exchange::draft::Draft;
use crate::exchange::output::{Output, OutputPiece};
use crate::page::Page;
use flatout_handler::response::{Body, Head, Segment};
use flatout_handler::routed::HeaderPolicy;
use flatout_handler::shared::SharedBytes;
use flatout_http::lines::{FieldOp, write_line};
use flatout_http::status::has_content;
use std::fmt::Write as _;
use std::ops::Range;
use std::rc::Rc;

/// Size up to which content is gathered in one buffer, in bytes. The connection would copy content of this size anyway.
const WHOLE_BYTES_MAX: usize = 16 * 1024;

/// Size below which pieces are copied even in larger content, in bytes. A separate slice would cost the kernel more.
const SLICE_BYTES_MIN: usize = 2 * 1024;

/// Number of heads cached per page. Most pages have few different lengths.
const HEADS_MAX: usize = 8;

/// The default Content-Type.
const TYPE_DEFAULT: &str = "text/html; charset=utf-8";

/// The most recently used heads of a page.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    kept: Vec<(HeadKey, Head)>,
    next: usize,
}

/// The key of a cached head, which does not include the page's own field lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeadKey {
    status: u16,
    policy: u32,
    length: Option<u64>,
    has_type: bool,
    has_cache: bool,
    is_encoded: bool,
}

impl Heads {
    fn get(&mut self, key: HeadKey, make: impl FnOnce() -> Head) -> Head {
        if let Some((_, head)) = self.kept.iter().find(|(known, _)| *known == key) {
            return head.clone();
        }
        let head = make();
        if self.kept.len() < HEADS_MAX {
            self.kept.push((key, head.clone()));
        } else {
            self.kept[self.next] = (key, head.clone());
            self.next = (self.next + 1) % HEADS_MAX;
        }
        head
    }
}

/// Returns the head for `draft`, and the additional field lines of this response. `length` is that of the content, if
/// known.
pub(crate) fn head(
    page: &Page,
    draft: &Draft,
    length: Option<u64>,
    policy: &Rc<HeaderPolicy>,
) -> (Head, Option<Rc<[u8]>>) {
    let has = |name: &[u8]| draft.field(name).is_some();
    let mut fields = draft.fields().peekable();
    let is_plain = fields.peek().is_none();
    let key = HeadKey {
        status: draft.status,
        policy: policy.id,
        length: length.filter(|_| has_content(draft.status)),
        has_type: !has_content(draft.status) || !is_plain && has(b"content-type"),
        has_cache: !is_plain && has(b"cache-control"),
        is_encoded: !is_plain && has(b"content-encoding"),
    };
    let head = page.heads.borrow_mut().get(key, || build_head(key, policy));
    if is_plain {
        return (head, None);
    }
    let mut lines = Vec::new();
    for (name, value) in fields {
        // Header steps take precedence over the page, except for the coding of its content.
        let overrides =
            |change: &FieldOp| change.coding().is_none() && change.removes(name) && change.applies_to(draft.status);
        if !policy.fields.iter().any(overrides) {
            write_line(name, value, &mut lines);
        }
    }
    let lines: Option<Rc<[u8]>> = if lines.is_empty() { None } else { Some(lines.into()) };
    (head, lines)
}

#[cold]
fn build_head(key: HeadKey, policy: &Rc<HeaderPolicy>) -> Head {
    let mut text = String::new();
    let mut fields: Vec<(&str, &str)> = Vec::new();
    if !key.has_type {
        fields.push(("Content-Type", TYPE_DEFAULT));
    }
    if let Some(length) = key.length {
        // Writing to a String cannot fail.
        let _ = write!(text, "{length}");
        fields.push(("Content-Length", &text));
    }
    if !key.has_cache
        && let Some((name, value)) = CACHE_DEFAULT.trim_end().split_once(": ")
    {
        fields.push((name, value));
    }
    if key.is_encoded { policy.without_coding().head(key.status, &fields) } else { policy.head(key.status, &fields) }
}

/// A part of the gathered content.
enum OutputPart {
    /// A range of the page's static bytes.
    Static(Range<usize>),
    /// A range of the written bytes.
    Written(Range<usize>),
    /// A range of the copied bytes.
    Copied(Range<usize>),
}

/// Returns the length of the content in `output` of `page`, in bytes.
pub(crate) fn length(page: &Page, output: &Output) -> usize {
    let of = |piece: &OutputPiece| match *piece {
        OutputPiece::Static(number) => page.range(number).map_or(0, |range| range.len()),
        OutputPiece::Dynamic { start, end } => end.saturating_sub(start) as usize,
    };
    output.pieces().iter().map(of).sum()
}

/// Returns the content of `output`, which is `length` bytes long. Small content is gathered in `spare`, unless the
/// previous response is still being sent from it.
pub(crate) fn body(
    page: &Page,
    output: &mut Output,
    length: usize,
    spare: &mut Rc<Vec<u8>>,
    keep: impl Fn(Vec<u8>) -> Result<BufferedOutput, BacklogFull>,
) -> Result<Body, BacklogFull> {
    if length == 0 {
        return Ok(Body::Empty);
    }
    if let [OutputPiece::Static(number)] = output.pieces() {
        let mut segments = Vec::with_capacity(2);
        if let Some(range) = page.range(*number) {
            page.append_part(range, &mut segments);
        }
        return Ok(match <[Segment; 1]>::try_from(segments) {
            Ok([Segment::Bytes(bytes)]) => Body::Bytes(bytes),
            Ok([Segment::File(file)]) => Body::File(file),
            Err(segments) => Body::Segments(segments),
        });
    }
    if length <= WHOLE_BYTES_MAX {
        let fill = |buffer: &mut Vec<u8>| {
            for piece in output.pieces() {
                buffer.extend_from_slice(match *piece {
                    OutputPiece::Static(number) => page.segment(number),
                    OutputPiece::Dynamic { start, end } => &output.dynamic()[start as usize..end as usize],
                });
            }
        };
        if let Some(buffer) = Rc::get_mut(spare) {
            buffer.clear();
            fill(buffer);
            return Ok(Body::Bytes(SharedBytes::from_shared(Rc::clone(spare))));
        }
        // The previous response waits for its client, and this one may have to wait as well.
        let mut buffer = Vec::with_capacity(length);
        fill(&mut buffer);
        return Ok(match keep(buffer)?.part(0..length) {
            Segment::Bytes(bytes) => Body::Bytes(bytes),
            Segment::File(file) => Body::File(file),
        });
    }
    segments(page, output, keep).map(Body::Segments)
}

/// Returns the content of `output` as slices.
pub(crate) fn segments(
    page: &Page,
    output: &mut Output,
    keep: impl Fn(Vec<u8>) -> Result<BufferedOutput, BacklogFull>,
) -> Result<Vec<Segment>, BacklogFull> {
    let mut copied: Vec<u8> = Vec::new();
    let mut parts: Vec<OutputPart> = Vec::new();
    for piece in output.pieces() {
        match *piece {
            OutputPiece::Static(number) => {
                let Some(range) = page.range(number).filter(|range| !range.is_empty()) else { continue };
                match parts.last_mut() {
                    // Adjacent static ranges become one slice.
                    Some(OutputPart::Static(last)) if last.end == range.start => last.end = range.end,
                    _ if range.len() < SLICE_BYTES_MIN => copy(&mut parts, &mut copied, &page.segments()[range]),
                    _ => parts.push(OutputPart::Static(range)),
                }
            }
            OutputPiece::Dynamic { start, end } => {
                let range = start as usize..end as usize;
                if range.len() < SLICE_BYTES_MIN {
                    copy(&mut parts, &mut copied, &output.dynamic()[range]);
                } else {
                    parts.push(OutputPart::Written(range));
                }
            }
        }
    }
    let keep = |buffer: Vec<u8>| {
        if buffer.is_empty() { Ok(BufferedOutput::Memory(SharedBytes::from_buffer(buffer))) } else { keep(buffer) }
    };
    let copied = keep(copied)?;
    let is_written = parts.iter().any(|part| matches!(part, OutputPart::Written(_)));
    let written = keep(if is_written { output.take_dynamic() } else { Vec::new() })?;
    let mut segments = Vec::with_capacity(parts.len() + 1);
    for part in parts {
        match part {
            OutputPart::Static(range) => page.append_part(range, &mut segments),
            OutputPart::Written(range) => segments.push(written.part(range)),
            OutputPart::Copied(range) => segments.push(copied.part(range)),
        }
    }
    Ok(segments)
}

fn copy(parts: &mut Vec<OutputPart>, copied: &mut Vec<u8>, bytes: &[u8]) {
    let start = copied.len();
    copied.extend_from_slice(bytes);
    match parts.last_mut() {
        Some(OutputPart::Copied(last)) => last.end = copied.len(),
        _ => parts.push(OutputPart::Copied(start..copied.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::{Heads, SLICE_BYTES_MIN, WHOLE_BYTES_MAX, body, head, length, segments};
    use crate::backlog::{BacklogFull, BufferedOutput};
    use crate::exchange::Exchange;
    use crate::page::{PLACED_BYTES_MIN, Page};
    use flatout_config::model::FieldOp;
    use flatout_handler::response::{Body, Segment};
    use flatout_handler::routed::HeaderPolicy;
    use flatout_handler::shared::SharedBytes;
    use flatout_os::file::PAGE_BYTES;
    use std::rc::Rc;

    fn text(body: &Body) -> String {
        let bytes = match body {
            Body::Empty => Vec::new(),
            Body::Bytes(bytes) => bytes.to_vec(),
            Body::Segments(segments) => segments.iter().flat_map(bytes_of).collect(),
            other => panic!("{other:?}"),
        };
        String::from_utf8(bytes).unwrap()
    }

    fn bytes_of(segment: &Segment) -> Vec<u8> {
        let Segment::Bytes(bytes) = segment else { panic!("a file") };
        bytes.to_vec()
    }

    /// Without a bound.
    #[expect(clippy::unnecessary_wraps, reason = "the same signature as for a backlog")]
    fn keep(buffer: Vec<u8>) -> Result<BufferedOutput, BacklogFull> {
        Ok(BufferedOutput::Memory(SharedBytes::from_buffer(buffer)))
    }

    #[test]
    fn small_contents_share_one_buffer() {
        let page = Page::of_segments(&["<p>", "</p>"]);
        let mut spare = Rc::new(Vec::new());
        let mut exchange = Exchange::default();
        let mut write = |value: &str, spare: &mut Rc<Vec<u8>>| {
            let output = &mut exchange.output;
            output.clear();
            output.segment(0);
            output.write(|buffer| buffer.extend_from_slice(value.as_bytes()));
            output.segment(1);
            let bytes = length(&page, output);
            body(&page, output, bytes, spare, keep).unwrap()
        };
        let first = write("one", &mut spare);
        assert_eq!(text(&first), "<p>one</p>");
        // The first is still being sent: it stays what it is.
        let second = write("two", &mut spare);
        assert_eq!((text(&first), text(&second)), ("<p>one</p>".into(), "<p>two</p>".into()));
        let before = Rc::as_ptr(&spare);
        drop((first, second));
        drop(write("three", &mut spare));
        drop(write("four", &mut spare));
        assert_eq!(Rc::as_ptr(&spare), before, "the buffer is used again");
    }

    #[test]
    fn static_contents_and_large_ones_are_slices() {
        let large = "x".repeat(WHOLE_BYTES_MAX);
        let page = Page::of_segments(&[&large, "side by side", "|", &large]);
        let mut exchange = Exchange::default();
        let output = &mut exchange.output;
        output.segment(0);
        let spare = &mut Rc::new(Vec::new());
        assert!(
            matches!(body(&page, output, large.len(), spare, keep), Ok(Body::Bytes(bytes)) if bytes.len() == large.len())
        );
        output.segment(1);
        output.write(|buffer| buffer.extend_from_slice(b"ab"));
        output.segment(2);
        output.write(|buffer| buffer.resize(buffer.len() + SLICE_BYTES_MIN, b'y'));
        output.segment(3);
        let expected = format!("{large}side by sideab|{}{large}", "y".repeat(SLICE_BYTES_MIN));
        assert_eq!(length(&page, output), expected.len());
        let slices = segments(&page, output, keep).unwrap();
        assert_eq!(slices.iter().flat_map(bytes_of).collect::<Vec<u8>>(), expected.as_bytes());
        let lengths: Vec<u64> = slices.iter().map(Segment::len).collect();
        assert_eq!(lengths, [large.len() as u64 + 12, 3, SLICE_BYTES_MIN as u64, large.len() as u64]);
        output.clear();
        assert!(matches!(body(&page, output, 0, spare, keep), Ok(Body::Empty)));
    }

    #[test]
    fn large_static_parts_are_parts_of_a_file() {
        let large = "x".repeat(PLACED_BYTES_MIN);
        let page = Page::of_segments(&[&large, &large]);
        let mut exchange = Exchange::default();
        let output = &mut exchange.output;
        output.segment(0);
        let alone = body(&page, output, large.len(), &mut Rc::new(Vec::new()), keep).unwrap();
        assert!(matches!(alone, Body::File(file) if file.bytes == large.len() as u64));
        output.write(|buffer| buffer.extend_from_slice(b"between"));
        output.segment(1);
        let parts = segments(&page, output, keep).unwrap();
        let [Segment::File(first), Segment::Bytes(between), Segment::File(second)] = &parts[..] else {
            panic!("{parts:?}")
        };
        assert_eq!(&between[..], b"between");
        assert_eq!(second.offset - first.offset, large.len() as u64);
    }

    #[test]
    fn parts_of_a_file_start_at_a_page() {
        let (first, second) = ("x".repeat(PLACED_BYTES_MIN + 100), "y".repeat(PLACED_BYTES_MIN));
        let page = Page::of_segments(&[&first, &second]);
        let mut exchange = Exchange::default();
        let output = &mut exchange.output;
        output.segment(0);
        output.write(|buffer| buffer.extend_from_slice(b"between"));
        output.segment(1);
        let parts = segments(&page, output, keep).unwrap();
        let lengths: Vec<u64> = parts.iter().map(Segment::len).collect();
        let lead_bytes = PAGE_BYTES - 100;
        assert_eq!(lengths, [first.len() as u64, 7, lead_bytes, second.len() as u64 - lead_bytes]);
        for part in &parts {
            assert!(!matches!(part, Segment::File(file) if file.offset % PAGE_BYTES > 0), "{parts:?}");
        }
        assert_eq!(bytes_of(&parts[2]), vec![b'y'; lead_bytes as usize]);
        output.clear();
        output.segment(1);
        let alone = body(&page, output, second.len(), &mut Rc::new(Vec::new()), keep).unwrap();
        assert!(matches!(&alone, Body::Segments(parts) if parts.len() == 2), "{alone:?}");
    }

    #[test]
    fn heads_have_what_the_page_the_steps_and_the_framing_say() {
        let page = Page::of_segments(&[]);
        let mut exchange = Exchange::default();
        let lines = |exchange: &Exchange, length, policy: &HeaderPolicy| {
            let (head, extra) = head(
                &page,
                &exchange.draft,
                length,
                &Rc::new(HeaderPolicy { id: policy.id, fields: Rc::clone(&policy.fields) }),
            );
            let mut output = Vec::new();
            head.append_to(&mut output, &[b'D'; 29], extra.as_deref().unwrap_or_default(), None);
            String::from_utf8(output).unwrap()
        };
        let none = HeaderPolicy::default();
        let plain = lines(&exchange, Some(3), &none);
        let expected =
            "Content-Type: text/html; charset=utf-8\r\nContent-Length: 3\r\nCache-Control: private, no-cache\r\n\r\n";
        assert!(plain.ends_with(expected), "{plain}");
        exchange.draft.add_field(b"Content-Type", b"application/json");
        exchange.draft.add_field(b"X-A", b"1");
        exchange.draft.add_field(b"X-B", b"2");
        let set = |name: &str, value: &str| FieldOp::set(name.into(), value.into());
        let fields = [set("x-b", "3"), FieldOp::remove("Cache-Control".into()), set("Content-Length", "9")];
        let policy = HeaderPolicy { id: 1, fields: Rc::new(fields) };
        let changed = lines(&exchange, None, &policy);
        assert!(changed.ends_with("\r\nx-b: 3\r\nContent-Type: application/json\r\nX-A: 1\r\n\r\n"), "{changed}");
        assert!(!changed.contains("Content-Length") && !changed.contains("Cache-Control"), "{changed}");
        exchange.draft.clear();
        exchange.draft.status = 304;
        let empty = lines(&exchange, Some(0), &none);
        assert!(!empty.contains("Content-Length") && !empty.contains("Content-Type"), "{empty}");
    }

    #[test]
    fn few_heads_are_kept() {
        let page = Page::of_segments(&[]);
        let exchange = Exchange::default();
        for length in 0..100 {
            let _ = head(&page, &exchange.draft, Some(length), &Rc::default());
        }
        let kept = page.heads.replace(Heads::default());
        assert_eq!(kept.kept.len(), super::HEADS_MAX);
    }
}
