//! TLS, with resumption and without, HTTP/2, and certificates that do not fit.

use super::bench;
use crate::e2e::harness::{Folder, Server};
use crate::e2e::tls::Certificate;

/// A server with a certificate for localhost and 127.0.0.1, which listens at 127.0.0.2 as well.
fn secure() -> (Folder, Certificate, Server) {
    let site = Folder::with(&[("a.txt", &[b'a'; 1024])]);
    let certificate = Certificate::new();
    let arguments = [&certificate.arguments()[..], &["--listen", "127.0.0.2:0"]].concat();
    let server = Server::start(site.path(), &arguments);
    (site, certificate, server)
}

#[test]
fn tls_is_spoken_resumed_or_not_and_http_2_on_it() {
    let (_site, certificate, server) = secure();
    let url = format!("https://localhost:{}/a.txt", server.address.port());
    let authority = certificate.authority();
    let authority = authority.to_str().unwrap();
    let base = [url.as_str(), "--cacert", authority, "--threads", "1"];
    let run = bench(&[&base[..], &["-n", "100", "-c", "4"]].concat());
    assert_eq!((run.code, run.number("responses"), run.number("connections")), (Some(0), 100, 4), "{run:#?}");
    let tls = |run: &super::Bench| {
        let counts = &run.step()["record"]["counts"];
        (counts["tls_handshakes"].as_u64().unwrap(), counts["tls_resumed"].as_u64().unwrap())
    };
    assert_eq!(tls(&run).0, 4);
    assert_eq!(run.step()["phases"]["tls"]["count"], 4);
    // A connection each: the first handshake is whole, and the others resume it, or do not where they must not.
    let run = bench(&[&base[..], &["-n", "20", "-c", "1", "--close"]].concat());
    assert_eq!((run.code, tls(&run)), (Some(0), (20, 19)), "{run:#?}");
    let run = bench(&[&base[..], &["-n", "20", "-c", "1", "--close", "--no-tls-resume"]].concat());
    assert_eq!((run.code, tls(&run)), (Some(0), (20, 0)), "{run:#?}");
    let run = bench(&[&base[..], &["-n", "200", "-c", "2", "--http", "2", "--streams", "10"]].concat());
    assert_eq!((run.code, run.number("responses"), run.number("connections")), (Some(0), 200, 2), "{run:#?}");
    assert_eq!(run.number("body_bytes_in"), 200 * 1024);
    let run = bench(&[&base[..], &["-n", "20", "-c", "1", "--http", "2", "--close"]].concat());
    assert_eq!((run.code, run.number("responses"), run.number("connections")), (Some(0), 20, 20), "{run:#?}");
}

#[test]
fn certificates_that_do_not_fit_have_names() {
    let (site, certificate, server) = secure();
    let port = server.address.port();
    let authority = certificate.authority();
    for (url, arguments, name) in [
        (server.url_of(1, "/a.txt"), vec!["--cacert", authority.to_str().unwrap()], "tls-name"),
        (format!("https://localhost:{port}/a.txt"), vec![], "tls-untrusted"),
    ] {
        let run = bench(&[&[url.as_str(), "-n", "2", "-c", "1"][..], &arguments].concat());
        assert_eq!(run.code, Some(1), "{run:#?}");
        let details = run.json["errors"]["details"].as_array().unwrap();
        assert!(details.iter().any(|detail| detail["kind"] == "tls" && detail["detail"] == name), "{details:?}");
        assert!(run.stdout.contains(name), "{}", run.stdout);
        let run = bench(&[url.as_str(), "-n", "2", "-c", "1", "--insecure"]);
        assert_eq!((run.code, run.number("responses")), (Some(0), 2), "{run:#?}");
    }
    // What is no TLS at all.
    let plain = Server::start(site.path(), &[]);
    let run = bench(&[&format!("https://localhost:{}/", plain.address.port()), "-n", "1", "-c", "1"]);
    assert_eq!(run.code, Some(1), "{run:#?}");
}

#[test]
fn http_2_is_spoken_without_tls_where_the_server_does() {
    let site = Folder::with(&[("a.txt", &[b'a'; 1024])]);
    let text = format!(
        "workers 1\nadmin off=#true\nsite \"*\" {{ listen \"127.0.0.1:0\" h2c=#true; files \"{}\" }}",
        site.path().display()
    );
    let server = Server::run(&site, &text);
    let run =
        bench(&[&server.url("/a.txt"), "-n", "300", "-c", "3", "--http", "2", "--streams", "5", "--threads", "1"]);
    assert_eq!((run.code, run.number("responses"), run.number("connections")), (Some(0), 300, 3), "{run:#?}");
    let run = bench(&[&server.url("/a.txt"), "-n", "30", "--rate", "100", "--http", "2", "--threads", "1"]);
    assert_eq!((run.code, run.number("responses")), (Some(0), 30), "{run:#?}");
}
