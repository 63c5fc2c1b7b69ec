//! The oracle: which responses may reach whom, written from RFC 9111 and from what the manual promises, without a line
//! of `flatout_cache`.

use crate::origin::Sent;
use crate::scenario::{Request, Settings};

/// Rounding of both clocks to whole seconds, in milliseconds: once in Date, once in Age.
const ROUNDING_MS: i64 = 2_000;

/// A visitor's request as far as the oracle needs it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its number.
    pub serial: u32,
    /// The method, fields and range asked for.
    pub request: Request,
    /// When its last byte was sent, in milliseconds since the start.
    pub begun_ms: u64,
    /// The same, as a position in the order of all events.
    pub begun_order: u64,
}

/// Circumstances on which the answer depends.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// The accelerator's settings in this run.
    pub settings: &'a Settings,
    /// Purges and invalidations that name the response: when each was complete, and the event before which a response
    /// was generated so that it applies to it.
    pub purges: &'a [(u64, u64)],
    /// The response was made stale by a purge before the request began.
    pub is_expired: bool,
    /// The origin has failed since the request began, so stale responses may be served instead of errors.
    pub has_failed: bool,
    /// The origin hangs, so stale responses may be served instead of waiting.
    pub is_hanging: bool,
    /// The wall clock was set back since the response, so that its age is unknown.
    pub was_set_back: bool,
    /// Since the request began, or for it, the origin has confirmed the version.
    pub is_confirmed: bool,
}

/// The value of a directive, empty if it has none; `None` if the directive is absent.
pub fn directive<'a>(control: &'a str, name: &str) -> Option<&'a str> {
    control.split(',').find_map(|directive| {
        let (other, value) = directive.trim().split_once('=').unwrap_or((directive.trim(), ""));
        (other == name).then_some(value)
    })
}

fn seconds(control: &str, name: &str) -> Option<i64> {
    directive(control, name)?.parse().ok()
}

/// Returns true if the origin itself says how long everybody may use the response.
fn is_explicit(sent: &Sent) -> bool {
    let names = ["public", "s-maxage", "max-age"];
    sent.expires_s.is_some() || names.iter().any(|name| directive(&sent.control, name).is_some())
}

/// RFC 9111 §4.2.1, in milliseconds.
fn lifetime_ms(sent: &Sent, settings: &Settings) -> i64 {
    let explicit = seconds(&sent.control, "s-maxage").or_else(|| seconds(&sent.control, "max-age")).or(sent.expires_s);
    if let Some(lifetime_s) = explicit {
        return lifetime_s.max(0) * 1_000;
    }
    // Statuses that are cacheable by default (RFC 9110 §15.1), as far as the origin sends them.
    if !matches!(sent.status, 200 | 203 | 204 | 206 | 304 | 404) && directive(&sent.control, "public").is_none() {
        return 0;
    }
    if settings.ttl_s > 0 {
        return settings.ttl_s * 1_000;
    }
    let age_s = sent.modified_s.filter(|_| settings.heuristics).unwrap_or(0);
    (age_s.max(0) * 1_000 / 10).min(86_400_000)
}

/// Checks that `sent`, the response to another request, may be the response to `asked`.
///
/// # Errors
/// The rule that it breaks.
pub fn check_reuse(asked: &Asked, sent: &Sent, now: Circumstances<'_>) -> Result<(), String> {
    let control = sent.control.as_str();
    let has = |name| directive(control, name).is_some();
    let refuse = |breaks: bool, rule: &str| if breaks { Err(rule.to_owned()) } else { Ok(()) };
    // A response to HEAD may replace the fields of a stored one (RFC 9111 §4.3.5); its content is checked in any case.
    refuse(!matches!(sent.method.as_str(), "GET" | "HEAD"), "the response is to another method")?;
    refuse(has("no-store"), "the response has no-store")?;
    refuse(has("private"), "the response has private")?;
    refuse(sent.sets_cookie, "the response sets a cookie")?;
    let is_shared = has("public") || has("s-maxage") || has("must-revalidate");
    refuse(sent.has_authorization && !is_shared, "the response belongs to a request with Authorization")?;
    refuse(asked.request.has_authorization && !is_shared, "the request has Authorization")?;
    refuse(sent.has_cookie && !is_explicit(sent), "the response, to a request with a cookie, has no lifetime")?;
    refuse(asked.request.has_cookie && !is_explicit(sent), "the request has a cookie, but the response no lifetime")?;
    for (name, value) in &sent.vary {
        refuse(asked.request.field(name) != *value, "the requests differ in a field that Vary lists")?;
    }
    let is_purged = now.purges.iter().any(|(done, before)| asked.begun_order > *done && sent.born_order < *before);
    refuse(is_purged, "the response was purged or invalidated before the request began")?;
    refuse(has("no-cache"), "the response has no-cache, but was not validated for this request")?;
    let is_older = sent.born_order < asked.begun_order;
    if now.settings.request_directives {
        let wanted = asked.request.control.as_str();
        // A preference of the client (RFC 9111 §5.2.1.4), and better than an error.
        let is_ignored = is_older && !now.has_failed && !now.is_confirmed;
        refuse(is_ignored && directive(wanted, "no-cache").is_some(), "the request has no-cache")?;
    }
    if now.was_set_back || !is_older {
        // A response that was generated meanwhile needs a lifetime above 0 all the same.
        let needs_lifetime = !is_older && !now.has_failed;
        let is_stale = age_most_ms(asked, sent, now) <= sent.age_s * 1_000;
        return refuse(needs_lifetime && is_stale, "the response was stale on arrival");
    }
    if now.is_confirmed { Ok(()) } else { check_age(asked, sent, now) }
}

