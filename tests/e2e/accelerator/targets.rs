//! The characters that a request target may contain. Origins get every target unchanged.

use super::super::http2::client::Client;
use super::accelerate;
use super::origin::{Origin, response};

fn allowed() -> Vec<String> {
    let ascii = (0x21..0x7f_u8).filter(|&byte| byte != b'#').map(char::from);
    let chars = ascii.chain("\u{fc}\u{65e5}\u{1f980}".chars());
    let mut targets: Vec<String> = chars.flat_map(|char| [format!("/p{char}x"), format!("/?q={char}x")]).collect();
    targets.extend(
        ["/%", "/%2", "/%zz?%", "/a/?x[]=1&y[b]=2", "/?filter={a:b|c}^`", "/./a/../b?..", "//a//b", "/AC%2fDC%2F"]
            .map(str::to_owned),
    );
    targets
}

#[test]
fn every_browser_target_reaches_the_origin_unchanged() {
    let origin = Origin::responding(|_| response("200 OK", "Cache-Control: no-store\r\n", b""));
    let server = accelerate(&origin, &["--h2c"]);
    let seen = || origin.requests().last().map(|request| request.target.clone());
    for target in allowed() {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let answer = server.exchange(request.as_bytes());
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{target}: {}", String::from_utf8_lossy(&answer));
        assert_eq!(seen(), Some(target));
    }
    for target in
        [&b"/a\x01b"[..], b"/a\x7f", b"/?\0", b"/a#b", b"/?a#b", b"/\xfc", b"/?\xc0\xaf", b"/\xc2\x85", b"/a\tb"]
    {
        let count = origin.requests().len();
        let answer = server.exchange(&[b"GET ", target, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
        assert!(answer.starts_with(b"HTTP/1.1 400 "), "{target:?}: {}", String::from_utf8_lossy(&answer));
        assert_eq!(origin.requests().len(), count, "{target:?}");
    }
}

#[test]
fn every_browser_target_reaches_the_origin_unchanged_over_http2() {
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    let origin = Origin::responding(|_| response("200 OK", "Cache-Control: no-store\r\n", b""));
    let server = accelerate(&origin, &["--h2c"]);
    let ask = |target: &str| {
        let count = origin.requests().len();
        let mut client = Client::connect(&server, &[]);
        client.get(1, target);
        let frame = client.frame_like(target, |frame| frame.stream == 1 && matches!(frame.kind, HEADERS | RST_STREAM));
        let reached = origin.requests().get(count).map(|request| request.target.clone());
        assert!(frame.kind == HEADERS || reached.is_none(), "{target}");
        reached
    };
    for target in allowed() {
        assert_eq!(ask(&target).as_ref(), Some(&target));
    }
    for target in ["/p#x", "/?q=#x"] {
        assert_eq!(ask(target), None, "{target}");
    }
}
