//! A real application: DokuWiki from Debian's package, over FastCGI, with no other server in between.

use super::super::accelerator::wiki::{Visitor, hidden, write_wiki};
use super::super::harness::{Folder, Server};
use super::fpm::Fpm;
use super::{serve_with, text};
use std::fs;
use std::path::Path;

struct Wiki {
    folder: Folder,
    server: Server,
    _fpm: Fpm,
}

impl Wiki {
    fn start() -> Self {
        assert!(
            Path::new("/usr/share/dokuwiki/doku.php").is_file(),
            "DokuWiki is not installed; please run: apt-get install dokuwiki (or `make test`)"
        );
        let folder = Folder::new();
        write_wiki(&folder);
        let root = folder.path().display();
        let lines = format!(
            "php_admin_value[auto_prepend_file] = {root}/prepend.php\nphp_admin_value[session.save_path] = {root}/data/tmp\n"
        );
        let fpm = Fpm::start(&folder, true, 4, &lines);
        // Debian stores templates and plugins elsewhere, behind links that leave the folder.
        let steps = format!(
            r#"
    route "/bin/*" "/conf/*" "/data/*" "/inc/*" "/vendor/*" {{ respond 404 }}
    route "/lib/tpl/*" {{ rewrite strip-prefix="/lib/tpl"; files "/var/lib/dokuwiki/lib/tpl" }}
    route "/lib/plugins/*" {{ rewrite strip-prefix="/lib/plugins"; files "/var/lib/dokuwiki/lib/plugins" }}
    php {:?} {{ root "/usr/share/dokuwiki"; index "doku.php" }}
    files "/usr/share/dokuwiki""#,
            fpm.address
        );
        let server = serve_with(&folder, 2, &steps);
        Self { folder, server, _fpm: fpm }
    }

    fn visitor(&self, name: &str) -> Visitor {
        Visitor::new(&self.folder, self.server.address, name)
    }
}

#[test]
fn dokuwiki_serves_logs_in_edits_and_uploads() {
    let wiki = Wiki::start();
    let anonymous = wiki.visitor("nobody");
    let page = anonymous.fetch("/", &[]);
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("Welcome"), "{page}");
    let style = page.split("href=\"").find(|part| part.starts_with("/lib/exe/css.php")).unwrap();
    let style = style.split('"').next().unwrap().replace("&amp;", "&");
    assert!(anonymous.fetch(&style, &[]).contains("text/css"));
    assert!(super::get(&wiki.server, "/lib/images/notify.png").body.starts_with(b"\x89PNG"));
    for secret in ["/conf/local.php", "/inc/init.php", "/data/pages/start.txt", "/vendor/autoload.php"] {
        assert_eq!(super::get(&wiki.server, secret).status, 404, "{secret}");
    }
    let private = anonymous.fetch("/doku.php?id=private:alice", &[]);
    assert!(!private.contains("the diary of alice"));

    let alice = wiki.visitor("alice");
    alice.log_in("alice");
    assert!(alice.fetch("/doku.php?id=private:alice", &[]).contains("the diary of alice"));

    for round in 0..3 {
        let written = format!("Written by alice, round {round}.");
        alice.edit("page:7", &written);
        for visitor in [&alice, &anonymous] {
            assert!(visitor.fetch("/doku.php?id=page:7", &[]).contains(&written));
        }
    }

    let form = alice.fetch("/lib/exe/mediamanager.php?ns=", &[]);
    let token = format!("sectok={}", hidden(&form, "sectok"));
    let source = wiki.folder.path().join("data/media/picture2.png");
    let file = format!("upload=@{};filename=new.png", source.display());
    let fields = ["--form", &token, "--form", "ns=", "--form", "mediaid=new.png", "--form", &file];
    let answer = alice.fetch("/lib/exe/mediamanager.php?ns=", &fields);
    assert!(answer.contains("Upload successful"), "{answer}");
    let sent = super::get(&wiki.server, "/lib/exe/fetch.php?media=new.png");
    assert_eq!(sent.body, fs::read(source).unwrap(), "{}", text(&sent));
}
