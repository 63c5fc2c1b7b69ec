//! Tests of the responses of pages, and of who may cache them.

use super::{Ask, Site};

#[test]
fn status_and_headers() {
    let site = Site::new();
    let answered = site.run(
        &Ask::default(),
        "response.status = 404 response.header('X-A', 'b') response.header('x-a', 5) response.add_header('X-A', 'c')
         response.header('X-B', 'd') response.header('X-B', nil) __r(tostring(response.status))",
    );
    assert_eq!((answered.status, &*answered.text, answered.error.as_deref()), (404, "404", None));
    let fields: Vec<_> = answered.fields.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(fields, [("x-a", "5"), ("X-A", "c")]);
    for (code, part) in [
        ("response.status = 99", "cannot respond with the status 99"),
        ("response.status = 200.5", "cannot respond with the status 200.5"),
        ("response.status = 'x'", "to a number"),
        ("response.stats = 200", "only `status`"),
        ("response.header('A\\r\\nB', 'c')", "name"),
        ("response.header('A', 'b\\r\\nSet-Cookie: x=y')", "line breaks"),
        ("response.header('Content-Length', '5')", "framing"),
        ("response.header('Transfer-Encoding', 'chunked')", "framing"),
        ("response.header('Set-Cookie', 'a=b')", "response.cookie"),
        ("response.header('A', {})", "not a table"),
        ("for i = 1, 100 do response.add_header('A', i) end", "64 headers"),
    ] {
        let error = site.error(code);
        assert!(error.contains(part) && error.starts_with("test.luau:1:"), "{code}: {error}");
    }
}

#[test]
fn a_redirect_ends_the_page() {
    let site = Site::new();
    let answered =
        site.run(&Ask::default(), "__r('before') response.redirect('/a?b=' .. url.encode('c d')) __r('after')");
    assert_eq!((answered.status, answered.field("Location"), &*answered.text), (303, Some("/a?b=c%20d"), ""));
    assert_eq!(site.run(&Ask::default(), "response.redirect('/', 308)").status, 308);
    for (code, part) in [
        ("response.redirect('/a\\r\\nX: y')", "line breaks"),
        ("response.redirect('/a b')", "url.encode"),
        ("response.redirect('')", "url.encode"),
        ("response.redirect('/', 200)", "301"),
    ] {
        assert!(site.error(code).contains(part), "{code}");
    }
    assert_eq!(
        site.run(&Ask::default(), "response.redirect('/\\\\evil.example')").field("Location"),
        Some("/%5Cevil.example")
    );
}

/// No statement after the call has an effect, wherever the call is.
#[test]
fn what_ends_a_page_ends_it_at_once() {
    let site = Site::new();
    for ending in ["response.redirect('/login', 302)", "response.json({}, 302)", "response.status = 302 exit()"] {
        for code in [
            "END session.admin = true",
            "END response.status = 500 response.cookie('admin', '1') kv.set('after', 1)",
            "local function check() END end check() session.admin = true",
            "local function check() END session.admin = true end check()",
            "pcall(function() END session.admin = true end) session.admin = true",
            "xpcall(function() END end, function() session.admin = true end) session.admin = true",
            "coroutine.wrap(function() END session.admin = true end)() session.admin = true",
            "pcall(coroutine.wrap(function() pcall(function() END session.admin = true end) end)) session.admin = true",
            "local co = coroutine.create(function() END session.admin = true end) coroutine.resume(co) session.admin = true",
            "for _ in coroutine.wrap(function() END session.admin = true end) do end session.admin = true",
            "for _ in function() END session.admin = true end do session.admin = true end session.admin = true",
            // Where control cannot be given away.
            "local x = setmetatable({}, {__index = function() END session.admin = true end}).a session.admin = true",
            "local t = setmetatable({}, {__index = function() END session.admin = true end})
             pcall(function() return t.a end) session.admin = true",
            "local t = setmetatable({}, {__index = function() pcall(function() END end) session.admin = true end})
             local x = t.a session.admin = true",
            "local t = setmetatable({}, {__index = function() coroutine.wrap(function() END session.admin = true end)()
             session.admin = true end}) local x = t.a session.admin = true",
            "setmetatable({}, {__newindex = function() END end}).a = 1 session.admin = true",
            "local x = setmetatable({}, {__eq = function() END end}) == setmetatable({}, {}) END session.admin = true",
            "xpcall(error, function() END session.admin = true end) session.admin = true",
            "__w(setmetatable({}, {__tostring = function() END session.admin = true end})) session.admin = true",
            "string.gsub('ab', '.', function() END session.admin = true end) session.admin = true",
            "table.sort({2, 1, 3}, function() END session.admin = true end) session.admin = true",
            "while true do END session.admin = true end",
            "repeat END session.admin = true until true session.admin = true",
        ] {
            let code = format!("__r('before') {} __r('after')", code.replace("END", ending));
            let answered = site.run(&Ask::default(), &code);
            assert_eq!((answered.status, answered.error.as_deref()), (302, None), "{code}");
            assert_eq!(answered.field("Set-Cookie"), None, "{code}");
            assert!(!answered.text.contains("after"), "{code}: {}", answered.text);
            assert_eq!(site.value("kv.get('after')"), "nil", "{code}");
        }
        // One that fails has not ended the page.
        assert_eq!(site.value("pcall(response.redirect, '')"), "false");
    }
}

