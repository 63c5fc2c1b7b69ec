//! Features of `dev`: errors shown in the browser with the surrounding lines, and automatic reload.
//!
//! The browser requests events from the page's own address with a reserved query, so the request passes through the
//! same routes and passwords. Each response lasts a few seconds and contains the number of changes so far. The browser
//! repeats the request, and reloads the page if the number has changed. A restarted server begins with a different
//! number, too.

use crate::exchange::Exchange;
use crate::outcome::PageOutcome;
use crate::page::{Page, read_all};
use crate::sandbox::failure::RunFailure;
use crate::step::PagesStep;
use flatout_handler::response::{Body, Head, Response, Segment};
use flatout_handler::routed::{Refusal, RoutedRequest};
use flatout_handler::shared::SharedBytes;
use flatout_handler::stream::{ContentEvent, ContentSource, Stream};
use flatout_http::request::Method;
use flatout_http::status::{has_content, reason};
use flatout_os::clock::precise_ns;
use flatout_os::timer::Timer;
use flatout_template::FILE_BYTES_MAX;
use flatout_template::escape;
use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

/// The query of a request for events.
const QUERY: &[u8] = b"flatout-dev-events";

/// Interval between checks for changes, in milliseconds.
const TICK_MS: u64 = 100;

/// Number of checks after which a response ends, so that a server that is stopping need not wait long.
const TICKS_MAX: u32 = 30;

/// Number of lines shown before and after the failed line.
const LINES_AROUND: u32 = 4;

/// The script appended to each page. It remembers the first number that it receives, which is that of its own version.
const SCRIPT: &str = "<script>(()=>{let seen;const events=new EventSource(location.pathname+'?flatout-dev-events');\
    events.onmessage=event=>{if(seen===undefined)seen=event.data;else if(seen!==event.data)location.reload()}})()\
    </script>\n";

const STYLE: &str = "body{font:1rem/1.5 system-ui,sans-serif;max-width:60rem;margin:3rem auto;padding:0 1.5rem}\
    h1{font-size:1.3rem}pre{background:#8881;padding:1rem;overflow:auto;border-radius:.4rem;line-height:1.4}\
    mark{background:#f553;color:inherit;display:block}code{font-weight:600}small{opacity:.7}";

/// Appends the script to the output of `exchange` if the output is an HTML page.
pub(crate) fn add_script(exchange: &mut Exchange) {
    let is_html = exchange.draft.field(b"content-type").is_none_or(|value| value.starts_with(b"text/html"));
    // A page that responds with a part has described its length.
    if is_html && has_content(exchange.draft.status) && exchange.draft.status != 206 {
        exchange.output.write(|written| written.extend_from_slice(SCRIPT.as_bytes()));
    }
}

/// Returns the stream of events if `routed` is a request for events.
pub(crate) fn events(step: &PagesStep, routed: &RoutedRequest<'_>) -> Option<Response> {
    if routed.query != Some(QUERY) || routed.request.head.method != Method::Get {
        return None;
    }
    let epoch = step.epoch.clone()?;
    let timer = Timer::new().ok()?;
    timer.set_interval(TICK_MS).ok()?;
    let head = Head::new(200, &[("Content-Type", "text/event-stream"), ("Cache-Control", "no-store")]);
    let source = Events { tick: tick(timer), epoch, told: None, ticks: 0 };
    Some(Response::new(200, head, Body::Stream(Stream::new(source, None)), PageOutcome::Events))
}

/// A number for this process that is different from those of other processes.
fn begun() -> u64 {
    static BEGUN: OnceLock<u64> = OnceLock::new();
    *BEGUN.get_or_init(precise_ns)
}

type Ticking = Pin<Box<dyn Future<Output = Option<Timer>>>>;

/// Waits for the next tick and returns the timer, or `None` if the timer failed.
fn tick(timer: Timer) -> Ticking {
    Box::pin(async move { timer.tick().await.is_ok().then_some(timer) })
}

/// A stream that contains the number of changes, initially and after each change.
struct Events {
    tick: Ticking,
    epoch: Arc<AtomicU64>,
    told: Option<u64>,
    ticks: u32,
}

