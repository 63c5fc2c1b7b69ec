use super::{ConnectFailure, FastcgiAddress, FastcgiClient, FastcgiConnection, FastcgiSettings};
use flatout_os::clock::Now;
use flatout_os::runtime::build_server_runtime;
use flatout_os::testing::wait_until;
use std::fs;
use std::future::poll_fn;
use std::io::{IoSlice, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;

const SETTINGS: FastcgiSettings = FastcgiSettings {
    connect_timeout_ms: 300,
    shortest_timeout_ms: 100,
    idle_timeout_ms: 10_000,
    idle_connections_max: 2,
};

fn run(future: impl Future<Output = ()>) {
    build_server_runtime().unwrap().block_on(future);
}

fn client(address: FastcgiAddress) -> FastcgiClient {
    FastcgiClient::new(address, SETTINGS)
}

fn socket_path(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("flatout-fastcgi-{}-{name}", std::process::id()));
    let _ = fs::remove_file(&path);
    path
}

async fn echo(connection: &mut FastcgiConnection, text: &[u8]) -> Vec<u8> {
    let sent = poll_fn(|context| connection.poll_send(context, &[IoSlice::new(text)])).await.unwrap();
    assert_eq!(sent, text.len());
    poll_fn(|context| connection.poll_receive(context, <[u8]>::to_vec)).await.unwrap()
}

fn serve_echo(stream: impl Read + Write + Send + 'static) {
    serve_counted(stream, Arc::default());
}

/// The same, and counts what it has sent back.
fn serve_counted(mut stream: impl Read + Write + Send + 'static, echoes: Arc<AtomicUsize>) {
    thread::spawn(move || {
        let mut buffer = [0; 100];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            let _ = stream.write_all(&buffer[..count]);
            echoes.fetch_add(1, Ordering::SeqCst);
        }
    });
}

#[test]
fn unix_and_tcp_connections_are_pooled() {
    let path = socket_path("kept");
    let unix = UnixListener::bind(&path).unwrap();
    let echoes = Arc::<AtomicUsize>::default();
    let (of_unix, of_tcp) = (Arc::clone(&echoes), Arc::clone(&echoes));
    thread::spawn(move || unix.incoming().for_each(|stream| serve_counted(stream.unwrap(), Arc::clone(&of_unix))));
    let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = tcp.local_addr().unwrap().port();
    thread::spawn(move || tcp.incoming().for_each(|stream| serve_counted(stream.unwrap(), Arc::clone(&of_tcp))));
    run(async move {
        for address in [FastcgiAddress::Unix(path), FastcgiAddress::Tcp("127.0.0.1".to_owned(), port)] {
            let client = client(address);
            assert!(client.kept().is_none());
            let mut all = Vec::new();
            for _ in 0..3 {
                all.push(client.connect().await.unwrap());
            }
            for connection in &mut all {
                assert_eq!(echo(connection, b"hello").await, b"hello");
                assert!(!connection.is_reused());
            }
            all.into_iter().for_each(FastcgiConnection::give_back);
            assert_eq!(client.idle_connections(), 2, "no more than are wanted");
            let mut again = client.kept().unwrap();
            assert!(again.is_reused());
            assert_eq!(echo(&mut again, b"again").await, b"again");
            // What comes unasked is never taken for an answer.
            let before = echoes.load(Ordering::SeqCst);
            poll_fn(|context| again.poll_send(context, &[IoSlice::new(b"surplus")])).await.unwrap();
            wait_until("the surplus has been sent", || echoes.load(Ordering::SeqCst) > before);
            again.give_back();
            assert!(client.kept().is_some() && client.kept().is_none());
        }
    });
}

#[test]
fn idle_connections_close_under_load() {
    let path = socket_path("crowd");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || listener.incoming().for_each(|stream| serve_echo(stream.unwrap())));
    run(async move {
        let client = client(FastcgiAddress::Unix(path));
        let (one, other) = (client.connect().await.unwrap(), client.connect().await.unwrap());
        one.give_back();
        assert_eq!(client.idle_connections(), 1);
        client.saturation().suspect(Now::read());
        client.within(250, std::future::pending::<()>()).await;
        assert_eq!(client.idle_connections(), 0, "the sweep has closed it");
        other.give_back();
        assert_eq!(client.idle_connections(), 0);
    });
}

