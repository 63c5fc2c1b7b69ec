//! WordPress from Debian's package, on MariaDB, PHP-FPM and nginx: users, a commenter, and a password-protected post.

use super::origin::{Origin, source};
use super::stage::{Stage, together};
use super::visitor::{Page, Visitor};
use crate::harness::{Server, wait_until};
use crate::process::Running;
use crate::tool::{run, tool};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

const PACKAGE: &str = "/usr/share/wordpress";
const TARGETS: &[&str] = &["/", "/open-post/", "/guarded-post/"];

/// MariaDB, listening on a socket in the folder.
fn database(folder: &Path) -> Running {
    let (data, socket) = (folder.join("database"), folder.join("database.sock"));
    let user = format!("--user={}", run(tool("id").arg("-un")).trim());
    let small = ["--innodb-log-file-size=4M", "--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0"];
    let mut install = tool("mariadb-install-db");
    install.args(["--no-defaults", &user, "--skip-test-db", "--auth-root-authentication-method=normal"]).args(small);
    run(install.arg(format!("--datadir={}", data.display())));
    let mut server = tool("mariadbd");
    server.args(["--no-defaults", &user, "--skip-networking", "--skip-grant-tables"]).args(small);
    server.arg("--datadir").arg(&data).arg("--socket").arg(&socket);
    server.arg("--pid-file").arg(folder.join("database.pid"));
    let running = Running(server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_until("MariaDB listens", || UnixStream::connect(&socket).is_ok());
    running
}

/// Starts the site, and returns it with the number of its public post.
fn blog(stage: &Stage) -> (Origin, String) {
    let folder = stage.folder.path();
    let database = database(folder);
    let root = folder.join("www");
    assert!(Path::new(PACKAGE).join("wp-login.php").is_file(), "WordPress is missing; please run: tools/setup.sh apps");
    // Debian stores libraries elsewhere and links to them.
    run(tool("cp").args(["-r", "--dereference", PACKAGE]).arg(&root));
    let socket = folder.join("database.sock");
    let keys: String = ["AUTH", "SECURE_AUTH", "LOGGED_IN", "NONCE"]
        .iter()
        .map(|name| format!("define('{name}_KEY', '{name} key'); define('{name}_SALT', '{name} salt');\n"))
        .collect();
    let config = format!(
        "<?php\ndefine('DB_NAME', 'blog'); define('DB_USER', 'root'); define('DB_PASSWORD', '');\n\
         define('DB_HOST', 'localhost:{}');\n{keys}define('WP_HOME', 'http://www.example');\n\
         define('WP_SITEURL', 'http://www.example'); define('WP_DEFAULT_THEME', 'twentytwentyone');\n\
         define('DISABLE_WP_CRON', true); define('WP_HTTP_BLOCK_EXTERNAL', true);\n$table_prefix = 'wp_';\n\
         defined('ABSPATH') || define('ABSPATH', __DIR__ . '/');\nrequire_once ABSPATH . 'wp-settings.php';\n",
        socket.display()
    );
    stage.folder.write("www/wp-config.php", config.as_bytes());
    let delay = fs::read(source("wordpress_delay.php")).unwrap();
    stage.folder.write("www/wp-content/mu-plugins/delay.php", &delay);
    let create = format!(
        "$db = new mysqli('localhost', 'root', '', '', 0, '{}'); $db->query('CREATE DATABASE blog');",
        socket.display()
    );
    run(tool("php").args(["-r", &create]));
    let output = tool("php").arg(source("wordpress.php")).arg(&root).output().unwrap();
    assert!(output.status.success(), "{}", crate::tool::said(&output));
    let printed = String::from_utf8_lossy(&output.stdout);
    let post = printed.lines().last().unwrap().to_owned();
    (Origin::php(&stage.folder, &root, "$uri $uri/ /index.php?$args", "").with_process(database), post)
}

fn log_in(visitor: &Visitor) -> Page {
    let password = format!("{}-secret", visitor.name);
    visitor.post("/wp-login.php", &[("log", &visitor.name), ("pwd", &password)])
}

fn comment(visitor: &Visitor, post: &str, kind: &str) -> Page {
    let mail = format!("{}@example.org", visitor.name);
    // WordPress rejects duplicate comments.
    let text = format!("a comment of {}, {kind}", visitor.name);
    visitor.post(
        "/wp-comments-post.php",
        &[
            ("comment", &text),
            ("author", &visitor.name),
            ("email", &mail),
            ("comment_post_ID", post),
            ("comment_parent", "0"),
            ("wp-comment-cookies-consent", "yes"),
        ],
    )
}

/// Asserts that the page shows private content only to its own visitor.
fn check(kind: &str, name: &str, target: &str, page: &Page) {
    let what = format!("{kind}: {name} at {target}");
    assert_eq!(page.status, 200, "{what}");
    for user in ["alice", "bob"] {
        let greeting = format!("<span class=\"display-name\">{user}</span>");
        assert_eq!(page.text.contains(&greeting), name == user, "{what}, and the name of {user}");
    }
    let has_form = target == "/open-post/" && name == "carol";
    assert_eq!(page.text.contains("carol@example.org"), has_form, "{what}, and the address of carol");
    // The front page also shows the protected text to a visitor who has entered the password.
    let is_shown = page.text.contains("the guarded text");
    assert!(
        if target == "/guarded-post/" { is_shown == (name == "dave") } else { !is_shown || name == "dave" },
        "{what}, and the guarded text"
    );
    assert_eq!(page.text.contains("the open text"), target != "/guarded-post/", "{what}, and the open text");
}

fn visit(stage: &Stage, kind: &str, server: &Server, post: &str) {
    let names = ["alice", "bob", "carol", "dave", "nobody", "guest"];
    let visitors: Vec<_> = names.map(|name| Visitor::new(&stage.folder, server, name)).into();
    let look = |is_known: bool, rounds: u32| {
        together(&visitors, |visitor| {
            for _ in 0..rounds {
                for target in TARGETS {
                    let name = if is_known { visitor.name.as_str() } else { "nobody" };
                    check(kind, name, target, &visitor.get(target));
                }
            }
        });
    };
    look(false, 1);
    together(&visitors[..4], |visitor| {
        let page = match visitor.name.as_str() {
            "alice" | "bob" => log_in(visitor),
            "carol" => comment(visitor, post, kind),
            _ => visitor.fetch(
                "/wp-login.php?action=postpass",
                &["--data", "post_password=letmein", "--referer", "http://www.example/guarded-post/"],
            ),
        };
        assert_eq!(page.status, 302, "{kind}: {}: {}", visitor.name, page.text);
    });
    look(true, 2);
}

#[test]
fn wordpress_never_shows_a_visitor_the_content_of_another() {
    let stage = Stage::new("WordPress");
    let (origin, post) = blog(&stage);
    for (kind, server) in stage.kinds(&origin.url(), "WordPress") {
        visit(&stage, kind, &server, &post);
        if kind == "recipe" {
            let visitor = Visitor::new(&stage.folder, &server, "new").with_cookie("_ga=GA1.2.3.4");
            for target in ["/", "/open-post/", "/?s=text&utm_source=letter"] {
                check(kind, "new", target, &visitor.get(target));
                visitor.get(target).expect_hit(target);
            }
        }
    }
}
