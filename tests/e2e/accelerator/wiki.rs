//! A real application behind the accelerator: DokuWiki from Debian's package, on PHP-FPM and nginx, with logged-in and
//! anonymous visitors.
//!
//! The configurations are those of `demo/dokuwiki` with different ports. The wiki's data is in a folder of the test.

use super::super::harness::{Folder, Server, wait_until};
pub(crate) use super::super::process::{Running, free_port, is_root, php_fpm};
use super::super::tool::{run, tool};
use super::{Answer, ask};
use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

pub(crate) const SITE: &str = "wiki.example";

struct Wiki {
    folder: Folder,
    server: Server,
    _fpm: Running,
    _nginx: Running,
}

impl Wiki {
    fn start() -> Self {
        assert!(
            Path::new("/usr/share/dokuwiki/doku.php").is_file(),
            "DokuWiki is not installed; please run: apt-get install dokuwiki (or `make test`)"
        );
        let folder = Folder::new();
        write_wiki(&folder);
        let (fpm_port, nginx_port) = (free_port(), free_port());
        let root = folder.path().display();
        // PHP-FPM and nginx require a user when they are started by root.
        let user = if is_root() { ("user root;\n", "user = root\ngroup = root\n") } else { ("", "") };
        folder.write(
            "fpm.conf",
            format!(
                "[global]\nerror_log = {root}/fpm.log\ndaemonize = no\n[www]\n{}listen = 127.0.0.1:{fpm_port}\n\
                 pm = static\npm.max_children = 4\nphp_admin_value[auto_prepend_file] = {root}/prepend.php\n\
                 php_admin_value[session.save_path] = {root}/data/tmp\n",
                user.1
            )
            .as_bytes(),
        );
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|name| format!("    {name}_temp_path {root}/nginx-{name};\n"))
            .collect();
        let nginx = include_str!("../../../demo/dokuwiki/nginx.conf")
            .replace("127.0.0.1:8081", &format!("127.0.0.1:{nginx_port}"))
            .replace("127.0.0.1:9000", &format!("127.0.0.1:{fpm_port}"))
            .replace("http {\n", &format!("http {{\n{temporary}"));
        let nginx = format!("pid {root}/nginx.pid;\nerror_log {root}/nginx.log;\n{}{nginx}", user.0);
        folder.write("nginx.conf", nginx.as_bytes());
        let quiet =
            |command: &mut Command| Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let fpm = quiet(Command::new(php_fpm()).args(["-R", "-F", "-y"]).arg(folder.path().join("fpm.conf")));
        let nginx = quiet(tool("nginx").arg("-p").arg(folder.path()).arg("-c").arg(folder.path().join("nginx.conf")));
        for port in [fpm_port, nginx_port] {
            wait_until("PHP and nginx listen", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        }
        let config = include_str!("../../../demo/dokuwiki/flatout.kdl")
            .replace("127.0.0.1:8080", "127.0.0.1:0")
            .replace("127.0.0.1:8081", &format!("127.0.0.1:{nginx_port}"));
        let server = Server::run(&folder, &config);
        Self { folder, server, _fpm: fpm, _nginx: nginx }
    }

    /// An anonymous GET.
    fn look(&self, target: &str) -> Answer {
        ask(&self.server, "GET", target, &format!("Host: {SITE}\r\n"))
    }

    fn visitor(&self, name: &str) -> Visitor {
        Visitor::new(&self.folder, self.server.address, name)
    }
}

/// Writes pages, users and access rights: everybody may read, users may write, and private pages belong to their owner.
pub(crate) fn write_wiki(folder: &Folder) {
    let root = folder.path().display();
    for name in
        ["attic", "cache", "index", "locks", "log", "media", "media_attic", "media_meta", "meta", "pages", "tmp"]
    {
        fs::create_dir_all(folder.path().join("data").join(name)).unwrap();
    }
    folder.write("prepend.php", format!("<?php define('DOKU_CONF', '{root}/conf/');\n").as_bytes());
    let settings = format!(
        "<?php\n$conf['title'] = 'A wiki';\n$conf['useacl'] = 1;\n$conf['superuser'] = '@admin';\n\
         $conf['savedir'] = '{root}/data';\n"
    );
    folder.write("conf/local.php", settings.as_bytes());
    folder.write(
        "conf/acl.auth.php",
        b"*\t@ALL\t1\n*\t@user\t8\nprivate:*\t@ALL\t0\nprivate:alice\talice\t8\nprivate:bob\tbob\t8\n",
    );
    let hash = |name: &str| {
        let hashed = run(tool("openssl").args(["passwd", "-6", "-salt", "wiki", &format!("{name}-secret")]));
        format!("{name}:{}:{name} the user:{name}@example.org:user\n", hashed.trim())
    };
    folder.write("conf/users.auth.php", format!("{}{}", hash("alice"), hash("bob")).as_bytes());
    let links: String =
        (0..20).map(|number| format!("  * [[page:{number}]] {{{{:picture{}.png}}}}\n", number % 4)).collect();
    folder.write("data/pages/start.txt", format!("====== Welcome ======\n{links}").as_bytes());
    for number in 0..20 {
        let text =
            format!("====== Page {number} ======\nThis is page {number}. [[start]] [[page:{}]]\n", (number + 1) % 20);
        folder.write(&format!("data/pages/page/{number}.txt"), text.as_bytes());
    }
    for name in ["alice", "bob"] {
        folder.write(&format!("data/pages/private/{name}.txt"), format!("the diary of {name}").as_bytes());
    }
    for number in 0..4 {
        let picture = Path::new("/usr/share/dokuwiki/lib/images/notify.png");
        let place = folder.path().join(format!("data/media/picture{number}.png"));
        fs::write(place, [&fs::read(picture).unwrap()[..], &[number]].concat()).unwrap();
    }
}

