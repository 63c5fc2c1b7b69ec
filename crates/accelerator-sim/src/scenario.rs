//! A scenario: settings, resources, and what visitors and administrators do, all drawn from a seed.
//!
//! Every draw is part of the scenario, also the behaviour of the origin towards each request. So a part of a scenario
//! is a scenario in which the rest happens as before, and a scenario that is stored as JSON remains the same if this
//! generator changes.

use crate::random::Random;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// A complete simulation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scenario {
    /// The seed from which it was drawn.
    pub seed: u64,
    /// The settings of the server.
    pub settings: Settings,
    /// The resources of the origin, by index.
    pub resources: Vec<Resource>,
    /// All actions, in order of time.
    pub actions: Vec<Action>,
}

/// The settings that vary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Bound of the memory budget, in bytes.
    pub memory_bytes_max: u64,
    /// Bound of stored responses.
    pub objects_max: u64,
    /// `ttl`, in seconds; 0 for none.
    pub ttl_s: i64,
    /// `heuristics`.
    pub heuristics: bool,
    /// `stale-while-revalidate`, in seconds.
    pub stale_while_revalidate_s: i64,
    /// `stale-if-error`, in seconds.
    pub stale_if_error_s: i64,
    /// `request-directives`.
    pub request_directives: bool,
    /// `variants`.
    pub variants_max: u32,
    /// `range-fetch-max`, in KiB.
    pub range_fetch_kib: u32,
    /// `retries`.
    pub retries: u8,
    /// `idle-connections`.
    pub idle_connections_max: u32,
}

/// Whom a resource is for, and how its responses say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Audience {
    /// Everybody.
    Public,
    /// One visitor: `private`.
    Private,
    /// One visitor: `no-store`.
    NoStore,
    /// One visitor: the response sets a cookie.
    SetCookie,
    /// The user of Authorization, without a directive that permits sharing.
    Authorized,
    /// The visitor of the cookie, without an explicit lifetime.
    Cookie,
    /// The visitor of the cookie: `Vary: Cookie`.
    VaryCookie,
    /// The user of Authorization: `Vary: Authorization`, and `public`.
    VaryAuthorization,
}

/// How the length of content is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Framing {
    /// Content-Length.
    Length,
    /// Chunks.
    Chunked,
}

/// A resource of the origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    /// Whom it is for.
    pub audience: Audience,
    /// Cache-Control without what `audience` requires; empty for no such field.
    pub control: String,
    /// Seconds until Expires, if there is any.
    pub expires_s: Option<i64>,
    /// The response depends on Accept-Language.
    pub by_language: bool,
    /// The response depends on Accept-Encoding.
    pub by_encoding: bool,
    /// It has an entity tag.
    pub has_tag: bool,
    /// Seconds since Last-Modified, if there is any.
    pub modified_s: Option<i64>,
    /// Range requests are served.
    pub has_ranges: bool,
    /// Size of the content, in bytes.
    pub bytes: usize,
    /// How it is delimited.
    pub framing: Framing,
    /// Cache-Tag; 0 for none.
    pub group: u8,
    /// The status of its responses.
    pub status: u16,
    /// The value of Age, in seconds, as if another cache were before the origin; 0 for no such field.
    #[serde(default)]
    pub age_s: i64,
}

/// Something that happens at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// When, in milliseconds since the start.
    pub at_ms: u64,
    /// Its number, unique in its scenario.
    pub serial: u32,
    /// The action itself.
    pub kind: Kind,
}

/// An action of a visitor, the operator, the origin or the clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A visitor sends a request.
    Request(Box<Request>),
    /// `flatout purge` of a resource's URL.
    PurgeUrl(usize),
    /// `flatout purge --tag`.
    PurgeGroup(u8),
    /// `flatout purge --host`.
    PurgeHost,
    /// `flatout purge --all`.
    PurgeAll,
    /// `flatout purge --soft` of a resource's URL.
    Expire(usize),
    /// `flatout reload` of the same configuration.
    Reload,
    /// A resource changes.
    Change(usize),
    /// The wall clock jumps by this number of seconds, forwards or backwards.
    StepWall(i64),
}

/// The method of a visitor's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Method {
    /// Safe, and cacheable.
    Get,
    /// Safe; it may update what is stored for GET.
    Head,
    /// POST, which changes the resource.
    Post,
}

