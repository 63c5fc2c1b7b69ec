//! Tests that nothing leaks from one request to the next.

use super::*;

/// The action of one page, and the probe of the next, which must not see it; both run repeatedly from the same chunks.
const POISONS: &[&str] = &[
    "poison = 1",
    "string = { find = 1 }",
    "pcall = nil print = 7 __w = nil",
    "math = setmetatable({}, { __index = function() return 'bad' end })",
    "function tostring() return 'bad' end",
    "for i = 1, 200 do getfenv = i end",
    "rawset(_G, 'poison', 1)",
    "_G.poison = 1",
    "string.poison = 1",
    "table.freeze(_G) _G.x = 1",
    "setmetatable(_G, { __index = function() return 'bad' end })",
    "getmetatable('').__index = function() return 'bad' end",
    "getmetatable('').poison = 1",
    "setmetatable('', {})",
    "table.clear(string)",
    "table.insert(api, 1)",
    "api.inner.value = 2",
    "rawset(api.inner, 'value', 2)",
    "table.clear(api.inner)",
    "table.move({ 1 }, 1, 1, 1, api.inner)",
    "setmetatable(api, {})",
    "coroutine.wrap(function() poison = 1 coroutine.yield() end)()",
    "local co = coroutine.create(function() poison = coroutine.running() coroutine.yield() end) coroutine.resume(co) later('x')",
    "local t = {} t.t = t poison = t error(t)",
    "vector.one.x = 3",
    "getmetatable(vector.one).__index = nil",
];

/// Writes what it can see; always the same.
const CANARY: &str = r"
    __w(tostring(poison)) __w(type(string.find)) __w(('abc'):upper()) __w(tostring(_G.poison)) __w(math.pi > 3)
    __w(api.inner.value) __w(tostring(api.inner[1])) __w(type(pcall)) __w(type(getmetatable(''))) __w(tostring(string.poison))
    __w(tostring(getfenv)) __w(rawlen(api)) __w(tostring(getmetatable(api)))
    local n = 0 for k in pairs(_G) do n += 1 end __w(n)
";

#[test]
fn what_a_page_poisons_is_not_there_for_the_next() {
    let sandbox = sandbox();
    let canary = sandbox.load("canary", CANARY).unwrap();
    let clean = run_code(&sandbox, &canary, unhurried());
    assert_eq!(clean.failure, None);
    for poison in POISONS {
        let code = sandbox.load("poison", poison).unwrap();
        for _ in 0..3 {
            run_code(&sandbox, &code, unhurried());
            let now = run_code(&sandbox, &canary, unhurried());
            assert_eq!((now.failure, now.output.as_str()), (None, clean.output.as_str()), "after {poison}");
        }
    }
}

#[test]
fn a_chunk_starts_fresh_each_time() {
    let sandbox = sandbox();
    let source = "
        count = (count or 0) + 1
        local kept = 0
        local function add() kept += 1 return kept end
        local t = { n = 0 }
        t.n += 1
        add()
        __w(count) __w(kept) __w(t.n)
        local same = function() return t end
        same().n = 5";
    let code = sandbox.load("page", source).unwrap();
    for _ in 0..5 {
        assert_eq!(run_code(&sandbox, &code, unhurried()).output, "111");
    }
}

#[test]
fn what_a_failed_run_left_is_gone() {
    let sandbox = sandbox();
    let code = sandbox.load("page", "if x then __w('old') end x = 1 later('') error('no')").unwrap();
    for _ in 0..20 {
        assert_eq!(run_code(&sandbox, &code, unhurried()).output, "");
    }
}

#[test]
fn memory_stays_flat() {
    let sandbox = sandbox();
    let sources = [
        "__s(0) __w('hello') __s(1)",
        "x = {} for i = 1, 50 do x[i] = { i } end __w(#x)",
        "local co = coroutine.wrap(function() coroutine.yield(1) end) co() __w(later('a'))",
        "error('no')",
        "pcall(fail) __w((('a b c'):gsub('%w', '%0%0')))",
        "local s = '' for i = 1, 100 do s ..= i end __w(#s)",
    ];
    let codes: Vec<_> = sources.iter().map(|source| sandbox.load("page", source).unwrap()).collect();
    let mut sizes = Vec::new();
    for _ in 0..6 {
        for _ in 0..2000 {
            for code in &codes {
                run_code(&sandbox, code, unhurried());
            }
        }
        sandbox.collect();
        sizes.push(sandbox.used_bytes());
    }
    let (early, late) = sizes.split_at(3);
    // Luau allocates objects in pages, and how many pages a collection can free depends on where the remaining objects
    // lie. A leak of a single object per run, of at least 16 bytes, would add two pages in each round.
    const PAGE_BYTES: usize = 16 * 1024;
    const { assert!(2000 * 16 > PAGE_BYTES) };
    assert!(late.iter().min() <= early.iter().max().map(|most| most + PAGE_BYTES).as_ref(), "{sizes:?}");
}
