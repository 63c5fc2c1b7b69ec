//! Parser for Cache-Control in requests and responses (RFC 9111 §5.2).
//!
//! Ambiguities are resolved on the safe side: if a directive has several values, the smallest applies, and an invalid
//! number makes a response stale (§4.2.1 permits both).

use flatout_http::head::Fields;
use flatout_http::token::{is_token, parse_decimal, trim};

/// Value that represents any larger number, in seconds (RFC 9111 §1.2.2).
pub const SECONDS_MAX: u32 = 1 << 31;

/// Parsed Cache-Control of a request; all seconds are at most [`SECONDS_MAX`]. An invalid number counts as absent,
/// since request directives are advisory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    /// `no-cache`, or `Pragma: no-cache` without Cache-Control.
    pub no_cache: bool,
    /// `no-store`.
    pub no_store: bool,
    /// `only-if-cached`.
    pub only_if_cached: bool,
    /// `no-transform`.
    pub no_transform: bool,
    /// `max-age`.
    pub max_age_s: Option<u32>,
    /// `max-stale`, or [`SECONDS_MAX`] if it has no value: any staleness is acceptable.
    pub max_stale_s: Option<u32>,
    /// `min-fresh`.
    pub min_fresh_s: Option<u32>,
    /// `stale-if-error` (RFC 5861 §4).
    pub stale_if_error_s: Option<u32>,
}

/// Value of a directive that takes a number of seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seconds {
    /// The directive is absent.
    #[default]
    Absent,
    /// Number of seconds, at most [`SECONDS_MAX`].
    Valid(u32),
    /// The directive has no value, or its value is invalid.
    Invalid,
}

impl Seconds {
    /// Returns the number if it is valid.
    pub const fn valid(self) -> Option<u32> {
        match self {
            Self::Valid(seconds) => Some(seconds),
            Self::Absent | Self::Invalid => None,
        }
    }

    /// Returns `Invalid`, or `Absent` if the directive is absent.
    const fn invalidated(self) -> Self {
        match self {
            Self::Absent => Self::Absent,
            Self::Valid(_) | Self::Invalid => Self::Invalid,
        }
    }

    /// Combines two values of the same directive: returns the smaller one, or `Invalid` if either is invalid. RFC 9111
    /// §4.2.1 lets a cache use the first value or consider the response stale. Until the smaller value has elapsed,
    /// both values agree that the response is fresh; after that, it is considered stale.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Absent, only) | (only, Self::Absent) => only,
            (Self::Valid(one), Self::Valid(two)) => Self::Valid(one.min(two)),
            (Self::Invalid, _) | (_, Self::Invalid) => Self::Invalid,
        }
    }
}

/// Parsed Cache-Control of a response, or of a field that replaces it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseDirectives {
    /// `no-store`.
    pub no_store: bool,
    /// `no-cache` without field names.
    pub no_cache: bool,
    /// `private` without field names.
    pub private: bool,
    /// `public`.
    pub public: bool,
    /// `must-revalidate`.
    pub must_revalidate: bool,
    /// `proxy-revalidate`.
    pub proxy_revalidate: bool,
    /// `must-understand`.
    pub must_understand: bool,
    /// `no-transform`.
    pub no_transform: bool,
    /// `immutable` (RFC 8246).
    pub immutable: bool,
    /// True if a member violates the grammar. No heuristic lifetime applies then.
    pub malformed: bool,
    /// `max-age`.
    pub max_age: Seconds,
    /// `s-maxage`.
    pub s_maxage: Seconds,
    /// `stale-while-revalidate` (RFC 5861 §3).
    pub stale_while_revalidate: Seconds,
    /// `stale-if-error` (RFC 5861 §4).
    pub stale_if_error: Seconds,
    /// Lower-case field names listed in `no-cache` and `private`. These fields are not stored (RFC 9111 §5.2.2.4,
    /// §5.2.2.7).
    pub named: Vec<Box<[u8]>>,
}

