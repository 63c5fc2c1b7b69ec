//! Compiles pages, and runs the chunks in a plain interpreter.

use super::context::Context;
use super::{Compiled, CompiledPage, Escape, MemoryFiles, compile, escape};
use flatout_config::Code;
use flatout_config::diagnostic::Span;
use mlua::{Lua, Value};
use proptest::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;

fn compiled(page: &str) -> Compiled {
    compile("page.lhtml", &MemoryFiles::new().file("page.lhtml", page))
}

fn template(page: &str) -> CompiledPage {
    compiled(page).template.unwrap_or_else(|found| panic!("{page}\n{found}"))
}

fn codes(page: &str) -> Vec<Code> {
    match compiled(page).template {
        Ok(_) => Vec::new(),
        Err(found) => found.list.iter().map(|diagnostic| diagnostic.code).collect(),
    }
}

/// The functions that the chunk calls for insertions, by their last letters.
fn functions(page: &str) -> String {
    let chunk = template(page).chunk;
    chunk
        .match_indices("if true then __")
        .filter_map(|(at, found)| chunk[at + found.len()..].chars().next())
        .filter(|c| *c != 's')
        .collect()
}

fn write(escape: Escape, value: &[u8], out: &mut Vec<u8>) {
    let escaper = match escape {
        Escape::Text => escape::text,
        Escape::Attribute => escape::attribute,
        Escape::UrlPart => escape::url_part,
        Escape::Url => escape::url,
        Escape::Script | Escape::Data => escape::script_string,
        Escape::ScriptText => escape::script_text,
        Escape::Handler => escape::handler_string,
        Escape::Raw => |value: &[u8], out: &mut Vec<u8>| out.extend_from_slice(value),
    };
    escaper(value, out);
}