#[test]
fn json_is_the_whole_answer() {
    let site = Site::new();
    let answered = site.run(&Ask::default(), "__r('x') response.json({a = {1, 2}}, 201) __r('y')");
    assert_eq!((answered.status, answered.field("Content-Type")), (201, Some("application/json")));
    assert_eq!(answered.text, "{\"a\":[1,2]}");
    assert!(site.error("response.json(print)").contains("JSON"));
}

#[test]
fn cookies() {
    let site = Site::new();
    let set = |code: &str, secure: bool| {
        let answered = site.run(&Ask { secure, ..Ask::default() }, code);
        answered.field("Set-Cookie").map(str::to_owned).ok_or(answered.error)
    };
    assert_eq!(set("response.cookie('a', 'b')", false).unwrap(), "a=b; Path=/; HttpOnly; SameSite=Lax");
    assert_eq!(set("response.cookie('a', 'b')", true).unwrap(), "a=b; Path=/; Secure; HttpOnly; SameSite=Lax");
    let options =
        "{path = '/x', domain = 'a.example', max_age = '1d', secure = true, http_only = false, same_site = 'none'}";
    assert_eq!(
        set(&format!("response.cookie('a', 'b', {options})"), false).unwrap(),
        "a=b; Path=/x; Domain=a.example; Max-Age=86400; Secure; SameSite=None"
    );
    assert_eq!(set("response.delete_cookie('a')", false).unwrap(), "a=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax");
    // Any value comes back as it was set.
    for value in ["b c", "Grüße; Domain=x, \"y\" \\ 100% %41", "\0\r\n", ""] {
        let quoted: String = value.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
        let answered = site.run(&Ask::default(), &format!("response.cookie('a', '{quoted}')"));
        let cookie = answered.cookie();
        let ask = Ask { fields: vec![("cookie", &cookie)], ..Ask::default() };
        assert_eq!(site.value_of(&ask, "request.cookies.a"), value, "{cookie}");
    }
    let ask = Ask { fields: vec![("cookie", "a=100%; b=%zz%20")], ..Ask::default() };
    assert_eq!(site.value_of(&ask, "request.cookies.a .. request.cookies.b"), "100%%zz ");
    for (code, part) in [
        ("response.cookie('a b', 'c')", "a cookie's name may contain only letters"),
        ("response.cookie('', 'c')", "a cookie's name may contain only letters"),
        ("response.cookie('a=b', 'c')", "a cookie's name may contain only letters"),
        ("response.delete_cookie('a;b')", "a cookie's name may contain only letters"),
        ("response.cookie('a', 'b', {htp_only = false})", "options must be"),
        ("response.cookie('a', 'b', {same_site = 'no'})", "strict"),
        ("response.cookie('a', 'b', {same_site = 'none'})", "secure"),
        ("response.cookie('__Host-a', 'b')", "__Host-"),
    ] {
        let error = set(code, false).unwrap_err().unwrap();
        assert!(error.contains(part), "{code}: {error}");
    }
}