/// curl with a cookie jar.
pub(crate) struct Visitor {
    address: SocketAddr,
    jar: PathBuf,
}

impl Visitor {
    /// A visitor of the wiki at `address`, initially without cookies.
    pub(crate) fn new(folder: &Folder, address: SocketAddr, name: &str) -> Self {
        Self { address, jar: folder.path().join(format!("jar-{name}")) }
    }

    pub(crate) fn fetch(&self, target: &str, arguments: &[&str]) -> String {
        let mut curl = tool("curl");
        curl.args(["--silent", "--show-error", "--include", "--cookie"])
            .arg(&self.jar)
            .arg("--cookie-jar")
            .arg(&self.jar);
        curl.args(["--connect-to", &format!("{SITE}:80:{}", self.address)]).args(arguments);
        let output = curl.arg(format!("http://{SITE}{target}")).output().unwrap();
        assert!(output.status.success(), "{target}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn log_in(&self, name: &str) {
        let form = self.fetch("/doku.php?id=start&do=login", &[]);
        let (token, password) = (format!("sectok={}", hidden(&form, "sectok")), format!("p={name}-secret"));
        let user = format!("u={name}");
        let fields = ["-d", &token, "-d", "id=start", "-d", "do=login", "-d", &user, "-d", &password];
        let answer = self.fetch("/doku.php?id=start", &fields);
        assert!(answer.starts_with("HTTP/1.1 302"), "{answer}");
        assert!(self.fetch("/doku.php?id=start", &[]).contains(&logged_in_as(name)));
    }

    pub(crate) fn edit(&self, page: &str, text: &str) {
        let form = self.fetch(&format!("/doku.php?id={page}&do=edit"), &[]);
        let mut arguments = vec!["-d".to_owned(), "do[save]=1".to_owned()];
        for name in ["id", "rev", "date", "prefix", "suffix", "changecheck", "sectok"] {
            arguments.extend(["--data-urlencode".to_owned(), format!("{name}={}", hidden(&form, name))]);
        }
        arguments.extend(["--data-urlencode".to_owned(), format!("wikitext={text}")]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let answer = self.fetch(&format!("/doku.php?id={page}&do=edit"), &arguments);
        assert!(answer.starts_with("HTTP/1.1 302"), "{answer}");
    }
}

/// The text by which a page shows that `name` is logged in.
fn logged_in_as(name: &str) -> String {
    format!("(<bdi>{name}</bdi>)")
}

/// The value of the last hidden input with that name.
pub(crate) fn hidden(page: &str, name: &str) -> String {
    let inputs = page.split("<input type=\"hidden\" name=\"").skip(1);
    let value =
        |input: &str| input.strip_prefix(name)?.strip_prefix("\" value=\"")?.split('"').next().map(str::to_owned);
    inputs.filter_map(value).last().unwrap_or_else(|| panic!("no {name} in {page}"))
}

fn is_hit(answer: &Answer) -> bool {
    answer.field("cache-status").is_some_and(|status| status.contains("; hit"))
}

/// Fetches every page that an anonymous visitor can reach, as a crawler that honours `nofollow` does. Returns the
/// number of responses and how many of them were hits.
fn crawl(wiki: &Wiki) -> (usize, usize) {
    let (mut seen, mut queue) = (BTreeSet::new(), vec!["/".to_owned()]);
    let (mut count, mut hits) = (0, 0);
    while let Some(target) = queue.pop() {
        if !seen.insert(target.clone()) {
            continue;
        }
        let answer = wiki.look(&target);
        assert!(answer.is_whole && answer.status < 500, "{target}: {answer:?}");
        assert_eq!(answer.field("set-cookie").filter(|_| is_hit(&answer)), None, "{target}");
        count += 1;
        hits += usize::from(is_hit(&answer));
        let text = answer.text();
        assert!(!text.contains("Logged in as"), "{target} is somebody's");
        if !answer.field("content-type").is_some_and(|kind| kind.starts_with("text/html")) {
            continue;
        }
        for tag in text.split('<').filter(|tag| !tag.contains("nofollow")) {
            let link = tag.split("href=\"").nth(1).or_else(|| tag.split("src=\"").nth(1));
            let link = link.and_then(|link| link.split('"').next()).unwrap_or_default().replace("&amp;", "&");
            let link = link.split('#').next().unwrap();
            if link.starts_with('/') && !link.starts_with("//") && !link.contains("do=") {
                queue.push(link.to_owned());
            }
        }
    }
    (count, hits)
}

#[test]
fn a_second_anonymous_crawl_is_served_from_the_cache() {
    let wiki = Wiki::start();
    let (first, _) = crawl(&wiki);
    let (second, hits) = crawl(&wiki);
    println!("a crawl of {first} answers; the second time {hits} of {second} are hits");
    assert!(second >= 40, "{second}");
    assert!(hits * 100 >= second * 95, "{hits} of {second}");
}

#[test]
fn no_visitor_sees_the_page_of_another() {
    let wiki = Wiki::start();
    let pages =
        ["/doku.php?id=start", "/doku.php?id=page:1", "/doku.php?id=private:alice", "/doku.php?id=private:bob", "/"];
    let look = |name: Option<&str>| {
        let visitor = name.map(|name| wiki.visitor(name));
        for _ in 0..6 {
            for page in pages {
                let fetch = || match &visitor {
                    Some(visitor) => visitor.fetch(page, &[]),
                    None => wiki.look(page).text(),
                };
                let mut text = fetch();
                // While one of DokuWiki's processes writes a page's cache, another may show the page without its text.
                if name.is_some_and(|name| page.ends_with(name)) && !text.contains("the diary of") {
                    text = fetch();
                }
                for other in ["alice", "bob"] {
                    let is_own = name == Some(other);
                    assert_eq!(text.contains(&logged_in_as(other)), is_own, "{name:?} at {page}, and {other}");
                    let is_diary = text.contains(&format!("the diary of {other}"));
                    let expected = is_own && page.ends_with(other);
                    assert_eq!(is_diary, expected, "{name:?} at {page}, and {other}'s diary: {text}");
                }
            }
        }
    };
    // First anonymously, then anonymously and as both users at once, and then anonymously again.
    look(None);
    wiki.visitor("alice").log_in("alice");
    wiki.visitor("bob").log_in("bob");
    thread::scope(|scope| {
        for name in [None, Some("alice"), Some("bob"), None] {
            scope.spawn(move || look(name));
        }
    });
    look(None);
}

#[test]
fn an_edit_is_visible_to_everybody_immediately() {
    let wiki = Wiki::start();
    let page = "/doku.php?id=page:7";
    for _ in 0..2 {
        assert!(wiki.look(page).text().contains("This is page 7."));
    }
    assert!(is_hit(&wiki.look(page)));
    let alice = wiki.visitor("alice");
    alice.log_in("alice");
    for round in 0..3 {
        let text = format!("Written by alice, round {round}.");
        alice.edit("page:7", &text);
        assert!(alice.fetch(page, &[]).contains(&text));
        let seen = wiki.look(page);
        assert!(seen.text().contains(&text), "{}", seen.text());
        assert!(is_hit(&wiki.look(page)) && wiki.look(page).text().contains(&text));
    }
}

#[test]
fn pictures_can_be_uploaded_and_are_cached() {
    let wiki = Wiki::start();
    let picture = "/lib/exe/fetch.php?media=picture1.png";
    let original = fs::read(wiki.folder.path().join("data/media/picture1.png")).unwrap();
    for _ in 0..2 {
        assert_eq!(wiki.look(picture).body, original);
    }
    assert!(is_hit(&wiki.look(picture)));
    let part = ask(&wiki.server, "GET", picture, &format!("Host: {SITE}\r\nRange: bytes=1-3\r\n"));
    assert_eq!((part.status, part.body.as_slice()), (206, &b"PNG"[..]));
    let alice = wiki.visitor("alice");
    alice.log_in("alice");
    let form = alice.fetch("/lib/exe/mediamanager.php?ns=", &[]);
    let token = format!("sectok={}", hidden(&form, "sectok"));
    let file = format!("upload=@{}/data/media/picture2.png;filename=new.png", wiki.folder.path().display());
    let fields = ["--form", &token, "--form", "ns=", "--form", "mediaid=new.png", "--form", &file];
    let answer = alice.fetch("/lib/exe/mediamanager.php?ns=", &fields);
    assert!(answer.contains("Upload successful"), "{answer}");
    let expected = fs::read(wiki.folder.path().join("data/media/picture2.png")).unwrap();
    for _ in 0..2 {
        assert_eq!(wiki.look("/lib/exe/fetch.php?media=new.png").body, expected);
    }
}