/// Runs a page with `v` set.
fn run(template: &CompiledPage, v: &[u8]) -> String {
    let lua = Lua::new();
    let out = Rc::new(RefCell::new(Vec::new()));
    let segments = template.segments.clone();
    let target = out.clone();
    let segment = lua.create_function(move |_, number: usize| {
        target.borrow_mut().extend_from_slice(segments.get(number).unwrap());
        Ok(())
    });
    lua.globals().set("__s", segment.unwrap()).unwrap();
    for &escape in Escape::ALL {
        let target = out.clone();
        let function = lua.create_function(move |_, value: Value| {
            write(escape, &value.to_string().unwrap().into_bytes(), &mut target.borrow_mut());
            Ok(())
        });
        lua.globals().set(escape.name(), function.unwrap()).unwrap();
    }
    lua.globals().set("v", lua.create_string(v).unwrap()).unwrap();
    lua.load(&template.chunk).exec().unwrap_or_else(|error| panic!("{}\n{error}", template.chunk));
    let out = out.borrow().clone();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_escaper_is_that_of_the_place() {
    for (page, expected) in [
        ("<p><?= v ?></p>", "w"),
        ("<?= v ?> a < <?= v ?> &amp;<?= v ?> & <?= v ?>", "wwww"),
        ("<title><?= v ?></title><textarea><?= v ?></textarea><pre><?= v ?></pre>", "www"),
        ("<p title=\"<?= v ?>\" class='a <?= v ?>' data-x=\"<?= v ?>\">", "aaa"),
        ("<a href=\"<?= v ?>\">", "h"),
        ("<a href=\"/x/<?= v ?>?a=<?= v ?>&amp;b=<?= v ?>#<?= v ?>\">", "uuuu"),
        ("<a href=\"<?= v ?>/<?= v ?>\">", "hu"),
        ("<img src='https://<?= v ?>/'><form action=\"<?= v ?>\"><p data-src=\"<?= v ?>\">", "uhh"),
        ("<svg><a xlink:href=\"<?= v ?>\"><title><?= v ?></title></a></svg>", "hw"),
        ("<img srcset=\"/a/<?= v ?>.png 1x, /b/<?= v ?>.png 2x\">", "uu"),
        ("<script src=\"/js/<?= v ?>.js\"></script>", "u"),
        ("<link rel=\"canonical\" href=\"<?= v ?>\"><link rel=next href='<?= v ?>/x?<?= v ?>'>", "hhu"),
        (
            "<link rel=\"Shortcut ICON\" type=\"image/png\" href=\"<?= v ?>\"><link rel=prev title=x href=\"<?= v ?>\"/>",
            "hh",
        ),
        ("<link <?lua if v then ?>rel='next'<?lua else ?>rel='prev'<?lua end ?> href=\"<?= v ?>\">", "h"),
        ("<link rel=alternate hreflang=\"<?= v ?>\" href=\"<?= v ?>\">", "ah"),
        (
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<?xml-stylesheet href=\"/a.xsl\"?><urlset><loc><?= v ?></loc></urlset>",
            "w",
        ),
        ("<feed><title><?= v ?></title><link rel=\"self\" href=\"<?= v ?>\"/></feed>", "wh"),
        ("<map><area href=\"<?= v ?>\"></map><input type=image src=\"<?= v ?>\"><source src=\"<?= v ?>\">", "hhh"),
        ("<video poster=\"<?= v ?>\"><track src=\"<?= v ?>\"></video>", "hh"),
        ("<script>let a = <?= v ?>, b = \"<?= v ?>\", c = '<?= v ?>';</script>", "jqq"),
        ("<script>x(<?= v ?>) / 2; // \"\n y = `${<?= v ?>}` + /[\"/]/.test(<?= v ?>);</script>", "jjj"),
        ("<script>if (a < b && c > d) { f({a: <?= v ?>}) } else return /\"/; g(<?= v ?>)</script>", "jj"),
        ("<script>if (a) /\"/.test(b); f((c) / <?= v ?>); x = {} / 2\n y(<?= v ?>)</script>", "jj"),
        ("<script type=\"application/json\">{\"a\": <?= v ?>, \"b\": \"<?= v ?>\"}</script>", "dq"),
        ("<script type=module>import('/x'); f(<?= v ?>)</script>", "j"),
        ("<p onclick=\"f(<?= v ?>, '<?= v ?>', &quot;<?= v ?>&quot;)\">", "eqq"),
        ("<p onclick='a &amp;&amp; f(<?= v ?>)'>", "e"),
        ("<meta name=\"description\" content=\"<?= v ?>\">", "a"),
        ("<!-- a --><!--> <?= v ?><!---><?= v ?><!doctype html><?= v ?><!-- --!><?= v ?>", "wwww"),
        ("<style>a > b { color: red }</style><?= v ?>", "w"),
        ("<iframe src=\"<?= v ?>\"></iframe><?= v ?>", "hw"),
        (
            "<?raw v ?><p title=\"<?raw v ?>\"><style><?raw v ?></style><script>`<?raw v ?>`</script><p <?raw v ?>>",
            "rrrrr",
        ),
        ("<noscript><p title=\"<?= v ?>\"><?= v ?></p></noscript>", "aw"),
        ("<select><option value=\"<?= v ?>\"><?= v ?></select><script>if (a<b) f(<?= v ?>)</script>", "awj"),
        ("<p\n class = \"<?= v ?>\"/><br/><?= v ?></p\n>", "aw"),
        (
            "<?lua local function f(a: number?, b: {x: string} ): number return if a then 1 else 2 end ?><?= f(1, {x = \"?>\"}) ?>",
            "w",
        ),
        ("<?= if v then v else \"b\" ?><?= `a{v}b` ?><?= [[ ?> ]] ?><?= v -- note ?>", "wwww"),
        ("<?= (function() local a, b = 1, 2; return a end)() ?>", "w"),
    ] {
        assert_eq!(functions(page), expected, "{page}");
    }
}

#[test]
fn a_place_that_cannot_be_told_is_an_error() {
    for (page, code) in [
        ("<<?= v ?>>", Code::InTag),
        ("</<?= v ?>>", Code::InTag),
        ("<p<?= v ?>>", Code::InTag),
        ("<p <?= v ?>>", Code::InTag),
        ("<p <?= v ?>=\"\">", Code::InTag),
        ("<p a<?= v ?>=\"\">", Code::InTag),
        ("<p a=\"\"<?= v ?>>", Code::InTag),
        ("<p a=<?= v ?>>", Code::InUnquoted),
        ("<p a=b<?= v ?>>", Code::InUnquoted),
        ("<!-- <?= v ?> -->", Code::InComment),
        ("<!doctype <?= v ?>>", Code::InComment),
        ("<!--!><?= v ?>-->", Code::InComment),
        ("<style>a { color: <?= v ?> }</style>", Code::InStyle),
        ("<p style=\"width: <?= v ?>\">", Code::InStyle),
        ("<script>`<?= v ?>`</script>", Code::InScript),
        ("<script>/<?= v ?>/.test(a)</script>", Code::InScript),
        ("<script>// <?= v ?>\n</script>", Code::InScript),
        ("<script>/* <?= v ?> */</script>", Code::InScript),
        ("<script>if (a) / <?= v ?></script>", Code::InScript),
        ("<script>{} / <?= v ?></script>", Code::InScript),
        ("<script>{} /\"/.test(b); f(<?= v ?>)</script>", Code::InScript),
        ("<script>\"a\n<?= v ?>\"</script>", Code::InScript),
        ("<script>\"\\<?= v ?>\"</script>", Code::InScript),
        ("<script>a<?= v ?></script>", Code::InScript),
        ("<script type=\"text/template\"><?= v ?></script>", Code::InScript),
        ("<script type=\"importmap\"><?= v ?></script>", Code::InScript),
        ("<script type=\"<?= v ?>\"></script>", Code::InAttribute),
        ("<script>\"</scr<?= v ?>\"</script>", Code::InElement),
        ("<script>a <<?= v ?></script>", Code::InElement),
        ("<script src=\"<?= v ?>\"></script>", Code::InUrl),
        ("<script src=\"https://<?= v ?>/\"></script>", Code::InUrl),
        ("<script src=\"/<?lua if v then ?>/<?lua end ?><?= v ?>\"></script>", Code::InEither),
        ("<link rel=stylesheet href=\"<?= v ?>\">", Code::InUrl),
        ("<link href=\"<?= v ?>\" rel=canonical>", Code::InUrl),
        ("<link rel=\"alternate stylesheet\" href=\"<?= v ?>\">", Code::InUrl),
        ("<link rel=\"style&#115;heet\" href=\"<?= v ?>\">", Code::InUrl),
        ("<link rel=stylesheet rel=canonical href=\"<?= v ?>\">", Code::InUrl),
        (
            "<link rel=\"icon                                                     stylesheet\" href=\"<?= v ?>\">",
            Code::InUrl,
        ),
        ("<link <?lua if v then ?>rel='next'<?lua else ?>rel='preload'<?lua end ?> href=\"<?= v ?>\">", Code::InUrl),
        ("<link rel=<?lua if v then ?>next<?lua else ?>manifest<?lua end ?> href=\"<?= v ?>\">", Code::InUrl),
        ("<link <?lua if v then ?>rel='next'<?lua end ?> href=\"<?= v ?>\">", Code::InUrl),
        ("<link x:rel=icon rel=stylesheet href=\"<?= v ?>\">", Code::InUrl),
        ("<link rel=icon><link href=\"<?= v ?>\">", Code::InUrl),
        ("<link rel=\"<?= v ?>\">", Code::InAttribute),
        ("<?xml version=\"<?= v ?>\"?>", Code::InComment),
        ("<?xml version=\"1.0\"", Code::MarkupOpen),
        ("<base href=\"<?= v ?>\">", Code::InUrl),
        ("<object data=\"<?= v ?>\"></object>", Code::InUrl),
        ("<embed src=\"<?= v ?>\">", Code::InUrl),
        ("<a href=\"javascript:<?= v ?>\">", Code::InUrl),
        ("<a href=\"java&#115;cript&colon;<?= v ?>\">", Code::InUrl),
        ("<a href=\"data:text/html,<?= v ?>\">", Code::InUrl),
        ("<a href=\"<?= v ?>:<?= v ?>\">", Code::InUrl),
        ("<a href=\"java<?= v ?>:<?= v ?>\">", Code::InUrl),
        ("<img srcset=\"<?= v ?> 2x\">", Code::InUrl),
        ("<img srcset=\"/a 2x, <?= v ?>\">", Code::InUrl),
        ("<img srcset=\"/a <?= v ?>\">", Code::InUrl),
        ("<iframe srcdoc=\"<?= v ?>\"></iframe>", Code::InAttribute),
        ("<meta http-equiv=refresh content=\"0;url=<?= v ?>\">", Code::InAttribute),
        ("<meta content=\"0;url=<?= v ?>\" http-equiv=refresh>", Code::MarkupUnclear),
        ("<p @click=\"<?= v ?>\">", Code::InAttribute),
        ("<p :href=\"<?= v ?>\">", Code::InAttribute),
        ("<p v-html=\"<?= v ?>\">", Code::InAttribute),
        ("<p x-data=\"<?= v ?>\">", Code::InAttribute),
        ("<p hx-on:click=\"<?= v ?>\">", Code::InAttribute),
        ("<svg><set attributeName=href to=\"<?= v ?>\"/></svg>", Code::InAttribute),
        ("<svg><script>f(<?= v ?>)</script></svg>", Code::InElement),
        ("<xmp><?= v ?></xmp>", Code::InElement),
        ("<iframe><?= v ?></iframe>", Code::InElement),
        ("&<?= v ?>", Code::InReference),
        ("&#<?= v ?>", Code::InReference),
        ("<a href=\"/?a&<?= v ?>\">", Code::InReference),
        ("<svg><style><a title='</style>'></style></svg>", Code::MarkupUnclear),
        ("<svg><![CDATA[ ]]></svg>", Code::MarkupUnclear),
        ("<svg><script/></script></svg>", Code::MarkupUnclear),
        ("<noscript><p title=\"</noscript>\"></noscript>", Code::MarkupUnclear),
        ("<noscript><!-- </noscript> --></noscript>", Code::MarkupUnclear),
        ("<script><!-- </script>", Code::MarkupUnclear),
        ("<plaintext>", Code::MarkupUnclear),
        ("<p title=\"", Code::MarkupOpen),
        ("<script>", Code::MarkupOpen),
        ("<!-- ", Code::MarkupOpen),
    ] {
        assert_eq!(codes(page), [code], "{page}");
    }
}

#[test]
fn code_that_is_not_in_one_piece_is_an_error() {
    for (page, code) in [
        ("<?= v", Code::CodeUnclosed),
        ("<?lua local a = \"?>", Code::LuauBad),
        ("<?lua --[[ ?>", Code::LuauBad),
        ("<?php v ?>", Code::InsertionUnknown),
        ("<?xmlrpc ?>", Code::InsertionUnknown),
        ("<?xml?>", Code::InsertionUnknown),
        ("<?luav ?>", Code::InsertionUnknown),
        ("<?= v) evil( ?>", Code::LuauBad),
        ("<?= (v ?>", Code::StatementUnfinished),
        ("<?= ?>", Code::ExpressionBad),
        ("<?= -- nothing ?>", Code::ExpressionBad),
        ("<?= a, b ?>", Code::ExpressionBad),
        ("<?= a; b ?>", Code::ExpressionBad),
        ("<?= a = b ?>", Code::ExpressionBad),
        ("<?= a + ?>", Code::ExpressionBad),
        ("<?= if a then b ?>", Code::ExpressionBad),
        ("<?= v end ?>", Code::BlockStray),
        ("<?= `a{{v}}` ?>", Code::LuauBad),
        ("<?lua __w(v) ?>", Code::NameReserved),
        ("<?lua if v then ?>", Code::BlockUnclosed),
        ("<?lua end ?>", Code::BlockStray),
        ("<?lua else ?>", Code::BlockStray),
        ("<?lua if v then ?><?lua else ?><?lua else ?><?lua end ?>", Code::BlockStray),
        ("<?lua if v then else elseif v then end ?>", Code::BlockStray),
        ("<?lua repeat ?><?lua end ?>", Code::BlockStray),
        ("<?lua if v ?>", Code::StatementUnfinished),
        ("<?lua while v ?>a<?lua do end ?>", Code::StatementUnfinished),
        ("<?lua local x = v and ?>a", Code::StatementUnfinished),
        ("<?lua x = ?>a", Code::StatementUnfinished),
        ("<?lua return ?>a", Code::StatementUnfinished),
        ("<?lua f( ?>a<?lua ) ?>", Code::StatementUnfinished),
        ("<?lua local function f() ?>a<?lua end ?>", Code::FunctionAround),
        ("<?lua x = if v then ?>a<?lua else b ?>", Code::StatementUnfinished),
        ("<?lua x = a > if b then c else d ?>", Code::StatementUnfinished),
        ("<?include file ?>", Code::PartForm),
        ("<?include \"a\" .. \"b\" ?>", Code::PartForm),
        ("<?include \"../a\" ?>", Code::PartForm),
        ("<?include \"/a\" ?>", Code::PartForm),
        ("<?include \"a//b\" ?>", Code::PartForm),
        ("<?include \"page.lhtml\" ?>", Code::PartCycle),
        ("<?include \"./x/../page.lhtml\" ?>", Code::PartCycle),
        ("<?include \"nowhere\" ?>", Code::PartMissing),
    ] {
        assert!(codes(page).contains(&code), "{page}: {:?}", codes(page));
    }
}

#[test]
fn branches_end_in_the_same_place_or_not_at_all() {
    for page in [
        "<option<?lua if v then ?> selected<?lua end ?>>a</option>",
        "<option <?lua if v then ?>selected <?lua end ?>value=\"a\">",
        "<option<?lua if v then ?> selected=\"\"<?lua else ?> disabled<?lua end ?> value='<?= v ?>'>",
        "<?lua if a then ?><p><?lua elseif b then ?><i><?lua else ?><b><?lua end ?>",
        "<p<?lua for i = 1, 3 do ?> data-<?lua end ?>>",
        "<p <?lua for i = 1, 3 do ?>title=\"<?= i ?>\" <?lua end ?>>",
        "<a href=\"<?lua if v then ?>/a<?lua else ?>https://b/<?lua end ?>\">",
        "<a href=\"<?lua if v then ?>/a<?lua else ?>https://b/<?lua end ?><?= v ?>\">",
        "<script>let a = <?lua if v then ?>1<?lua else ?>\"x\"<?lua end ?>; let b = <?= v ?>;</script>",
        "<script>let a = [<?lua for i = 1, 3 do ?><?= i ?>, <?lua end ?>];</script>",
        "<?lua while true do ?><p><?lua if v then break end ?></p><?lua end ?>",
        "<?lua repeat ?><p><?lua until v ?>",
        "<?lua do ?><p title=\"<?lua end ?><?= v ?>\">",
        "<p title=\"<?lua if v then return end ?>\">",
        "<svg><?lua if v then ?><style>a{}</style><?lua end ?></svg>",
    ] {
        assert_eq!(codes(page), [], "{page}");
    }
    for (page, code) in [
        ("<?lua if v then ?><p title=\"<?lua end ?>a\">", Code::BranchesDiffer),
        ("<?lua if v then ?><script><?lua end ?>a</script>", Code::BranchesDiffer),
        ("<?lua if v then ?><!--<?lua else ?>a<?lua end ?>-->", Code::BranchesDiffer),
        ("<?lua for i = 1, 2 do ?><p <?lua end ?>>", Code::BranchesDiffer),
        (
            "<p title=<?lua if v then ?>\"a\"<?lua else ?>'b'<?lua end ?> title=<?lua if v then ?>\"<?lua else ?>'<?lua end ?>",
            Code::BranchesDiffer,
        ),
        ("<p title=\"<?lua while true do if v then break end ?>\"<?lua end ?>>", Code::BranchesDiffer),
        ("<?lua while true do ?><p title=\"<?lua if v then break end ?>\"><?lua end ?>", Code::BranchesDiffer),
        ("<?lua while true do ?><p title=\"<?lua if v then continue end ?>\"><?lua end ?>", Code::BranchesDiffer),
        (
            "<p <?lua if v then ?>on<?lua else ?>on<?lua end ?>click=\"<?= v ?>\" <?lua if v then ?>a<?lua else ?>b<?lua end ?>=\"\">",
            Code::MarkupUnclear,
        ),
        ("<p <?lua if v then ?>a <?lua else ?>b <?lua end ?>= \"<?= v ?>\">", Code::MarkupUnclear),
        ("<p <?lua if v then ?>a<?lua end ?>b=\"x\">", Code::MarkupUnclear),
        ("<?lua if v then ?><svg><?lua end ?>", Code::BranchesDiffer),
        ("<script><?lua if v then ?>\"<?lua end ?>a<?= v ?>\"</script>", Code::InScript),
        ("<script>let a = <?lua if v then ?>1<?lua else ?>+<?lua end ?> / <?= v ?>;</script>", Code::InScript),
        ("<script type=\"<?lua if v then ?>module<?lua else ?>text/x<?lua end ?>\"><?= v ?></script>", Code::InScript),
    ] {
        assert!(codes(page).contains(&code), "{page}: {:?}", codes(page));
    }
}

#[test]
fn a_page_runs_in_the_order_it_is_written() {
    let page = "<?lua local n = 0 ?>\n<ul>\n<?lua for i = 1, 3 do n += i ?>\n  <li><?= v .. i -- the value ?></li>\n<?lua end ?>\n</ul><?= n ?>";
    let expected = "<ul>\n  <li>&lt;1</li>\n  <li>&lt;2</li>\n  <li>&lt;3</li>\n</ul>6";
    assert_eq!(run(&template(page), b"<"), expected);
    let page = "<?lua if v == \"a\" then ?>A<?lua elseif v == \"b\" then ?>B<?lua else ?>C<?lua end ?>.";
    for (v, expected) in [("a", "A."), ("b", "B."), ("c", "C.")] {
        assert_eq!(run(&template(page), v.as_bytes()), expected);
    }
    assert_eq!(run(&template("a<?lua do return end ?>b"), b""), "a");
    assert_eq!(
        run(&template("<textarea><?= v ?></textarea><pre>\n<?= v ?></pre>"), b"\nx"),
        "<textarea>\n\nx</textarea><pre>\n\nx</pre>"
    );
    assert_eq!(run(&template("\u{feff}a"), b""), "a");
    assert_eq!(run(&template("<?= (v) ?><?lua (print or v)() ?>b"), b"a"), "ab");
}

#[test]
fn a_page_without_code_is_one_segment() {
    let page = template("<p>a</p><?lua -- a note ?>\n<?lua --[[ <?= v ?> ]] ?>b");
    assert!(page.is_static() && page.segments.len() == 1);
    assert_eq!(page.segments.get(0), Some(&b"<p>a</p>b"[..]));
    assert!(template("").segments.is_empty() && template("").is_static());
    assert!(!template("<?lua x = 1 ?>").is_static());
}

#[test]
fn a_line_of_the_chunk_leads_to_the_page() {
    let page = template("a\n<?lua\n  local x = 1\n  error(x)\n?>\n\n  b <?= v\n   .. x ?>");
    let place = |needle: &str| {
        let line = page.chunk.lines().position(|line| line.contains(needle)).unwrap() as u32 + 1;
        let place = page.lines.place(line).unwrap();
        (place.line, place.column)
    };
    assert_eq!(place("__s(0)"), (1, 1));
    assert_eq!(place("local x"), (3, 3));
    assert_eq!(place("error(x)"), (4, 3));
    assert_eq!(place("__w(("), (7, 9));
    assert_eq!(place(".. x"), (8, 4));
    assert_eq!(page.chunk.lines().count(), page.lines.len());
    assert_eq!(page.lines.place(0), None);
    assert_eq!(page.lines.place(99), None);
}

#[test]
fn includes_see_the_page_and_keep_their_own() {
    let files = MemoryFiles::new()
        .file(
            "a/page.lhtml",
            "<?lua local x = v ?><?include \"../_b.lhtml\" ?>\n<?= tostring(y) ?><?include '_c.lhtml' ?>",
        )
        .file("_b.lhtml", "<?lua local y = 1 ?>[<?= x ?>]")
        .file("a/_c.lhtml", "<b>");
    let compiled = compile("a/page.lhtml", &files);
    let template = compiled.template.unwrap();
    assert_eq!(compiled.files, ["a/page.lhtml", "_b.lhtml", "a/_c.lhtml"]);
    assert_eq!(run(&template, b"&"), "[&amp;]nil<b>");
    let line = template.chunk.lines().position(|line| line.contains("local y")).unwrap() as u32 + 1;
    assert_eq!(template.lines.place(line).unwrap().file, "_b.lhtml");
    // An include closes what it opens, and its place is that of the include.
    let files = |part: &str| {
        MemoryFiles::new()
            .file("p.lhtml", "<?lua if v then ?><p title=\"<?include \"_i\" ?>\"><?lua end ?>")
            .file("_i", part)
    };
    assert!(compile("p.lhtml", &files("<?= v ?>")).template.unwrap().chunk.contains("__a(("));
    assert!(compile("p.lhtml", &files("<?lua end ?>")).template.is_err());
    assert!(compile("p.lhtml", &files("<?lua if v then ?>")).template.is_err());
    let missing = compile("p.lhtml", &MemoryFiles::new().file("p.lhtml", "<?include \"_i\" ?>"));
    assert_eq!((missing.template.is_err(), missing.files.len()), (true, 2));
}

#[test]
fn includes_are_bounded() {
    let mut files = MemoryFiles::new().file("page.lhtml", "<?include \"_0\" ?>");
    for level in 0..20 {
        files = files.file(format!("_{level}"), format!("<?include \"_{}\" ?>", level + 1));
    }
    let found = compile("page.lhtml", &files.file("_20", "")).template.unwrap_err();
    assert_eq!(found.list[0].code, Code::PageTooLarge);
    let many = "<?include \"_a\" ?>".repeat(20);
    let twice = |inner: &str| {
        MemoryFiles::new().file("page.lhtml", many.as_str()).file("_a", inner.replace("_a", "_b")).file("_b", "x")
    };
    assert_eq!(compile("page.lhtml", &twice(&many)).template.unwrap_err().list[0].code, Code::PageTooLarge);
    let large = MemoryFiles::new().file("page.lhtml", "<?include \"_a\" ?>".repeat(8)).file("_a", "x".repeat(700_000));
    assert_eq!(compile("page.lhtml", &large).template.unwrap_err().list[0].code, Code::PageTooLarge);
    assert_eq!(codes(&"x".repeat(super::FILE_BYTES_MAX + 1)), [Code::PageTooLarge]);
    assert_eq!(codes("a\0b"), [Code::PageNotText]);
}

#[test]
fn loops_within_loops_end() {
    let open = "<?lua for i = 1, 2 do ?><script>a(<?lua if v then ?>/<?lua end ?></script>".repeat(100);
    let page = format!("{open}{}", "<?lua end ?>".repeat(100));
    let _ = codes(&page);
    let deep = format!("{}{}", "<?lua do ?>".repeat(300), "<?lua end ?>".repeat(300));
    assert!(codes(&deep).contains(&Code::PageTangled));
}

#[test]
fn a_diagnostic_points_at_the_insertion() {
    let text = compiled("<ul>\n  <li class=<?= v ?>>\n</ul>").template.unwrap_err().to_string();
    let expected = "error: an attribute's value that contains an insertion must be in quotes";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("page.lhtml:2:13") && text.contains("^^^^^^^^"), "{text}");
    assert!(text.contains("as in: class=\"<?= … ?>\"") && text.contains("flatout help P0302"), "{text}");
}

