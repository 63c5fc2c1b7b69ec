//! Tests of invalid arguments: whichever function gets one, the error names the file and the line of the page that
//! called it.

use super::{Ask, Site};
use crate::exchange::Exchange;
use crate::sandbox::{Limits, ResumeResult};
use flatout_template::{MemoryFiles, compile};
use std::collections::BTreeSet;

/// Calls with a wrong argument. `w` is a coroutine, which hardly any function takes.
const CALLS: &[&str] = &[
    "assert(false, nil)",
    "error('wrong', 1)",
    "getmetatable()",
    "ipairs(w)",
    "next(w)",
    "pairs(w)",
    "rawequal()",
    "rawget(w)",
    "rawlen(w)",
    "rawset(w)",
    "select(w)",
    "setmetatable(w)",
    "tonumber('1', w)",
    "tostring()",
    "type()",
    "typeof()",
    "xpcall(type, w)",
    "print(setmetatable({}, { __tostring = function() return w end }))",
    "coroutine.close(1)",
    "coroutine.create(1)",
    "coroutine.resume(1)",
    "coroutine.status(1)",
    "coroutine.wrap(1)",
    "bit32.arshift(w)",
    "bit32.band(w)",
    "bit32.bnot(w)",
    "bit32.bor(w)",
    "bit32.btest(w)",
    "bit32.bxor(w)",
    "bit32.byteswap(w)",
    "bit32.countlz(w)",
    "bit32.countrz(w)",
    "bit32.extract(w)",
    "bit32.lrotate(w)",
    "bit32.lshift(w)",
    "bit32.replace(w)",
    "bit32.rrotate(w)",
    "bit32.rshift(w)",
    "buffer.copy(w)",
    "buffer.create(w)",
    "buffer.create(-1)",
    "buffer.fill(w)",
    "buffer.fromstring(w)",
    "buffer.len(w)",
    "buffer.readbits(w)",
    "buffer.readf32(w)",
    "buffer.readf64(w)",
    "buffer.readi16(w)",
    "buffer.readi32(w)",
    "buffer.readi8(w)",
    "buffer.readstring(w)",
    "buffer.readu16(w)",
    "buffer.readu32(w)",
    "buffer.readu8(w)",
    "buffer.tostring(w)",
    "buffer.writebits(w)",
    "buffer.writef32(w)",
    "buffer.writef64(w)",
    "buffer.writei16(w)",
    "buffer.writei32(w)",
    "buffer.writei8(w)",
    "buffer.writestring(w)",
    "buffer.writeu16(w)",
    "buffer.writeu32(w)",
    "buffer.writeu8(w)",
    "math.abs(w)",
    "math.acos(w)",
    "math.asin(w)",
    "math.atan(w)",
    "math.atan2(w)",
    "math.ceil(w)",
    "math.clamp(w)",
    "math.cos(w)",
    "math.cosh(w)",
    "math.deg(w)",
    "math.exp(w)",
    "math.floor(w)",
    "math.fmod(w)",
    "math.frexp(w)",
    "math.isfinite(w)",
    "math.isinf(w)",
    "math.isnan(w)",
    "math.ldexp(w)",
    "math.lerp(w)",
    "math.log(w)",
    "math.log10(w)",
    "math.map(w)",
    "math.max(w)",
    "math.min(w)",
    "math.modf(w)",
    "math.noise(w)",
    "math.pow(w)",
    "math.rad(w)",
    "math.random(w)",
    "math.round(w)",
    "math.sign(w)",
    "math.sin(w)",
    "math.sinh(w)",
    "math.sqrt(w)",
    "math.tan(w)",
    "math.tanh(w)",
    "string.byte(w)",
    "string.char(w)",
    "string.find(w)",
    "string.find('a', '[')",
    "string.format(w)",
    "string.format('%d', 'a')",
    "string.format('%y', 1)",
    "string.gmatch(w)",
    "string.gsub(w)",
    "string.gsub('a', 'a', w)",
    "string.gsub('a', 'a', '', w)",
    "string.gsub('a', 'a', function() return 1 end, w)",
    "string.gsub('a', 'a', function() return w end)",
    "string.len(w)",
    "string.lower(w)",
    "string.match(w)",
    "string.pack(w)",
    "string.packsize(w)",
    "string.rep(w)",
    "string.reverse(w)",
    "string.split(w)",
    "string.split('a', w)",
    "string.sub(w)",
    "string.unpack(w)",
    "string.upper(w)",
    "string.rep('a', w)",
    "table.clear(w)",
    "table.clone(w)",
    "table.concat(w)",
    "table.concat({ w })",
    "table.concat({}, w)",
    "table.create(w)",
    "table.find(w)",
    "table.find(table.create(5000, 1), 2, w)",
    "table.freeze(w)",
    "table.insert(w)",
    "table.insert({}, 1, 2, 3)",
    "table.insert({}, w, 2)",
    "table.insert(table.freeze({}), 1)",
    "table.isfrozen(w)",
    "table.move(w)",
    "table.move({}, 1, 9000, 1, w)",
    "table.move(table.create(9000, 1), 1, 9000, 1, table.freeze({}))",
    "table.remove(w)",
    "table.remove({}, w)",
    "table.remove(table.freeze({ 1 }))",
    "table.sort(w)",
    "table.sort({}, 1)",
    "table.sort({ 1, {} })",
    "table.sort(table.freeze({ 2, 1 }))",
    "table.sort(table.freeze({ 2, 1 }), function() return false end)",
    "table.sort(table.move({ {} }, 1, 1, 100, table.create(100, 1)))",
    "table.unpack(w)",
    "utf8.char(w)",
    "utf8.codepoint(w)",
    "utf8.codes(w)",
    "utf8.len(w)",
    "utf8.len(('a'):rep(70000), w)",
    "utf8.offset(w)",
    "utf8.offset(('\\128'):rep(70000), 1, 2)",
    "vector.abs(w)",
    "vector.angle(w)",
    "vector.ceil(w)",
    "vector.clamp(w)",
    "vector.create(w)",
    "vector.cross(w)",
    "vector.dot(w)",
    "vector.floor(w)",
    "vector.lerp(w)",
    "vector.magnitude(w)",
    "vector.max(w)",
    "vector.min(w)",
    "vector.normalize(w)",
    "vector.sign(w)",
];

