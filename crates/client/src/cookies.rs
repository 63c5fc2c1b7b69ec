//! Cookies of simulated clients: those that responses set, and those that requests send.
//!
//! | file | content |
//! |---|---|
//! | `jar` | the cookies of one client, without a clock |
//!
//! Until a response sets a cookie, nothing is allocated, and requests are sent as they were prepared.

mod jar;

use super::worker::ClientShared;
use super::{ClientSettings, Drive};
use flatout_load::record::CookieCounts;
use flatout_load::schedule::{Begin, Visitor};
use flatout_os::clock::{precise_ns, unix_s};
use jar::{CookieJar, RequestScope, ResponseTime, SetResult};
use std::collections::HashMap;

/// Maximum memory of all cookies of a worker, in bytes. A guess: enough for a session cookie of each of 500,000 clients.
const BYTES_MAX: usize = 128 * 1024 * 1024;

/// The cookies of all clients of a worker.
#[derive(Debug, Default)]
pub(super) struct Cookies {
    /// The clients that stored a cookie, by number.
    clients: HashMap<u64, ClientCookies>,
    /// Memory of all cookies, in bytes.
    bytes: usize,
    pub(super) counts: CookieCounts,
    /// Buffers for the head of a request with placeholders, and for the value of a Cookie field.
    head: Vec<u8>,
    value: Vec<u8>,
}

/// A client's cookies, and which of the clients with its number it is.
#[derive(Debug)]
struct ClientCookies {
    /// [`Visitor::visit`] of the client.
    visit: u64,
    jar: CookieJar,
}

/// A request: its index in the table, and its number in the run.
pub(super) type RequestId = (u32, u64);

impl Cookies {
    /// Returns whether no client has a cookie.
    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Stores the cookies that a response to a request of `visitor` sets; `values` are separated by LF. Returns whether a
    /// client has more cookies than before.
    fn store(
        &mut self,
        visitor: &Visitor,
        (settings, request): (&ClientSettings, RequestId),
        values: &[u8],
        now: ResponseTime,
    ) -> bool {
        let values = values.split(|&byte| byte == b'\n').filter(|value| !value.is_empty());
        if visitor.is_last {
            self.counts.unused += values.count() as u64;
            return false;
        }
        let mut head = std::mem::take(&mut self.head);
        let scope = scope_of(settings, request, &mut head);
        let mut client =
            self.take(visitor).unwrap_or_else(|| ClientCookies { visit: visitor.visit, jar: CookieJar::default() });
        let (was_new, mut has_more) = (client.jar.bytes() == 0, false);
        let bytes_others = self.bytes;
        for value in values {
            let room = BYTES_MAX.saturating_sub(bytes_others + client.jar.bytes());
            match client.jar.set(value, &scope, now, room) {
                SetResult::Added => {
                    self.counts.stored += 1;
                    has_more = true;
                }
                SetResult::Replaced => self.counts.stored += 1,
                SetResult::Removed => {}
                SetResult::Dropped => self.counts.dropped += 1,
            }
        }
        self.counts.clients += u64::from(was_new && has_more);
        self.head = head;
        if client.jar.bytes() > 0 {
            self.bytes += client.jar.bytes();
            self.clients.insert(visitor.number, client);
        }
        has_more
    }

    /// Takes out the cookies of a client, if it has any, and drops those of an earlier client with the same number.
    fn take(&mut self, visitor: &Visitor) -> Option<ClientCookies> {
        let client = self.clients.remove(&visitor.number)?;
        self.bytes -= client.jar.bytes();
        Some(client).filter(|client| client.visit == visitor.visit)
    }

    /// Returns the value of the Cookie field of a request of `visitor`, if it has one.
    pub(super) fn value_for(
        &mut self,
        visitor: &Visitor,
        (settings, request): (&ClientSettings, RequestId),
        now_ns: u64,
    ) -> Option<&[u8]> {
        let client = self.clients.get(&visitor.number).filter(|client| client.visit == visitor.visit)?;
        self.value.clear();
        let scope = scope_of(settings, request, &mut self.head);
        client.jar.write(&scope, now_ns, &mut self.value).then_some(&self.value[..])
    }
}

/// Returns the scope of a request. `head` is a buffer.
fn scope_of<'a>(settings: &'a ClientSettings, (index, number): RequestId, head: &'a mut Vec<u8>) -> RequestScope<'a> {
    let request = &settings.requests[index as usize];
    let head = match &request.template {
        None => &request.kept[..],
        Some(template) => {
            head.clear();
            template.head.fill(&mut settings.values.of_head(number), head);
            head
        }
    };
    RequestScope::of_head(head, settings.tls.is_some())
}

/// Inserts the field Cookie at the end of the head of an HTTP/1 request that begins at `start`.
pub(super) fn insert_field(value: &[u8], start: usize, bytes: &mut Vec<u8>) {
    const HEAD_END: &[u8] = b"\r\n\r\n";
    let Some(end) = bytes[start..].windows(HEAD_END.len()).position(|window| window == HEAD_END) else { return };
    let at = start + end + b"\r\n".len();
    bytes.splice(at..at, [b"Cookie: ", value, b"\r\n"].concat());
}

