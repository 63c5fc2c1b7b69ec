//! Handling of `php` requests on one worker.

use crate::answer::{respond, respond_file};
use crate::exchange::{Failed, FastcgiExchange, Through};
use crate::head::CgiHead;
use crate::outcome::PhpOutcome;
use crate::record::{RecordKind, encode_begin, encode_end, encode_stream};
use crate::split::Meaning;
use crate::step::PhpStep;
use crate::upload::{Feed, SentContent};
use crate::variables::VariableInput;
use flatout_balance::limit::{Arrival, Permit, QueueRefusal, WaitingRequest};
use flatout_handler::Request;
use flatout_handler::content::RequestContent;
use flatout_handler::owned::OwnedRequest;
use flatout_handler::response::{Body, Response};
use flatout_handler::routed::{Handling, HeaderPolicy, Refusal, RoutedRequest};
use flatout_handler::stream::{ContentEvent, ContentSource as _, Stream};
use flatout_http::path::SLASH_IN_SEGMENT;
use flatout_http::status::has_content;
use flatout_http::target::Target;
use flatout_os::clock::Now;
use flatout_upstream::fastcgi::FastcgiClient;
use flatout_upstream::fastcgi::saturation::{CAUTION_MS, SUSPICION_MS};
use flatout_upstream::permit::wait_for_permit;
use flatout_upstream::spool::{Filled, SpooledContent};
use flatout_upstream::upload::Upload;
use std::cell::RefCell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Weak};

/// Maximum number of bytes of unneeded content that are received so that the connection can be reused.
const UNWANTED_BYTES_MAX: u64 = 1024 * 1024;

/// A complete result of a script.
#[allow(clippy::large_enum_variant)] // nearly all results are responses
enum Made {
    /// A response with content.
    Response(Response),
    /// A request to send a file.
    File(Box<FileWanted>),
}

/// A file that a script has requested this server to send.
#[derive(derive_more::Debug)]
#[debug("FileWanted({name:?})")]
pub struct FileWanted {
    /// The path in the file system (X-Sendfile), or the internal URL path (X-Accel-Redirect).
    pub name: FileName,
    /// The request, whose ranges and conditions apply to the file.
    pub request: OwnedRequest,
    head: CgiHead,
    policy: Rc<HeaderPolicy>,
}

/// The name of a file to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileName {
    /// A path in the file system.
    Path(Vec<u8>),
    /// A percent-encoded URL path.
    Address(Vec<u8>),
}

impl FileWanted {
    /// Builds the script's response from `file`, which is the response with the requested file.
    #[must_use]
    pub fn respond(&self, file: Response) -> Response {
        // The file handler has chosen the coding of the file.
        respond_file(file, &self.head, &self.policy.without_coding().fields)
    }
}

/// The connections of one worker to application servers.
#[derive(Debug, Default)]
pub struct PhpWorker {
    clients: RefCell<Vec<(Weak<PhpStep>, FastcgiClient)>>,
}

/// A script to run, with the request for it.
struct Task {
    step: Arc<PhpStep>,
    client: FastcgiClient,
    request: OwnedRequest,
    script: Vec<u8>,
    decoded: Vec<u8>,
    removed: Vec<u8>,
    path_info_at: usize,
    query: Option<Vec<u8>>,
    policy: Rc<HeaderPolicy>,
    user: Option<String>,
    server: Option<SocketAddr>,
    port: Option<u16>,
    site: Option<String>,
}

impl PhpWorker {
    /// Handles a request with `step`, or passes it on. `send` creates the response with a file if the script requests
    /// this server to send one.
    pub fn handle<F: Future<Output = Result<Response, Refusal>>>(
        &self,
        step: &Arc<PhpStep>,
        routed: &RoutedRequest<'_>,
        send: impl FnOnce(Box<FileWanted>) -> F + 'static,
    ) -> Handling {
        // A front controller knows the address of its folder, and may prefer the one without the slash.
        let lacks_slash = routed.lacks_slash() && step.settings.front_controller.is_none();
        let (script, path_info) = match step.find(routed.decoded) {
            Meaning::Script(script, path_info) if !lacks_slash => (script, path_info),
            Meaning::Script(..) | Meaning::Slash => {
                return routed.redirect_to_folder(308, PhpOutcome::FolderSlash).into();
            }
            Meaning::Pass(_) => return Handling::Pass,
        };
        let offers = routed.request.offers;
        if offers.has_content() && offers.content_length().is_none() && step.settings.spool_bytes_max == 0 {
            return Refusal::from(PhpOutcome::LengthRequired).into();
        }
        // Receiving content may take long, so the permit is requested afterwards.
        let entrance = if offers.has_content() {
            None
        } else {
            match Entrance::of(step, routed.request) {
                Ok(entrance) => Some(entrance),
                Err(outcome) => return Refusal::from(outcome).into(),
            }
        };
        let task = Task {
            step: Arc::clone(step),
            client: self.client(step),
            request: OwnedRequest::new(routed.request),
            script,
            decoded: routed.decoded.iter().map(|&byte| if byte == SLASH_IN_SEGMENT { b'/' } else { byte }).collect(),
            removed: routed.removed.to_vec(),
            path_info_at: path_info.start,
            query: routed.query.map(<[u8]>::to_vec),
            policy: Rc::clone(routed.policy),
            user: routed.user.map(str::to_owned),
            server: routed.server,
            port: routed.port,
            site: routed.site.map(str::to_owned),
        };
        Handling::later(async move {
            match task.run(entrance).await? {
                Made::Response(response) => Ok(response),
                Made::File(wanted) => send(wanted).await,
            }
        })
    }