/// Functions that accept any argument, and those that end or suspend the page.
const TAKE_ALL: &[&str] = &[
    "coroutine.isyieldable",
    "coroutine.running",
    "coroutine.yield",
    "exit",
    "flush",
    "pcall",
    "TIMEDATE",
    "csrf.field",
    "csrf.token",
    "request.files",
    "request.form",
    "request.json",
    "request.text",
    "response.ranges",
    "session.clear",
    "session.renew",
    "time",
    "uuid.v4",
    "uuid.v7",
    "table.pack",
];

/// Calls of the functions that are not Luau's own.
const OWN_CALLS: &[&str] = &[
    "base64.decode(w)",
    "base64.encode(w)",
    "base64.url_decode(w)",
    "base64.url_encode(w)",
    "cache(w)",
    "cache('soon')",
    "csrf.check()",
    "date.format(w)",
    "date.http(w)",
    "date.iso(w)",
    "date.parse(w)",
    "date.parts(w)",
    "db.exec(w)",
    "db.exec('SELEC')",
    "db.exec('SELECT ?', w)",
    "db.query(w)",
    "db.query('SELEC')",
    "db.query_one(w)",
    "db.query_one('SELECT ?, ?', 1)",
    "db.transaction(w)",
    "db.value(w)",
    "db.value('SELEC')",
    "fetch(w)",
    "fetch('nowhere', '/')",
    "hash.equal(w)",
    "hash.new(w)",
    "hash.new('md5')",
    "hash.new('sha256'):update(w)",
    "hash.new('sha256').update(w)",
    "hash.new('sha256').hex(w)",
    "hash.new_hmac(w)",
    "hash.new_hmac('sha256')",
    "hash.hmac_sha256(w)",
    "hash.hmac_sha512(w)",
    "hash.sha256(w)",
    "hash.sha512(w)",
    "hex.decode(w)",
    "hex.encode(w)",
    "html.escape(w)",
    "json.decode(w)",
    "json.encode(w)",
    "json.object(w)",
    "kv.add(w)",
    "kv.delete(w)",
    "kv.get(w)",
    "kv.incr(w)",
    "kv.set(w)",
    "log(w)",
    "password.hash(w)",
    "password.verify(w)",
    "password.verify('a', 'b')",
    "random.bytes(w)",
    "random.bytes(-1)",
    "random.token(w)",
    "request.form_all(w)",
    "request.header(w)",
    "request.query_all(w)",
    "response.add_header(w)",
    "response.cookie(w)",
    "response.delete_cookie(w)",
    "response.header(w)",
    "response.header('a b', 'c')",
    "response.json(w)",
    "response.redirect(w)",
    "response.status = 'a'",
    "response.status = 7",
    "session.user = w",
    "sleep(w)",
    "sleep(-1)",
    "session[1] = 2",
    "url.decode(w)",
    "url.encode(w)",
    "url.query(w)",
    "url.query({ a = w })",
];

