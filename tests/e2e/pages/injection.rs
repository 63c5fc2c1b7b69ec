//! Attack payloads are displayed and never run: for every context that takes an insertion, a real browser reads a page
//! that inserts all payloads there. The payloads are of the kinds in OWASP's and PortSwigger's cheat sheets.

use super::{page, site};
use crate::e2e::browser::Browser;
use std::fmt::Write as _;

/// Each calls `alert` in some context if it is not escaped for that context.
const PAYLOADS: &[&str] = &[
    // Elements and their event handlers.
    "<script>alert(1)</script>",
    "<SCRIPT SRC=data:,alert(2)></SCRIPT>",
    "<scr<script>ipt>alert(3)</scr</script>ipt>",
    "<img src=x onerror=alert(4)>",
    "<img src=x onerror=alert(5)//",
    "<svg onload=alert(6)>",
    "<svg/onload=alert(7)>",
    "<svg><script>alert(8)</script></svg>",
    "<svg><animate onbegin=alert(9) attributeName=x dur=1s>",
    "<math><mtext><style><img src=x onerror=alert(10)>",
    "<body onload=alert(11)>",
    "<iframe src=\"javascript:parent.alert(12)\"></iframe>",
    "<iframe srcdoc=\"<script>parent.alert(13)</script>\"></iframe>",
    "<details open ontoggle=alert(14)>",
    "<input autofocus onfocus=alert(15)>",
    "<object data=\"data:text/html,<script>parent.alert(16)</script>\"></object>",
    "<meta http-equiv=refresh content=\"0;url=javascript:alert(17)\">",
    "<a href=javascript:alert(18)>x</a>",
    "<style>@import'data:,*{x:expression(alert(19))}';</style>",
    "<template><img src=x onerror=alert(20)></template>",
    "<noscript><p title=\"</noscript><img src=x onerror=alert(21)>\">",
    "<!--<img src=\"--><img src=x onerror=alert(22)//\">",
    "<![CDATA[<img src=x onerror=alert(23)>]]>",
    "<?xml version=\"1.0\"?><img src=x onerror=alert(24)>",
    "<xmp><img src=x onerror=alert(25)>",
    // Payloads that break out of an element's text.
    "</script><script>alert(26)</script>",
    "</ScRiPt ><img src=x onerror=alert(27)>",
    "</textarea><img src=x onerror=alert(28)>",
    "</title><script>alert(29)</script>",
    "</style><script>alert(30)</script>",
    "</noscript><script>alert(31)</script>",
    "--><script>alert(32)</script>",
    "<!--<script>alert(33)</script>-->",
    "<!--<script>",
    // Payloads that break out of an attribute.
    "\"><script>alert(34)</script>",
    "'><script>alert(35)</script>",
    "\" onmouseover=\"alert(36)",
    "' onfocus='alert(37)' autofocus='",
    "\" autofocus onfocus=alert(38) x=\"",
    "` onerror=alert(39) `",
    "x onload=alert(40)",
    "\" style=\"animation-name:x\" onanimationstart=\"alert(41)",
    // Payloads that break out of strings and values in scripts.
    "\";alert(42);//",
    "';alert(43);//",
    "\\\";alert(44);//",
    "\\';alert(45);//",
    "\\",
    "\\\\",
    "-alert(46)-",
    "'-alert(47)-'",
    "\"-alert(48)-\"",
    "${alert(49)}",
    "`;alert(50);`",
    "\nalert(51)//",
    "\r\nalert(52)//",
    "\u{2028}alert(53)//",
    "\u{2029}alert(54)//",
    "*/alert(55)/*",
    "//",
    "]]>alert(56)",
    "});alert(57);({",
    "\\u0022;alert(58);//",
    "\\x27;alert(59);//",
    "&quot;);alert(60);//",
    "&#39;);alert(61);//",
    "&#x27;);alert(62);//",
    "&lt;img src=x onerror=alert(63)&gt;",
    "%22%3Ealert(64)",
    "%3Cscript%3Ealert(65)%3C/script%3E",
    "\\u003cscript\\u003ealert(66)\\u003c/script\\u003e",
    // URLs that run scripts.
    "javascript:alert(67)",
    "JaVaScRiPt:alert(68)",
    " javascript:alert(69)",
    "\tjavascript:alert(70)",
    "java\nscript:alert(71)",
    "java\tscript:alert(72)",
    "\u{1}javascript:alert(73)",
    "javascript://%0aalert(74)",
    "javascript:parent.alert(75)",
    "javascript&colon;alert(76)",
    "javascript&#58;alert(77)",
    "java&#x09;script:alert(78)",
    "&#106;avascript:alert(79)",
    "data:text/html,<script>parent.alert(80)</script>",
    "data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==",
    "vbscript:msgbox(81)",
    "view-source:javascript:alert(82)",
    "feed:javascript:alert(83)",
    "blob:javascript:alert(84)",
    "//\\javascript:alert(85)",
    // Miscellaneous.
    "+ADw-script+AD4-alert(86)+ADw-/script+AD4-",
    "{{constructor.constructor('alert(87)')()}}",
    "__proto__",
    "jaVasCript:/*-/*`/*\\`/*'/*\"/**/(/* */oNcliCk=alert(88) )//%0D%0A%0d%0a//</stYle/</titLe/</teXtarEa/</scRipt/--!>\\x3csVg/<sVg/oNloAd=alert(89)//>\\x3e",
    "\u{feff}<script>alert(90)</script>",
    "größe <b>大きさ</b> \u{1f600}",
    "",
];

