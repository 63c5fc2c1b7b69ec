//! Detection of files that must not be downloadable.

use std::path::{Component, Path};

/// Returns true if a `files` step with this `root` would serve `path`, judging by the names alone: `path` is below the
/// root and, unless `hidden` files are served, no segment begins with a dot. Both paths must be normalised, and
/// absolute or relative to the same folder.
pub fn is_given_out(path: &Path, root: &Path, hidden: bool) -> bool {
    if path.is_absolute() != root.is_absolute() {
        return false;
    }
    let Ok(rest) = path.strip_prefix(root) else { return false };
    let mut at = 0;
    rest.components().all(|component| {
        at += 1;
        match component {
            // This is the only name with a leading dot that is served (RFC 8615).
            Component::Normal(name) if at == 1 && name == ".well-known" => true,
            Component::Normal(name) => hidden || !name.as_encoded_bytes().starts_with(b"."),
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::is_given_out;

    #[test]
    fn below_and_not_hidden() {
        for (path, root, hidden, expected) in [
            ("/srv/www/data/site.db", "/srv/www", false, true),
            ("/srv/www", "/srv/www", false, true),
            ("/srv/www2/site.db", "/srv/www", false, false),
            ("/srv/data/site.db", "/srv/www", false, false),
            ("/srv/www/.data/site.db", "/srv/www", false, false),
            ("/srv/www/.data/site.db", "/srv/www", true, true),
            ("/srv/www/.well-known/site.db", "/srv/www", false, true),
            ("/srv/www/a/.well-known/site.db", "/srv/www", false, false),
            ("/srv/.www/site.db", "/srv/.www", false, true),
            ("data/site.db", "", false, true),
            ("../data/site.db", "", false, false),
            ("../data/site.db", "..", false, true),
            ("/data/site.db", "", false, false),
            ("data/site.db", "/data", false, false),
        ] {
            assert_eq!(is_given_out(path.as_ref(), root.as_ref(), hidden), expected, "{path} {root} {hidden}");
        }
    }
}
