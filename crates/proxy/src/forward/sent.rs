//! Sources of the field values in upstream requests, for evaluating Vary, which refers to the request as the origin
//! received it.

use super::names::{FieldClass, Name};
use super::operations::{is_free, names_request};
use flatout_cache::request::{FieldSource, Forwarding};
use flatout_config::model::{Proxy, is_trusted};
use flatout_http::forwarded::Sender;

/// How fields in the requests of one client are forwarded.
#[derive(Clone, Copy, Debug)]
pub struct SentFields<'a> {
    unkeyed: &'a [Box<str>],
    settings: &'a Proxy,
    peer: Sender,
}

impl<'a> SentFields<'a> {
    /// Describes forwarding for the peer of a connection. `unkeyed` is the result of [`unkeyed_fields`] for the same
    /// `settings`.
    pub const fn new(unkeyed: &'a [Box<str>], settings: &'a Proxy, peer: Sender) -> Self {
        Self { unkeyed, settings, peer }
    }
}

impl Forwarding for SentFields<'_> {
    fn source(&self, name: &str) -> FieldSource {
        if self.unkeyed.iter().any(|unkeyed| unkeyed.eq_ignore_ascii_case(name)) {
            return FieldSource::Request;
        }
        let known = Name::new(name);
        let by_trust = matches!(
            known.kind,
            FieldClass::ForwardedFor
                | FieldClass::ForwardedProto
                | FieldClass::ForwardedHost
                | FieldClass::Forwarded
                | FieldClass::ForwardedOther
                | FieldClass::TargetOverride
                | FieldClass::MethodOverride
        );
        if by_trust { FieldSource::Trust(is_trusted(&self.settings.trusted, self.peer)) } else { FieldSource::Client }
    }

    fn has_trusted(&self) -> bool {
        !self.settings.trusted.is_empty()
    }

    fn removes(&self, name: &str) -> bool {
        is_free(name) && self.settings.request_fields.iter().any(|operation| operation.removes(name.as_bytes()))
    }

    fn overrides_target(&self, name: &str) -> bool {
        Name::new(name).kind == FieldClass::TargetOverride && is_trusted(&self.settings.trusted, self.peer)
    }
}

/// Returns the lower-case names of fields that the proxy derives from request data that is not part of the cache key:
/// the client's address, the HTTP version, and the target as received.
pub fn unkeyed_fields(settings: &Proxy) -> Box<[Box<str>]> {
    let operations = &settings.request_fields;
    let is_cleared = |name: &str| operations.iter().any(|operation| operation.removes(name.as_bytes()));
    let own = [
        ("x-forwarded-for", settings.forwarded.x_forwarded),
        ("forwarded", settings.forwarded.standard),
        ("via", settings.via_to_origins),
    ];
    let own =
        own.into_iter().filter(|(name, is_written)| *is_written && !is_cleared(name)).map(|(name, _)| name.into());
    let set =
        operations.iter().filter(|operation| is_free(operation.name()) && operation.value().is_some_and(names_request));
    let set = set.map(|operation| operation.name().to_ascii_lowercase().into());
    own.chain(set).collect()
}