/// The beginning of a page: `payloads` in Luau, encoded in hexadecimal, and code that detects when one of them runs.
fn head(payloads: &[&str]) -> String {
    let (mut luau, mut hexadecimal) = (String::new(), String::new());
    for payload in payloads {
        luau.push('"');
        for byte in payload.bytes() {
            write!(luau, "\\{byte:03}").unwrap();
            write!(hexadecimal, "{byte:02x}").unwrap();
        }
        luau.push_str("\", ");
        hexadecimal.push('.');
    }
    format!(
        "<?lua local payloads = {{ {luau} }} ?>\n<!doctype html><meta charset=utf-8><title>injection</title><body>\n<pre id=counts>{hexadecimal}</pre>\n\
         <script>
         window.ran = []; window.got = []; window.wrong = [];
         for (const name of ['alert', 'msgbox', 'prompt', 'confirm']) window[name] = what => ran.push(String(what));
         const bytes = text => new Uint8Array((text.match(/../g) || []).map(pair => parseInt(pair, 16)));
         const decoder = new TextDecoder('utf-8', {{ignoreBOM: true}});
         window.expected = counts.textContent.split('.').slice(0, -1).map(text => decoder.decode(bytes(text)));
         window.compare = values => {{
           if (values.length !== expected.length) wrong.push('there are ' + values.length);
           values.forEach((value, at) => {{ if (value !== expected[at]) wrong.push(JSON.stringify([expected[at], value])); }});
         }};
         window.cases = () => [...document.querySelectorAll('.case')];
         </script>\n"
    )
}

/// The end of a page: once everything has loaded, `script` compares, and the verdict is written.
fn tail(script: &str) -> String {
    format!(
        "\n<script>
         setTimeout(() => {{
           try {{ {script} }} catch (error) {{ wrong.push(String(error)); }}
           setTimeout(() => {{
             const verdict = document.createElement('pre');
             verdict.textContent = 'verdict: ' + ran.length + ' ran, ' + wrong.length + ' wrong, of ' + expected.length + '.' +
               ran.join(' ') + ' ' + wrong.join(' ');
             document.documentElement.replaceChildren(verdict);
           }}, 500);
         }}, 1500);
         </script>\n"
    )
}

/// Has a browser read a page that inserts every payload into `each`, and returns the page's verdict.
fn verdict(payloads: &[&str], each: &str, script: &str) -> String {
    let text = format!("{}<?lua for _, v in payloads do ?>{each}\n<?lua end ?>{}", head(payloads), tail(script));
    let (_folder, server) = site(&[("site/index.lhtml", &text)], "cpu-limit \"1s\"", "");
    let sent = page(&server, "/");
    let dom = Browser::new().dom(&server.url("/"));
    let at = dom.find("verdict: ").unwrap_or_else(|| panic!("no verdict in {dom}\n{sent}"));
    dom[at..].chars().take(3000).collect()
}

fn assert_escaped(each: &str, script: &str) {
    let verdict = verdict(PAYLOADS, each, script);
    assert!(verdict.starts_with(&format!("verdict: 0 ran, 0 wrong, of {}.", PAYLOADS.len())), "{each}\n{verdict}");
}

/// The code that detects a running payload works: without escaping, the payloads run. Each payload has its own page,
/// because many of them would hide the rest of the page.
#[test]
fn payloads_run_without_escaping() {
    for (payload, each) in [
        ("<script>alert(1)</script>", "<p><?raw v ?></p>"),
        ("<img src=x onerror=alert(4)>", "<p><?raw v ?></p>"),
        ("</textarea><img src=x onerror=alert(28)>", "<textarea><?raw v ?></textarea>"),
        ("\"><script>alert(34)</script>", "<input title=\"<?raw v ?>\">"),
        ("javascript:parent.alert(75)", "<iframe src=\"<?raw v ?>\"></iframe>"),
        ("\";alert(42);//", "<script>window.other = \"<?raw v ?>\";</script>"),
        ("</script><script>alert(26)</script>", "<script>got.push(\"<?raw v ?>\")</script>"),
    ] {
        assert!(PAYLOADS.contains(&payload));
        let verdict = verdict(&[payload], each, "");
        assert!(verdict.starts_with("verdict: 1 ran, "), "{payload} in {each}: {verdict}");
    }
}