impl ContentSource for Events {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<ContentEvent> {
        loop {
            let epoch = self.epoch.load(Ordering::Acquire);
            if self.told != Some(epoch) {
                let retry = if self.told.is_none() { "retry: 200\n" } else { "" };
                self.told = Some(epoch);
                let event = format!("{retry}data: {}-{epoch}\n\n", begun());
                return Poll::Ready(ContentEvent::Segment(Segment::Bytes(SharedBytes::from_buffer(
                    event.into_bytes(),
                ))));
            }
            if self.ticks >= TICKS_MAX {
                return Poll::Ready(ContentEvent::End(None));
            }
            let Some(timer) = ready!(self.tick.as_mut().poll(context)) else {
                return Poll::Ready(ContentEvent::End(None));
            };
            self.tick = tick(timer);
            self.ticks += 1;
        }
    }
}

/// Creates the page for a failed run. `place` is the name of the file and the line at which the run failed.
pub(crate) fn failure_page(
    step: &PagesStep,
    page: &Page,
    failure: &RunFailure,
    place: Option<(String, u32)>,
    refusal: &Refusal,
) -> Response {
    let mut content = String::new();
    content.push_str("<p><code>");
    match &place {
        Some((name, line)) => push_escaped(&mut content, &format!("{}:{line}", step.show(name))),
        None => push_escaped(&mut content, &page.shown),
    }
    content.push_str("</code>: ");
    push_escaped(&mut content, &failure.message);
    content.push_str("</p>\n");
    if let Some(excerpt) = place.and_then(|(name, line)| excerpt(step, &name, line)) {
        content.push_str(&excerpt);
    }
    let trace: Vec<String> = failure.traceback.lines().map(|line| shown_call(step, page, line)).collect();
    if trace.len() > 1 {
        content.push_str("<p>Called from</p>\n<pre>");
        push_escaped(&mut content, &trace.join("\n"));
        content.push_str("</pre>\n");
    }
    respond(refusal, &content)
}

/// Creates the page for a compilation error.
pub(crate) fn broken_page(text: &str, refusal: &Refusal) -> Response {
    let mut content = String::from("<pre>");
    push_escaped(&mut content, text);
    content.push_str("</pre>\n");
    respond(refusal, &content)
}

/// Converts a line of a traceback, `chunk:line ...`, to the file and the line in the page's source.
fn shown_call(step: &PagesStep, page: &Page, call: &str) -> String {
    let translate = || {
        let rest = call.strip_prefix(page.shown.as_str())?.strip_prefix(':')?;
        let digits = rest.len() - rest.trim_start_matches(|character: char| character.is_ascii_digit()).len();
        let (name, line) = page.place(rest[..digits].parse().ok()?)?;
        Some(format!("{}:{line}{}", step.show(&name), &rest[digits..]))
    };
    translate().unwrap_or_else(|| call.to_owned())
}

/// Returns the lines around `line` in the file `name`, as the file is now.
fn excerpt(step: &PagesStep, name: &str, line: u32) -> Option<String> {
    let (fd, _) = step.root.open_file(name.as_bytes()).ok()?;
    let content = read_all(&fd, FILE_BYTES_MAX).ok()?;
    let text = String::from_utf8_lossy(&content);
    let (first, last) = (line.saturating_sub(LINES_AROUND).max(1), line.saturating_add(LINES_AROUND));
    let mut excerpt = String::from("<pre>");
    for (number, source) in (1_u32..).zip(text.lines()).filter(|(number, _)| (first..=last).contains(number)) {
        let (open, close) = if number == line { ("<mark>", "</mark>") } else { ("", "\n") };
        // Writing to a String cannot fail.
        let _ = write!(excerpt, "{open}{number:>5}  ");
        push_escaped(&mut excerpt, source);
        excerpt.push_str(close);
    }
    excerpt.push_str("</pre>\n");
    (line > 0).then_some(excerpt)
}

fn push_escaped(output: &mut String, text: &str) {
    let mut escaped = Vec::new();
    escape::text(text.as_bytes(), &mut escaped);
    output.push_str(&String::from_utf8_lossy(&escaped));
}

fn respond(refusal: &Refusal, content: &str) -> Response {
    let Refusal { status, outcome, .. } = *refusal;
    let reason = reason(status);
    let page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{status} {reason}</title>\n\
         <style>{STYLE}</style>\n<h1>{status} {reason}</h1>\n{content}<p><small>[{}] {}</small></p>\n{SCRIPT}",
        outcome.name(),
        outcome.text(),
    );
    let length = page.len().to_string();
    let fields = [
        ("Content-Type", "text/html; charset=utf-8"),
        ("Content-Length", length.as_str()),
        ("Cache-Control", "no-store"),
    ];
    Response::new(status, Head::new(status, &fields), Body::Bytes(SharedBytes::from_buffer(page.into_bytes())), outcome)
}
