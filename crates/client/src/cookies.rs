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
pub use jar::ScopeRanges;
use jar::{CookieJar, RequestScope, ResponseTime, SetResult};
use std::collections::HashMap;

/// Maximum memory of all cookies of a worker, in bytes. A guess: enough for a session cookie of each of 300,000 clients.
const BYTES_MAX: usize = 128 * 1024 * 1024;

/// Maximum memory that the table of clients uses per client, in bytes, by the highest number of clients that it has had.
/// A table that grows when it is just over half full has up to seven places for each, in the old and the new memory.
const PLACE_BYTES: usize = 7 * (size_of::<(u64, Box<ClientCookies>)>() + 1);

/// The cookies of all clients of a worker.
#[derive(Debug, Default)]
pub(super) struct Cookies {
    /// The clients that have stored a cookie, by number, until another client with the number stores one or the client is
    /// dropped. Also those that have no cookie any more, so that each is counted once.
    clients: HashMap<u64, Box<ClientCookies>>,
    /// The most clients that were in the table at once.
    clients_peak: usize,
    /// Memory of all cookies without the table, in bytes.
    bytes: usize,
    pub(super) counts: CookieCounts,
    /// Buffers for the head of a request with placeholders, and for the value of a Cookie field.
    head: Vec<u8>,
    value: Vec<u8>,
}

/// The cookies of one client.
#[derive(Debug, Default)]
struct ClientCookies {
    /// [`Visitor::visit`] of the client, which distinguishes it from others with the same number.
    visit: u64,
    jar: CookieJar,
}

impl ClientCookies {
    /// Returns the memory of the client without its place in the table, in bytes.
    const fn bytes(&self) -> usize {
        jar::allocated(size_of::<Self>()) + self.jar.bytes()
    }
}

/// A request: its index in the table, and its number in the run.
pub(super) type RequestId = (u32, u64);

impl Cookies {
    /// Returns whether no client has a cookie.
    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Stores the cookies that a response to a request of `visitor` sets; `values` are separated by LF. A client whose last
    /// burst has begun stores nothing.
    fn store(
        &mut self,
        visitor: &Visitor,
        (settings, request): (&ClientSettings, RequestId),
        values: &[u8],
        now: ResponseTime,
    ) {
        let values = values.split(|&byte| byte == b'\n').filter(|value| !value.is_empty());
        if visitor.is_last {
            self.counts.unused += values.count() as u64;
            return;
        }
        let mut head = std::mem::take(&mut self.head);
        let scope = scope_of(settings, request, &mut head);
        // An earlier client with the same number is dropped.
        let known = self.take(visitor.number).filter(|client| client.visit == visitor.visit);
        let mut is_stored = known.is_some();
        let mut client =
            known.unwrap_or_else(|| Box::new(ClientCookies { visit: visitor.visit, ..ClientCookies::default() }));
        let peak = self.clients_peak.max(self.clients.len() + 1);
        let others_bytes = self.bytes + peak * PLACE_BYTES + client.bytes() - client.jar.bytes();
        for value in values {
            match client.jar.set(value, &scope, now, BYTES_MAX.saturating_sub(others_bytes)) {
                SetResult::Added => {
                    self.counts.stored += 1;
                    self.counts.clients += u64::from(!is_stored);
                    is_stored = true;
                }
                SetResult::Replaced => self.counts.stored += 1,
                SetResult::Removed => {}
                SetResult::Dropped => self.counts.dropped += 1,
            }
        }
        self.head = head;
        if is_stored {
            self.bytes += client.bytes();
            self.clients_peak = peak;
            self.clients.insert(visitor.number, client);
        }
    }

    /// Takes out the client with this number, if it has stored a cookie.
    fn take(&mut self, number: u64) -> Option<Box<ClientCookies>> {
        let client = self.clients.remove(&number)?;
        self.bytes -= client.bytes();
        Some(client)
    }