#[test]
fn who_may_keep_it() {
    let site = Site::new();
    let fields = |code: &str| {
        let answered = site.run(&Ask::default(), code);
        assert_eq!(answered.error, None, "{code}");
        let lines = answered.fields.iter().filter(|(name, _)| name != "Set-Cookie");
        lines.map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(fields("cache('60s')"), "Cache-Control: public, max-age=60");
    assert_eq!(fields("cache(60)"), "Cache-Control: public, max-age=60");
    assert_eq!(fields("cache('1h') cache(false)"), "Cache-Control: no-store");
    assert_eq!(fields("cache('5m', {private = true})"), "Cache-Control: private, max-age=300");
    assert_eq!(
        fields("cache('60s', {tags = {'a', 'b'}, swr = '30s', sie = '1d', browser = 0})"),
        "Cache-Control: public, max-age=0\nCDN-Cache-Control: public, max-age=60, stale-while-revalidate=30, \
         stale-if-error=86400\nSurrogate-Key: a b"
    );
    // What is meant for one is not given to all.
    for code in ["cache('60s', {tags = {'a'}}) response.cookie('a', 'b')", "response.cookie('a', 'b') cache('60s')"] {
        assert_eq!(fields(code), "Cache-Control: private, no-cache");
    }
    assert_eq!(fields("cache('60s') local x = session.user"), "Vary: Cookie\nCache-Control: private, no-cache");
    // Whatever way it was said, and whatever of the visitor's own was looked at.
    let made = "Cache-Control: private, no-cache";
    for (code, expected) in [
        ("response.header('Cache-Control', 'public, max-age=600') local x = session.user", "Vary: Cookie\n{}"),
        ("local x = request.cookies.a cache('60s', {browser = 0})", "Vary: Cookie\n{}"),
        ("cache('60s') local x = request.header('COOKIE')", "Vary: Cookie\n{}"),
        ("cache('60s') local x = request.headers.authorization", "Vary: Authorization\n{}"),
        ("cache('60s') local x = request.header('Authorization')", "Vary: Authorization\n{}"),
        (
            "response.header('Vary', 'Accept') response.header('CDN-Cache-Control', 'max-age=9') local x = session.a",
            "Vary: Accept, Cookie\n{}",
        ),
        ("response.header('Cache-Control', 'no-store') local x = session.a", "Cache-Control: no-store\nVary: Cookie"),
        ("cache('5m', {private = true}) local x = session.a", "Cache-Control: private, max-age=300\nVary: Cookie"),
        ("local x = request.cookies", "Vary: Cookie"),
        ("cache('60s') local x = request.header('X-Forwarded-For')", "Vary: X-Forwarded-For\n{}"),
        ("cache('60s') local x = request.headers.forwarded", "Vary: Forwarded\n{}"),
        ("cache('60s') local x = request.client", "{}"),
        ("local x = request.client cache('60s')", "{}"),
        // Fields that many visitors share are named by Vary, whether the request has them or not, and however they are read.
        ("cache('60s') local x = request.header('Accept-Language')", "{public}\nVary: Accept-Language"),
        ("local x = request.headers['accept-language'] cache('60s')", "{public}\nVary: Accept-Language"),
        ("cache('60s') local h = request.headers local x = h.accept, h.dnt, h.accept", "{public}\nVary: Accept, Dnt"),
        ("cache('60s') local x = request.content_type", "{public}\nVary: Content-Type"),
        (
            "cache('60s') response.header('Vary', 'Accept') local x = request.headers.accept, request.headers.dnt",
            "{public}\nVary: Accept, Dnt",
        ),
        ("cache('60s') local x = request.header('Accept') response.header('Vary', nil)", "{public}\nVary: Accept"),
        ("local x = request.header('Accept')", "Vary: Accept"),
        ("cache('60s') for i = 1, 33 do local x = request.header('x-' .. i) end", "{public}\nVary: *"),
        ("cache('60s') for _ in request.headers do end", "Vary: *\n{}"),
        ("cache('60s') for _ in pairs(request.headers) do end", "Vary: *\n{}"),
        ("for _ in request.headers do end response.header('Vary', 'Accept') cache('60s')", "Vary: *\n{}"),
        // What the URL says, and what no request can have, depends on no field.
        (
            "cache('60s') local r = request local x = r.host, r.url, r.path, r.query.a, r.secure, r.method, r.headers.host,
             r.header('Host'), r.header('a b'), r.header('X\\r\\nY: z'), r.headers, r.form()",
            "{public}",
        ),
    ] {
        let expected = expected.replace("{}", made).replace("{public}", "Cache-Control: public, max-age=60");
        assert_eq!(fields(code), expected, "{code}");
    }
    for (code, part) in [
        ("cache('60s') flush() local x = request.cookies", "before"),
        ("cache('60s') flush() local x = request.headers.cookie", "before"),
        ("cache('60s') flush() local x = request.headers.accept", "before"),
        ("cache('60s') local x = request.headers.dnt flush() local x = request.headers.accept", "before"),
        ("cache('60s') flush() local x = request.client", "before"),
        ("cache('60s') flush() for _ in request.headers do end", "before"),
        ("cache('60s') local x = json.encode(request.headers)", "in a loop"),
        ("cache('60x')", "a duration must be"),
        ("cache(-1)", "a duration must be"),
        ("cache()", "a duration must be"),
        ("cache('60s', {tag = 'a'})", "options of cache"),
        ("cache('60s', {tags = {'a b'}})", "tags"),
        ("cache('60s', {tags = {'a\\r\\nX: y'}})", "tags"),
        ("cache('60s', {private = true, tags = {'a'}})", "only browsers"),
    ] {
        let error = site.error(code);
        assert!(error.contains(part), "{code}: {error}");
    }
}

#[test]
fn headers_of_one_visitor_are_there_for_who_asks() {
    let site = Site::new();
    let ask =
        Ask { fields: vec![("Cookie", "a=1"), ("cookie", "b=2"), ("Authorization", "Basic eA==")], ..Ask::default() };
    for (code, expected) in [
        ("request.headers.cookie", "a=1; b=2"),
        ("request.headers.authorization", "Basic eA=="),
        ("request.headers.Cookie", "nil"),
        ("next(request.headers)", "nil"),
        ("request.header('authorization')", "Basic eA=="),
    ] {
        assert_eq!(site.value_of(&ask, code), expected, "{code}");
    }
    assert_eq!(site.value("request.headers.cookie"), "nil");
    let ask =
        Ask { fields: vec![("Accept", "a/b"), ("DNT", "1"), ("accept", "c/d"), ("Cookie", "a=1")], ..Ask::default() };
    for all in ["request.headers", "pairs(request.headers)"] {
        let code = format!("local t = {{}} for n, v in {all} do table.insert(t, n .. '=' .. v) end table.sort(t)");
        let answered = site.run(&ask, &format!("{code} __r(table.concat(t, ';'))"));
        assert_eq!((answered.error, &*answered.text), (None, "accept=a/b, c/d;dnt=1"), "{all}");
    }
    // What was named before is known to caches, and may be read after a flush.
    let answered = site.run(&ask, "cache('60s') local x = request.headers.dnt flush() __r(request.header('DNT'))");
    assert_eq!((answered.error, &*answered.text, answered.flushes), (None, "1", 1));
    // Content belongs to who sent it.
    let form = Ask { content: Some(b"a"), fields: vec![("Content-Type", "text/plain")], ..Ask::default() };
    let answered = site.run(&form, "cache('60s') __r(request.text())");
    assert_eq!((&*answered.text, answered.field("Cache-Control")), ("a", Some("private, no-cache")));
    let ask = Ask { fields: vec![("Cookie", "b=2")], ..Ask::default() };
    // Nobody else may keep what was begun without a word.
    assert_eq!(site.run(&ask, "flush() __r(request.cookies.b)").text, "2");
}

#[test]
fn a_head_that_was_sent_stays() {
    let site = Site::new();
    for code in [
        "response.status = 500",
        "response.header('A', 'b')",
        "response.redirect('/')",
        "response.cookie('a', 'b')",
        "cache('1s')",
        "response.json({})",
        "response.ranges()",
    ] {
        let answered = site.run(&Ask::default(), &format!("__r('x') flush()\n{code}"));
        let error = answered.error.unwrap();
        assert!(error.contains("flush()") && error.starts_with("test.luau:2:"), "{code}: {error}");
        assert_eq!(answered.flushes, 1);
    }
}