    /// Closes the connections of steps that are no longer used.
    pub fn retain(&self) {
        self.clients.borrow_mut().retain(|(step, _)| step.strong_count() > 0);
    }

    /// Returns this worker's connections to the application server of `step`.
    fn client(&self, step: &Arc<PhpStep>) -> FastcgiClient {
        let mut clients = self.clients.borrow_mut();
        let is_it = |other: &Weak<PhpStep>| other.upgrade().is_some_and(|other| other.id == step.id);
        if let Some((_, client)) = clients.iter().find(|(other, _)| is_it(other)) {
            return client.clone();
        }
        let settings = step.client_settings();
        // Idle connections depend only on the server, so steps share them.
        let client = match clients.iter().find(|(_, client)| *client.address() == step.address) {
            Some((_, client)) => client.with_settings(settings),
            None => FastcgiClient::new(step.address.clone(), settings),
        };
        clients.push((Arc::downgrade(step), client.clone()));
        client
    }
}

/// A permit for a request to the application server, or a place in its queue.
enum Entrance {
    /// A permit that was available.
    Open(Permit),
    /// A place in the queue, because all permits are taken.
    Queued(WaitingRequest),
}

impl Entrance {
    /// Acquires a permit, or joins the queue. Returns an error if the queue is full.
    fn of(step: &PhpStep, request: &Request<'_>) -> Result<Self, PhpOutcome> {
        // The path that the client sent says more than the script, which is often the same for all.
        let path = match request.head.target {
            Target::Resource { path, .. } => path,
            _ => request.head.target_text,
        };
        let client = request.client.map(|client| client.ip());
        let arrival = Arrival::new(path, client, Now::read().monotonic_ms);
        if let Some(permit) = step.limiter.try_acquire(&arrival) {
            return Ok(Self::Open(permit));
        }
        let queued = step.limiter.enqueue(&arrival);
        queued.map(Self::Queued).map_err(|refusal| match refusal {
            QueueRefusal::ClientShare => PhpOutcome::TooManyClient,
            QueueRefusal::Full | QueueRefusal::Timeout => PhpOutcome::TooMany,
        })
    }
}

impl Task {
    /// Runs the script. `entrance` is `None` if content must be received before a permit is requested.
    async fn run(self, entrance: Option<Entrance>) -> Result<Made, Refusal> {
        let offers = self.request.offers();
        let settings = &self.step.settings;
        let content = offers.take_content_up_to(settings.content_bytes_max);
        let (feed, length) = match content.map_err(|_| PhpOutcome::ContentTooLarge)? {
            None if matches!(self.request.method(), "POST" | "PUT" | "PATCH") => (Feed::Nothing, Some(0)),
            None => (Feed::Nothing, None),
            Some(content) => match content.length() {
                Some(length) if settings.spool_bytes_max == 0 => (Feed::Live(content), Some(length)),
                length => match self.buffer(content).await? {
                    Filled::Whole(spool) => {
                        let length = spool.length();
                        (Feed::Kept(spool), Some(length))
                    }
                    Filled::Part(spool, rest) => (Feed::Part(spool, rest), length),
                },
            },
        };
        let entrance = match entrance {
            Some(entrance) => entrance,
            None => self.request.with(|request| Entrance::of(&self.step, request))?,
        };
        let permit = match entrance {
            Entrance::Open(permit) => permit,
            Entrance::Queued(waiting) => {
                wait_for_permit(self.client.timing(), waiting).await.map_err(|_| PhpOutcome::TooMany)?
            }
        };
        let asked = self.ask(permit, feed, length).await;
        let (head, exchange, outcome) = asked.inspect_err(|outcome| self.step.tell_failure(*outcome))?;
        self.step.tell_answer();
        Ok(self.answer(head, exchange, outcome))
    }

