//! A compiled page: its static content, its code, and the identities of its source files.

use crate::answer::Heads;
use crate::check::error_of;
use crate::outcome::PageOutcome;
use crate::sandbox::{Code, Sandbox};
use crate::step::PagesStep;
use flatout_config::Style;
use flatout_handler::response::{FileBody, Segment};
use flatout_handler::shared::SharedBytes;
use flatout_os::block::{Placed, place};
use flatout_os::clock;
use flatout_os::file::{FileIdentity, PAGE_BYTES};
use flatout_os::root::{Named, OpenFault};
use flatout_template::{CompiledPage, Files, LineMap, compile};
use rustix::io::{Errno, pread};
use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Maximum number of attempts to read a page whose files keep changing. After that, the request fails, and a later
/// request tries again.
const READS_MAX: u32 = 3;

/// Minimum time between a file's last change and reading it, in nanoseconds. A file that changed more recently may
/// change again without getting a new identity, because timestamps of file systems have a granularity of up to 10 ms.
const SETTLED_NS: i128 = 100_000_000;

/// Minimum size of static content that is sent with sendfile, like files, in bytes.
pub(crate) const PLACED_BYTES_MIN: usize = 64 * 1024;

/// A page that can be run.
#[derive(derive_more::Debug)]
#[debug("Page({shown:?})")]
pub(crate) struct Page {
    /// The display name.
    pub(crate) shown: String,
    segments: SharedBytes,
    ranges: Box<[Range<usize>]>,
    /// A file with the segments, from which they are sent without copying; `None` for a page with little static
    /// content.
    placed: Option<Placed>,
    /// The compiled code; `None` if the page is static.
    pub(crate) code: Option<Rc<Code>>,
    lines: LineMap,
    /// The heads of recent responses.
    pub(crate) heads: RefCell<Heads>,
    /// True if the page needed many time slices when it last ran.
    pub(crate) is_long: Cell<bool>,
}

/// A page that cannot be run.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) outcome: PageOutcome,
    /// The problems with their places, as several lines.
    pub(crate) text: String,
    /// The first problem in one line, for the log.
    pub(crate) line: String,
}

/// The result of reading a page: the page or its problems, and the files that determine whether the result is still
/// valid.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) page: Result<Rc<Page>, Rc<Broken>>,
    /// The files, beginning with the page itself. The identity is `None` if the file does not exist or is unreadable.
    files: Vec<(String, Option<FileIdentity>)>,
    /// True if every later change of a file will change its identity.
    pub(crate) settled: bool,
}

impl Loaded {
    /// Reads and compiles the page `name` of `step`.
    pub(crate) fn read(step: &PagesStep, name: &str, sandbox: &Sandbox) -> Self {
        let mut loaded = Self::read_once(step, name, sandbox);
        for _ in 1..READS_MAX {
            if loaded.page.as_ref().is_err_and(|broken| broken.outcome == PageOutcome::Changing) {
                loaded = Self::read_once(step, name, sandbox);
            }
        }
        loaded
    }

    fn read_once(step: &PagesStep, name: &str, sandbox: &Sandbox) -> Self {
        let now_ns = clock::unix_ns();
        let reading =
            RecordedFiles { step, seen: RefCell::default(), fault: Cell::new(None), is_mixed: Cell::new(false) };
        let compiled = compile(name, &reading);
        let is_changing = reading.is_mixed.get();
        let fault = reading.fault.get();
        let files = reading.seen.into_inner();
        let settled =
            files.iter().filter_map(|(_, identity)| *identity).all(|seen| now_ns - seen.changed_ns >= SETTLED_NS);
        let page = if is_changing {
            Err(Broken::new(step, name, PageOutcome::Changing, "it changed during every attempt to read it"))
        } else {
            match (compiled.template, fault) {
                (Ok(template), _) => Page::new(step, name, template, sandbox),
                (Err(found), None) => Err(Broken::from_diagnostics(&found, PageOutcome::Malformed)),
                (Err(found), Some(_)) => Err(Broken::from_diagnostics(&found, PageOutcome::Unreadable)),
            }
        };
        Self { page: page.map(Rc::new).map_err(Rc::new), files, settled }
    }

    /// Returns whether all files are unchanged.
    pub(crate) fn is_current(&self, step: &PagesStep) -> bool {
        self.files.iter().all(|(name, seen)| match step.root.identify(name.as_bytes()) {
            Ok(Named::File(identity)) => *seen == Some(identity),
            _ => seen.is_none(),
        })
    }
}

impl Page {
    fn new(step: &PagesStep, name: &str, mut template: CompiledPage, sandbox: &Sandbox) -> Result<Self, Broken> {
        let shown = step.show(name);
        let is_static = template.is_static();
        let ranges = (0..template.segments.len()).filter_map(|number| template.segments.range(number)).collect();
        let segments = SharedBytes::from_buffer(template.segments.take_bytes());
        let code = if is_static {
            None
        } else {
            match sandbox.load_page(&shown, &template.chunk, template.lines.shown(|name| step.show(name))) {
                Ok(code) => Some(code),
                Err(failure) => {
                    let place = failure.line.and_then(|line| template.lines.place(line));
                    let place = place
                        .map_or_else(|| shown.clone(), |place| format!("{}:{}", step.show(&place.file), place.line));
                    let text = format!("{place}: {}", failure.message);
                    return Err(Broken { outcome: PageOutcome::Malformed, line: text.clone(), text });
                }
            }
        };
        let placed = place_large(&segments);
        Ok(Self {
            shown,
            segments,
            ranges,
            placed,
            code,
            lines: template.lines,
            heads: RefCell::default(),
            is_long: Cell::new(false),
        })
    }

