//! Steps that admit or reject a request, by address, rate, password or origin.

use super::{Resumed, Walk, answer};
use crate::answer::no_content;
use crate::auth::Auth;
use crate::cors::Cors;
use crate::credentials::{Proof, parse_basic};
use crate::engine::Live;
use crate::outcome::RouteOutcome;
use crate::rate::{Decision, RateTable};
use flatout_config::model::{TrustedProxy, is_trusted};
use flatout_handler::Reply;
use flatout_handler::owned::OwnedRequest;
use flatout_handler::response::Response;
use flatout_handler::routed::Refusal;
use flatout_http::forwarded::Sender;
use flatout_os::clock::Now;
use flatout_overload::{ClientPermit, LimitReached};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Value of Retry-After in seconds, for a request that was refused because too many others were in progress.
const RETRY_AFTER_S: &str = "1";

/// Reason why authentication failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PasswordFailure {
    /// Credentials are missing or wrong.
    Unauthorized,
    /// The credentials could not be verified at this time.
    Busy,
}

impl Walk<'_> {
    pub(super) fn client(&self) -> Option<IpAddr> {
        self.original.client.map(|client| client.ip())
    }

    pub(super) fn check_rate(&mut self, table: &RateTable) -> Option<Response> {
        // The request was counted before its password was verified.
        if self.resumed.is_some() && !self.resumed_past {
            return None;
        }
        let Decision::Wait(seconds) = table.decide(self.client(), self.now.monotonic_ms) else { return None };
        let failure = Refusal::new(429, "Too many requests. Please try again later.", RouteOutcome::RateLimited);
        Some(self.fail(&failure.with("Retry-After", seconds.to_string())))
    }

    /// Admits a request that is about to wait for an origin, a page or an application server. The request is counted
    /// for the address that `client` returns, which is the original client's address if the request comes from one of
    /// the `trusted` proxies.
    pub(super) fn admit(
        &self,
        client: impl FnOnce() -> Option<SocketAddr>,
        trusted: &[TrustedProxy],
    ) -> Result<Option<ClientPermit>, Refusal> {
        let Some(counter) = self.live.requests else { return Ok(None) };
        if counter.is_full() {
            let text = "The server is busy. Please try again.";
            return Err(Refusal::new(503, text, RouteOutcome::RequestsLimit).with("Retry-After", RETRY_AFTER_S));
        }
        let client = client().map(|client| client.ip());
        counter.admit(client, |client| is_trusted(trusted, Sender::Ip(client))).map(Some).map_err(|LimitReached| {
            let text = "Too many concurrent requests from your network. Please try again.";
            Refusal::new(429, text, RouteOutcome::AddressRequestsLimit).with("Retry-After", RETRY_AFTER_S)
        })
    }

    pub(super) fn preflight(&self, cors: &Cors, allowed: bool) -> Option<Response> {
        if !Cors::is_preflight(self.request.head) {
            return None;
        }
        let fields = cors.preflight_fields(allowed);
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Some(no_content(&fields, &self.policy(), RouteOutcome::CorsPreflight))
    }

    pub(super) fn check_password(&mut self, id: u32, auth: &Arc<Auth>) -> Option<Reply> {
        if let Some(resumed) = &self.resumed {
            if let Some((_, user)) = resumed.right.iter().find(|(right, _)| *right == id) {
                self.user = Some(Rc::clone(user));
                // Steps after this one, for which the request was suspended, are reached for the first time.
                if resumed.right.last().is_some_and(|(last, _)| *last == id) && resumed.failed.is_none() {
                    self.resumed_past = true;
                }
                return None;
            }
            if let Some((_, refused)) = resumed.failed.filter(|(failed, _)| *failed == id) {
                return Some(self.refuse_password(auth, refused).into());
            }
        }
        let Some((name, password)) = self.request.head.fields.first("authorization").and_then(parse_basic) else {
            return Some(self.refuse_password(auth, PasswordFailure::Unauthorized).into());
        };
        let Some(verifier) = &self.live.spec.verifier else {
            return Some(self.refuse_password(auth, PasswordFailure::Busy).into());
        };
        let (user, known) = auth.user(&name);
        let proof = verifier.key.prove(&name, auth.hash(user).as_bytes(), &password);
        let now_ms = self.now.monotonic_ms;
        if known && let Some(user) = self.live.believed.borrow().find(&proof, now_ms) {
            self.user = Some(user);
            return None;
        }
        let Some(answered) = verifier.verify(auth, (user, known), password, proof) else {
            return Some(self.refuse_password(auth, PasswordFailure::Busy).into());
        };
        let pending = Pending {
            live: Rc::clone(self.live),
            request: OwnedRequest::new(self.request),
            right: self.resumed.take().map(|resumed| resumed.right).unwrap_or_default(),
            id,
            user: auth.name(user).into(),
            proof,
        };
        Some(Reply::later(pending.go_on(answered)))
    }

    fn refuse_password(&mut self, auth: &Auth, refused: PasswordFailure) -> Response {
        let failure = match refused {
            PasswordFailure::Unauthorized => {
                Refusal::new(401, "This page requires a user name and a password.", RouteOutcome::Unauthorized)
                    .with("WWW-Authenticate", auth.challenge.clone())
            }
            PasswordFailure::Busy => {
                let text = "Too many passwords are being verified. Please try again.";
                Refusal::new(503, text, RouteOutcome::AuthBusy).with("Retry-After", "2")
            }
        };
        self.fail(&failure)
    }
}

/// A request whose password is being verified.
struct Pending {
    live: Rc<Live>,
    request: OwnedRequest,
    right: Vec<(u32, Rc<str>)>,
    id: u32,
    user: Rc<str>,
    proof: Proof,
}

impl Pending {
    /// Waits for the result, and handles the request again from the beginning, with the same configuration.
    async fn go_on(self, answered: oneshot::Receiver<bool>) -> Response {
        let Self { live, request, mut right, id, user, proof } = self;
        let verified = answered.await;
        let now = Now::read();
        let failed = match verified {
            Ok(true) => {
                live.believed.borrow_mut().insert(proof, Rc::clone(&user), now.monotonic_ms);
                right.push((id, user));
                None
            }
            Ok(false) => Some((id, PasswordFailure::Unauthorized)),
            // The thread has ended, which never happens while it is needed.
            Err(_) => Some((id, PasswordFailure::Busy)),
        };
        let resumed = Resumed { right, failed };
        match request.with(|request| answer(&live, request, now, None, Some(resumed))) {
            Reply::Now(response) => response,
            Reply::Later(response) => response.await,
        }
    }
}
