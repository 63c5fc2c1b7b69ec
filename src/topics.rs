//! `flatout help TOPIC`: topics, under the names for which users of other servers look.

/// A help topic, with its name, its synonyms and its text.
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

By default, `files` compresses text, scripts, JSON, SVG and similar types with br, zstd or gzip,
whichever the client accepts. It compresses each version of a file once, in the background, and
keeps the result in memory. If there is a precompressed file (app.js.br, app.js.zst, app.js.gz) next
to the original, flatout sends that instead.

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

For development, use a local certificate authority, which flatout creates:

    flatout serve ./public --tls internal --listen 127.0.0.1:8443

flatout prints the path of the root certificate to trust (curl --cacert FILE). To use PEM files:

    flatout serve ./public --tls-cert chain.pem --tls-key key.pem --listen :443

In a configuration:

    site \"example.com\" {
        listen \":443\" tls=#true
        listen \":80\" redirect-https=443
        tls cert=\"/etc/letsencrypt/live/example.com/fullchain.pem\" key=\"/etc/letsencrypt/live/example.com/privkey.pem\"
        files \"/srv/www\"
    }

flatout does not obtain certificates; use certbot or acme.sh. When the files change, flatout loads
the new certificate within seconds, without a reload. If flatout starts as root and switches to
`user`, that user must be able to read the new files. `flatout status` shows the days until expiry.

More: docs/config.md, \"Sites\"
",
    },
    Topic {
        name: "systemd",
        also: &["service", "daemon", "unit"],
        text: "systemd: flatout as a service

Install the binary as /usr/bin/flatout and the configuration as /etc/flatout/flatout.kdl. The units
are in the repository, in packaging/flatout.service and packaging/flatout.socket:

    cp packaging/flatout.service /etc/systemd/system/
    systemctl daemon-reload
    systemctl enable --now flatout
    systemctl reload flatout            # the same as: flatout reload
    journalctl -u flatout

The unit runs flatout as a separate user that may bind ports below 1024, so the configuration needs
no `user`. State is in /var/lib/flatout, the cache in /var/cache/flatout, logs in /var/log/flatout,
and the admin socket in /run/flatout. If you enable flatout.socket, systemd binds the ports, and no
connection is refused during a restart. `flatout upgrade` switches to a newly installed binary
without downtime.

More: docs/config.md
",
    },
    Topic {
        name: "spa",
        also: &["single-page", "try_files", "try-files", "fallback"],
        text: "spa: single-page applications

If no file matches the path, flatout serves index.html, and the application's router takes over:

    site \"app.example\" {
        listen \":8080\"
        files \"/srv/app/dist\" { spa \"index.html\"; }
    }

The same with an API, and with a year of caching for files that have a hash in their names:

    site \"app.example\" {
        listen \":8080\"
        route \"/api/*\" { proxy \"http://127.0.0.1:3000\"; }
        route \"/assets/*\" { files \"/srv/app/dist\" { cache-control \"*\" \"public, max-age=31536000, immutable\"; }; }
        files \"/srv/app/dist\" {
            spa \"index.html\"
            cache-control \"text/html\" \"no-cache\"
        }
    }

The route for /assets comes before the last `files`, so a request for a missing script gets a
404 and not index.html. The general form is `try \"{path}\" \"{path}.html\" \"=404\"`, like try_files in nginx.

More: docs/config.md, \"files\"
",
    },
];

/// Returns the text about the topic with the name or synonym `word`.
pub(crate) fn text_about(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    TOPICS.iter().find(|topic| topic.name == word || topic.also.contains(&word.as_str())).map(|topic| topic.text)
}

/// Returns the names of all topics.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TOPICS.iter().map(|topic| topic.name)
}

#[cfg(test)]
mod tests {
    use super::{TOPICS, text_about};
    use flatout_config::load_text;

    /// The configurations in a text: sequences of lines that begin with `site` and end with a brace.
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