    /// Buffers `content` as far as the limits allow, and completely if its length is unknown.
    async fn buffer(&self, content: RequestContent) -> Result<Filled, PhpOutcome> {
        let is_unknown = content.length().is_none();
        // `content-limit` bounds content of unknown length.
        let bytes_max =
            if is_unknown { self.step.settings.content_bytes_max } else { self.step.settings.spool_bytes_max };
        Ok(SpooledContent::fill(content, bytes_max, is_unknown, &self.step.spools).await?)
    }

    /// Sends the request on a pooled connection if there is one. If that connection turns out to be closed, sends the
    /// request again on a new one.
    async fn ask(
        &self,
        permit: Permit,
        feed: Feed,
        length: Option<u64>,
    ) -> Result<(CgiHead, FastcgiExchange, PhpOutcome), PhpOutcome> {
        let keeps = self.step.settings.idle_connections_max > 0 && !self.client.saturation().is_suspected(Now::read());
        let prelude = self.prelude(keeps, length);
        let script = String::from_utf8_lossy(&self.script);
        let about: Rc<str> = format!("{}/{script}", self.site.as_deref().unwrap_or("*")).into();
        let (mut feed, mut permit, mut again) = (feed, permit, false);
        if let Some(connection) = self.client.kept() {
            let upload = Upload::new(prelude.clone(), SentContent::new(feed));
            let mut exchange = FastcgiExchange::new(connection, upload, &self.step, keeps, Rc::clone(&about), permit);
            match poll_fn(|context| exchange.poll_head(context)).await {
                Ok(head) => return Ok((head, exchange, PhpOutcome::Answered)),
                Err(failed) if !self.may_repeat(failed) => return Err(failed.outcome),
                Err(failed) => {
                    let parts = exchange.into_parts();
                    let parts = parts.and_then(|(upload, permit)| Some((upload.into_source().into_feed()?, permit)));
                    // If content from the client was already consumed, the request cannot be sent again.
                    (feed, permit) = parts.ok_or(failed.outcome)?;
                    again = true;
                }
            }
        }
        let connection = self.client.connect().await?;
        let upload = Upload::new(prelude, SentContent::new(feed));
        let mut exchange = FastcgiExchange::new(connection, upload, &self.step, keeps, about, permit);
        let head = self.wait_for_head(&mut exchange, keeps).await.map_err(|failed| failed.outcome)?;
        Ok((head, exchange, if again { PhpOutcome::AnsweredAgain } else { PhpOutcome::Answered }))
    }

    /// Waits for the head on a new connection. If the head takes long, idle connections may be occupying the server's
    /// processes.
    async fn wait_for_head(&self, exchange: &mut FastcgiExchange, keeps: bool) -> Result<CgiHead, Failed> {
        if !keeps {
            return poll_fn(|context| exchange.poll_head(context)).await;
        }
        let mut timeout_ms = SUSPICION_MS;
        loop {
            let answered = self.client.within(timeout_ms, poll_fn(|context| exchange.poll_head(context))).await;
            if let Some(answered) = answered {
                return answered;
            }
            if !exchange.has_begun() {
                self.client.saturation().suspect(Now::read());
            }
            timeout_ms = CAUTION_MS / 2;
        }
    }

    /// Returns whether a request may be sent again after the server has closed the pooled connection (RFC 9110 §9.2.2).
    fn may_repeat(&self, failed: Failed) -> bool {
        let is_idempotent = matches!(self.request.method(), "GET" | "HEAD" | "OPTIONS" | "PUT" | "DELETE");
        failed.is_stale && (failed.is_unsent || is_idempotent)
    }

    /// Builds the records that precede the content.
    fn prelude(&self, keeps: bool, content_length: Option<u64>) -> Vec<u8> {
        let mut variables = Vec::with_capacity(2_048);
        let mut path = Vec::with_capacity(self.decoded.len() + 1);
        path.push(b'/');
        path.extend_from_slice(&self.decoded);
        self.request.with(|request| {
            let facts = VariableInput {
                head: request.head,
                client: request.client,
                secure: request.secure,
                server: self.server,
                port: self.port,
                site: self.site.as_deref(),
                user: self.user.as_deref(),
                removed: &self.removed,
                path: &path,
                query: self.query.as_deref(),
                root: &self.step.root,
                script: &self.script,
                path_info: self.decoded.get(self.path_info_at..).unwrap_or_default(),
                content_length,
                env: &self.step.settings.env,
                underscores: self.step.settings.underscores_in_headers,
            };
            facts.write(&mut variables);
        });
        let mut prelude = Vec::with_capacity(variables.len() + 64);
        encode_begin(keeps, &mut prelude);
        encode_stream(RecordKind::Params, &variables, &mut prelude);
        encode_end(RecordKind::Params, &mut prelude);
        prelude
    }

