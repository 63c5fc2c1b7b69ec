//! Input from operators and their users: requests on the admin socket, and passwords.

pub(crate) use flatout_daemon::admin::check_request;
pub(crate) use flatout_engine::check_basic;

pub(crate) const ADMIN_SEEDS: &[&[u8]] = &[
    b"GET /metrics HTTP/1.1\r\nHost: flatout\r\nAccept: application/openmetrics-text\r\n\r\n",
    b"POST /purge?url=http%3A//a.b/%C3%A4%3Fc&soft&dry-run HTTP/1.1\r\nHost: flatout\r\n\r\n",
    b"POST /purge?tag=a%26b HTTP/1.1\r\nHost: flatout\r\n\r\n",
    b"POST /purge?host=A.b:80 HTTP/1.1\r\nHost: flatout\r\n\r\n",
    b"POST /purge?prefix=http%3A//a.b/c HTTP/1.1\r\nHost: flatout\r\n\r\n",
    b"GET /cache?url=http%3A//a/b&method=HEAD&from=%3A%3A1&header=Cookie%3A%20a%3Db HTTP/1.1\r\nHost: flatout\r\n\r\n",
    b"POST /stop HTTP/1.1\r\nHost: flatout\r\n\r\n",
];

pub(crate) const BASIC_SEEDS: &[&[u8]] =
    &[b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", b"basic   QTo", b"Aladdin:open sesame", b":", b"a::b"];
