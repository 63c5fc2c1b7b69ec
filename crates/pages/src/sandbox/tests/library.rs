//! Our replacements for Luau's functions behave like the originals.

use super::*;
use std::fmt::Write as _;

#[test]
fn has_what_it_names_and_no_more() {
    let sandbox = sandbox();
    let mut lines = String::new();
    for (library, names) in super::super::LIBRARY {
        for name in *names {
            let path = if library.is_empty() { (*name).to_owned() } else { format!("{library}.{name}") };
            let _ = writeln!(lines, "if {path} == nil then __w('{path} ') end");
        }
    }
    assert_eq!(output(&sandbox, &lines), "");
    for gone in [
        "getfenv",
        "setfenv",
        "loadstring",
        "load",
        "require",
        "newproxy",
        "collectgarbage",
        "gcinfo",
        "debug",
        "os",
        "io",
        "integer",
        "dofile",
        "math.randomseed",
    ] {
        assert_eq!(output(&sandbox, &format!("__w({gone} == nil)")), "true", "{gone}");
    }
}

#[test]
fn strings_and_tables_as_luau_has_them() {
    let sandbox = sandbox();
    for (source, expected) in [
        ("__w((string.find('hello world', 'o w')))", "5"),
        ("__w(table.concat({ string.find('key = value', '^(%w+)%s*=%s*(%w+)$') }, ','))", "1,11,key,value"),
        ("__w(table.concat({ string.match('2026-11-21', '(%d+)-(%d+)-(%d+)') }, '.'))", "2026.11.21"),
        ("for k, v in string.gmatch('a=1, b=2', '(%w+)=(%w+)') do __w(k .. v) end", "a1b2"),
        ("for w in ('one two'):gmatch('%a+') do __w(w .. ';') end", "one;two;"),
        ("__w((string.gsub('hello', 'l', { l = 'L' })))", "heLLo"),
        ("__w((string.gsub('hello', '', '-')))", "-h-e-l-l-o-"),
        ("__w((string.gsub('abc', '%w', '%0%0', 2)))", "aabbc"),
        ("__w((string.gsub('abc', '^a', 'x')))", "xbc"),
        (
            "__w((string.gsub('abc def', '%w+', function(w) if w == 'abc' then return nil end return w:upper() end)))",
            "abc DEF",
        ),
        ("__w(select(2, string.gsub('aaa', 'a', 'b')))", "3"),
        ("__w((string.gsub('hello world', '(%w+) (%w+)', '%2 %1')))", "world hello"),
        ("__w((string.gsub('abc', '%w*', 'x')))", "xx"),
        ("__w(tostring(string.find('abc', 'b', -1)))", "nil"),
        ("__w(string.find('a.b', '.', 1, true))", "2"),
        ("__w(string.find('', ''))", "1"),
        ("__w(tostring(string.find('abc', 'x', 10)))", "nil"),
        ("__w(string.format('%5.2f|%d|%s|%q', 3.14159, 42, 'x', 'a\\n'))", " 3.14|42|x|&#34;a\\\n&#34;"),
        ("local t = { 3, 1, 2 } table.sort(t) __w(table.concat(t, ','))", "1,2,3"),
        ("local t = { 3, 1, 2 } table.sort(t, function(a, b) return a > b end) __w(table.concat(t, ','))", "3,2,1"),
        (
            "local t = { 1, 2, 3 } table.insert(t, 2, 9) __w(table.concat(t, ',')) __w(table.remove(t, 1)) __w(table.remove(t)) __w(#t)",
            "1,9,2,3132",
        ),
        ("__w(#string.split('a,b,c')) __w(string.split('a-b', '-')[2])", "3b"),
        ("__w(utf8.len('äöü')) __w(utf8.offset('äöü', 3))", "35"),
        ("__w(('x'):rep(3)) __w(('abc'):reverse()) __w(('aBc'):upper()) __w(('aBc'):lower())", "xxxcbaABCabc"),
        ("__w(table.find({ 'a', 'b' }, 'b'))", "2"),
        ("local a, b = pcall(string.rep) __w(a)", "false"),
    ] {
        assert_eq!(output(&sandbox, source), expected, "{source}");
    }
}

#[test]
fn long_texts_and_tables_in_blocks() {
    let sandbox = sandbox();
    let source = r"
        local parts = {}
        for i = 1, 30000 do parts[i] = 'aB' .. i % 10 end
        local s = table.concat(parts)
        assert(#s == 90000)
        local u = s:upper()
        assert(#u == 90000 and u:sub(-3) == 'AB0' and u:sub(65535, 65540) == s:sub(65535, 65540):upper())
        assert(s:reverse():reverse() == s and s:reverse():sub(1, 3) == '0Ba')
        assert(s:lower():sub(89998) == 'ab0')
        local pieces = s:split('B')
        assert(#pieces == 30001 and pieces[1] == 'a' and pieces[30001] == '0')
        assert(#s:split('') == 90000)
        assert(table.concat(parts, ',') == s:gsub('(%d)(a)', '%1,%2'))
        local w = ('ä'):rep(50000)
        assert(utf8.len(w) == 50000 and utf8.offset(w, 40000) == 79999 and utf8.len(w .. '\xff') == nil)
        local short = ('ä'):rep(5)
        for _, case in { { 0, 2 }, { 0, 1 }, { 1, 3 }, { 2, 1 }, { 5, 1 }, { 6, 1 }, { 7, 1 }, { 1 }, { 0 } } do
            -- What is not far from the beginning is where it is in a short text.
            assert(utf8.offset(w, table.unpack(case)) == (if case[1] == 7 then 13 else utf8.offset(short, table.unpack(case))))
        end
        assert(utf8.offset(w, -1) == 99999 and utf8.offset(w, -50000) == 1 and utf8.offset(w, -50001) == nil)
        assert(utf8.offset(w, 50001) == 100001 and utf8.offset(w, 50002) == nil and utf8.offset(w, 1, 100001) == 100001)
        assert(utf8.offset(w, -1, -1 - 1) == 99997 and utf8.offset(w, 0, -1) == 99999)
        for _, case in { { 1, 2 }, { -1, 4 }, { 1, 0 }, { 1, 100002 } } do
            assert(not pcall(utf8.offset, w, table.unpack(case)))
        end
        local c = 'a' .. ('\x80'):rep(100000)
        assert(utf8.offset(c, 2) == 100002 and utf8.offset(c, 0, -1) == 1)
        local t = {}
        for i = 1, 10000 do t[i] = (i * 7919) % 10007 end
        local c = table.clone(t)
        table.sort(t)
        for i = 2, #t do assert(t[i - 1] <= t[i]) end
        table.sort(c, function(a, b) return a > b end)
        for i = 1, #t do assert(c[i] == t[#t + 1 - i]) end
        table.insert(t, 1, -1)
        assert(#t == 10001 and t[1] == -1 and t[10001] == c[1] and t[5000] == c[10000 - 4998])
        assert(table.remove(t, 1) == -1 and #t == 10000 and t[10000] == c[1])
        assert(table.find(t, c[2]) == 9999)
        local m = table.move(t, 1, 10000, 5001, {})
        assert(m[5001] == t[1] and m[15000] == t[10000])
        table.move(t, 1, 10000, 2)
        assert(t[2] == t[1] and t[10001] == c[1])
        __w('good')";
    let code = sandbox.load("page", source).unwrap();
    let ended = run_code(&sandbox, &code, unhurried());
    assert_eq!((ended.failure, ended.output.as_str()), (None, "good"));
}