/// A request of a visitor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The index of the visitor that sends it.
    pub visitor: u8,
    /// Its target.
    pub resource: usize,
    /// The method that the visitor uses.
    pub method: Method,
    /// It is a POST without content.
    #[serde(default)]
    pub is_empty: bool,
    /// It has the visitor's cookie.
    pub has_cookie: bool,
    /// It has the visitor's Authorization.
    pub has_authorization: bool,
    /// Accept-Language; empty for no such field.
    pub language: String,
    /// Accept-Encoding; empty for no such field.
    pub encoding: String,
    /// First and last byte of Range.
    pub range: Option<(usize, usize)>,
    /// The range is the last bytes of the content, as many as `range` has.
    #[serde(default)]
    pub is_suffix: bool,
    /// If-None-Match has the entity tag that the visitor received last; with a range, it is in If-Range.
    pub is_conditional: bool,
    /// Cache-Control; empty for no such field.
    pub control: String,
    /// Bytes of each write.
    pub piece_bytes: usize,
    /// Milliseconds between two writes.
    pub piece_delay_ms: u64,
    /// It follows an earlier request of the visitor without waiting for the response.
    pub is_pipelined: bool,
    /// It says `Connection: close`.
    pub closes: bool,
    /// Time until the visitor leaves, in milliseconds.
    pub leaves_after_ms: Option<u64>,
    /// Time until the visitor starts to read, in milliseconds.
    pub reads_after_ms: u64,
    /// The origin's behaviour for requests that this one causes.
    pub origin: OriginPlan,
}

/// The origin's behaviour towards one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginPlan {
    /// Milliseconds before the response begins.
    pub delay_ms: u64,
    /// Bytes of each write.
    pub piece_bytes: usize,
    /// Milliseconds between two writes.
    pub piece_delay_ms: u64,
    /// The fault, if any.
    pub fault: Fault,
    /// Number of attempts of the request that the fault affects; later ones succeed.
    pub faults_max: u32,
}

/// A fault of the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// Nothing.
    None,
    /// A 503.
    Unavailable,
    /// A 500 that may be stored for 10 seconds.
    CachedError,
    /// It never responds.
    Hang,
    /// It closes the connection without a response.
    Close,
    /// It resets the connection without a response.
    Reset,
    /// It closes the connection in the middle of the content.
    Cut,
    /// It resets the connection in the middle of the content.
    ResetInside,
    /// It falls silent in the middle of the content.
    Stall,
    /// It sends more than it declares: a response for another visitor.
    Surplus,
    /// It closes the connection after the response, without announcing it.
    CloseAfter,
    /// A 103 precedes the response.
    Hint,
    /// The head is garbage.
    Garbage,
    /// A 304 for another version confirms what it is asked about.
    WrongConfirmation,
}

impl Fault {
    /// Returns true if the accelerator has no response to send, apart from stale ones.
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Unavailable | Self::CachedError | Self::Hang | Self::Close | Self::Reset | Self::Garbage)
    }
}

/// The number of visitors.
pub const VISITORS: u8 = 4;

impl Scenario {
    /// The scenario of `seed`.
    pub fn of(seed: u64) -> Self {
        let random = &mut Random::new(seed);
        let settings = draw_settings(random);
        let mut resources: Vec<_> = (0..2 + random.below(5)).map(|_| draw_resource(random)).collect();
        let faults = random.pick(&[0, 5, 15, 40]);
        let gap_ms = random.pick(&[3, 50, 400, 3_000]);
        let count = 15 + random.below(45) as u32;
        let (has_steps, has_reloads) = (random.chance(15), random.chance(15));
        let (mut at_ms, mut actions) = (0, Vec::new());
        for serial in 1..=count {
            // Bursts, so that requests meet; and pauses, so that lifetimes end.
            at_ms += if random.chance(40) { random.below(4) } else { random.below(2 * gap_ms) };
            let resource = random.below(resources.len() as u64) as usize;
            let kind = match random.below(100) {
                0..3 => Kind::PurgeUrl(resource),
                3..5 => Kind::PurgeGroup(1 + random.below(2) as u8),
                5 => Kind::PurgeHost,
                6 => Kind::PurgeAll,
                7..10 => Kind::Change(resource),
                10 if has_steps => Kind::StepWall(random.pick(&[-3_600, -10, 5, 60, 86_400])),
                11 => Kind::Expire(resource),
                12..15 if has_reloads => Kind::Reload,
                _ => Kind::Request(Box::new(draw_request(random, &resources, resource, faults))),
            };
            actions.push(Action { at_ms, serial, kind });
        }
        if random.chance(15) {
            draw_outage(random, &mut resources, &mut actions, at_ms);
        }
        Self { seed, settings, resources, actions }
    }