/// How old the response may be, in milliseconds: RFC 9111 §4.2.4, RFC 5861.
fn age_most_ms(asked: &Asked, sent: &Sent, now: Circumstances<'_>) -> i64 {
    let (control, wanted) = (sent.control.as_str(), asked.request.control.as_str());
    let lifetime_ms = lifetime_ms(sent, now.settings);
    let fresh_ms = if now.is_expired { 0 } else { lifetime_ms };
    // s-maxage includes proxy-revalidate, unless the origin itself names the extension.
    let is_strict = ["must-revalidate", "proxy-revalidate"].iter().any(|name| directive(control, name).is_some());
    if is_strict {
        return fresh_ms;
    }
    let may_configure = directive(control, "s-maxage").is_none();
    let extension_s =
        |name, configured_s: i64| seconds(control, name).unwrap_or(if may_configure { configured_s } else { 0 });
    let mut extra_s = extension_s("stale-while-revalidate", now.settings.stale_while_revalidate_s);
    if now.has_failed || now.is_hanging {
        extra_s = extra_s.max(extension_s("stale-if-error", now.settings.stale_if_error_s));
    }
    if now.settings.request_directives && may_configure {
        extra_s = extra_s.max(seconds(wanted, "max-stale").unwrap_or(0));
    }
    if extra_s == 0 { fresh_ms } else { lifetime_ms + extra_s * 1_000 }
}

/// Checks Age (RFC 9111 §4.2.3): the age that the origin states, and the time since, in seconds. The accelerator may add
/// the time that the origin took.
///
/// # Errors
/// How it is wrong.
pub fn check_shown_age(shown_s: i64, asked: &Asked, sent: &Sent, now_ms: u64) -> Result<(), String> {
    let since_ms = |from_ms: u64, until_ms: u64| until_ms.saturating_sub(from_ms).cast_signed();
    let least_s = sent.age_s + (since_ms(sent.born_ms, asked.begun_ms) - ROUNDING_MS).max(0) / 1_000;
    let most_s = sent.age_s + (since_ms(sent.first_asked.0, now_ms) + ROUNDING_MS) / 1_000;
    if (least_s..=most_s).contains(&shown_s) {
        return Ok(());
    }
    Err(format!("Age is {shown_s}, but the response is {least_s} to {most_s} seconds old"))
}

/// RFC 9111 §4.2.4 and §5.2.1, RFC 5861.
fn check_age(asked: &Asked, sent: &Sent, now: Circumstances<'_>) -> Result<(), String> {
    let (control, wanted) = (sent.control.as_str(), asked.request.control.as_str());
    let most_ms = age_most_ms(asked, sent, now);
    let age_ms = (asked.begun_ms - sent.born_ms).cast_signed() + sent.age_s * 1_000;
    if most_ms == 0 {
        return Err("the response was never fresh, or was made stale".to_owned());
    }
    if age_ms > most_ms + ROUNDING_MS {
        return Err(format!("the response is {age_ms} ms old, but must not be older than {most_ms} ms"));
    }
    if now.settings.request_directives
        && let Some(most_s) = seconds(wanted, "max-age")
        && age_ms > most_s * 1_000 + ROUNDING_MS
        && !(now.has_failed || now.is_hanging)
        && directive(control, "stale-while-revalidate").is_none()
    {
        return Err(format!("the response is {age_ms} ms old, but the request has max-age={most_s}"));
    }
    Ok(())
}