/// The names of all functions that pages see.
fn functions(site: &Site) -> BTreeSet<String> {
    let code = "local function list(of, ...)
    for name, value in ... do
        if type(name) == 'string' and type(value) == 'function' and string.sub(name, 1, 2) ~= '__' then
            __r(of .. name .. ' ')
        end
    end
end
list('', pairs(_G))
for name, value in pairs(_G) do
    if type(value) == 'table' and name ~= '_G' then
        list(name .. '.', next, value)
    end
end";
    let answered = site.run(&Ask::default(), code);
    assert_eq!(answered.error, None);
    answered.text.split_whitespace().map(str::to_owned).collect()
}

fn site() -> Site {
    Site::with_database_and(|settings| {
        let address = flatout_http::url::OriginAddress::new(false, "127.0.0.1", 1);
        settings.upstreams.insert("api".to_owned(), address);
    })
}

#[test]
fn every_function_is_called() {
    let called: BTreeSet<&str> =
        CALLS.iter().chain(OWN_CALLS).map(|call| call.split(['(', ':']).next().unwrap_or_default()).collect();
    let missing: Vec<_> = functions(&site())
        .into_iter()
        .filter(|name| !called.contains(&**name) && !TAKE_ALL.contains(&&**name))
        .collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn errors_name_the_file_and_the_line_of_the_call() {
    let site = site();
    let mut wrong = Vec::new();
    for call in CALLS.iter().chain(OWN_CALLS) {
        for (form, included, line) in [
            ("alone", format!("<?lua\nlocal w = coroutine.create(function() end)\n\n{call}\n?>"), 4),
            (
                "caught",
                format!(
                    "<?lua\nlocal w = coroutine.create(function() end)\nlocal ok, err = pcall(function()\n{call}\nend) error(if ok then 'it \
                     took it' else tostring(err), 0)\n?>"
                ),
                4,
            ),
            (
                "of a coroutine",
                format!(
                    "<?lua\nlocal w = coroutine.create(function() end)\ncoroutine.wrap(function()\n\n{call}\nend)()\n?>"
                ),
                5,
            ),
        ] {
            let files = MemoryFiles::default()
                .file("page.lhtml", "<p>one</p>\n\n\n\n\n\n<?include \"_part.lhtml\" ?>\n")
                .file("_part.lhtml", included);
            let template = compile("page.lhtml", &files).template.unwrap_or_else(|wrong| panic!("{wrong}\n{call}"));
            let lines = template.lines.clone();
            let code = site.sandbox.load_page("page.lhtml", &template.chunk, template.lines).unwrap();
            let mut exchange = Box::<Exchange>::default();
            exchange.facts.set("GET", b"/", None, [("host", &b"example.com"[..])].into_iter(), None, false);
            let mut run = site.sandbox.start(&code, exchange, Limits::default());
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let failure = tokio::task::LocalSet::new().block_on(&runtime, async {
                loop {
                    match run.resume() {
                        ResumeResult::Done => break None,
                        ResumeResult::Wants(wanted) => {
                            let answer = wanted.await;
                            run.answer(answer);
                        }
                        ResumeResult::Failed(failure) => break Some(failure),
                        ResumeResult::Flush | ResumeResult::Preempted => {}
                    }
                }
            });
            let text = match failure {
                None => "no error".to_owned(),
                Some(failure) if form == "caught" => failure.message,
                Some(failure) => failure.text(Some(&lines)),
            };
            if !text.starts_with(&format!("_part.lhtml:{line}: ")) || text.contains("[sandbox]") {
                wrong.push(format!("{call}, {form}: {text}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} calls:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_wrong_argument_of_a_script_has_its_line() {
    let answered = site().run(&Ask::default(), "local w = coroutine.create(function() end)\n\ntable.concat(w)");
    let error = answered.error.unwrap();
    assert!(error.starts_with("test.luau:3: invalid argument #1 to 'concat'"), "{error}");
}
