//! Hostile scripts. Each must end within its limits, the virtual machine must survive, the next request must be
//! unaffected, and memory must be released.

use super::*;
use std::time::{Duration, Instant};

/// The expected result of a script.
enum Expect {
    /// It succeeds and writes this: its attempt failed or did no harm.
    Writes(&'static str),
    /// It fails in this way.
    Fails(FailureKind),
    /// It fails in one of these ways.
    FailsAny(&'static [FailureKind]),
}

use Expect::{Fails, FailsAny, Writes};
use FailureKind::{CpuLimit, Held, MemoryLimit, ScriptError, Stray};

const SCRIPTS: &[(&str, &str, Expect)] = &[
    // Control kept.
    ("endless loop", "while true do end", Fails(CpuLimit)),
    ("endless loop under pcall", "while true do pcall(function() while true do end end) end", Fails(CpuLimit)),
    (
        "endless loop under xpcall",
        "while true do xpcall(function() while true do end end, function() while true do end end) end",
        Fails(CpuLimit),
    ),
    ("endless handler", "xpcall(error, function() while true do end end)", Fails(Held)),
    ("nested pcalls", "local function f() pcall(f) pcall(f) while true do end end f()", Fails(CpuLimit)),
    (
        "pcall recursion",
        "local function f() return pcall(f) end for i = 1, 1e9 do f() end",
        FailsAny(&[CpuLimit, MemoryLimit]),
    ),
    (
        "xpcall recursion",
        "local function f() xpcall(f, f) end while true do f() end",
        // A handler of errors cannot yield.
        FailsAny(&[CpuLimit, MemoryLimit, Held]),
    ),
    ("loop in a coroutine", "coroutine.wrap(function() while true do end end)()", Fails(CpuLimit)),
    (
        "loops in coroutines under pcall",
        "while true do pcall(coroutine.wrap(function() pcall(function() while true do end end) while true do end end)) end",
        Fails(CpuLimit),
    ),
    (
        "loop resumed again and again",
        "local co = coroutine.create(function() while true do end end) while true do coroutine.resume(co) end",
        Fails(CpuLimit),
    ),
    (
        "coroutines within coroutines",
        "local function f() coroutine.wrap(f)() end f()",
        FailsAny(&[ScriptError, MemoryLimit, Held]),
    ),
    (
        "coroutines within coroutines, caught",
        "local function f() pcall(coroutine.wrap(f)) pcall(coroutine.wrap(f)) end while true do f() end",
        FailsAny(&[CpuLimit, MemoryLimit]),
    ),
    (
        "many coroutines",
        "local t = {} while true do local co = coroutine.create(function() coroutine.yield() end) coroutine.resume(co) t[#t + 1] = co end",
        FailsAny(&[MemoryLimit, CpuLimit]),
    ),
    (
        "loop in __index",
        "local t = setmetatable({}, { __index = function() while true do end end }) return t.x",
        Fails(Held),
    ),
    (
        "loop in __index, caught",
        "local t = setmetatable({}, { __index = function() while true do pcall(function() while true do end end) end end }) while true do pcall(function() return t.x end) end",
        Fails(Held),
    ),
    (
        "loop in __eq",
        "local m = { __eq = function() while true do end end } return setmetatable({}, m) == setmetatable({}, m)",
        Fails(Held),
    ),
    (
        "loop in __lt under sort",
        "local m = { __lt = function() while true do end end } table.sort({ setmetatable({}, m), setmetatable({}, m) })",
        Fails(Held),
    ),
    (
        "loop in __concat",
        "return setmetatable({}, { __concat = function() while true do end end }) .. 'x'",
        Fails(Held),
    ),
    ("loop in __len", "return #setmetatable({}, { __len = function() while true do end end })", Fails(Held)),
    ("loop in __call", "setmetatable({}, { __call = function() while true do end end })()", Fails(CpuLimit)),
    ("loop in __iter", "for _ in setmetatable({}, { __iter = function() while true do end end }) do end", Fails(Held)),
    ("loop in __tostring", "__w(setmetatable({}, { __tostring = function() while true do end end }))", Fails(Held)),
    (
        "loop in an error's __tostring",
        "error(setmetatable({}, { __tostring = function() while true do end end }))",
        FailsAny(&[Held, ScriptError]),
    ),
    (
        "error in an error's __tostring",
        "error(setmetatable({}, { __tostring = function() error('again') end }))",
        Fails(ScriptError),
    ),
    (
        "endless __index chain",
        "local t = {} setmetatable(t, { __index = t }) __w(tostring(pcall(function() return t.x end)))",
        Writes("false"),
    ),
    (
        "__tostring recursion",
        "local t t = setmetatable({}, { __tostring = function() return tostring(t) end }) __w(pcall(tostring, t) and 1 or 0)",
        Writes("0"),
    ),
    ("iterator that never ends", "for _ in function() return 1 end do end", Fails(CpuLimit)),
    (
        "sort with a wrong comparator",
        "local t = {} for i = 1, 100000 do t[i] = i end table.sort(t, function() return true end)",
        Fails(CpuLimit),
    ),
    (
        "sort with an erring comparator",
        "local t = { 3, 2, 1 } __w(pcall(table.sort, t, function() error('x') end) and 1 or 0)",
        Writes("0"),
    ),
    (
        "sort that grows its table",
        "local t = { 3, 2, 1 } table.sort(t, function(a, b) t[#t + 1] = 1 return a < b end) __w('ok')",
        Writes("ok"),
    ),
    (
        "sort of very many",
        "local t = table.create(500000, 0) for i = 1, #t do t[i] = -i end while true do table.sort(t) end",
        FailsAny(&[CpuLimit, MemoryLimit]),
    ),
    (
        "gsub callback loop",
        "string.gsub(string.rep('a', 1000), 'a', function() while true do end end)",
        Fails(CpuLimit),
    ),
    (
        "gsub callback recursion",
        "local function f() return (string.gsub('a', 'a', f)) end f()",
        FailsAny(&[ScriptError, MemoryLimit]),
    ),
    ("waits without end", "while true do later('x') end", Fails(CpuLimit)),
    ("flushes without end", "while true do flush() end", Fails(CpuLimit)),
    ("yield outside a coroutine", "coroutine.yield()", Fails(Stray)),
    ("exit caught", "while true do pcall(exit) end", Writes("")),
    (
        "exit in a metamethod",
        "setmetatable({}, { __index = function() exit() while true do end end }).x = nil local t = setmetatable({}, { __index = function() exit() while true do pcall(error) end end }) while true do pcall(function() return t.x end) end",
        Writes(""),
    ),
    (
        "close the main coroutine",
        "local main = coroutine.running() coroutine.wrap(function() __w(pcall(coroutine.close, main) and 1 or 0) __w(coroutine.resume(main) and 1 or 0) end)()",
        Writes("00"),
    ),
    ("resume oneself", "__w(coroutine.resume(coroutine.running()) and 1 or 0)", Writes("0")),
    // Patterns.
    (
        "exponential pattern",
        "string.find(string.rep('a', 40), string.rep('a?', 40) .. string.rep('a', 41))",
        Fails(CpuLimit),
    ),
    ("polynomial pattern", "string.find(string.rep('a', 10000), '.-.-.-.-.-.-b')", Fails(CpuLimit)),
    (
        "pattern under pcall",
        "while true do pcall(string.match, string.rep('a', 10000), '(.-)(.-)(.-)(.-)x') end",
        Fails(CpuLimit),
    ),
    ("gmatch pattern", "for _ in string.gmatch(string.rep('a', 5000), '.-.-.-.-b') do end", Fails(CpuLimit)),
    ("gsub pattern", "string.gsub(string.rep('a', 5000), '.-.-.-.-b', '')", Fails(CpuLimit)),
    (
        "pattern in a metamethod",
        "return setmetatable({}, { __index = function() return string.find(string.rep('a', 10000), '.-.-.-.-.-b') end }).x",
        Fails(Held),
    ),
    ("balance", "local s = string.rep('(', 1000000) while true do string.find(s, '%b()') end", Fails(CpuLimit)),
    (
        "plain find",
        "local s = string.rep('a', 4000000) local n = string.rep('a', 1000000) .. 'b' while true do string.find(s, n, 1, true) end",
        Fails(CpuLimit),
    ),
    ("huge class", "string.find(string.rep('a', 1000000), '[' .. string.rep('b', 15000) .. ']*c')", Writes("")),
    ("deep pattern", "__w(pcall(string.find, 'x', string.rep('(', 100000)) and 1 or 0)", Writes("0")),
    (
        "bad pattern",
        "for _, p in { '[', '%', '(', '%b', '%f', '%9', '[%' } do __w(pcall(string.find, 'a', p) and 1 or 0) end",
        Writes("0000000"),
    ),
    // Memory.
    ("rep bomb", "local s = string.rep('x', 1e9)", Fails(MemoryLimit)),
    ("rep bomb, caught", "while true do pcall(string.rep, 'x', 2^30) end", Fails(MemoryLimit)),
    ("rep overflow", "__w(pcall(string.rep, 'xx', 2^31 - 1) and 1 or 0)", Fails(MemoryLimit)),
    ("doubling", "local s = 'x' while true do s = s .. s end", Fails(MemoryLimit)),
    ("doubling, caught", "local s = 'x' while true do pcall(function() s = s .. s end) end", Fails(MemoryLimit)),
    (
        "doubling, handled",
        "local s = 'x' while true do xpcall(function() s = s .. s end, function() return 'fine' end) end",
        Fails(MemoryLimit),
    ),
    (
        "doubling in a coroutine",
        "local s = 'x' while true do coroutine.resume(coroutine.create(function() s = s .. s end)) end",
        Fails(MemoryLimit),
    ),
    (
        "concat bomb",
        "local s = string.rep('x', 1000000) local t = table.create(1000, s) return table.concat(t)",
        Fails(MemoryLimit),
    ),
    (
        "concat bomb, caught",
        "local s = string.rep('x', 1000000) local t = table.create(1000, s) while true do pcall(table.concat, t) end",
        Fails(MemoryLimit),
    ),
    (
        "format bomb",
        "local s = string.rep('x', 1000000) local t = table.create(100, s) string.format(string.rep('%s', 100), table.unpack(t))",
        Fails(MemoryLimit),
    ),
    ("format width", "__w(pcall(string.format, '%1000d', 1) and 1 or 0) __w(#string.format('%99d', 1))", Writes("099")),
    ("gsub bomb", "string.gsub(string.rep('a', 10000), 'a', string.rep('b', 100000))", Fails(MemoryLimit)),
    ("gsub capture bomb", "string.gsub(string.rep('a', 1000000), '.*', string.rep('%0', 1000))", Fails(MemoryLimit)),
    ("table that grows", "local t = {} while true do t[#t + 1] = #t end", FailsAny(&[MemoryLimit, CpuLimit])),
    (
        "keys that grow",
        "local t, i = {}, 0 while true do i += 1 t['k' .. i] = {} end",
        FailsAny(&[MemoryLimit, CpuLimit]),
    ),
    ("create bomb", "table.create(2^26 - 1, 0)", Fails(MemoryLimit)),
    ("create bomb, caught", "while true do pcall(table.create, 2^25) end", Fails(MemoryLimit)),
    ("buffer bomb", "buffer.create(2^30)", Fails(MemoryLimit)),
    ("buffer bombs", "local t = {} while true do t[#t + 1] = buffer.create(65536) end", Fails(MemoryLimit)),
    ("move bomb", "table.move({ 1 }, 1, 2^31 - 10, 2)", FailsAny(&[CpuLimit, ScriptError])),
    ("move far", "__w(pcall(table.move, { 1, 2, 3 }, 1, 3, 2^30) and 1 or 0)", Writes("1")),
    (
        "insert in front",
        "local t = table.create(300000, 1) while true do table.insert(t, 1, 1) end",
        FailsAny(&[CpuLimit, MemoryLimit]),
    ),
    ("unpack bomb", "__w(pcall(table.unpack, {}, 1, 1e8) and 1 or 0)", Writes("0")),
    ("unpack overflow", "__w(pcall(table.unpack, {}, -2^31, 2^31 - 1) and 1 or 0)", Writes("0")),
    ("byte bomb", "__w(pcall(string.byte, string.rep('x', 1000000), 1, -1) and 1 or 0)", Writes("0")),
    (
        "varargs that grow",
        "local function f(...) return f(1, 2, 3, 4, 5, 6, 7, 8, ...) end f()",
        FailsAny(&[MemoryLimit, ScriptError]),
    ),
    ("deep recursion", "local function f() return 1 + f() end f()", FailsAny(&[ScriptError, MemoryLimit])),
    ("deep recursion, caught", "local function f() return 1 + f() end __w(pcall(f) and 1 or 0)", Writes("0")),
    ("garbage", "for i = 1, 1e9 do local t = { i, i, i } end", Fails(CpuLimit)),
    (
        "garbage texts",
        "for i = 1, 1e9 do local s = string.rep('x', 100000 + i) end",
        FailsAny(&[CpuLimit, MemoryLimit]),
    ),
    ("output without end", "while true do __r('0123456789') end", FailsAny(&[CpuLimit, MemoryLimit])),
    ("output of large pieces", "local s = string.rep('x', 1000000) while true do __r(s) end", Fails(MemoryLimit)),
    (
        "output of large pieces, caught",
        "local s = string.rep('<', 1000000) while true do pcall(__w, s) end",
        FailsAny(&[CpuLimit, MemoryLimit]),
    ),
    ("segments without end", "while true do __s(1) end", FailsAny(&[CpuLimit, MemoryLimit])),
    ("printing without end", "while true do print('x') end", Fails(CpuLimit)),
    ("nested tables as JSON", "local t = {} for i = 1, 100000 do t = { t } end __j(t)", Fails(ScriptError)),
    ("a circle as JSON", "local t = {} t[1] = t __w(pcall(__j, t) and 1 or 0)", Writes("0")),
    ("very much JSON", "local t = table.create(500000, 1) while true do pcall(__j, t) end", Fails(CpuLimit)),
    (
        "split bomb",
        "local s = string.rep('a,', 500000) while true do string.split(s) end",
        FailsAny(&[CpuLimit, MemoryLimit]),
    ),
    ("captures bomb", "__w(pcall(string.find, 'x', string.rep('()', 100)) and 1 or 0)", Writes("0")),
    ("pack bomb", "__w(pcall(string.pack, '!16 i17', 1) and 1 or 0)", Writes("0")),
    (
        "unpack of texts",
        "local f, s = string.rep('b', 2000000), string.rep('x', 2000000) while true do pcall(string.unpack, f, s) end",
        FailsAny(&[CpuLimit, MemoryLimit]),
    ),
    (
        "long formats of binary data",
        "local f = string.rep('x', 4097) for _, g in { string.pack, string.packsize, string.unpack } do __w(pcall(g, f, '') and 1 or 0) end __w(string.packsize(string.rep('x', 4096)))",
        Writes("0004096"),
    ),
    (
        "a long text quoted",
        "__w(pcall(string.format, '%5q', string.rep('x', 65537)) and 1 or 0) __w(#string.format('%s%%q', string.rep('x', 65537)))",
        Writes("065539"),
    ),
    // Ways out.
    ("bytecode", "__w(tostring(loadstring)) __w(tostring(load))", Writes("nilnil")),
    (
        "environments",
        "__w(tostring(getfenv)) __w(tostring(setfenv)) __w(tostring(newproxy)) __w(tostring(debug)) __w(tostring(require))",
        Writes("nilnilnilnilnil"),
    ),
    (
        "string metatable",
        "__w(getmetatable('')) __w(pcall(function() getmetatable('').__index = 1 end) and 1 or 0)",
        Writes("false0"),
    ),
    (
        "globals' metatable",
        "__w(tostring(getmetatable(_G))) __w(pcall(setmetatable, _G, {}) and 1 or 0) __w(pcall(rawset, _G, 'x', 1) and 1 or 0)",
        Writes("nil00"),
    ),
    (
        "frozen library",
        "for _, f in { function() string.find = 1 end, function() table.clear(table) end, function() math.pi = 3 end, function() rawset(coroutine, 'yield', 1) end, function() api.inner.value = 2 end } do __w(pcall(f) and 1 or 0) end",
        Writes("00000"),
    ),
    ("writers replaced", "__w = nil __s = nil string = nil", Writes("")),
    (
        "__gc and __close",
        "for i = 1, 100 do setmetatable({}, { __gc = function() poison = 1 end, __close = function() poison = 1 end, __mode = 'kv' }) end __w(tostring(poison))",
        Writes("nil"),
    ),
    (
        "protected metatable",
        "local t = setmetatable({}, { __metatable = 'locked' }) __w(getmetatable(t)) __w(pcall(setmetatable, t, {}) and 1 or 0)",
        Writes("locked0"),
    ),
    (
        "natives' errors have no handle",
        "local ok, why = pcall(fail) __w(type(why)) local ok, why = coroutine.resume(coroutine.create(fail)) __w(type(why)) local co = coroutine.create(fail) coroutine.resume(co) local ok, why = coroutine.close(co) __w(type(why))",
        Writes("stringstringstring"),
    ),
    (
        "wrong arguments",
        "for _, f in { __s, __w, __j, flush, exit and later, string.find, string.gsub, string.rep, table.concat, table.move, table.insert, coroutine.wrap, buffer.create, utf8.len } do pcall(f, {}, {}, {}, {}) pcall(f) pcall(f, 0/0, 0/0) pcall(f, -1, math.huge) pcall(f, 'x', 1e308) end __w('alive')",
        FailsAny(&[ScriptError, MemoryLimit]),
    ),
    (
        "not a number for a segment",
        "__w(pcall(__s, -1) and 1 or 0) __w(pcall(__s, 'x') and 1 or 0) __w(pcall(__s, 2^40) and 1 or 0)",
        Writes("000"),
    ),
    (
        "errors of any kind",
        "for _, e in { 1, true, {}, print, coroutine.running(), vector.one } do __w(pcall(error, e) and 1 or 0) end pcall(error, nil) error(nil)",
        Fails(ScriptError),
    ),
];

#[test]
fn every_script_is_contained() {
    let sandbox = sandbox();
    let canary = sandbox
        .load("canary", "__w(tostring(poison)) __w(('abc'):find('b')) later('x') __w(#string.rep('a', 100))")
        .unwrap();
    let clean = |after: &str| {
        let ended = run_code(&sandbox, &canary, unhurried());
        assert_eq!((ended.failure, ended.output.as_str()), (None, "nil2100"), "after {after}");
    };
    clean("nothing");
    let mut wrong = Vec::new();
    for (name, source, expect) in SCRIPTS {
        sandbox.collect();
        let before = sandbox.used_bytes();
        let code = sandbox.load(name, source).unwrap();
        // Where its CPU time is not what ends a script it has plenty, as much as a busy machine may need.
        let ends_by_time = match expect {
            Fails(expected) => *expected == CpuLimit,
            FailsAny(kinds) => kinds.contains(&CpuLimit),
            Writes(_) => false,
        };
        let limits = if ends_by_time { Limits::default() } else { unhurried() };
        for _ in 0..2 {
            let began = Instant::now();
            let ended = run_code(&sandbox, &code, limits);
            let took = began.elapsed();
            if took > Duration::from_secs(30) {
                wrong.push(format!("{name}: took {took:?}"));
            }
            let right = match expect {
                Writes(text) => ended.failure.is_none() && ended.output == *text,
                Fails(expected) => kind(&ended) == Some(*expected),
                FailsAny(kinds) => kind(&ended).is_some_and(|failed| kinds.contains(&failed)),
            };
            if !right {
                wrong.push(format!("{name}: {:?}, wrote {:.80}", ended.failure, ended.output));
            }
            clean(name);
        }
        drop(code);
        sandbox.collect();
        let after = sandbox.used_bytes();
        if after > before + 128 * 1024 {
            wrong.push(format!("{name}: {before} bytes before, {after} after"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), SCRIPTS.len(), wrong.join("\n"));
    assert!(SCRIPTS.len() >= 60);
}

#[test]
fn bytecode_is_not_loaded() {
    let sandbox = sandbox();
    let bytecode = mlua::chunk::Compiler::new().compile("return 1").unwrap();
    let text = bytecode.iter().map(|&byte| char::from(byte)).collect::<String>();
    assert!(sandbox.load("page", &text).is_err());
    assert!(sandbox.load("page", "\u{3}\u{1}").is_err());
}
