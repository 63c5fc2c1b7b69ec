//! The origin: responses to requests, and a record of each one.
//!
//! Each response has a number in the field X-Id, so that the oracle knows of everything that reaches a visitor to whom
//! it was sent, when, and with which permissions. Content is a function of the resource, its version, the variant and
//! the visitor whom it is for.

use crate::oracle::directive;
use crate::random::mix;
use crate::scenario::{Audience, Fault, Framing, Method, Resource, Scenario};
use std::collections::HashMap;
use std::fmt::Write as _;

/// The wall clock at the start of each simulation, in seconds since 1970: Sunday, 1 March 2026, 00:00:00 GMT.
pub const BEGUN_UNIX_S: i64 = 1_772_323_200;

/// The Host of all requests.
pub const HOST: &str = "site.test";

/// A response that no request asked for, with a number that the oracle does not know.
pub const UNSOLICITED: &[u8] = b"HTTP/1.1 200 OK\r\nX-Id: 999999\r\nContent-Length: 6\r\n\r\nstolen";

/// Everything that determines a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The resource's index.
    pub resource: usize,
    /// The version, which changes with each POST and each scheduled change.
    pub version: u32,
    /// Accept-Language, if it depends on it.
    pub language: String,
    /// Accept-Encoding, if it depends on it.
    pub encoding: String,
    /// The visitor whom it is for, from 1; 0 for everybody.
    pub owner: u8,
    /// Its size in bytes.
    pub bytes: usize,
}

impl Content {
    /// The content itself, which begins with a description of what it is.
    pub fn bytes(&self) -> Vec<u8> {
        let Self { resource, version, language, encoding, owner, bytes } = self;
        let name = format!("<resource {resource} version {version} language {language} coding {encoding} of {owner}>");
        let mut seed = name.bytes().fold(0, |sum, byte| mix(sum ^ u64::from(byte)));
        let mut content = name.into_bytes();
        while content.len() < *bytes {
            seed = mix(seed.wrapping_add(1));
            content.extend(seed.to_le_bytes().map(|byte| b'a' + byte % 26));
        }
        content.truncate(*bytes);
        content
    }

    /// The entity tag.
    pub fn tag(&self) -> String {
        let Self { resource, version, language, encoding, owner, .. } = self;
        format!("\"{resource}-{version}-{language}-{encoding}-{owner}\"")
    }
}

/// A response that the origin sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The number of the visitor's request on whose behalf it was sent.
    pub serial: u32,
    /// The method of the request that the origin received.
    pub method: String,
    /// The status that the origin sent, before any range.
    pub status: u16,
    /// Its content; for a 304, the confirmed content.
    pub content: Content,
    /// Cache-Control.
    pub control: String,
    /// Seconds from the response to Expires.
    pub expires_s: Option<i64>,
    /// Seconds from Last-Modified to the response.
    pub modified_s: Option<i64>,
    /// It sets a cookie.
    pub sets_cookie: bool,
    /// The fields that Vary names, in lower case, with the values of the request.
    pub vary: Vec<(&'static str, String)>,
    /// The request had Authorization.
    pub has_authorization: bool,
    /// The request had Cookie.
    pub has_cookie: bool,
    /// Cache-Tag; 0 for none.
    pub group: u8,
    /// When it was generated, in milliseconds since the start.
    pub born_ms: u64,
    /// The same, as a position in the order of all events.
    pub born_order: u64,
    /// When the first attempt of its request had arrived.
    pub first_asked: Moment,
    /// When its request had arrived, as a position in the order of all events.
    pub asked_order: u64,
    /// Age, in seconds.
    pub age_s: i64,
}

/// The end of a connection after the last piece of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The connection may be reused.
    Keep,
    /// The connection is closed.
    Close,
    /// The connection is reset.
    Reset,
    /// Nothing.
    Silence,
}

/// A response on its way.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Bytes of each write.
    pub pieces: Vec<Vec<u8>>,
    /// Milliseconds between two writes.
    pub piece_delay_ms: u64,
    /// The end after the last piece.
    pub ending: Ending,
}

/// A request as it reached the origin.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// The method, in capitals.
    pub method: String,
    /// The target, in origin form.
    pub target: String,
    /// The fields, with names in lower case.
    pub fields: HashMap<String, String>,
}

impl Received {
    /// The request whose head is `head`, without the empty line.
    pub fn parse(head: &str) -> Self {
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let fields = lines.filter_map(|line| line.split_once(':'));
        let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
        Self { method: method.to_owned(), target: target.to_owned(), fields }
    }

