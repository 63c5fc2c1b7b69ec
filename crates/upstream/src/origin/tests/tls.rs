use super::*;
use crate::origin::{OriginTls, OriginTlsSettings};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::path::PathBuf;

/// A self-signed certificate.
pub(super) struct Identity {
    pub(super) pem: String,
    key: String,
}

pub(super) fn identity(names: &[&str]) -> Identity {
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names).unwrap();
    Identity { pem: cert.pem(), key: signing_key.serialize_pem() }
}

fn expired() -> Identity {
    let mut parameters = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    parameters.not_before = rcgen::date_time_ymd(2001, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(2002, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    Identity { pem: parameters.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
}

pub(super) fn server_config(identity: &Identity, alpn: &[&[u8]]) -> Arc<ServerConfig> {
    let chain = CertificateDer::pem_slice_iter(identity.pem.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Arc::new(config)
}

type Session = StreamOwned<ServerConnection, TcpStream>;

/// As `serve`, over TLS.
fn serve_tls(identity: &Identity, handle: impl Fn(Session) + Send + Sync + 'static) -> OriginAddress {
    let config = server_config(identity, &[b"http/1.1"]);
    let origin = serve(move |_, stream| {
        handle(StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream));
    });
    OriginAddress { secure: true, ..origin }
}

/// A file that exists as long as the test runs.
pub(super) struct Authorities(PathBuf);

impl Authorities {
    pub(super) fn of(identity: &Identity) -> Self {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("flatout-origin-{}-{number}.pem", std::process::id()));
        std::fs::write(&path, &identity.pem).unwrap();
        Self(path)
    }

    pub(super) fn tls(&self) -> Arc<OriginTls> {
        load(&OriginTlsSettings { authorities: Some(self.0.clone()), ..OriginTlsSettings::default() })
    }
}

impl Drop for Authorities {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn load(settings: &OriginTlsSettings) -> Arc<OriginTls> {
    OriginTls::load(settings).unwrap()
}

pub(super) fn secure_client(settings: OriginSettings, tls: &Arc<OriginTls>) -> OriginClient {
    OriginClient::new(settings, Some(Arc::clone(tls)), Arc::new(OriginCounts::default()))
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn answer_all(mut session: Session) {
    while read_request(&mut session).is_some() && session.write_all(OK).is_ok() {}
}

#[test]
fn tls_connections_are_pooled() {
    let identity = identity(&["127.0.0.1"]);
    let authorities = Authorities::of(&identity);
    let origin = serve_tls(&identity, answer_all);
    run(async {
        let client = secure_client(OriginSettings::default(), &authorities.tls());
        for content in [OutgoingContent::None, bytes(b"abc"), bytes(&vec![b'x'; 300_000]), OutgoingContent::None] {
            let post = OutgoingRequest { content, ..request("POST") };
            assert_eq!(exchange(&client, &origin, post).await.unwrap().content, b"ok");
            // Tickets come whenever the origin likes, and are no reason to think it has ended.
            client.pause(20).await;
            assert_eq!(client.idle_connections(&origin), 1);
        }
        assert_eq!((client.counts().connections_opened.get(), client.counts().connections_stale.get()), (1, 0));
        let by_name = OriginAddress::new(true, "localhost", origin.port);
        assert_eq!(failure_of(get(&client, &by_name).await), OriginFailure::TlsName);
    });
}

#[test]
fn certificate_failures_are_named() {
    let (one, other, old) = (identity(&["127.0.0.1"]), identity(&["127.0.0.1"]), expired());
    let named = identity(&["origin.example"]);
    let authorities = Authorities::of(&one);
    let of_other = Authorities::of(&other);
    let of_old = Authorities::of(&old);
    let of_named = Authorities::of(&named);
    let fetch = |identity: &Identity, tls: &Arc<OriginTls>| {
        let origin = serve_tls(identity, answer_all);
        run(get(&secure_client(OriginSettings::default(), tls), &origin))
    };
    assert_eq!(fetch(&one, &authorities.tls()).unwrap().content, b"ok");
    assert_eq!(failure_of(fetch(&one, &of_other.tls())), OriginFailure::TlsUntrusted);
    assert_eq!(failure_of(fetch(&old, &of_old.tls())), OriginFailure::TlsExpired);
    assert_eq!(failure_of(fetch(&named, &of_named.tls())), OriginFailure::TlsName);
    let insecure = load(&OriginTlsSettings { insecure: true, ..OriginTlsSettings::default() });
    for identity in [&one, &old, &named] {
        assert_eq!(fetch(identity, &insecure).unwrap().content, b"ok");
    }
    let renamed = load(&OriginTlsSettings {
        authorities: Some(of_named.0.clone()),
        server_name: Some("origin.example".to_owned()),
        ..OriginTlsSettings::default()
    });
    assert_eq!(fetch(&named, &renamed).unwrap().content, b"ok");
    let origin = serve_tls(&one, answer_all);
    assert_eq!(failure_of(run(get(&client(), &origin))), OriginFailure::TlsUnconfigured);
}

#[test]
fn invalid_tls_settings_are_reported() {
    let missing = OriginTlsSettings { authorities: Some("/nowhere.pem".into()), ..OriginTlsSettings::default() };
    assert!(OriginTls::load(&missing).unwrap_err().to_string().starts_with("/nowhere.pem cannot be read: "));
    let empty = Authorities::of(&Identity { pem: "no PEM".to_owned(), key: String::new() });
    let none = OriginTlsSettings { authorities: Some(empty.0.clone()), ..OriginTlsSettings::default() };
    assert!(OriginTls::load(&none).unwrap_err().to_string().ends_with("contains no certificate in PEM format"));
    let name = OriginTlsSettings { server_name: Some("no name".to_owned()), ..OriginTlsSettings::default() };
    assert!(OriginTls::load(&name).is_err());
}

#[test]
fn a_failed_tls_handshake_is_named() {
    let identity = identity(&["127.0.0.1"]);
    let tls = Authorities::of(&identity).tls();
    let secure = |origin: OriginAddress| OriginAddress { secure: true, ..origin };
    let plain = secure(serve(|_, mut stream| stream.write_all(b"HTTP/1.1 400 Bad\r\n\r\n").unwrap()));
    let closes = secure(serve(|_, _| {}));
    let deadlines = secure(serve(|_, stream| hold(stream)));
    for (origin, failure) in [
        (plain, OriginFailure::TlsFailed),
        (closes, OriginFailure::TlsFailed),
        (deadlines, OriginFailure::ConnectTimeout),
    ] {
        assert_eq!(failure_of(run(get(&secure_client(quick(), &tls), &origin))), failure);
    }
}

#[test]
fn a_close_without_close_notify_truncates_the_body() {
    let identity = identity(&["127.0.0.1"]);
    let tls = Authorities::of(&identity).tls();
    for tells in [true, false] {
        for head in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", "HTTP/1.1 2", ""] {
            let origin = serve_tls(&identity, move |mut session| {
                read_request(&mut session);
                let body = if head.ends_with("\r\n\r\n") { "abc" } else { "" };
                session.write_all(head.as_bytes()).and_then(|()| session.write_all(body.as_bytes())).unwrap();
                if tells {
                    session.conn.send_close_notify();
                }
                session.flush().unwrap();
            });
            let answer = run(get(&secure_client(quick(), &tls), &origin));
            match head {
                "" => assert_eq!(failure_of(answer), OriginFailure::ClosedBeforeHead),
                "HTTP/1.1 2" => assert_eq!(failure_of(answer), OriginFailure::CutHead),
                _ if tells && !head.contains("Length") => assert_eq!(answer.unwrap().content, b"abc"),
                _ => assert_eq!(failure_of(answer), OriginFailure::CutBody, "{head:?} {tells}"),
            }
        }
    }
}

#[test]
fn large_content_and_upgrades_work_over_tls() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let identity = identity(&["127.0.0.1"]);
    let tls = Authorities::of(&identity).tls();
    let origin = serve_tls(&identity, |mut session| {
        while let Some((head, content)) = read_request(&mut session) {
            if head.contains("Upgrade: echo") {
                session.write_all(b"HTTP/1.1 101 Echo\r\n\r\nhello ").unwrap();
                let mut word = [0; 5];
                session.read_exact(&mut word).unwrap();
                session.write_all(&word).unwrap();
                session.conn.send_close_notify();
                session.flush().unwrap();
                return;
            }
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", content.len());
            session.write_all(answer.as_bytes()).and_then(|()| session.write_all(&content)).unwrap();
        }
    });
    run(async {
        let client = secure_client(OriginSettings::default(), &tls);
        let content: Vec<u8> = (0..2_000_000).map(|index| (index / 253) as u8).collect();
        for _ in 0..2 {
            let put = OutgoingRequest { content: bytes(&content), ..request("PUT") };
            assert!(exchange(&client, &origin, put).await.unwrap().content == content);
        }
        let mut upgrade = OutgoingRequest { upgrade: Some(b"echo"), ..request("GET") };
        let incoming = client.exchange(&origin, &mut upgrade, |_, _| {}).await.unwrap();
        let mut duplex = incoming.upgraded.unwrap();
        duplex.write_all(b"world").await.unwrap();
        duplex.flush().await.unwrap();
        let mut all = String::new();
        duplex.read_to_string(&mut all).await.unwrap();
        assert_eq!((&*all, client.counts().connections_opened.get()), ("hello world", 1));
    });
}
