//! Tests of dates, conversions, hashes and log lines.

use super::{Ask, Site};
use crate::api::log::{LINES_MAX, LogLevel};
use flatout_os::clock;
use std::time::Duration;

#[test]
fn the_time() {
    let site = Site::new();
    let text = site.value("TIMEDATE()");
    assert!(text.len() == 28 && text.ends_with(" UTC"), "{text}");
    assert_eq!(site.value("type(time()) .. tostring(time() % 1)"), "number0");
    for (code, expected) in [
        ("date.format(784111777)", "1994-11-06 08:49:37"),
        ("date.format(784111777, '%d.%m.%Y')", "06.11.1994"),
        ("date.format(784111777, '%H:%M', 'UTC')", "08:49"),
        ("date.iso(784111777)", "1994-11-06T08:49:37Z"),
        ("date.http(784111777)", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("date.parse('Sun, 06 Nov 1994 08:49:37 GMT')", "784111777"),
        ("date.parse('nonsense')", "nil"),
        ("date.parts(784111777).weekday", "7"),
        ("date.parts(784111777.9).second", "37"),
    ] {
        assert_eq!(site.value(code), expected, "{code}");
    }
    for (code, part) in [
        ("date.format(1e18)", "outside the years"),
        ("date.format(0/0)", "outside the years"),
        ("date.format(0, '%')", "format"),
        ("date.format(0, '%Y', 'No/Where')", "no time zone"),
        ("date.format(0, string.rep('x', 300))", "256 bytes"),
    ] {
        let error = site.error(code);
        assert!(error.contains(part) && error.starts_with("test.luau:1:"), "{code}: {error}");
    }
}

#[test]
fn a_page_sleeps() {
    let site = Site::new();
    let asleep = clock::now();
    let answered = site.run(&Ask::default(), "__r('a') __r(select('#', sleep(0.05))) __r('b')");
    assert_eq!((answered.error, &*answered.text), (None, "a0b"));
    // The clock of deadlines may be a few milliseconds late.
    assert!(clock::since(asleep) >= Duration::from_millis(40));
    for (code, part) in [
        ("sleep(-1)", "0 to 60 seconds"),
        ("sleep(60.1)", "0 to 60 seconds"),
        ("sleep(0/0)", "0 to 60 seconds"),
        ("sleep('soon')", "number"),
        ("return setmetatable({}, { __index = function() sleep(1) end }).x", "cannot yield"),
    ] {
        let error = site.error(code);
        assert!(error.contains(part) && error.starts_with("test.luau:1:"), "{code}: {error}");
    }
    let within = Site::with_database().error("db.transaction(function() sleep(1) end)");
    assert!(within.contains("inside a transaction"), "{within}");
}

#[test]
fn a_text_is_made_once_a_second() {
    let site = Site::new();
    // Two within one second are the same text; the loop ends when one is found.
    let code = "local same = false for i = 1, 3 do same = same or TIMEDATE() == TIMEDATE() end __r(tostring(same))";
    assert_eq!(site.run(&Ask::default(), code).text, "true");
}

#[test]
fn conversions() {
    let site = Site::new();
    for (code, expected) in [
        ("html.escape('<a href=\"x\">&')", "&lt;a href=&#34;x&#34;&gt;&amp;"),
        ("url.encode('a b/\u{e9}?')", "a%20b%2F%C3%A9%3F"),
        ("url.decode('a%20b+c%zz')", "a b+c%zz"),
        ("url.query({b = 2, a = 'x y', c = true})", "a=x%20y&b=2&c=true"),
        ("hex.encode('\\0\\255')", "00ff"),
        ("hex.decode('6869')", "hi"),
        ("hex.decode('zz')", "nil"),
        ("base64.encode('hello')", "aGVsbG8="),
        ("base64.decode('aGVsbG8=')", "hello"),
        ("base64.url_encode('\\251\\255')", "-_8"),
        ("base64.url_decode('-_8') == '\\251\\255'", "true"),
        ("json.encode({a = {1, 2, json.null}, b = 'x'})", "{\"a\":[1,2,null],\"b\":\"x\"}"),
        ("json.encode({}) .. json.encode(json.object())", "[]{}"),
        ("json.decode('{\"a\":[1,{\"b\":null}]}').a[2].b", "null"),
        ("json.decode('{\"a\":null}').a == json.null", "true"),
        ("json.encode(json.decode('{\"a\":null,\"b\":{}}'))", "{\"a\":null,\"b\":{}}"),
        ("json.decode('[9007199254740993]')[1] == '9007199254740993'", "true"),
        ("json.encode(request.query) .. json.encode(request.cookies) .. json.encode(request.form())", "{}{}{}"),
        ("typeof(json.null)", "null"),
        // No reason follows a value, so that the call can be an argument.
        ("select('#', json.decode('1')) .. select('#', json.decode('nonsense'))", "12"),
        ("json.decode('[null]')[1] == json.null", "true"),
        ("(select(2, json.decode('[1,')))", "EOF while parsing a value at line 1 column 3"),
    ] {
        assert_eq!(site.value(code), expected, "{code}");
    }
    let written = site.run(&Ask::default(), "__w(json.null) __a(json.null) __j(json.null) __j({ a = json.null })");
    assert_eq!((written.error, &*written.text), (None, "null{\"a\":null}"));
    for code in
        ["kv.set('a', json.null)", "response.header('A', json.null)", "url.encode(json.null)", "pairs(json.null)"]
    {
        let error = site.error(code);
        assert!(error.contains(" null") && !error.contains("userdata"), "{code}: {error}");
    }
    assert!(site.error("html.escape(string.rep('x', 300000))").contains("256 KiB"));
    assert!(site.error("\nurl.query({a = {}})").starts_with("test.luau:2:"));
    assert!(site.error("json.encode(print)").contains("function"));
    for code in ["url.query({a = 0/0})", "url.query({a = 1/0})", "response.header('A', 0/0)", "json.encode(0/0)"] {
        assert!(site.error(code).contains("NaN"), "{code}");
    }
}

/// The HMAC-SHA-256 of RFC 4231, test case 2.
const JEFE: &str = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";

#[test]
fn hashes_and_random_numbers() {
    let site = Site::new();
    for (code, expected) in [
        ("hash.sha256('abc')", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ("#hash.sha512('abc')", "128"),
        ("hash.hmac_sha256('Jefe', 'what do ya want for nothing?')", JEFE),
        ("#hash.hmac_sha512('a', 'b')", "128"),
        ("hash.equal('a', 'a')", "true"),
        ("hash.equal('a', 'b')", "false"),
        ("#uuid.v4() .. string.sub(uuid.v4(), 15, 15) .. string.sub(uuid.v7(), 15, 15)", "3647"),
        ("uuid.v4() == uuid.v4()", "false"),
        ("#random.bytes(10) .. ' ' .. #random.token() .. ' ' .. #random.token(32)", "10 22 43"),
    ] {
        assert_eq!(site.value(code), expected, "{code}");
    }
    // FIPS 180-2, appendix B.3: a million letters.
    let million = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
    for code in [
        "local h = hash.new('sha256') for i = 1, 1000 do h:update(string.rep('a', 1000)) end __r(h:hex())",
        "__r(hash.new('sha256'):update('a'):update(string.rep('a', 999999)):hex())",
        "__r(hash.new('sha256'):update(buffer.fromstring(string.rep('a', 1e6))):hex())",
        "__r(hash.sha256(string.rep('a', 1000000)))",
        // The digest of the input so far does not end the input.
        "local h = hash.new('sha256'):update(string.rep('a', 500000)) h:hex() h:hex()
         __r(h:update(string.rep('a', 500000)):hex())",
    ] {
        let answered = site.run(&Ask::default(), code);
        assert_eq!((answered.error, &*answered.text), (None, million), "{code}");
    }
    for (code, expected) in [
        ("hash.new('sha512'):update('ab'):update(''):update('c'):hex() == hash.sha512('abc')", "true"),
        ("hash.new('sha256'):hex() == hash.sha256('')", "true"),
        ("hash.new_hmac('sha256', 'Jefe'):update('what do ya '):update('want for nothing?'):hex()", JEFE),
        (
            "hash.hmac_sha512('k', string.rep('ab', 300000)) == hash.new_hmac('sha512', 'k')
                :update(string.rep('ab', 299999)):update('ab'):hex()",
            "true",
        ),
    ] {
        assert_eq!(site.value(code), expected, "{code}");
    }
    assert!(site.error("hash.new_hmac('sha256', nil)").contains("string"));
    for (code, argument) in [
        ("hash.sha256(nil)", "#1"),
        ("hash.sha256({})", "#1"),
        ("hash.hmac_sha256(nil, 'x')", "#1"),
        ("hash.hmac_sha256({}, string.rep('x', 70000))", "#1"),
        ("hash.hmac_sha256('x', nil)", "#2"),
    ] {
        let error = site.error(code);
        assert!(error.contains(argument) && error.contains("string"), "{code}: {error}");
    }
    for count in ["0", "4097", "1.5", "0/0", "-1"] {
        assert!(site.error(&format!("random.bytes({count})")).contains("1 to 4,096"));
    }
}

#[test]
fn many_hashes_fit_into_the_memory_limit() {
    let site = Site::new();
    for code in [
        "for i = 1, 50000 do hash.sha256('x') hash.hmac_sha256('k', 'x') end",
        "for i = 1, 20000 do hash.new('sha256'):update('x'):hex() end",
        "local long = string.rep('x', 65537) for i = 1, 9000 do hash.sha256(long) end",
        "local long = buffer.create(65537) for i = 1, 9000 do hash.hmac_sha512('k', long) end",
    ] {
        // With so much in use, Luau's own collector sweeps too rarely.
        let code = format!("local used = buffer.create(8 * 1024 * 1024) {code}");
        assert_eq!(site.run(&Ask::default(), &code).error, None, "{code}");
    }
    // States that the page uses count.
    let kept = "local list = {} for i = 1, 20000 do list[i] = hash.new('sha256') end";
    assert!(site.error(kept).contains("memory"), "{kept}");
}

#[test]
fn lines_for_the_log() {
    let site = Site::new();
    let answered =
        site.run(&Ask::default(), "log('one')\n\nlog('warn', 'two\\r\\nforged')\nlog('error', string.rep('x', 9999))");
    let lines = &answered.log;
    assert_eq!((lines[0].level, &*lines[0].text, lines[0].line), (LogLevel::Info, "one", Some(1)));
    assert_eq!((lines[1].level, &*lines[1].text, lines[1].line), (LogLevel::Warn, "two  forged", Some(3)));
    assert_eq!((&*lines[1].chunk, lines[2].text.len()), ("test.luau", 2048));
    let many = site.run(&Ask::default(), "for i = 1, 100 do log(tostring(i)) end").log;
    assert_eq!(many.len(), LINES_MAX + 1);
    assert!(many[LINES_MAX].text.starts_with("36 more"));
    assert!(site.error("log('loud', 'x')").contains("level"));
    let printed = site.run(&Ask::default(), "print('a', 1) print('b')").log;
    assert_eq!(printed.iter().map(|line| &*line.text).collect::<Vec<_>>(), ["a 1", "b"]);
}

#[test]
fn what_is_shared_cannot_be_changed() {
    let site = Site::new();
    for code in [
        "json.encode = nil",
        "request.form = nil",
        "response.header = 1",
        "session.clear = 1",
        "db.query = nil",
        "rawset(request, 'x', 1)",
        "setmetatable(request, {})",
        "html = 1 json.null = 2",
        "table.clear(kv)",
    ] {
        assert!(!site.error(code).is_empty(), "{code}");
    }
    assert_eq!(site.value("getmetatable(request)"), "request");
}

#[test]
fn passwords() {
    let site = Site::new();
    let code = "local stored = password.hash('secret') __r(tostring(password.verify('secret', stored))
        .. tostring(password.verify('Secret', stored)) .. tostring(password.verify(string.rep('a', 1025), stored)) .. tostring(password.verify('secret', nil))
        .. tostring(stored == password.hash('secret')))";
    let answered = site.run(&Ask::default(), code);
    assert_eq!((answered.error, &*answered.text), (None, "truefalsefalsefalsefalse"));
    // A hash that PHP has created.
    let stored = "'$2y$05$bD4bU1yu1yTxNe4iKT9tieWUbrE..h7P65DM.1M2mv09ikY6UXRFi'";
    assert_eq!(site.value(&format!("password.verify('s3cret', {stored})")), "true");
    assert_eq!(site.value(&format!("password.verify('secret', {stored})")), "false");
    for (code, part) in [
        ("password.verify('a', 'a')", "password.hash"),
        ("password.verify('a', '$2y$31$abcdefghijklmnopqrstuuLK7U1u6pVRmL7L1BBM2aS35PSZnDXlK')", "at most 14"),
        (
            "password.verify('a', '$argon2i$v=19$m=4194304,t=2,p=1$UXRIakpMNmxoUTBtZU9CeQ$KYCMC5/45O1rm7zObwcQOO4eFkNrWFAb')",
            "256 MiB",
        ),
        ("password.hash(string.rep('x', 1025))", "1,024"),
        ("password.hash()", "string"),
    ] {
        let error = site.error(code);
        assert!(error.contains(part) && error.starts_with("test.luau:1:"), "{code}: {error}");
    }
}