    /// The value of a field; empty if there is none.
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// The index of the resource.
    pub fn resource(&self) -> usize {
        self.target.trim_start_matches("/r").parse().unwrap_or(0)
    }

    /// The number of the visitor's request.
    pub fn serial(&self) -> u32 {
        self.field("x-request").parse().unwrap_or(0)
    }
}

/// When something happens: in milliseconds since the start, and as a position in the order of all events.
pub type Moment = (u64, u64);

/// A request that the origin left without a usable response.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// The index of the resource requested.
    pub resource: usize,
    /// The position in the order of all events from which the accelerator knows; the maximum while it waits.
    pub known_order: u64,
}

/// Time without a response after which an attempt hangs: half of the timeout of [`Scenario::kdl`], less the inaccuracy of
/// timers.
const HANG_MS: u64 = 2_400;

/// Maximum time that a response head takes after its first byte, in milliseconds.
const HEAD_MS: u64 = 3_000;

/// Time after an attempt that has hung for which visitors get stale responses at once; and time within which there is
/// another attempt. Both in milliseconds, and with the inaccuracy of timers.
const NOTE_MS: u64 = 30_100;

/// The origin's state.
#[derive(Debug)]
pub struct Origin {
    versions: Vec<u32>,
    /// The number of attempts of each request, and when the first had arrived.
    attempts: HashMap<u32, (u32, Moment)>,
    /// Every response, by number.
    pub sent: Vec<Sent>,
    /// Every failure so far.
    pub failures: Vec<Failure>,
    /// Every request that reached the origin.
    asked: Vec<Attempt>,
}

/// A request that reached the origin. Times are in milliseconds since the start.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    serial: u32,
    resource: usize,
    at_ms: u64,
    /// When its response began or it was given up; `None` until then.
    ended_ms: Option<u64>,
    /// The origin has responded, to a request for the only response that may be stored.
    is_response: bool,
}

impl Origin {
    /// The origin of `scenario`.
    pub fn new(scenario: &Scenario) -> Self {
        let versions = vec![1; scenario.resources.len()];
        Self { versions, attempts: HashMap::new(), sent: Vec::new(), failures: Vec::new(), asked: Vec::new() }
    }

    /// Changes a resource.
    pub fn change(&mut self, resource: usize) {
        self.versions[resource] += 1;
    }

    /// The fault for the next attempt of the request `serial`, which arrives at the moment `now`.
    pub fn begin(&mut self, scenario: &Scenario, serial: u32, now: Moment) -> Fault {
        let Some(request) = scenario.request(serial) else { return Fault::None };
        let (attempts, _) = self.attempts.entry(serial).or_insert((0, now));
        *attempts += 1;
        let resource = request.resource;
        self.asked.push(Attempt { serial, resource, at_ms: now.0, ended_ms: None, is_response: false });
        if *attempts <= request.origin.faults_max { request.origin.fault } else { Fault::None }
    }

    /// Returns true if a request for `resource` has failed, and the accelerator did not know of it before `order`.
    pub fn has_failed_since(&self, resource: usize, order: u64) -> bool {
        self.failures.iter().any(|failure| failure.resource == resource && failure.known_order >= order)
    }

    /// Ends the attempt of the request `serial` at `now_ms`. `is_response` is true if the origin has responded, to a
    /// request for the only response that may be stored.
    pub fn end(&mut self, serial: u32, now_ms: u64, is_response: bool) {
        let attempt = self.asked.iter_mut().rev().find(|attempt| attempt.serial == serial);
        if let Some(attempt) = attempt.filter(|attempt| attempt.ended_ms.is_none()) {
            (attempt.ended_ms, attempt.is_response) = (Some(now_ms), is_response);
        }
    }

    /// Returns true if visitors who come at `now_ms` need not wait for `resource`: attempts have hung since the origin
    /// last responded, the last one recently.
    pub fn has_hung(&self, resource: usize, now_ms: u64) -> bool {
        let ended = || {
            let attempts = self.asked.iter().filter(|attempt| attempt.resource == resource);
            attempts.filter_map(|attempt| Some((attempt, attempt.ended_ms.filter(|ended_ms| *ended_ms < now_ms)?)))
        };
        let responded = ended().filter(|(attempt, ended_ms)| attempt.is_response && ended_ms + HEAD_MS < now_ms);
        let since_ms = responded.map(|(_, ended_ms)| ended_ms).max();
        let waits = || ended().filter(|(_, ended_ms)| since_ms.is_none_or(|since_ms| *ended_ms > since_ms));
        let waited_ms: u64 = waits().map(|(attempt, ended_ms)| ended_ms - attempt.at_ms).sum();
        waited_ms >= HANG_MS && waits().any(|(_, ended_ms)| now_ms <= ended_ms + NOTE_MS)
    }