    /// Drops the cookies of the client with this number, which has ended.
    pub(super) fn drop_client(&mut self, number: u64) {
        drop(self.take(number));
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
    let (request, is_tls) = (&settings.requests[index as usize], settings.tls.is_some());
    let Some(template) = &request.template else { return RequestScope::new(&request.kept, &request.scope, is_tls) };
    head.clear();
    template.head.fill(&mut settings.values.of_head(number), head);
    RequestScope::new(head, &ScopeRanges::of(head), is_tls)
}

/// Appends the field Cookie in HTTP/1 form, if the request has cookies.
pub(super) fn append_field(value: Option<&[u8]>, output: &mut Vec<u8>) {
    if let Some(value) = value {
        for part in [b"Cookie: ", value, b"\r\n"] {
            output.extend_from_slice(part);
        }
    }
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

    /// Stores the cookies that a complete response sets; `values` are separated by LF. Returns the time after that, in
    /// nanoseconds; `None` if the response sets none.
    pub(super) fn store_cookies(&self, begin: &Begin, request: RequestId, values: &[u8]) -> Option<u64> {
        let visitor = if values.is_empty() { None } else { self.drive.borrow().visitor(begin) }?;
        let now = ResponseTime { now_ns: precise_ns(), unix_s: unix_s() };
        self.cookies.borrow_mut().store(&visitor, (&self.settings, request), values, now);
        Some(precise_ns())
    }

    /// Notes that a request was sent whole, with or without cookies.
    pub(super) fn count_cookies(&self, has_cookies: bool) {
        if has_cookies {
            self.cookies.borrow_mut().counts.requests += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientSettings, CookieCounts, Cookies, ResponseTime, Visitor, append_field, field_bytes};
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

    fn store(cookies: &mut Cookies, settings: &ClientSettings, visitor: Visitor, request: u32, values: &str) {
        cookies.store(&visitor, (settings, (request, 0)), values.as_bytes(), NOW);
    }

    #[test]
    fn each_client_sends_its_own_cookies() {
        let requests = [at("/a/b"), at("/c")].into();
        let settings = ClientSettings { requests, ..settings("127.0.0.1:1".parse().unwrap()) };
        let mut cookies = Cookies::default();
        store(&mut cookies, &settings, visitor(1, 0, false), 0, "a=1\nb=1; Path=/\nb=2; Path=/\n\n");
        store(&mut cookies, &settings, visitor(2, 0, false), 1, "a=2\n");
        store(&mut cookies, &settings, visitor(2, 0, false), 1, "a=3\nbad=1; Domain=other\n");
        assert_eq!(value(&mut cookies, &settings, visitor(1, 0, false), 0), "a=1; b=2");
        assert_eq!(value(&mut cookies, &settings, visitor(1, 0, false), 1), "b=2");
        assert_eq!(value(&mut cookies, &settings, visitor(2, 0, true), 0), "a=3");
        assert_eq!(value(&mut cookies, &settings, visitor(3, 0, false), 0), "");
        // The next visit is another client's.
        assert_eq!(value(&mut cookies, &settings, visitor(2, 1, false), 0), "");
        store(&mut cookies, &settings, visitor(2, 1, false), 0, "c=1\n");
        assert_eq!(value(&mut cookies, &settings, visitor(2, 1, false), 0), "c=1");
        // Cookies that a client cannot send are not stored.
        store(&mut cookies, &settings, visitor(4, 0, true), 0, "d=1\ne=1\n");
        store(&mut cookies, &settings, visitor(5, 0, false), 0, "e=1; Domain=other\ne=1; Max-Age=0");
        let expected = CookieCounts { clients: 3, stored: 6, requests: 0, unused: 2, dropped: 2 };
        assert_eq!(cookies.counts, expected);
        assert_eq!(cookies.clients.len(), 2);
        (1..=2).for_each(|number| cookies.drop_client(number));
        assert_eq!((cookies.is_empty(), cookies.bytes), (true, 0));
    }

    #[test]
    fn a_client_that_loses_its_cookies_is_counted_once() {
        let settings = ClientSettings { requests: [at("/")].into(), ..settings("127.0.0.1:1".parse().unwrap()) };
        let mut cookies = Cookies::default();
        for _ in 0..3 {
            store(&mut cookies, &settings, visitor(1, 0, false), 0, "login=1");
            store(&mut cookies, &settings, visitor(1, 0, false), 0, "login=; Max-Age=0");
            assert_eq!(value(&mut cookies, &settings, visitor(1, 0, false), 0), "");
        }
        assert_eq!(cookies.counts, CookieCounts { clients: 1, stored: 3, ..CookieCounts::default() });
    }

    #[test]
    fn the_memory_of_all_clients_is_bounded() {
        let settings = ClientSettings { requests: [at("/")].into(), ..settings("127.0.0.1:1".parse().unwrap()) };
        let mut cookies = Cookies::default();
        let mut clients = 0;
        while cookies.counts.dropped == 0 {
            store(&mut cookies, &settings, visitor(clients, 0, false), 0, "sessionid=0123456789abcdef; Path=/");
            clients += 1;
        }
        // Each client has five allocations of at least 32 bytes. While the table doubles, the old and the new one together
        // have three times its places.
        assert!(cookies.bytes >= cookies.clients.len() * 5 * 32);
        let places = 3 * cookies.clients.capacity() * 8 / 7;
        let table_bytes = places * (size_of::<(u64, Box<super::ClientCookies>)>() + 1);
        assert!(cookies.bytes + table_bytes <= super::BYTES_MAX, "{} {table_bytes}", cookies.bytes);
        assert!(clients >= 300_000, "{clients}");
        assert_eq!((cookies.counts.clients, cookies.clients.len()), (clients - 1, clients as usize - 1));
        // A client that has left makes room for another.
        cookies.drop_client(0);
        store(&mut cookies, &settings, visitor(clients, 0, false), 0, "sessionid=0123456789abcdef; Path=/");
        assert_eq!((cookies.counts.clients, cookies.counts.dropped), (clients, 1));
        (0..=clients).for_each(|number| cookies.drop_client(number));
        assert_eq!(cookies.bytes, 0);
    }

    #[test]
    fn the_field_has_its_http1_form() {
        let mut bytes = Vec::new();
        append_field(None, &mut bytes);
        assert_eq!(bytes, b"");
        append_field(Some(b"a=1"), &mut bytes);
        assert_eq!((&bytes[..], bytes.len()), (&b"Cookie: a=1\r\n"[..], field_bytes(b"a=1")));
    }
}
