//! `flatout pages check` and `flatout pages new`.

use crate::e2e::harness::{Folder, flatout};
use std::path::Path;
use std::process::Output;

fn pages(folder: &Path, arguments: &[&str]) -> Output {
    flatout().current_dir(folder).arg("pages").args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

const RIGHT: &[(&str, &[u8])] = &[
    ("site/index.lhtml", b"<?include \"_head.lhtml\" ?><p><?= 1 ?></p>"),
    ("site/_head.lhtml", b"<title><?= 2 ?></title>"),
    ("site/sub/page.lhtml", b"<?include \"../_head.lhtml\" ?>"),
    ("site/sub/script.luau", b"return 1"),
    ("site/.hidden/page.lhtml", b"<?= "),
    ("site/plain.html", b"<?= "),
];

#[test]
fn valid_pages_are_counted() {
    let folder = Folder::with(RIGHT);
    for arguments in [
        &["check"][..],
        &["check", "site"],
        &["check", "site/sub/page.lhtml", "site/index.lhtml", "./site/sub/script.luau"],
    ] {
        let output = pages(folder.path(), arguments);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{arguments:?}");
        assert_eq!(stdout(&output), "no errors in 2 pages and 1 script\n", "{arguments:?}");
    }
    let output = pages(folder.path(), &["check", "--json", "site"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &json["schema"], &json["valid"]), (Some(0), &1.into(), &true.into()));
}

#[test]
fn errors_are_reported_with_their_line() {
    let folder = Folder::with(&[
        ("site/a.lhtml", b"<ul>\n  <li class=<?= v ?>>\n</ul><?include \"_part.lhtml\" ?>"),
        ("site/b.lhtml", b"<?include \"_part.lhtml\" ?>\n<?include \"_nowhere.lhtml\" ?>"),
        ("site/c.luau", b"local a = 1\nlocal b = = 2\n"),
        ("site/d.lhtml", b"<?lua\nlocal c = end\n?>"),
        ("site/_part.lhtml", b"<p\n<?= v ?>>"),
    ]);
    let output = pages(folder.path(), &["check", "site"]);
    let text = stderr(&output);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{text}");
    let expected = "error: an attribute's value that contains an insertion must be in quotes  [P0302]
  site/a.lhtml:2:13
  1 | <ul>
  2 |   <li class=<?= v ?>>
    |             ^^^^^^^^
  as in: class=\"<?= … ?>\"
  flatout help P0302
";
    assert!(text.starts_with(expected), "{text}");
    for part in
        ["site/_part.lhtml:2:1", "the file site/_nowhere.lhtml does not exist", "site/c.luau:2:1", "site/d.lhtml:2:"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.ends_with("\n3 pages and 1 script: 5 errors\n"), "{text}");
    let output = pages(folder.path(), &["check", "--json", "site/a.lhtml"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), json["errors"].as_array().unwrap().len()), (Some(2), 2));
    assert_eq!(json["errors"][0]["place"]["line"], 2);
    let help = flatout().args(["help", "P0302"]).output().unwrap();
    assert!(stdout(&help).starts_with("P0302: insertion without quotes\n"));
}

#[test]
fn a_path_that_cannot_be_checked_is_a_usage_error() {
    let folder = Folder::with(&[("empty/x.txt", b"x"), ("page.html", b"x")]);
    for (arguments, hint) in [
        (&["check", "empty"][..], "empty contains no pages (*.lhtml, *.luau)"),
        (&["check", "nowhere"], "cannot read nowhere"),
        (&["check", "page.html"], "page.html is not a page"),
        (&["new"], "DIR"),
        (&[], "Usage: flatout pages"),
    ] {
        let output = pages(folder.path(), arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && stderr.contains(hint), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_new_site_is_valid_and_overwrites_nothing() {
    let folder = Folder::new();
    let output = pages(folder.path(), &["new", "a/b"]);
    let text = stdout(&output);
    assert!(
        output.status.success() && text.ends_with("\nnext: flatout run -c a/b/flatout.kdl\n"),
        "{text}{}",
        stderr(&output)
    );
    let check = pages(folder.path(), &["check", "a/b/site"]);
    assert_eq!(stdout(&check), "no errors in 1 page and 0 scripts\n", "{}", stderr(&check));
    let valid = flatout().current_dir(folder.path()).args(["validate", "-c", "a/b/flatout.kdl"]).output().unwrap();
    assert!(valid.status.success(), "{}", stderr(&valid));
    std::fs::remove_file(folder.path().join("a/b/flatout.kdl")).unwrap();
    std::fs::write(folder.path().join("a/b/site/index.lhtml"), "mine").unwrap();
    let again = pages(folder.path(), &["new", "a/b"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(stderr(&again).contains("a/b/site/index.lhtml already exists; nothing was written"), "{}", stderr(&again));
    assert!(!folder.path().join("a/b/flatout.kdl").exists());
    assert_eq!(std::fs::read(folder.path().join("a/b/site/index.lhtml")).unwrap(), b"mine");
}

#[test]
fn included_files_are_not_served_as_pages() {
    let files = [
        ("site/index.lhtml", "<p><?include \"_parts/x.lhtml\" ?></p>"),
        ("site/_parts/x.lhtml", "x"),
        ("site/_y.lhtml", "y"),
    ];
    let (_folder, server) = super::site(&files, "", "");
    assert_eq!(super::page(&server, "/"), "<p>x</p>");
    for path in ["/_y", "/_y.lhtml", "/_parts/x", "/_parts/x.lhtml", "/%5Fy"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
}
