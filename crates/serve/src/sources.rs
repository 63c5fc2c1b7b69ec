//! Names of scripts, whose text is never given out where scripts are run.
//!
//! A script that is not run, because its name is written otherwise or has something behind it, is still a script: an
//! editor's copy `config.php~` holds the same password as `config.php`. So what counts is whether an ending of scripts
//! stands anywhere in the last segment with nothing or no letter or digit behind it, in whatever case.

/// Endings under which PHP is known to be written, whatever the configuration runs.
const ALWAYS: [&str; 10] = [".php", ".php3", ".php4", ".php5", ".php7", ".php8", ".phtml", ".pht", ".phps", ".phar"];

/// Names that are never answered with their content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceNames(Vec<Box<[u8]>>);

impl SourceNames {
    /// Names with `suffixes`, and with those under which PHP is known to be written.
    pub fn new<'a>(suffixes: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all: Vec<Box<[u8]>> = ALWAYS
            .into_iter()
            .chain(suffixes)
            .filter(|suffix| !suffix.is_empty())
            .map(|suffix| suffix.to_ascii_lowercase().into_bytes().into())
            .collect();
        all.sort();
        all.dedup();
        Self(all)
    }

    /// Whether `name`, a path or its last segment, is a script's or that of a copy of one.
    pub fn hides(&self, name: &[u8]) -> bool {
        is_copy_of(name, &self.0)
    }
}

/// Whether `name`, a path or its last segment, has one of `suffixes`, or is the name of a copy of such a file.
pub(crate) fn is_copy_of(name: &[u8], suffixes: &[impl AsRef<[u8]>]) -> bool {
    let last = name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    // Nearly all names have one dot, and most of their endings begin otherwise.
    last.iter().enumerate().filter(|&(_, &byte)| byte == b'.').any(|(at, _)| {
        let rest = &last[at..];
        suffixes.iter().map(AsRef::as_ref).any(|suffix| {
            rest.len() >= suffix.len()
                && rest[..suffix.len()].eq_ignore_ascii_case(suffix)
                && !rest.get(suffix.len()).is_some_and(u8::is_ascii_alphanumeric)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::SourceNames;

    #[test]
    fn scripts_and_their_copies_are_hidden() {
        let sources = SourceNames::new([".php", ".cgi.pl"]);
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
        ] {
            assert!(sources.hides(name.as_bytes()), "{name}");
        }
        for name in
            ["", "x.html", "php", "xphp", "x.phpx", "x.php9", "dir.php/page.html", "x.pl", "x.ph", "x.", "x.graphphp"]
        {
            assert!(!sources.hides(name.as_bytes()), "{name}");
        }
        assert_eq!(SourceNames::new([".php"]), SourceNames::new([""]));
    }
}
