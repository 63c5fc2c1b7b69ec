//! TLS with and without resumption, HTTP/2, and certificate errors.

use super::bench;
use crate::e2e::harness::{Folder, Server};
use crate::e2e::tls::Certificate;
use crate::e2e::tool::{run, tool};

/// A server with a certificate for localhost and 127.0.0.1, which also listens on 127.0.0.2.
fn secure() -> (Folder, Certificate, Server) {
    let site = Folder::with(&[("a.txt", &[b'a'; 1024])]);
    let certificate = Certificate::new();
    let arguments = [&certificate.arguments()[..], &["--listen", "127.0.0.2:0"]].concat();
    let server = Server::start(site.path(), &arguments);
    (site, certificate, server)
}

#[test]
fn tls_works_with_and_without_resumption_and_with_http_2() {
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
    // One connection per request: the first handshake is full, and the others resume the session, or are full if
    // resumption is off.
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
fn certificate_errors_are_named() {
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
    // A server without TLS.
    let plain = Server::start(site.path(), &[]);
    let run = bench(&[&format!("https://localhost:{}/", plain.address.port()), "-n", "1", "-c", "1"]);
    assert_eq!(run.code, Some(1), "{run:#?}");
}

#[test]
fn a_self_signed_certificate_is_trusted_if_it_is_named() {
    let site = Folder::with(&[("a.txt", b"a")]);
    // With basic constraints of an authority, which OpenSSL adds by default, and without.
    for constraints in ["CA:TRUE", "CA:FALSE"] {
        let (key, certificate) = (site.path().join("key.pem"), site.path().join("certificate.pem"));
        run(tool("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
            .args(["-subj", "/CN=self", "-addext", "subjectAltName=IP:127.0.0.1"])
            .args(["-addext", &format!("basicConstraints=critical,{constraints}")])
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&certificate));
        let (key, certificate) = (key.to_str().unwrap(), certificate.to_str().unwrap());
        let server = Server::start(site.path(), &["--tls-cert", certificate, "--tls-key", key]);
        let port = server.address.port();
        for version in ["1.1", "2"] {
            let url = format!("https://127.0.0.1:{port}/a.txt");
            let made = bench(&[&url, "-n", "4", "-c", "1", "--cacert", certificate, "--http", version]);
            assert_eq!(made.code, Some(0), "{constraints}, HTTP/{version}: {}", made.stdout);
        }
        // It is not valid for another name, and not trusted if another certificate is named.
        let url = format!("https://localhost:{port}/a.txt");
        let made = bench(&[&url, "-n", "2", "-c", "1", "--cacert", certificate]);
        assert!(made.exit == Some(1) && made.stdout.contains("tls-name"), "{constraints}: {}", made.stdout);
        let other = Certificate::new();
        let authority = other.authority();
        let url = format!("https://127.0.0.1:{port}/a.txt");
        let made = bench(&[&url, "-n", "2", "-c", "1", "--cacert", authority.to_str().unwrap()]);
        assert!(made.exit == Some(1) && made.stdout.contains("tls-untrusted"), "{constraints}: {}", made.stdout);
    }
}

#[test]
fn http_2_works_without_tls_if_the_server_supports_it() {
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
