//! Cross-origin resource sharing (the CORS protocol of the Fetch standard): response fields and preflight requests.

use flatout_config::model::{self, FieldOp};
use flatout_http::request::{Method, RequestHead};

/// A `cors` step, which changes response fields like a `header` step, with a set of operations for each origin.
#[derive(Clone, Debug)]
pub(crate) struct Cors {
    /// The configured settings.
    pub(crate) settings: model::Cors,
    any: bool,
    /// Index of the first set of operations; see [`Cors::changes`].
    pub(crate) first_change: u32,
}

impl Cors {
    pub(crate) fn new(settings: &model::Cors, first_change: u32) -> Self {
        let any = settings.origins.iter().any(|origin| origin == "*");
        Self { settings: settings.clone(), any, first_change }
    }

    /// Returns the sets of header operations: the first for requests without an allowed origin, followed by one for
    /// each allowed origin.
    pub(crate) fn changes(&self) -> Vec<Vec<FieldOp>> {
        let none = if self.any { self.allow("*") } else { vec![vary("Origin")] };
        let each = self.settings.origins.iter().map(|origin| {
            let mut fields = self.allow(origin);
            if !self.any {
                fields.push(vary("Origin"));
            }
            fields
        });
        std::iter::once(none).chain(each).collect()
    }

    fn allow(&self, origin: &str) -> Vec<FieldOp> {
        let origin = if self.any { "*" } else { origin };
        let mut fields = vec![FieldOp::set("Access-Control-Allow-Origin".into(), origin.into())];
        if self.settings.credentials {
            fields.push(FieldOp::set("Access-Control-Allow-Credentials".into(), "true".into()));
        }
        if !self.settings.expose.is_empty() {
            fields.push(FieldOp::set("Access-Control-Expose-Headers".into(), self.settings.expose.join(", ")));
        }
        fields
    }

    /// Returns the index into [`Cors::changes`] for a request, and whether its origin is allowed.
    pub(crate) fn decide(&self, head: &RequestHead<'_>) -> (u32, bool) {
        if self.any {
            return (0, true);
        }
        let Some(origin) = head.fields.first("origin") else { return (0, false) };
        match self.settings.origins.iter().position(|allowed| allowed.as_bytes() == origin) {
            Some(index) => (index as u32 + 1, true),
            None => (0, false),
        }
    }

    /// Returns whether `head` is a CORS-preflight request (Fetch).
    pub(crate) fn is_preflight(head: &RequestHead<'_>) -> bool {
        head.method == Method::Options
            && head.fields.first("origin").is_some()
            && head.fields.first("access-control-request-method").is_some()
    }

    /// Returns the fields of a response to a preflight request, in addition to those of every response.
    pub(crate) fn preflight_fields(&self, allowed: bool) -> Vec<(&'static str, String)> {
        let vary = "Access-Control-Request-Method, Access-Control-Request-Headers";
        let mut fields = vec![("Vary", vary.to_owned())];
        if !allowed {
            return fields;
        }
        // GET, HEAD and POST need no permission. The lists contain what is allowed in addition.
        if !self.settings.methods.is_empty() {
            fields.push(("Access-Control-Allow-Methods", self.settings.methods.join(", ")));
        }
        if !self.settings.headers.is_empty() {
            fields.push(("Access-Control-Allow-Headers", self.settings.headers.join(", ")));
        }
        if let Some(max_age_s) = self.settings.max_age_s {
            fields.push(("Access-Control-Max-Age", max_age_s.to_string()));
        }
        fields
    }
}

fn vary(name: &str) -> FieldOp {
    FieldOp::add("Vary".into(), name.into())
}