/// Parses the Cache-Control lines of a request, or Pragma if there are none (RFC 9111 §5.4).
pub fn parse_request_directives(fields: &Fields<'_>) -> RequestDirectives {
    let mut directives = RequestDirectives::default();
    if fields.first("cache-control").is_none() {
        directives.no_cache = pragma_says_no_cache(fields);
        return directives;
    }
    let (mut max_age, mut max_stale) = (Seconds::Absent, Seconds::Absent);
    let (mut min_fresh, mut stale_if_error) = (Seconds::Absent, Seconds::Absent);
    for line in fields.all("cache-control") {
        for directive in split(line) {
            let seconds = directive.seconds();
            directives.no_cache |= directive.forbids("no-cache");
            directives.no_store |= directive.forbids("no-store");
            if directive.is("only-if-cached") {
                directives.only_if_cached = true;
            } else if directive.is("no-transform") {
                directives.no_transform = true;
            } else if directive.is("max-age") {
                max_age = max_age.and(seconds);
            } else if directive.is("max-stale") {
                let any_staleness = directive.argument == Argument::None;
                max_stale = max_stale.and(if any_staleness { Seconds::Valid(SECONDS_MAX) } else { seconds });
            } else if directive.is("min-fresh") {
                min_fresh = min_fresh.and(seconds);
            } else if directive.is("stale-if-error") {
                stale_if_error = stale_if_error.and(seconds);
            }
        }
    }
    directives.max_age_s = max_age.valid();
    directives.max_stale_s = max_stale.valid();
    directives.min_fresh_s = min_fresh.valid();
    directives.stale_if_error_s = stale_if_error.valid();
    directives
}

/// Parses the Cache-Control lines of a response, or Pragma if there are none. Pragma has no defined meaning in
/// responses, but senders use it as in requests.
pub fn parse_response_directives(fields: &Fields<'_>) -> ResponseDirectives {
    let mut directives = ResponseDirectives::default();
    let mut any = false;
    for line in fields.all("cache-control") {
        any = true;
        for directive in split(line) {
            directives.add(&directive);
        }
    }
    if !any {
        directives.no_cache = pragma_says_no_cache(fields);
    }
    directives
}

/// Returns whether Pragma contains `no-cache`.
pub(crate) fn pragma_says_no_cache(fields: &Fields<'_>) -> bool {
    // Fast path: almost no message has a Pragma field.
    fields.first("pragma").is_some()
        && fields.all("pragma").flat_map(split).any(|directive| directive.forbids("no-cache"))
}

impl ResponseDirectives {
    fn add(&mut self, directive: &Directive<'_>) {
        if directive.is_malformed() {
            self.add_words(directive.whole);
        }
        let seconds = directive.seconds();
        // A prohibition applies whatever its argument; a permission applies only in its defined form.
        let bare = directive.argument == Argument::None;
        if directive.is("no-store") {
            self.no_store = true;
        } else if directive.is("no-cache") {
            self.no_cache |= !self.add_names(directive);
        } else if directive.is("private") {
            self.private |= !self.add_names(directive);
        } else if directive.is("public") {
            self.public |= bare;
        } else if directive.is("must-revalidate") {
            self.must_revalidate = true;
        } else if directive.is("proxy-revalidate") {
            self.proxy_revalidate = true;
        } else if directive.is("must-understand") {
            self.must_understand = true;
        } else if directive.is("no-transform") {
            self.no_transform = true;
        } else if directive.is("immutable") {
            self.immutable |= bare;
        } else if directive.is("max-age") {
            self.max_age = self.max_age.and(seconds);
        } else if directive.is("s-maxage") {
            self.s_maxage = self.s_maxage.and(seconds);
        } else if directive.is("stale-while-revalidate") {
            self.stale_while_revalidate = self.stale_while_revalidate.and(seconds);
        } else if directive.is("stale-if-error") {
            self.stale_if_error = self.stale_if_error.and(seconds);
        }
    }

    /// Parses a member that violates the grammar, such as `private; max-age=60`, on the safe side: a prohibition
    /// applies if its name occurs anywhere in the member, a lifetime becomes invalid, and a permission is ignored.
    fn add_words(&mut self, member: &[u8]) {
        let says = |name| has_word(member, name);
        self.malformed = true;
        self.no_store |= says("no-store");
        self.no_cache |= says("no-cache");
        self.private |= says("private");
        self.must_revalidate |= says("must-revalidate");
        self.proxy_revalidate |= says("proxy-revalidate");
        self.no_transform |= says("no-transform");
        if says("max-age") || says("s-maxage") {
            self.max_age = Seconds::Invalid;
            // An absent s-maxage stays absent, because its presence also permits storing responses to requests with
            // Authorization.
            self.s_maxage = self.s_maxage.invalidated();
        }
    }

    /// Adds the field names of `no-cache` or `private`. Returns false if there are none or they are invalid; the
    /// directive then applies to the whole response.
    fn add_names(&mut self, directive: &Directive<'_>) -> bool {
        let (Argument::Token(list) | Argument::Quoted(list)) = directive.argument else { return false };
        let names = || list.split(|&byte| byte == b',').map(trim).filter(|name| !name.is_empty());
        if names().next().is_none() || !names().all(is_token) {
            return false;
        }
        self.named.extend(names().map(|name| name.to_ascii_lowercase().into_boxed_slice()));
        true
    }
}