    fn answer(self, head: CgiHead, mut exchange: FastcgiExchange, outcome: PhpOutcome) -> Made {
        let name = match (&head.accel, &head.sendfile) {
            (Some(address), _) => Some(FileName::Address(address.clone())),
            (None, Some(path)) => Some(FileName::Path(path.clone())),
            (None, None) => None,
        };
        if let Some(name) = name {
            discard(exchange);
            let Self { request, policy, .. } = self;
            return Made::File(Box::new(FileWanted { name, request, head, policy }));
        }
        let has_content = self.request.method() != "HEAD" && has_content(head.status);
        let (length, body) = if !has_content {
            discard(exchange);
            (head.content_length.filter(|_| head.status != 204), Body::Empty)
        } else if let Some(whole) = exchange.whole() {
            if let Some(length) = head.content_length.filter(|&length| length < whole.len() as u64) {
                exchange.report_surplus(length);
            }
            whole_body(whole, head.content_length)
        } else {
            let length = head.content_length;
            let bytes_max = self.step.settings.response_spool_bytes_max;
            let through = Through::new(exchange, length).buffered(&self.step.spools, bytes_max);
            let through = if head.is_event_stream() { through.of_events() } else { through };
            (length, Body::Stream(Stream::new(through, length)))
        };
        Made::Response(respond(&head, length, body, &self.policy.fields, outcome))
    }
}

/// Creates the body for complete content. If the script declared a smaller length, the rest of the content is
/// discarded. If it declared a larger one, the body has the declared length and breaks off, so that the client detects
/// the mismatch.
fn whole_body(mut whole: Vec<u8>, promised: Option<u64>) -> (Option<u64>, Body) {
    let length = whole.len() as u64;
    match promised {
        Some(promised) if promised > length => {
            let short = Short((!whole.is_empty()).then_some(whole));
            return (Some(promised), Body::Stream(Stream::new(short, Some(promised))));
        }
        Some(promised) => whole.truncate(promised as usize),
        None => {}
    }
    let body = if whole.is_empty() { Body::Empty } else { Body::Bytes(whole.into()) };
    (Some(promised.unwrap_or(length)), body)
}

/// Content that is shorter than its declared length.
struct Short(Option<Vec<u8>>);

impl flatout_handler::stream::ContentSource for Short {
    fn poll_piece(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<ContentEvent> {
        use flatout_handler::ending::CloseReason;
        use flatout_handler::response::Segment;
        std::task::Poll::Ready(match self.0.take() {
            Some(bytes) => ContentEvent::Segment(Segment::Bytes(bytes.into())),
            None => ContentEvent::Failed(CloseReason::OriginCutBody),
        })
    }
}

/// Receives and discards unneeded content, so that the connection can be reused.
fn discard(mut exchange: FastcgiExchange) {
    if exchange.whole().is_some() {
        return;
    }
    tokio::task::spawn_local(async move {
        let mut through = Through::new(exchange, None);
        let mut bytes = 0;
        while bytes <= UNWANTED_BYTES_MAX {
            match poll_fn(|context| through.poll_piece(context)).await {
                ContentEvent::Segment(segment) => bytes += segment.len(),
                ContentEvent::End(_) | ContentEvent::Failed(_) => return,
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::whole_body;
    use flatout_handler::response::{Body, Segment};
    use flatout_handler::stream::ContentEvent;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn complete_content_has_at_most_its_declared_length() {
        for (promised, length) in [(None, 5), (Some(5), 5), (Some(2), 2)] {
            let (told, body) = whole_body(b"hello".to_vec(), promised);
            assert!(matches!(body, Body::Bytes(bytes) if *bytes == b"hello"[..length]));
            assert_eq!(told, Some(length as u64));
        }
        assert!(matches!(whole_body(b"hello".to_vec(), Some(0)), (Some(0), Body::Empty)));
        assert!(matches!(whole_body(Vec::new(), None), (Some(0), Body::Empty)));
    }

    #[test]
    fn content_that_is_too_short_is_sent_and_breaks_off() {
        let mut context = Context::from_waker(Waker::noop());
        for sent in [&b"hello"[..], b""] {
            let (Some(9), Body::Stream(stream)) = whole_body(sent.to_vec(), Some(9)) else { panic!("not a stream") };
            if !sent.is_empty() {
                let polled = stream.poll_piece(&mut context);
                assert!(matches!(polled, Poll::Ready(ContentEvent::Segment(Segment::Bytes(bytes))) if *bytes == *sent));
            }
            assert!(matches!(stream.poll_piece(&mut context), Poll::Ready(ContentEvent::Failed(_))));
        }
    }
}