/// Length of the field Cookie in HTTP/1 form, in bytes.
pub(super) const fn field_bytes(value: &[u8]) -> usize {
    b"Cookie: \r\n".len() + value.len()
}

impl<D: Drive> ClientShared<D> {
    /// Returns the client whose cookies the requests of a burst may have; `None` if no client has any.
    pub(super) fn visitor_with_cookies(&self, begin: &Begin) -> Option<Visitor> {
        if self.cookies.borrow().is_empty() { None } else { self.drive.borrow().visitor(begin) }
    }

    /// Stores the cookies that a response sets; `values` are separated by LF, and not empty. Returns whether the client
    /// has more cookies than before.
    pub(super) fn store_cookies(&self, begin: &Begin, request: RequestId, values: &[u8]) -> bool {
        let Some(visitor) = self.drive.borrow().visitor(begin) else { return false };
        let now = ResponseTime { now_ns: precise_ns(), unix_s: unix_s() };
        let has_more = self.cookies.borrow_mut().store(&visitor, (&self.settings, request), values, now);
        if has_more {
            // Cookies may make requests longer than those that were prepared.
            self.connector.expect_long_requests();
        }
        has_more
    }

    /// Drops the cookies of a client after its last burst.
    pub(super) fn drop_cookies(&self, visitor: Option<Visitor>) {
        if let Some(visitor) = visitor.filter(|visitor| visitor.is_last) {
            self.cookies.borrow_mut().take(&visitor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientSettings, CookieCounts, Cookies, ResponseTime, Visitor, field_bytes, insert_field};
    use crate::PreparedRequest;
    use crate::tests::settings;

    const NOW: ResponseTime = ResponseTime { now_ns: 7, unix_s: 1_800_000_000 };

    fn at(path: &str) -> PreparedRequest {
        PreparedRequest::plain(format!("GET {path} HTTP/1.1\r\nHost: h:80\r\n\r\n").into_bytes())
    }

    fn visitor(number: u64, visit: u64, is_last: bool) -> Visitor {
        Visitor { number, visit, is_last }
    }

    fn value(cookies: &mut Cookies, settings: &ClientSettings, visitor: Visitor, request: u32) -> String {
        let value = cookies.value_for(&visitor, (settings, (request, 0)), NOW.now_ns).unwrap_or_default();
        String::from_utf8(value.to_vec()).unwrap()
    }

    #[test]
    fn each_client_sends_its_own_cookies() {
        let requests = [at("/a/b"), at("/c")].into();
        let settings = ClientSettings { requests, ..settings("127.0.0.1:1".parse().unwrap()) };
        let mut cookies = Cookies::default();
        let store = |cookies: &mut Cookies, visitor, request, values: &str| {
            cookies.store(&visitor, (&settings, (request, 0)), values.as_bytes(), NOW)
        };
        assert!(store(&mut cookies, visitor(1, 0, false), 0, "a=1\nb=1; Path=/\nb=2; Path=/\n\n"));
        assert!(store(&mut cookies, visitor(2, 0, false), 1, "a=2\n"));
        assert!(!store(&mut cookies, visitor(2, 0, false), 1, "a=3\nbad=1; Domain=other\n"));
        assert_eq!(value(&mut cookies, &settings, visitor(1, 0, false), 0), "a=1; b=2");
        assert_eq!(value(&mut cookies, &settings, visitor(1, 0, false), 1), "b=2");
        assert_eq!(value(&mut cookies, &settings, visitor(2, 0, true), 0), "a=3");
        assert_eq!(value(&mut cookies, &settings, visitor(3, 0, false), 0), "");
        // The next visit is another client's.
        assert_eq!(value(&mut cookies, &settings, visitor(2, 1, false), 0), "");
        assert!(store(&mut cookies, visitor(2, 1, false), 0, "c=1\n"));
        assert_eq!(value(&mut cookies, &settings, visitor(2, 1, false), 0), "c=1");
        // Cookies that a client cannot send are not stored.
        assert!(!store(&mut cookies, visitor(4, 0, true), 0, "d=1\ne=1\n"));
        let expected = CookieCounts { clients: 3, stored: 6, requests: 0, unused: 2, dropped: 1 };
        assert_eq!(cookies.counts, expected);
        assert!(!store(&mut cookies, visitor(1, 0, false), 0, "a=; Max-Age=0\nb=; Max-Age=0; Path=/\n"));
        cookies.take(&visitor(2, 1, true));
        assert_eq!((cookies.is_empty(), cookies.bytes), (true, 0));
    }

    #[test]
    fn the_field_is_inserted_at_the_end_of_the_head() {
        for (before, start, after) in [
            ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", 0, "GET / HTTP/1.1\r\nHost: h\r\nCookie: a=1\r\n\r\n"),
            (
                "x\r\n\r\nPOST / HTTP/1.1\r\nA: b\r\n\r\n1\r\n\r\n",
                5,
                "x\r\n\r\nPOST / HTTP/1.1\r\nA: b\r\nCookie: a=1\r\n\r\n1\r\n\r\n",
            ),
        ] {
            let mut bytes = before.as_bytes().to_vec();
            insert_field(b"a=1", start, &mut bytes);
            assert_eq!(String::from_utf8_lossy(&bytes), after);
            assert_eq!(bytes.len(), before.len() + field_bytes(b"a=1"));
        }
    }
}
