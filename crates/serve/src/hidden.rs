//! Names of scripts and active pages, whose source is never served from a folder where they run.
//!
//! A copy of a script, such as `config.php~`, `config.php.bak` or `config.phpold`, does not run, but may contain the
//! same password. A name is therefore hidden if any of its extensions begins with that of a script or active page,
//! ignoring case.

/// PHP extensions that are always hidden, whatever scripts the configuration runs. `.php5`, `.phps` and `.phtml` begin
/// with one of them.
const ALWAYS: [&str; 3] = [".php", ".pht", ".phar"];

/// The kind of program whose source has a hidden name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HiddenSource {
    /// A script. The response does not reveal whether the file exists.
    Script,
    /// An active page, which is treated as a missing file.
    Page,
}

/// The set of names whose content is never served. An empty set hides nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceNames {
    scripts: Vec<Box<[u8]>>,
    pages: Vec<Box<[u8]>>,
}

impl SourceNames {
    /// Hides scripts: names with one of `suffixes` or a known PHP extension. Replaces earlier suffixes of scripts.
    #[must_use]
    pub fn with_scripts<'a>(self, suffixes: impl IntoIterator<Item = &'a str>) -> Self {
        Self { scripts: endings(ALWAYS.into_iter().chain(suffixes)), ..self }
    }

    /// Hides active pages: names with one of `suffixes`. Replaces earlier suffixes of active pages.
    #[must_use]
    pub fn with_pages<'a>(self, suffixes: impl IntoIterator<Item = &'a str>) -> Self {
        Self { pages: endings(suffixes), ..self }
    }

    /// Returns the kind of source if `name`, a path or its last segment, is hidden as a source or a copy of one.
    pub fn hides(&self, name: &[u8]) -> Option<HiddenSource> {
        if is_copy_of(name, &self.scripts) {
            Some(HiddenSource::Script)
        } else {
            is_copy_of(name, &self.pages).then_some(HiddenSource::Page)
        }
    }
}

fn endings<'a>(suffixes: impl IntoIterator<Item = &'a str>) -> Vec<Box<[u8]>> {
    let written = suffixes.into_iter().filter(|suffix| !suffix.is_empty());
    let mut all: Vec<Box<[u8]>> = written.map(|suffix| suffix.to_ascii_lowercase().into_bytes().into()).collect();
    all.sort();
    all.dedup();
    all
}

/// Returns whether an extension of `name`, a path or its last segment, begins with one of `suffixes`, as the name of
/// such a file or of a copy does.
fn is_copy_of(name: &[u8], suffixes: &[Box<[u8]>]) -> bool {
    let last = name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    // This is fast, because nearly all names have one dot, and most extensions differ in the first characters.
    last.iter().enumerate().filter(|&(_, &byte)| byte == b'.').any(|(at, _)| {
        let rest = &last[at..];
        suffixes.iter().any(|suffix| rest.get(..suffix.len()).is_some_and(|start| start.eq_ignore_ascii_case(suffix)))
    })
}

#[cfg(test)]
mod tests {
    use super::{HiddenSource, SourceNames};

    #[test]
    fn scripts_and_their_copies_are_hidden() {
        let sources = SourceNames::default().with_scripts([".php", ".cgi.pl"]);
        for name in [
            "x.php",
            "a/b/x.php",
            "x.PHP",
            "x.pHp",
            "x.php~",
            "x.php.",
            "x.php ",
            "x.php.bak",
            "x.php.gz",
            "x.php.br",
            ".x.php.swp",
            "x.php::$DATA",
            "x.php\n",
            "x.php%",
            "x.phtml",
            "x.php5",
            "x.phps",
            "x.phar",
            "#x.php#",
            "x.php-old",
            "x.php_",
            "x.html.php",
            "x.php.html",
            "x.cgi.pl",
            "x.CGI.PL~",
            ".php",
            "x.php\u{e4}",
            "x.phpold",
            "x.php1",
            "x.php9",
            "x.phpt",
            "x.phpx.gz",
            "x.PHPbak",
            "x.php2024-11-22",
            "x.phtmlold",
            "x.phars",
            "x.cgi.plold",
        ] {
            assert_eq!(sources.hides(name.as_bytes()), Some(HiddenSource::Script), "{name}");
        }
        for name in [
            "",
            "x.html",
            "php",
            "xphp",
            "xphp.bak",
            "x.photo",
            "dir.phpold/page.html",
            "x.pl",
            "x.ph",
            "x.",
            "x.graphphp",
        ] {
            assert_eq!(sources.hides(name.as_bytes()), None, "{name}");
        }
        assert_eq!(SourceNames::default().with_scripts([".php"]), SourceNames::default().with_scripts([""]));
    }

    #[test]
    fn pages_are_hidden_where_they_run() {
        let sources = SourceNames::default().with_pages([".lhtml", ".luau"]);
        for name in ["x.lhtml", "a/x.LUAU", "x.lhtml~", "x.luau.bak", "x.lhtmlold", "x.luau1"] {
            assert_eq!(sources.hides(name.as_bytes()), Some(HiddenSource::Page), "{name}");
            assert_eq!(SourceNames::default().hides(name.as_bytes()), None, "{name}");
        }
        assert_eq!(sources.hides(b"x.php"), None);
        // Where both run, a name that is both is a script's.
        assert_eq!(sources.with_scripts([]).hides(b"x.php.lhtml"), Some(HiddenSource::Script));
    }
}