/// A directive, with its argument unparsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Directive<'a> {
    name: &'a [u8],
    argument: Argument<'a>,
    /// The whole directive, as received.
    whole: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Argument<'a> {
    /// No `=` follows the name.
    None,
    Token(&'a [u8]),
    /// Text between quotes. Escapes are not processed, since no supported directive needs them.
    Quoted(&'a [u8]),
    /// An argument that violates the grammar.
    Malformed,
}

impl Directive<'_> {
    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    /// Returns whether the directive violates the grammar.
    fn is_malformed(&self) -> bool {
        self.argument == Argument::Malformed || !is_token(self.name)
    }

    /// Returns whether the directive is the prohibition `name`, or violates the grammar and contains this word.
    fn forbids(&self, name: &str) -> bool {
        self.is(name) || (self.is_malformed() && has_word(self.whole, name))
    }

    /// Parses the argument as `delta-seconds` (RFC 9111 §1.2.2). The quoted form is accepted too, as recommended in
    /// §5.2.
    fn seconds(&self) -> Seconds {
        match self.argument {
            Argument::Token(digits) | Argument::Quoted(digits) => parse_seconds(digits),
            Argument::None | Argument::Malformed => Seconds::Invalid,
        }
    }
}

/// Returns whether `text` contains the word `name`. Words consist of letters, digits, `-` and `_`.
pub(crate) fn has_word(text: &[u8], name: &str) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    text.split(|byte| !is_part(byte)).any(|word| word.eq_ignore_ascii_case(name.as_bytes()))
}

/// Parses a string of digits. Numbers above [`SECONDS_MAX`] are replaced by [`SECONDS_MAX`].
pub(crate) fn parse_seconds(digits: &[u8]) -> Seconds {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Seconds::Invalid;
    }
    let seconds = parse_decimal(digits).and_then(|value| u32::try_from(value).ok()).unwrap_or(SECONDS_MAX);
    Seconds::Valid(seconds.min(SECONDS_MAX))
}

/// Splits a field line into directives: `#( token [ "=" ( token / quoted-string ) ] )`. Any other text between two
/// commas is a directive with a malformed argument. An unclosed quote is treated as an ordinary character, so that it
/// cannot hide a `no-store`.
pub(crate) fn split(line: &[u8]) -> impl Iterator<Item = Directive<'_>> {
    let mut rest = line;
    std::iter::from_fn(move || {
        while let [b' ' | b'\t' | b',', tail @ ..] = rest {
            rest = tail;
        }
        if rest.is_empty() {
            return None;
        }
        let name_end = rest.iter().position(|byte| matches!(byte, b'=' | b',')).unwrap_or(rest.len());
        let name = &rest[..name_end];
        let begin = rest;
        if rest.get(name_end) != Some(&b'=') {
            rest = &rest[name_end..];
            return Some(Directive { name: trim(name), argument: Argument::None, whole: name });
        }
        let (mut argument, tail) = split_argument(&rest[name_end + 1..]);
        rest = tail;
        if trim(name).len() != name.len() {
            argument = Argument::Malformed;
        }
        Some(Directive { name: trim(name), argument, whole: &begin[..begin.len() - rest.len()] })
    })
}

/// Splits a field line at commas outside quotes into trimmed, non-empty elements.
pub(crate) fn split_list(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = line;
    std::iter::from_fn(move || {
        while let [b' ' | b'\t' | b',', tail @ ..] = rest {
            rest = tail;
        }
        let (mut quoted, mut escaped) = (false, false);
        let end = rest.iter().position(|&byte| {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                b',' => return !quoted,
                _ => {}
            }
            false
        });
        let (element, tail) = rest.split_at(end.unwrap_or(rest.len()));
        rest = tail;
        (!element.is_empty()).then(|| trim(element))
    })
}

/// Splits the text after `=` into the argument and the remaining text, which is empty or begins with a comma.
fn split_argument(bytes: &[u8]) -> (Argument<'_>, &[u8]) {
    if let [b'"', quoted @ ..] = bytes {
        let mut at = 0;
        while at < quoted.len() && quoted[at] != b'"' {
            at += if quoted[at] == b'\\' { 2 } else { 1 };
        }
        if at < quoted.len() {
            let tail = &quoted[at + 1..];
            let comma = tail.iter().position(|&byte| byte == b',').unwrap_or(tail.len());
            let clean = trim(&tail[..comma]).is_empty();
            let argument = if clean { Argument::Quoted(&quoted[..at]) } else { Argument::Malformed };
            return (argument, &tail[comma..]);
        }
    }
    let comma = bytes.iter().position(|&byte| byte == b',').unwrap_or(bytes.len());
    let mut token = &bytes[..comma];
    while let [head @ .., b' ' | b'\t'] = token {
        token = head;
    }
    (if is_token(token) { Argument::Token(token) } else { Argument::Malformed }, &bytes[comma..])
}

#[cfg(test)]
mod tests;
