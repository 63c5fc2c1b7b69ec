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

`files` compresses text, scripts, JSON, SVG and similar types with br, zstd or gzip, whichever the
client accepts. This is on by default. Each version of a file is compressed once, in the background,
and stays in memory. If a precompressed file (app.js.br, app.js.zst, app.js.gz) is next to the
original, flatout sends that instead.

    files \"/srv/www\" {
        compress \"br\" \"gzip\"        // only these, in this order; compress off=#true disables it
        precompressed off=#true     // ignore app.js.br, .zst and .gz
    }

`proxy` does not compress: let the origin compress. If the origin sends Vary: Accept-Encoding, the
cache stores each encoding separately.

More: docs/config.md, \"files\"
",
    },
    Topic {
        name: "tls",
        also: &["https", "ssl", "certificate", "certificates"],
        text: "tls: HTTPS and certificates

For development, with a local certificate authority that flatout creates:

    flatout serve ./public --tls internal --listen 127.0.0.1:8443

It prints the path of the root certificate to trust (curl --cacert FILE). With PEM files:

    flatout serve ./public --tls-cert chain.pem --tls-key key.pem --listen :443

In a configuration:

    site \"example.com\" {
        listen \":443\" tls=#true
        listen \":80\" redirect-https=443
        tls cert=\"/etc/letsencrypt/live/example.com/fullchain.pem\" key=\"/etc/letsencrypt/live/example.com/privkey.pem\"
        files \"/srv/www\"
    }

flatout does not obtain certificates; use certbot or acme.sh. When the files change, flatout uses
the new certificate within seconds, without a reload. If flatout starts as root and switches to
`user`, that user must be able to read the new files. `flatout status` shows the days until expiry.

More: docs/config.md, \"Sites\"
",
    },
    Topic {
        name: "systemd",
        also: &["service", "daemon", "unit"],
        text: "systemd: flatout as a service

Install the program as /usr/bin/flatout and the configuration as /etc/flatout/flatout.kdl. The units
are in the repository, in packaging/flatout.service and packaging/flatout.socket:

    cp packaging/flatout.service /etc/systemd/system/
    systemctl daemon-reload
    systemctl enable --now flatout
    systemctl reload flatout            # the same as: flatout reload
    journalctl -u flatout

The unit runs flatout as a separate user that may bind ports below 1024, so the configuration needs
no `user`. State is in /var/lib/flatout, the cache in /var/cache/flatout, logs in /var/log/flatout,
and the admin socket in /run/flatout. With flatout.socket, systemd binds the ports and no connection
is refused during a restart. `flatout upgrade` switches to a new version of the program without
downtime.

More: docs/config.md
",
    },
    Topic {
        name: "spa",
        also: &["single-page", "try_files", "try-files", "fallback"],
        text: "spa: single-page applications

Paths without a file get index.html, and the application's router handles them:

    site \"app.example\" {
        listen \":8080\"
        files \"/srv/app/dist\" { spa \"index.html\"; }
    }

With an API, and a year of caching for files with a hash in their names:

    site \"app.example\" {
        listen \":8080\"
        route \"/api/*\" { proxy \"http://127.0.0.1:3000\"; }
        route \"/assets/*\" { files \"/srv/app/dist\" { cache-control \"*\" \"public, max-age=31536000, immutable\"; }; }
        files \"/srv/app/dist\" {
            spa \"index.html\"
            cache-control \"text/html\" \"no-cache\"
        }
    }

The route for /assets comes before the last `files`, so a missing script is a 404 and not
index.html. The general form is `try \"{path}\" \"{path}.html\" \"=404\"`, as try_files in nginx.

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
