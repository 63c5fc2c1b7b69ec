//! `flatout help TOPIC`: what a reader of other servers' manuals looks for under its usual name.

/// A topic: its name, other words for it, and the text.
struct Topic {
    name: &'static str,
    also: &'static [&'static str],
    text: &'static str,
}

const TOPICS: &[Topic] = &[
    Topic {
        name: "gzip",
        also: &["brotli", "br", "zstd", "compress", "compression"],
        text: "gzip: compression of responses

`files` compresses text, scripts, JSON, SVG and the like with br, zstd and gzip, whichever the client accepts; there is
nothing to switch on. Each version of a file is compressed once, in the background, and stays in memory. Files that lie
ready beside the original (app.js.br, app.js.zst, app.js.gz) are preferred.

    files \"/srv/www\" {
        compress \"br\" \"gzip\"        // these alone, the favourite first; compress off=#true: none
        precompressed off=#true     // ignore app.js.br and the like
    }

`proxy` compresses nothing: it forwards what the origin sends, and a cache stores each encoding that the origin names in
Vary. Let the origin compress.

More: docs/config.md, \"files\"
",
    },
    Topic {
        name: "tls",
        also: &["https", "ssl", "certificate", "certificates"],
        text: "tls: https and certificates

On the command line, for development, with a certificate of a local authority that flatout creates:

    flatout serve ./public --tls internal --listen 127.0.0.1:8443

It prints the root certificate to trust (curl --cacert FILE). With files in PEM:

    flatout serve ./public --tls-cert chain.pem --tls-key key.pem --listen :443

In a configuration:

    site \"example.com\" {
        listen \":443\" tls=#true
        listen \":80\" redirect-https=443
        tls cert=\"/etc/letsencrypt/live/example.com/fullchain.pem\" key=\"/etc/letsencrypt/live/example.com/privkey.pem\"
        files \"/srv/www\"
    }

flatout obtains no certificates; certbot and acme.sh do. It sees within seconds that the files have changed and uses the new
certificate without a reload. As root with `user` set, the new files must be readable by that user. `flatout status` shows
how many days are left.

More: docs/config.md, \"Sites\"
",
    },
    Topic {
        name: "systemd",
        also: &["service", "daemon", "unit"],
        text: "systemd: flatout as a service

The repository has packaging/flatout.service and packaging/flatout.socket. Install the program as /usr/bin/flatout and the
configuration as /etc/flatout/flatout.kdl, then:

    cp packaging/flatout.service /etc/systemd/system/
    systemctl daemon-reload
    systemctl enable --now flatout
    systemctl reload flatout            # the same as: flatout reload
    journalctl -u flatout

The unit runs flatout as a user of its own that may bind ports below 1024, so the configuration needs no `user`. Its state is
in /var/lib/flatout, its cache in /var/cache/flatout, its logs in /var/log/flatout, its admin socket in /run/flatout.
With flatout.socket, systemd binds the ports and no connection is refused during a restart. An upgrade of the program
without any gap is `flatout upgrade`.

More: docs/config.md
",
    },
    Topic {
        name: "spa",
        also: &["single-page", "try_files", "try-files", "fallback"],
        text: "spa: applications of one page

Paths that name no file are answered with index.html, so that the application's router sees them:

    site \"app.example\" {
        listen \":8080\"
        files \"/srv/app/dist\" { spa \"index.html\"; }
    }

With an API behind it, and files whose names hold their hash cached for a year:

    site \"app.example\" {
        listen \":8080\"
        route \"/api/*\" { proxy \"http://127.0.0.1:3000\"; }
        route \"/assets/*\" { files \"/srv/app/dist\" { cache-control \"*\" \"public, max-age=31536000, immutable\"; }; }
        files \"/srv/app/dist\" {
            spa \"index.html\"
            cache-control \"text/html\" \"no-cache\"
        }
    }

The second route comes first, so a missing script is 404 and not a page. `try \"{path}\" \"{path}.html\" \"=404\"` is the
general form, like try_files of nginx.

More: docs/config.md, \"files\"
",
    },
];

/// The text about `word`.
pub(crate) fn text_about(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    TOPICS.iter().find(|topic| topic.name == word || topic.also.contains(&word.as_str())).map(|topic| topic.text)
}

/// The names of all topics.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TOPICS.iter().map(|topic| topic.name)
}

#[cfg(test)]
mod tests {
    use super::{TOPICS, text_about};
    use flatout_config::load_text;

    /// The configurations in a text: runs of lines that begin with `site` and end with a brace.
    fn configurations(text: &str) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        let mut is_within = false;
        for line in text.lines() {
            is_within |= line.starts_with("    site ");
            if line.starts_with("    site ") {
                found.push(String::new());
            }
            if let Some(last) = found.last_mut().filter(|_| is_within) {
                last.push_str(line);
                last.push('\n');
            }
            is_within &= line != "    }";
        }
        found
    }

    #[test]
    fn every_configuration_in_a_topic_is_valid() {
        for topic in TOPICS {
            assert!(topic.text.starts_with(&format!("{}: ", topic.name)), "{}", topic.name);
            for configuration in configurations(topic.text) {
                let loaded = load_text(&configuration);
                assert!(loaded.is_ok(), "{}: {}", topic.name, loaded.unwrap_err().render(flatout_config::Style::Plain));
            }
        }
        assert_eq!(configurations(text_about("spa").unwrap()).len(), 2);
        assert_eq!(configurations(text_about("HTTPS").unwrap()).len(), 1);
    }
}