    /// The configuration.
    pub fn kdl(&self) -> String {
        let settings = &self.settings;
        let mut text = "site \"*\" {\n    listen \"127.0.0.1:8080\"\n    cache {\n".to_owned();
        if settings.ttl_s > 0 {
            let _ = writeln!(text, "        ttl \"{}s\"", settings.ttl_s);
        }
        let _ = write!(
            text,
            "        heuristics #{}\n        stale-while-revalidate \"{}s\"\n        stale-if-error \"{}s\"\n        \
             request-directives #{}\n        variants {}\n        range-fetch-max \"{}KiB\"\n    }}\n    \
             proxy \"http://192.0.2.1:80\" {{\n        retries {}\n        idle-connections {}\n        \
             timeouts {{\n            head \"5s\"\n            body \"5s\"\n        }}\n    }}\n}}\n",
            settings.heuristics,
            settings.stale_while_revalidate_s,
            settings.stale_if_error_s,
            settings.request_directives,
            settings.variants_max,
            settings.range_fetch_kib,
            settings.retries,
            settings.idle_connections_max,
        );
        text
    }
}

fn draw_settings(random: &mut Random) -> Settings {
    let is_small = random.chance(30);
    Settings {
        memory_bytes_max: if is_small { random.pick(&[16 << 10, 64 << 10, 256 << 10]) } else { 64 << 20 },
        objects_max: if random.chance(20) { 2 + random.below(4) } else { 10_000 },
        ttl_s: if random.chance(20) { 5 } else { 0 },
        heuristics: random.chance(50),
        stale_while_revalidate_s: random.pick(&[0, 0, 3]),
        stale_if_error_s: random.pick(&[0, 0, 20]),
        request_directives: random.chance(75),
        variants_max: random.pick(&[1, 2, 32]),
        range_fetch_kib: random.pick(&[0, 1, 64, 16_384]),
        retries: random.below(3) as u8,
        idle_connections_max: random.pick(&[0, 1, 64]),
    }
}

fn draw_resource(random: &mut Random) -> Resource {
    use Audience::{Authorized, Cookie, NoStore, Private, Public, SetCookie, VaryAuthorization, VaryCookie};
    let audience = if random.chance(45) {
        Public
    } else {
        random.pick(&[Private, NoStore, SetCookie, Authorized, Cookie, VaryCookie, VaryAuthorization])
    };
    let controls = [
        "max-age=2",
        "max-age=10",
        "max-age=60",
        "public, max-age=10",
        "s-maxage=10",
        "max-age=1, stale-while-revalidate=5",
        "max-age=2, stale-if-error=30",
        "max-age=3, must-revalidate",
        "max-age=5, proxy-revalidate, stale-while-revalidate=9",
        "no-cache",
        "max-age=0",
        "public",
        "",
    ];
    // Without a lifetime, or the personal response would be explicitly shared.
    let control = if audience == Cookie { String::new() } else { random.pick(&controls).to_owned() };
    Resource {
        audience,
        control,
        expires_s: (audience != Cookie && random.chance(10)).then(|| random.pick(&[-5, 3, 20])),
        by_language: random.chance(35),
        by_encoding: random.chance(25),
        has_tag: random.chance(70),
        modified_s: random.chance(40).then(|| random.pick(&[10, 100, 100_000])),
        has_ranges: random.chance(40),
        bytes: random.pick(&[0, 1, 60, 700, 3_000, 3_000, 20_000, 90_000]),
        framing: if random.chance(70) { Framing::Length } else { Framing::Chunked },
        group: random.below(3) as u8,
        status: if random.chance(85) { 200 } else { random.pick(&[404, 203, 403]) },
        age_s: if random.chance(10) { random.pick(&[1, 4, 100]) } else { 0 },
    }
}