#[test]
fn clients_of_one_server_share_its_idle_connections() {
    let path = socket_path("shared");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || listener.incoming().for_each(|stream| serve_echo(stream.unwrap())));
    run(async move {
        let one = client(FastcgiAddress::Unix(path.clone()));
        let other = one.with_settings(FastcgiSettings { idle_connections_max: 1, ..SETTINGS });
        one.connect().await.unwrap().give_back();
        let kept = other.kept().expect("what one has kept is there for the other");
        kept.give_back();
        one.connect().await.unwrap().give_back();
        other.connect().await.unwrap().give_back();
        assert_eq!((one.idle_connections(), other.idle_connections()), (2, 2), "each keeps within its own bound");
        // Another worker's client of the same server: what one meets, all know.
        let elsewhere = client(FastcgiAddress::Unix(path));
        elsewhere.saturation().suspect(Now::read());
        assert!(one.saturation().is_suspected(Now::read()));
        assert!(!client(FastcgiAddress::Unix(socket_path("alone"))).saturation().is_suspected(Now::read()));
    });
}

#[test]
fn failures_have_names() {
    let stale = socket_path("stale");
    drop(UnixListener::bind(&stale).unwrap());
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let full = socket_path("full");
    let listener = UnixListener::bind(&full).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    run(async move {
        for (address, failure) in [
            (FastcgiAddress::Unix(socket_path("none")), ConnectFailure::NoSocket),
            (FastcgiAddress::Unix("/etc/passwd/x".into()), ConnectFailure::NoSocket),
            (FastcgiAddress::Unix("x".repeat(200).into()), ConnectFailure::NoSocket),
            (FastcgiAddress::Unix(stale), ConnectFailure::Refused),
            (FastcgiAddress::Tcp("127.0.0.1".to_owned(), free), ConnectFailure::Refused),
            (FastcgiAddress::Tcp("name.invalid".to_owned(), 9000), ConnectFailure::Unresolved),
        ] {
            let told = client(address.clone()).connect().await.err();
            // A machine without a resolver may take its time to say so.
            let late = failure == ConnectFailure::Unresolved && told == Some(ConnectFailure::Timeout);
            assert!(told == Some(failure) || late, "{address}: {told:?}");
        }
        let client = client(FastcgiAddress::Unix(full));
        let _first = client.connect().await.unwrap();
        let before = Now::read().monotonic_ms;
        assert_eq!(client.connect().await.err(), Some(ConnectFailure::Busy));
        assert!(Now::read().monotonic_ms - before >= 250);
        drop(listener);
    });
}

#[test]
fn timers_expire() {
    let path = socket_path("waits");
    let _listener = UnixListener::bind(&path).unwrap();
    run(async move {
        let mut connection = client(FastcgiAddress::Unix(path)).connect().await.unwrap();
        connection.timer().begin(100);
        assert!(connection.timer().is_waiting());
        let before = Now::read().monotonic_ms;
        poll_fn(|context| match connection.poll_receive(context, <[u8]>::len) {
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => connection.timer().poll_expired(context),
        })
        .await;
        assert!((90..2_000).contains(&(Now::read().monotonic_ms - before)));
        connection.timer().clear();
        assert!(!connection.timer().is_waiting());
    });
}

#[test]
fn addresses_print_as_they_are_written() {
    for (address, text, is_named) in [
        (FastcgiAddress::Unix("/run/php.sock".into()), "unix:/run/php.sock", false),
        (FastcgiAddress::Tcp("::1".to_owned(), 9000), "tcp:[::1]:9000", false),
        (FastcgiAddress::Tcp("php".to_owned(), 9000), "tcp:php:9000", true),
    ] {
        assert_eq!((address.to_string().as_str(), address.is_named()), (text, is_named));
    }
}
