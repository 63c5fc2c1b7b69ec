//! Redirects from plain HTTP to https.

use super::host_needed;
use crate::answer::redirect;
use crate::engine::Live;
use crate::forwarded::resolve_forwarded;
use crate::outcome::RouteOutcome;
use crate::spec::ListenerSpec;
use flatout_handler::Request;
use flatout_handler::response::{LogFacts, Response};
use flatout_handler::routed::{HeaderPolicy, Refusal};
use flatout_http::host::split_port;
use flatout_http::path::encode_location;

/// Path of ACME tokens, which are fetched over plain HTTP (RFC 8555 §8.3).
const ACME_PREFIX: &[u8] = b"/.well-known/acme-challenge/";

/// Returns whether a proxy that all sites or any handler trust says that the client uses https: a redirect would then
/// come back to this listener, without end.
pub(super) fn is_https(live: &Live, request: &Request<'_>) -> bool {
    live.spec.trust_lists().any(|trusted| resolve_forwarded(request, trusted).request.secure)
}

/// Redirects a request on a listener that only redirects to https. Returns `None` if the request must be handled
/// further. Requests for unknown hosts are not redirected. Requests for ACME tokens are handled by a site of this
/// listener, if it has any, because the ACME client stores the tokens there.
pub(super) fn redirect_https(
    live: &Live,
    listener: &ListenerSpec,
    port: u16,
    host: Option<&[u8]>,
    path: &[u8],
    query: Option<&[u8]>,
) -> Option<Result<Response, Refusal>> {
    let site = if listener.hosts.sites.is_empty() {
        live.spec.listeners.iter().find_map(|other| other.hosts.find(host))
    } else {
        listener.hosts.find(host)
    };
    let (site, _) = site?;
    let site = live.spec.sites.get(site as usize)?;
    if path.starts_with(ACME_PREFIX) && !listener.hosts.sites.is_empty() {
        return None;
    }
    let Some(host) = host.or(site.name.as_deref().map(str::as_bytes)) else {
        return Some(Err(host_needed()));
    };
    let (host, _) = split_port(host);
    let mut location = b"https://".to_vec();
    location.extend_from_slice(host);
    if port != 443 {
        location.extend_from_slice(format!(":{port}").as_bytes());
    }
    location.extend_from_slice(path);
    if let Some(query) = query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    let location = encode_location(&location);
    let mut response = redirect(308, location, &HeaderPolicy::default(), RouteOutcome::HttpsRedirect);
    response.logged = LogFacts { log: site.log, site: live.site_name(site), ..LogFacts::default() };
    Some(Ok(response))
}