fn draw_request(random: &mut Random, resources: &[Resource], resource: usize, faults: u64) -> Request {
    use Fault::{
        CachedError, Close, CloseAfter, Cut, Garbage, Hang, Hint, Reset, ResetInside, Stall, Surplus, Unavailable,
        WrongConfirmation,
    };
    let size = resources[resource].bytes.max(2);
    let range = random.chance(15).then(|| {
        let first = random.below(size as u64) as usize;
        (first, first + random.below(size as u64) as usize)
    });
    let all = [
        Unavailable,
        CachedError,
        Hang,
        Close,
        Reset,
        Cut,
        ResetInside,
        Stall,
        Surplus,
        CloseAfter,
        Hint,
        Garbage,
        WrongConfirmation,
    ];
    let controls = ["no-cache", "max-age=0", "max-age=1", "min-fresh=5", "max-stale=8", "only-if-cached", "no-store"];
    let is_slow = random.chance(10);
    Request {
        visitor: random.below(u64::from(VISITORS)) as u8,
        resource,
        method: match random.below(100) {
            0..4 => Method::Post,
            4..12 => Method::Head,
            _ => Method::Get,
        },
        is_empty: random.chance(50),
        has_cookie: random.chance(50),
        has_authorization: random.chance(25),
        language: random.pick(&["", "en", "de", "fr"]).to_owned(),
        encoding: random.pick(&["", "gzip", "br"]).to_owned(),
        range,
        is_suffix: random.chance(15),
        is_conditional: random.chance(20),
        control: if random.chance(15) { random.pick(&controls).to_owned() } else { String::new() },
        piece_bytes: if is_slow { 1 + random.below(90) as usize } else { usize::MAX },
        piece_delay_ms: if is_slow { random.below(30) } else { 0 },
        is_pipelined: random.chance(10),
        closes: random.chance(8),
        leaves_after_ms: random.chance(8).then(|| random.below(800)),
        reads_after_ms: if random.chance(5) { random.below(3_000) } else { 0 },
        origin: OriginPlan {
            delay_ms: if random.chance(50) { 0 } else { random.below(1_500) },
            piece_bytes: random.pick(&[7, 100, 1_500, usize::MAX, usize::MAX, usize::MAX]),
            piece_delay_ms: random.pick(&[0, 0, 1, 40]),
            fault: if random.chance(faults) { random.pick(&all) } else { Fault::None },
            faults_max: random.pick(&[1, 1, 99]),
        },
    }
}

/// Adds a resource that may be served stale instead of errors, and visitors who request it after `at_ms`, when the
/// origin hangs. Meanwhile the resource may change or be purged.
fn draw_outage(random: &mut Random, resources: &mut Vec<Resource>, actions: &mut Vec<Action>, mut at_ms: u64) {
    let resource = resources.len();
    resources.push(Resource {
        audience: Audience::Public,
        control: random.pick(&["max-age=2, stale-if-error=20", "max-age=2, stale-if-error=200"]).to_owned(),
        expires_s: None,
        by_language: false,
        by_encoding: false,
        has_tag: random.chance(50),
        modified_s: None,
        has_ranges: false,
        bytes: 700,
        framing: Framing::Length,
        group: 0,
        status: 200,
        age_s: 0,
    });
    for index in 0..8 + random.below(16) {
        let gap_ms = random.below(6_000);
        at_ms += if index < 2 { 4_000 } else { random.pick(&[0, 500, gap_ms]) };
        let serial = actions.len() as u32 + 1;
        if index > 1 && random.chance(10) {
            let kind = random.pick(&[Kind::PurgeUrl(resource), Kind::Expire(resource), Kind::Change(resource)]);
            actions.push(Action { at_ms, serial, kind });
            continue;
        }
        let mut request = draw_request(random, resources, resource, 0);
        (request.method, request.range, request.is_conditional) = (Method::Get, None, false);
        (request.has_cookie, request.has_authorization, request.is_pipelined) = (false, false, false);
        (request.language, request.encoding) = (String::new(), String::new());
        random.pick(&["", "", "", "", "no-cache", "max-age=1"]).clone_into(&mut request.control);
        request.leaves_after_ms = random.chance(15).then(|| random.below(6_000));
        request.origin.faults_max = 99;
        request.origin.fault = match index {
            0 => Fault::None,
            1 => Fault::Hang,
            _ => random.pick(&[Fault::Hang, Fault::Hang, Fault::Hang, Fault::Unavailable, Fault::Close, Fault::None]),
        };
        actions.push(Action { at_ms, serial, kind: Kind::Request(Box::new(request)) });
    }
}

impl Scenario {
    /// The request with this number.
    pub fn request(&self, serial: u32) -> Option<&Request> {
        let action = self.actions.iter().find(|action| action.serial == serial)?;
        match &action.kind {
            Kind::Request(request) => Some(request),
            _ => None,
        }
    }
}

impl Request {
    /// Its fields, without those that frame it.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = Vec::new();
        if self.has_cookie {
            fields.push(("cookie", format!("session={}", self.visitor + 1)));
        }
        if self.has_authorization {
            fields.push(("authorization", format!("Bearer {}", self.visitor + 1)));
        }
        for (name, value) in
            [("accept-language", &self.language), ("accept-encoding", &self.encoding), ("cache-control", &self.control)]
        {
            if !value.is_empty() {
                fields.push((name, value.clone()));
            }
        }
        match self.range {
            Some((first, last)) if self.is_suffix => fields.push(("range", format!("bytes=-{}", last - first + 1))),
            Some((first, last)) => fields.push(("range", format!("bytes={first}-{last}"))),
            None => {}
        }
        fields
    }

    /// The value of a field; empty if it has none.
    pub fn field(&self, name: &str) -> String {
        self.fields().into_iter().find(|(other, _)| *other == name).map(|(_, value)| value).unwrap_or_default()
    }
}