#[test]
fn payloads_are_escaped_in_text() {
    assert_escaped("<p class=case><?= v ?></p>", "compare(cases().map(one => one.textContent))");
}

#[test]
fn payloads_are_escaped_in_attributes() {
    assert_escaped(
        "<p class=case title=\"<?= v ?>\" lang='<?= v ?>' data-x=\"<?= v ?>\"></p><input class=value value=\"<?= v ?>\">",
        "for (const name of ['title', 'lang', 'data-x']) compare(cases().map(one => one.getAttribute(name)));
         compare([...document.querySelectorAll('.value')].map(one => one.getAttribute('value')))",
    );
}

#[test]
fn payloads_are_escaped_in_text_areas() {
    assert_escaped(
        "<textarea class=case><?= v ?></textarea><pre class=other><?= v ?></pre>",
        "compare(cases().map(one => one.textContent));
         compare([...document.querySelectorAll('.other')].map(one => one.textContent))",
    );
}

#[test]
fn payloads_are_escaped_in_urls() {
    assert_escaped(
        "<a class=case href=\"<?= v ?>\">a</a><form class=case action='<?= v ?>'></form><iframe class=case src=\"<?= v ?>\"></iframe>\
         <img src=\"<?= v ?>\"><svg><a class=case xlink:href=\"<?= v ?>\"></a></svg><div class=case data-url=\"<?= v ?>\"></div>",
        "const allowed = ['http:', 'https:', 'about:', 'mailto:'];
         for (const one of cases()) {
           const written = one.getAttribute('href') ?? one.getAttribute('action') ?? one.getAttribute('src') ??
             one.getAttribute('xlink:href') ?? one.getAttribute('data-url');
           // An invalid URL must lead nowhere.
           const url = URL.parse(written, location.href);
           if (url && !allowed.includes(url.protocol)) wrong.push(written);
         }",
    );
}

#[test]
fn payloads_are_escaped_in_parts_of_urls() {
    assert_escaped(
        "<a class=case href=\"/a/<?= v ?>/b?q=<?= v ?>&amp;r=2#<?= v ?>\">a</a><img srcset=\"/a/<?= v ?> 2x, /b/<?= v ?> 1x\">",
        "compare(cases().map(one => new URL(one.href).searchParams.get('q')));
         compare(cases().map(one => decodeURIComponent(new URL(one.href).hash.slice(1))));
         for (const one of cases()) {
           const url = new URL(one.href);
           if (url.origin !== location.origin || url.searchParams.get('r') !== '2') wrong.push(one.href);
         }",
    );
}

#[test]
fn payloads_are_escaped_in_scripts_as_values() {
    assert_escaped("<script>got.push(<?= v ?>);</script>", "compare(got)");
}

#[test]
fn payloads_are_escaped_in_scripts_in_quotes() {
    assert_escaped(
        "<script>got.push(\"<?= v ?>\"); (window.more ??= []).push('<?= v ?>');</script>",
        "compare(got); compare(more)",
    );
}

#[test]
fn payloads_are_escaped_in_template_literals_as_values() {
    assert_escaped("<script>got.push(`${<?= v ?>}`);</script>", "compare(got)");
}

#[test]
fn payloads_are_escaped_in_json() {
    assert_escaped(
        "<script class=case type=\"application/json\">{\"a\": <?= v ?>, \"b\": \"<?= v ?>\"}</script>",
        "const values = cases().map(one => JSON.parse(one.textContent));
         compare(values.map(value => value.a)); compare(values.map(value => value.b))",
    );
}

#[test]
fn payloads_are_escaped_in_event_handlers() {
    assert_escaped(
        "<i class=case onclick=\"got.push(<?= v ?>)\"></i><b class=other onclick='got.push(\"<?= v ?>\")'></b>\
         <u class=third onclick=\"got.push('<?= v ?>')\"></u>",
        "for (const name of ['.case', '.other', '.third']) {
           got.length = 0;
           for (const one of document.querySelectorAll(name)) one.click();
           compare(got);
         }",
    );
}

#[test]
fn payloads_are_escaped_in_svg() {
    assert_escaped(
        "<svg><title class=case><?= v ?></title><text class=other fill=\"<?= v ?>\"><?= v ?></text></svg>",
        "compare(cases().map(one => one.textContent));
         const others = [...document.querySelectorAll('.other')];
         compare(others.map(one => one.textContent)); compare(others.map(one => one.getAttribute('fill')))",
    );
}

#[test]
fn payloads_are_escaped_in_branches_and_loops() {
    assert_escaped(
        "<p<?lua if #v % 2 == 0 then ?> lang=\"<?= v ?>\"<?lua else ?> lang='<?= v ?>'<?lua end ?> class=case \
         title=\"<?lua for i = 1, 1 do ?><?= v ?><?lua end ?>\"></p>",
        "compare(cases().map(one => one.lang)); compare(cases().map(one => one.title))",
    );
}