/// A browser's tokenization of a text: its states, and those of its scripts.
fn shape(text: &str) -> Vec<String> {
    let mut context = Context::new();
    let mut shape: Vec<String> = Vec::new();
    for character in text.chars() {
        let _ = context.advance(character, Span::default());
        let script = context.script.as_ref().map(super::script::Script::place);
        if script.is_some_and(|place| format!("{place:?}").contains("backslash")) {
            // Within an escape, which is the part that differs between values.
            continue;
        }
        let now = format!("{:?} {} {script:?}", context.state, String::from_utf8_lossy(context.tag.name.bytes()));
        if shape.last() != Some(&now) {
            shape.push(now);
        }
    }
    shape
}

/// Pages composed of meaningful pieces.
fn pages() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "<?= v ?>",
        "<?= v ?>",
        "<?= v ?>",
        "<?= v ?>",
        "<?lua if v then ?>",
        "<?lua else ?>",
        "<?lua end ?>",
        "<?lua for i = 1, 2 do ?>",
        "<p>",
        "<p ",
        "title",
        "=",
        "\"",
        "'",
        ">",
        "</p>",
        "<",
        "/",
        "&",
        "&amp;",
        "a",
        " ",
        "\n",
        "<a href=\"",
        "onclick=\"",
        "f(",
        ")",
        "<script>",
        "</script>",
        "<style>",
        "</style>",
        "<!--",
        "-->",
        "<textarea>",
        "</textarea>",
        "<svg>",
        "</svg>",
        "`",
        "${",
        "}",
        "{",
        "//",
        "/*",
        "*/",
        "\\",
        "javascript:",
        ":",
        "https://",
        "?",
        "#",
        ";",
        "<title>",
        "</title>",
        "<noscript>",
        "</noscript>",
        "<img srcset=\"",
        ",",
        "<meta content=\"",
        "http-equiv",
        "<select>",
        "</select>",
        "return ",
        "x",
        "1",
        "+",
        "-",
        "&quot;",
        "<script type=\"application/json\">",
    ]);
    prop::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

    /// The guarantee: whatever is inserted, the page is parsed in the same way.
    #[test]
    fn no_value_changes_how_the_page_is_read(page in pages(), value in prop::collection::vec(prop::sample::select(vec![
        "<script>", "</script>", "\"", "'", ">", "<", "&", "/", "\\", "`", "${", "javascript:", "-->", "*/", "\n", "a", " ", "=", "]]>",
        "onclick", "//", "\u{2028}", "</textarea>", "</title>", "</noscript>", ")", ";",
    ]), 0..6)) {
        if let Ok(template) = compiled(&page).template {
            let value = value.concat();
            let hostile = run(&template, value.as_bytes());
            // An ordinary value that is empty if the other is, because the presence of a value may be visible.
            let plain = run(&template, if value.is_empty() { b"" } else { b"x" });
            prop_assert_eq!(shape(&hostile), shape(&plain), "{}\n{}\n{}", page, hostile, plain);
        }
    }

    #[test]
    fn any_text_compiles_or_is_refused(page in "\\PC{0,60}") {
        let _ = compiled(&page);
    }
}