    /// Creates a static page with these segments.
    #[cfg(test)]
    pub(crate) fn of_segments(segments: &[&str]) -> Self {
        let mut end = 0;
        let mut range = |segment: &&str| {
            let start = end;
            end += segment.len();
            start..end
        };
        Self {
            shown: "test.lhtml".to_owned(),
            ranges: segments.iter().map(&mut range).collect(),
            placed: place_large(segments.concat().as_bytes()),
            segments: SharedBytes::from_buffer(segments.concat().into_bytes()),
            code: None,
            lines: LineMap::default(),
            heads: RefCell::default(),
            is_long: Cell::new(false),
        }
    }

    /// The static segment with this number.
    pub(crate) fn segment(&self, number: u32) -> &[u8] {
        self.range(number).map_or(&[], |range| &self.segments[range])
    }

    /// The range in [`Page::segments`] of the static segment with this number.
    pub(crate) fn range(&self, number: u32) -> Option<Range<usize>> {
        self.ranges.get(number as usize).cloned()
    }

    /// All static segments, concatenated.
    pub(crate) const fn segments(&self) -> &SharedBytes {
        &self.segments
    }

    /// Appends a range of [`Page::segments`] to the segments of a response. The part of a range that is sent from the
    /// file starts at a page of the page cache. The bytes before it, fewer than [`PAGE_BYTES`], are sent from memory
    /// together with what precedes them.
    pub(crate) fn append_part(&self, range: Range<usize>, segments: &mut Vec<Segment>) {
        let in_file = self.placed.as_ref().and_then(|placed| {
            let start = placed.offset() + range.start as u64;
            let lead_bytes = start.next_multiple_of(PAGE_BYTES) - start;
            let bytes = (range.len() as u64).checked_sub(lead_bytes)?;
            let file = FileBody { file: Rc::clone(placed.file()), offset: start + lead_bytes, bytes };
            (range.len() >= PLACED_BYTES_MIN).then_some((range.start + lead_bytes as usize, file))
        });
        match in_file {
            Some((start, file)) => {
                if start > range.start {
                    segments.push(Segment::Bytes(self.segments.slice(range.start..start)));
                }
                segments.push(Segment::File(file));
            }
            None => segments.push(Segment::Bytes(self.segments.slice(range))),
        }
    }

    /// Returns the source of line `line` in the chunk: the name of the file relative to the folder, and the line in the
    /// file.
    pub(crate) fn place(&self, line: u32) -> Option<(String, u32)> {
        self.lines.place(line).map(|place| (place.file, place.line))
    }
}

/// Places `text` in a file, from which it is sent without copying. If that fails, it is copied for each response.
fn place_large(text: &[u8]) -> Option<Placed> {
    (text.len() >= PLACED_BYTES_MIN).then(|| place(text).ok()).flatten()
}

impl Broken {
    fn new(step: &PagesStep, name: &str, outcome: PageOutcome, what: &str) -> Self {
        let text = format!("{}: {what}", step.show(name));
        Self { outcome, line: text.clone(), text }
    }

    fn from_diagnostics(found: &flatout_config::Diagnostics, outcome: PageOutcome) -> Self {
        let text = found.render(Style::Plain);
        let line = found.list.first().map_or_else(String::new, |first| {
            let place = &first.place;
            format!("{}:{}: {}", place.file, place.line, first.message)
        });
        Self { outcome, text, line }
    }
}

/// The folder from which the compiler reads, with a record of the identities of the files that it has read.
struct RecordedFiles<'a> {
    step: &'a PagesStep,
    seen: RefCell<Vec<(String, Option<FileIdentity>)>>,
    fault: Cell<Option<OpenFault>>,
    /// True if a file had two identities while the page was read, or changed while it was read.
    is_mixed: Cell<bool>,
}

impl RecordedFiles<'_> {
    fn note(&self, name: &str, identity: Option<FileIdentity>) {
        let mut seen = self.seen.borrow_mut();
        match seen.iter().find(|(known, _)| known == name) {
            Some((_, known)) if *known != identity => self.is_mixed.set(true),
            Some(_) => {}
            None => seen.push((name.to_owned(), identity)),
        }
    }
}

impl Files for RecordedFiles<'_> {
    fn read(&self, name: &str, bytes_max: usize) -> io::Result<Vec<u8>> {
        let (fd, identity) = match self.step.root.open_file(name.as_bytes()) {
            Ok(opened) => opened,
            Err(fault) => {
                self.note(name, None);
                if fault != OpenFault::NotFound {
                    self.fault.set(Some(fault));
                }
                return Err(error_of(fault));
            }
        };
        self.note(name, Some(identity));
        let content = read_all(&fd, bytes_max + 1)?;
        let is_whole = content.len() as u64 == identity.size_bytes || content.len() > bytes_max;
        if !is_whole || FileIdentity::read(&fd)? != identity {
            self.is_mixed.set(true);
        }
        Ok(content)
    }

    fn show(&self, name: &str) -> String {
        self.step.show(name)
    }
}

/// Reads up to `bytes_max` bytes from the beginning of the file.
pub(crate) fn read_all(fd: &OwnedFd, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let mut buffer = [0; 8192];
    while content.len() < bytes_max {
        let wanted = buffer.len().min(bytes_max - content.len());
        match pread(fd, &mut buffer[..wanted], content.len() as u64) {
            Ok(0) => break,
            Ok(count) => content.extend_from_slice(&buffer[..count]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(content)
}
