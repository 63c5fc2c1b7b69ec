//! The compiler of active pages, and its escapers.

use flatout_template::{CompiledPage, Escape, MemoryFiles, compile, escape};

pub(crate) const SEEDS: &[&[u8]] = &[
    b"<!doctype html><title><?= v ?></title><p class=\"a <?= v ?>\"><?= v ?></p>",
    b"<a href=\"<?= v ?>\"><img src='/a/<?= v ?>?b=<?= v ?>' srcset=\"/a/<?= v ?> 2x\"><p data-x=\"<?= v ?>\">",
    b"<script>let a = <?= v ?>, b = \"<?= v ?>\"; c = `${a}` / 2; // x\n/[/]/.test(<?= v ?>)</script>",
    b"<p onclick=\"f(<?= v ?>, '<?= v ?>', &quot;<?= v ?>&quot;)\"><textarea><?= v ?></textarea>",
    b"<option<?lua if v then ?> selected<?lua end ?>><?lua for i = 1, 3 do ?><?= i ?>, <?lua end ?></option>",
    b"<script type=\"application/json\">{\"a\": <?= v ?>, \"b\": \"<?= v ?>\"}</script><!-- --><svg><title><?= v ?></title></svg>",
    b"<?lua local t = {\"?>\"} --[[ ?> ]] repeat ?><?= `a{t[1]}` ?><?lua until true ?><noscript><b><?= v ?></b></noscript>",
    b"<?xml version=\"1.0\"?><link rel=\"canonical\" href=\"<?= v ?>\"/><link rel='alternate stylesheet' href='/a/<?= v ?>'>",
];

pub(crate) const VALUES: &[&[u8]] = &[
    b"</script><script>alert(1)</script>",
    b"\"'><img src=x onerror=alert(1)>",
    b"java\nscript:alert(1)",
    b"\xff\0\r\n`${x}`-->",
];

/// A page that compiles is whole: its chunk's lines lead into it, its segments are what is written in it, and with
/// values inserted it is still a page that ends where it should.
pub(crate) fn check_page(bytes: &[u8]) {
    let Ok(template) = compile("page.lhtml", &MemoryFiles::new().file("page.lhtml", bytes)).template else { return };
    assert_eq!(template.chunk.lines().count(), template.lines.len());
    let lines = bytes.split(|&byte| byte == b'\n').count() as u32;
    for line in 1..=template.lines.len() as u32 {
        let place = template.lines.place(line);
        assert!(place.is_some_and(|place| place.line >= 1 && place.line <= lines && place.column >= 1));
    }
    let written =
        (0..template.segments.len()).map(|number| template.segments.range(number).map_or(0, |range| range.len()));
    assert_eq!(written.sum::<usize>(), template.segments.bytes().len());
    let holds = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    if holds(b"<?lua")
        || holds(b"<?include")
        || !template.chunk.lines().all(|line| line.starts_with("if true then __") || line == ")) end")
    {
        // Which parts of it are written is for its code to say.
        return;
    }
    for value in [&b"x"[..], b"</script><!--", b"\"'>`", b"javascript:x", b"*/${"] {
        let page = write(&template, value);
        let again = compile("page.lhtml", &MemoryFiles::new().file("page.lhtml", page.clone()));
        assert!(again.template.is_ok(), "{}", String::from_utf8_lossy(&page));
    }
}

/// The output of a page without statements.
fn write(template: &CompiledPage, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in template.chunk.lines().filter_map(|line| line.strip_prefix("if true then ")) {
        if let Some(number) = line.strip_prefix("__s(").and_then(|rest| rest.split(')').next()) {
            out.extend_from_slice(
                number.parse().ok().and_then(|number| template.segments.get(number)).unwrap_or_default(),
            );
        } else if let Some(escape) = Escape::ALL.iter().find(|escape| line.starts_with(escape.name())) {
            escaper(*escape)(value, &mut out);
        }
    }
    out
}

fn escaper(escape: Escape) -> fn(&[u8], &mut Vec<u8>) {
    match escape {
        Escape::Text => escape::text,
        Escape::Attribute => escape::attribute,
        Escape::UrlPart => escape::url_part,
        Escape::Url => escape::url,
        Escape::Script | Escape::Data => escape::script_string,
        Escape::ScriptText => escape::script_text,
        Escape::Handler => escape::handler_string,
        // Nothing: what is raw is the author's.
        Escape::Raw => |_, _| {},
    }
}

/// No escaper writes what could end its place, and all write UTF-8.
pub(crate) fn check_escapes(bytes: &[u8]) {
    for &escape in Escape::ALL {
        let mut out = Vec::new();
        escaper(escape)(bytes, &mut out);
        assert!(std::str::from_utf8(&out).is_ok(), "{escape:?}");
        assert!(!out.iter().any(|byte| b"<>'\0\r".contains(byte)), "{escape:?}");
        let quotes = out.split(|byte| *byte == b'"').count() - 1;
        let quotes_of_its_own = if matches!(escape, Escape::Script | Escape::Data) { 2 } else { 0 };
        assert_eq!(quotes, quotes_of_its_own, "{escape:?}");
    }
}