    /// Returns true if the request `serial`, whose response has not begun at `now_ms`, hangs.
    pub fn hangs(&self, serial: u32, now_ms: u64) -> bool {
        self.attempts.get(&serial).is_some_and(|(_, first)| now_ms >= first.0 + HANG_MS)
    }

    /// Returns true if a request for `resource` reached the origin within the last 30 seconds before `now_ms`, or at once.
    pub fn was_asked(&self, resource: usize, now_ms: u64) -> bool {
        self.asked.iter().any(|attempt| {
            let at_ms = attempt.at_ms;
            attempt.resource == resource && (at_ms.saturating_sub(100)..at_ms + NOTE_MS).contains(&now_ms)
        })
    }

    /// The number of attempts of the request `serial`.
    pub fn attempts(&self, serial: u32) -> u32 {
        self.attempts.get(&serial).map_or(0, |(attempts, _)| *attempts)
    }

    /// The response at the moment `now` to `received`, which arrived as event `asked_order`, and whose fault is `fault`.
    pub fn respond(
        &mut self,
        scenario: &Scenario,
        (received, fault): (&Received, Fault),
        (now, asked_order): (Moment, u64),
        unix_s: i64,
    ) -> Reply {
        let serial = received.serial();
        let plan = scenario.request(serial).map(|request| &request.origin);
        let piece_delay_ms = plan.map_or(0, |plan| plan.piece_delay_ms);
        let whole = |bytes: Vec<u8>, ending| Reply { pieces: vec![bytes], piece_delay_ms, ending };
        let index = received.resource();
        if fault.is_failure() {
            let known_order = if fault == Fault::Hang { u64::MAX } else { now.1 };
            self.failures.push(Failure { resource: index, known_order });
        }
        // Other requests may concern another stored response.
        let Resource { audience, by_language, by_encoding, has_ranges, .. } = scenario.resources[index];
        let is_single = audience == Audience::Public && !by_language && !by_encoding && !has_ranges;
        let is_plain = scenario.request(serial).is_some_and(|request| {
            request.method == Method::Get && request.control.is_empty() && !request.has_authorization
        });
        if fault != Fault::Hang {
            self.end(serial, now.0, matches!(fault, Fault::None | Fault::Unavailable) && is_single && is_plain);
        }
        match fault {
            Fault::Hang => return Reply { pieces: Vec::new(), piece_delay_ms, ending: Ending::Silence },
            Fault::Close => return Reply { pieces: Vec::new(), piece_delay_ms, ending: Ending::Close },
            Fault::Reset => return Reply { pieces: Vec::new(), piece_delay_ms, ending: Ending::Reset },
            Fault::Garbage => return whole(b"HTTP/1.1 2x0 OK\r\nX: \x01\r\n\r\n".to_vec(), Ending::Close),
            Fault::Unavailable => {
                let bytes = b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy".to_vec();
                return whole(bytes, Ending::Keep);
            }
            _ => {}
        }
        if received.method == "POST" {
            self.change(index);
        }
        let resource = &scenario.resources[index];
        let content = self.content(index, resource, received);
        let id = self.sent.len();
        let mut sent = describe(resource, content, received);
        (sent.serial, (sent.born_ms, sent.born_order), sent.asked_order) = (serial, now, asked_order);
        sent.modified_s = modified_unix_s(resource, self.versions[index]).map(|modified_s| unix_s - modified_s);
        sent.first_asked = self.attempts.get(&serial).map_or(now, |(_, first)| *first);
        if fault == Fault::CachedError {
            (sent.status, sent.control) = (500, "max-age=10".to_owned());
            sent.expires_s = None;
        }
        let is_asked = !received.field("if-modified-since").is_empty() && received.field("if-none-match").is_empty();
        if fault == Fault::WrongConfirmation && is_asked {
            // The oracle does not know its number, so no response may take over its fields.
            let modified = date(BEGUN_UNIX_S - 1_000_000);
            let reply = format!("HTTP/1.1 304 X\r\nX-Id: 999999\r\nLast-Modified: {modified}\r\n\r\n");
            return whole(reply.into_bytes(), Ending::Keep);
        }
        let mut fields = format!("X-Id: {id}\r\n");
        write_fields(resource, &sent, unix_s, self.versions[index], &mut fields);
        let is_confirmed = sent.status == 200 && received.method != "POST" && {
            let tag = received.field("if-none-match");
            let modified = received.field("if-modified-since");
            let is_tag = resource.has_tag && tag.split(',').any(|tag| tag.trim() == sent.content.tag());
            let last_modified = modified_date(resource, self.versions[index]);
            is_tag || tag.is_empty() && !modified.is_empty() && last_modified.as_deref() == Some(modified)
        };
        let bytes = sent.content.bytes();
        let mut body = &bytes[..];
        let mut reply = Vec::new();
        if fault == Fault::Hint {
            reply.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n");
        }
        if is_confirmed {
            sent.status = 304;
            body = &[];
            reply.extend_from_slice(format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n").as_bytes());
        } else {
            let part = find_part(resource, &sent, received, bytes.len());
            if let Some((first, last)) = part {
                sent.status = 206;
                let _ = write!(fields, "Content-Range: bytes {first}-{last}/{}\r\n", bytes.len());
                body = &bytes[first..=last];
            }
            write_response(resource, &sent, &fields, (body, received.method == "HEAD"), &mut reply);
        }
        self.sent.push(sent);
        let has_body = received.method != "HEAD" && body.len() > 2;
        // Within the content: a fault in the head would be another one.
        let half = reply.len().saturating_sub(body.len() / 2).max(1);
        let ending = match fault {
            Fault::Cut if has_body => Ending::Close,
            Fault::ResetInside if has_body => Ending::Reset,
            Fault::Stall if has_body => Ending::Silence,
            Fault::CloseAfter => Ending::Close,
            _ => Ending::Keep,
        };
        if has_body && matches!(fault, Fault::Cut | Fault::ResetInside | Fault::Stall) {
            reply.truncate(half);
        }
        let piece_bytes = plan.map_or(usize::MAX, |plan| plan.piece_bytes).max(reply.len() / 12 + 1);
        let mut pieces: Vec<_> = reply.chunks(piece_bytes.min(reply.len().max(1))).map(<[u8]>::to_vec).collect();
        if fault == Fault::Surplus {
            pieces.push(UNSOLICITED.to_vec());
        }
        Reply { pieces, piece_delay_ms, ending }
    }

    fn content(&self, index: usize, resource: &Resource, received: &Received) -> Content {
        let visitor: u8 = received.field("x-visitor").parse().unwrap_or(0);
        let owner = match resource.audience {
            Audience::Public => 0,
            Audience::Private | Audience::NoStore | Audience::SetCookie => visitor + 1,
            // What it declares to be everybody's is everybody's.
            Audience::Authorized if names_any(&resource.control, &["public", "s-maxage", "must-revalidate"]) => 0,
            Audience::Cookie
                if resource.expires_s.is_some() || names_any(&resource.control, &["public", "s-maxage", "max-age"]) =>
            {
                0
            }
            Audience::Authorized | Audience::VaryAuthorization => {
                if received.fields.contains_key("authorization") {
                    visitor + 1
                } else {
                    0
                }
            }
            Audience::Cookie | Audience::VaryCookie => {
                if received.fields.contains_key("cookie") {
                    visitor + 1
                } else {
                    0
                }
            }
        };
        let field = |depends: bool, name: &str| if depends { received.field(name).to_owned() } else { String::new() };
        Content {
            resource: index,
            version: self.versions[index],
            language: field(resource.by_language, "accept-language"),
            encoding: field(resource.by_encoding, "accept-encoding"),
            owner,
            bytes: resource.bytes,
        }
    }
}

/// Returns true if Cache-Control has one of these directives.
fn names_any(control: &str, names: &[&str]) -> bool {
    names.iter().any(|name| directive(control, name).is_some())
}

/// The record of a response with `content`, without its number and times.
fn describe(resource: &Resource, content: Content, received: &Received) -> Sent {
    let more = match resource.audience {
        Audience::Private => "private",
        Audience::NoStore => "no-store",
        Audience::VaryAuthorization => "public",
        _ => "",
    };
    let separator = if more.is_empty() || resource.control.is_empty() { "" } else { ", " };
    let control = format!("{more}{separator}{}", resource.control);
    let mut vary = Vec::new();
    let depends = [
        (resource.by_language, "accept-language"),
        (resource.by_encoding, "accept-encoding"),
        (resource.audience == Audience::VaryCookie, "cookie"),
        (resource.audience == Audience::VaryAuthorization, "authorization"),
    ];
    for (_, name) in depends.into_iter().filter(|(depends, _)| *depends) {
        vary.push((name, received.field(name).to_owned()));
    }
    Sent {
        serial: 0,
        method: received.method.clone(),
        status: if received.method == "POST" { 200 } else { resource.status },
        content,
        control,
        expires_s: resource.expires_s,
        modified_s: None,
        sets_cookie: resource.audience == Audience::SetCookie,
        vary,
        has_authorization: received.fields.contains_key("authorization"),
        has_cookie: received.fields.contains_key("cookie"),
        group: resource.group,
        born_ms: 0,
        born_order: 0,
        first_asked: (0, 0),
        asked_order: 0,
        age_s: resource.age_s,
    }
}

fn modified_unix_s(resource: &Resource, version: u32) -> Option<i64> {
    resource.modified_s.map(|modified_s| BEGUN_UNIX_S - modified_s + i64::from(version))
}

fn modified_date(resource: &Resource, version: u32) -> Option<String> {
    modified_unix_s(resource, version).map(date)
}

fn write_fields(resource: &Resource, sent: &Sent, unix_s: i64, version: u32, fields: &mut String) {
    let _ = write!(fields, "Date: {}\r\n", date(unix_s));
    if !sent.control.is_empty() {
        let _ = write!(fields, "Cache-Control: {}\r\n", sent.control);
    }
    if let Some(expires_s) = sent.expires_s {
        let _ = write!(fields, "Expires: {}\r\n", date(unix_s + expires_s));
    }
    if resource.has_tag {
        let _ = write!(fields, "ETag: {}\r\n", sent.content.tag());
    }
    if let Some(modified) = modified_date(resource, version) {
        let _ = write!(fields, "Last-Modified: {modified}\r\n");
    }
    if sent.sets_cookie {
        let _ = write!(fields, "Set-Cookie: session={}\r\n", sent.content.owner);
    }
    if !sent.vary.is_empty() {
        let names: Vec<_> = sent.vary.iter().map(|(name, _)| *name).collect();
        let _ = write!(fields, "Vary: {}\r\n", names.join(", "));
    }
    if sent.age_s > 0 {
        let _ = write!(fields, "Age: {}\r\n", sent.age_s);
    }
    if sent.group > 0 {
        let _ = write!(fields, "Cache-Tag: group{}\r\n", sent.group);
    }
}

/// The first and last byte that a 206 contains, if the response is one.
fn find_part(resource: &Resource, sent: &Sent, received: &Received, bytes: usize) -> Option<(usize, usize)> {
    let wanted =
        received.field("range").strip_prefix("bytes=").filter(|_| resource.has_ranges && sent.status == 200)?;
    let tag = received.field("if-range");
    if received.method != "GET" || !(tag.is_empty() || resource.has_tag && tag == sent.content.tag()) {
        return None;
    }
    let (first, last) = wanted.split_once('-')?;
    let first: usize = first.parse().ok()?;
    let last = last.parse().unwrap_or(usize::MAX).min(bytes.saturating_sub(1));
    (first < bytes && first <= last).then_some((first, last))
}

fn write_response(resource: &Resource, sent: &Sent, fields: &str, (body, is_head): (&[u8], bool), reply: &mut Vec<u8>) {
    let framing = match resource.framing {
        Framing::Length => format!("Content-Length: {}\r\n", body.len()),
        Framing::Chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
    };
    reply.extend_from_slice(format!("HTTP/1.1 {} X\r\n{fields}{framing}\r\n", sent.status).as_bytes());
    if is_head {
        return;
    }
    match resource.framing {
        Framing::Length => reply.extend_from_slice(body),
        Framing::Chunked => {
            for chunk in body.chunks(1_000) {
                reply.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                reply.extend_from_slice(chunk);
                reply.extend_from_slice(b"\r\n");
            }
            reply.extend_from_slice(b"0\r\n\r\n");
        }
    }
}

/// A date of HTTP. Simulations stay within a few years of their start.
pub fn date(unix_s: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, seconds) = (unix_s.div_euclid(86_400), unix_s.rem_euclid(86_400));
    // Howard Hinnant's algorithm `civil_from_days`.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!(
        "{}, {day:02} {} {year} {:02}:{:02}:{:02} GMT",
        DAYS[days.rem_euclid(7) as usize],
        MONTHS[month as usize - 1],
        seconds / 3_600,
        seconds / 60 % 60,
        seconds % 60
    )
}

#[cfg(test)]
mod tests {
    use super::{BEGUN_UNIX_S, date};

    #[test]
    fn dates_are_those_of_http() {
        assert_eq!(date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(date(BEGUN_UNIX_S), "Sun, 01 Mar 2026 00:00:00 GMT");
        assert_eq!(date(BEGUN_UNIX_S - 1), "Sat, 28 Feb 2026 23:59:59 GMT");
    }
}
