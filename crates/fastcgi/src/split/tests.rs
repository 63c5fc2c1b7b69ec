use super::{Meaning, Root, ScriptRules, find_script};
use flatout_http::path::decode_path;
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

struct Site(PathBuf);

impl Site {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("flatout-split-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        for name in ["root/a/b.php", "root/dir.php", "root/with", "root/plain", "root/.git", "root/.well-known"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        for name in [
            "secret.php",
            "root/index.php",
            "root/x.php",
            "root/X.PHP",
            "root/a/b.php/c.php",
            "root/dir.php/page.html",
            "root/image.jpg",
            "root/with/index.php",
            "root/plain/index.html",
            "root/.git/hook.php",
            "root/.php",
            "root/.well-known/w.php",
            "root/line\nfeed.php",
            "root/x.php~",
            "root/x.phps",
        ] {
            fs::write(folder.join(name), "<?php").unwrap();
        }
        symlink("../secret.php", folder.join("root/up.php")).unwrap();
        symlink("/etc/passwd", folder.join("root/passwd.php")).unwrap();
        symlink("x.php", folder.join("root/beside.php")).unwrap();
        Self(folder)
    }

    fn open(&self) -> Root {
        Root::open(&self.0.join("root")).unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn rules(front_controller: bool) -> ScriptRules {
    ScriptRules {
        suffixes: vec![".php".to_owned()],
        index: vec!["index.php".to_owned(), "index.html".to_owned()],
        front_controller: front_controller.then(|| "index.php".to_owned()),
    }
}

/// The result for an encoded path: `script|PATH_INFO`, `slash`, or why it is passed on.
fn tell(path: &str, rules: &ScriptRules, root: &Root) -> String {
    let mut decoded = Vec::new();
    match decode_path(path.as_bytes(), &mut decoded) {
        Ok(facts) if facts.empty_segment => return "unclean".to_owned(),
        Ok(_) => {}
        Err(_) => return "refused".to_owned(),
    }
    match find_script(&decoded, rules, root) {
        Meaning::Script(name, rest) => {
            format!("{}|{}", String::from_utf8_lossy(&name), String::from_utf8_lossy(&decoded[rest]))
        }
        Meaning::Slash => "slash".to_owned(),
        Meaning::Pass(reason) => format!("{reason:?}"),
    }
}

#[test]
fn only_existing_files_are_executed() {
    let site = Site::new();
    let root = site.open();
    for (path, expected) in [
        ("/", "index.php|"),
        ("/index.php", "index.php|"),
        ("/x.php", "x.php|"),
        ("/x.php/", "x.php|/"),
        ("/x.php/a/b", "x.php|/a/b"),
        ("/x.php/a.php/b.php", "x.php|/a.php/b.php"),
        ("/beside.php/i", "beside.php|/i"),
        ("/a/b.php/c.php/d", "a/b.php/c.php|/d"),
        ("/with/", "with/index.php|"),
        ("/.well-known/w.php", ".well-known/w.php|"),
        // What nginx and PHP of 2019 fell for: the script and what follows are told apart to the byte.
        ("/x.php/%0a", "x.php|/\n"),
        ("/x.php/a%0Ab.php", "x.php|/a\nb.php"),
        ("/x.php%0a/a", "NoScript"),
        ("/x.php%0a", "NoScript"),
        ("/%0a.php", "ScriptMissing"),
        ("/line%0afeed.php/i", "line\nfeed.php|/i"),
        // What cgi.fix_pathinfo fell for: a picture is not a script, whatever follows it.
        ("/image.jpg/x.php", "ScriptMissing"),
        ("/image.jpg/index.php", "ScriptMissing"),
        ("/image.jpg%00.php", "refused"),
        ("/image.jpg%00/x.php", "refused"),
        ("/image.jpg/.php", "NoScript"),
        ("/image.jpg", "NoScript"),
        ("/plain/index.html/x.php", "ScriptMissing"),
        // Names that look like a script's and are none.
        ("/x.php~", "NoScript"),
        ("/x.phps", "NoScript"),
        ("/x.php.", "NoScript"),
        ("/x.php%20", "NoScript"),
        ("/x.php::$DATA", "NoScript"),
        ("/X.PHP", "NoScript"),
        ("/x%2ephp", "x.php|"),
        ("/.php", "NoScript"),
        ("/dir.php", "ScriptMissing"),
        ("/dir.php/", "ScriptMissing"),
        ("/dir.php/page.html", "ScriptMissing"),
        // Nothing outside of the folder, by no way.
        ("/../secret.php", "refused"),
        ("/%2e%2e/secret.php", "refused"),
        ("/with/../../secret.php", "refused"),
        ("/..%2fsecret.php", "Hidden"),
        ("/up.php", "ScriptMissing"),
        ("/up.php/i", "ScriptMissing"),
        ("/passwd.php", "ScriptMissing"),
        ("/x.php%2fa", "NoScript"),
        ("//x.php", "unclean"),
        // Hidden names.
        ("/.git/hook.php", "Hidden"),
        ("/with/.hidden.php", "Hidden"),
        ("/x.php/.hidden", "x.php|/.hidden"),
        // Left for others.
        ("/plain/", "File"),
        ("/plain", "NoScript"),
        ("/nothing", "NoScript"),
        ("/missing.php", "ScriptMissing"),
        ("/missing.php/a", "ScriptMissing"),
    ] {
        assert_eq!(tell(path, &rules(false), &root), expected, "{path}");
    }
}

#[test]
fn a_front_controller_handles_paths_that_are_no_files() {
    let site = Site::new();
    let root = site.open();
    for (path, expected) in [
        ("/", "index.php|"),
        ("/blog/2026/post", "index.php|"),
        ("/missing.php", "index.php|"),
        ("/image.jpg/x.php", "index.php|"),
        ("/a%0ab", "index.php|"),
        ("/up.php", "index.php|"),
        ("/x.php/info", "x.php|/info"),
        ("/image.jpg", "File"),
        ("/x.php~", "File"),
        ("/with", "slash"),
        ("/with/", "with/index.php|"),
        ("/plain", "slash"),
        ("/plain/", "File"),
        ("/a", "index.php|"),
        ("/a/", "index.php|"),
        // Whether a hidden file is there is not told.
        ("/.git/config", "index.php|"),
    ] {
        assert_eq!(tell(path, &rules(true), &root), expected, "{path}");
    }
    let gone = ScriptRules { front_controller: Some("gone.php".to_owned()), ..rules(false) };
    assert_eq!(tell("/blog", &gone, &root), "NoScript");
}

proptest! {
    /// Whatever is requested: the script is a file below the root with a script suffix, and its name and PATH_INFO
    /// together make up the path.
    #[test]
    fn only_php_files_below_the_root_are_executed(segments in prop::collection::vec(
        prop::sample::select(vec![
            "x.php", "a", "b.php", "c.php", "dir.php", "page.html", "image.jpg", "with", "index.php", "up.php", "%0a",
            ".git", "hook.php", "..", "%2e%2e", "line%0afeed.php", "", "passwd.php", "x.php%00", "secret.php",
        ]), 0..6)) {
        let site = Site::new();
        let root = site.open();
        let path = format!("/{}", segments.join("/"));
        let told = tell(&path, &rules(false), &root);
        if let Some((script, rest)) = told.split_once('|') {
            prop_assert!(script.as_bytes().ends_with(b".php") && !script.contains(".."));
            let file = site.0.join("root").join(script);
            prop_assert!(fs::canonicalize(&file).unwrap().starts_with(fs::canonicalize(site.0.join("root")).unwrap()));
            prop_assert!(fs::metadata(&file).unwrap().is_file());
            let mut decoded = Vec::new();
            decode_path(path.as_bytes(), &mut decoded).unwrap();
            let whole = format!("{script}{rest}");
            let decoded = String::from_utf8_lossy(&decoded).into_owned();
            prop_assert!(whole == decoded || format!("{decoded}index.php") == whole, "{} {}", whole, decoded);
        }
    }
}
