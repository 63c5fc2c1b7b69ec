//! The pages of Coyote's experiment (1998): nine texts with the time of day in the middle, as a file, and as the
//! template of each server that inserts the time.

use super::site;
use crate::failure::{Context, Outcome};
use std::path::Path;
use std::process::Command;

/// What a page's head takes of the seed's figure, which counts it: the head of our static page, give or take the
/// digits of its length. The heads of others differ by some tens of bytes.
pub(super) const HEAD_BYTES: usize = 213;

/// The time that stands in the static page: as long as `TIMEDATE()` writes it in UTC. Others write it shorter.
const SOME_TIME: &str = "Fri 08 May 1998 12:00:00 UTC";

/// How nginx and PHP write it, and how long that is.
const SHORT_FORMAT: &str = "%Y-%m-%d %H:%M:%S";
const SHORT_BYTES: usize = 19;
const TIMEDATE_FORMAT: &str = "%a %d %b %Y %H:%M:%S %Z";

/// Where the Lua script finds the place for the time.
const MARK: &str = "@TIME@";

/// A page's text on both sides of the time.
pub(super) struct Page {
    before: String,
    after: String,
}

impl Page {
    /// One of so many bytes with the time in it.
    pub(super) fn of(bytes: usize) -> Self {
        let mut before = String::from("<!doctype html>\n<title>Coyote</title>\n<p>");
        let mut after = String::from(".\n");
        let words = bytes.saturating_sub(before.len() + SOME_TIME.len() + after.len());
        before.push_str(&prose(words / 2));
        after.push_str(&prose(words - words / 2));
        Self { before, after }
    }

    /// The page with that inserted.
    pub(super) fn with(&self, inserted: &str) -> String {
        [&self.before, inserted, &self.after].concat()
    }

    /// The static page.
    pub(super) fn with_some_time(&self) -> String {
        self.with(SOME_TIME)
    }

    /// What was inserted, if the rest is the page.
    pub(super) fn inserted<'a>(&self, body: &'a [u8]) -> Option<&'a str> {
        let rest = body.strip_prefix(self.before.as_bytes())?.strip_suffix(self.after.as_bytes())?;
        let is_short = (SHORT_BYTES..SHORT_BYTES * 2).contains(&rest.len());
        is_short.then(|| std::str::from_utf8(rest).ok()).flatten()
    }

    /// Writes the templates beside the static page.
    pub(super) fn write_templates(&self, page: &Path) -> Outcome<()> {
        let templates = [
            ("lhtml", self.with("<?= TIMEDATE() ?>")),
            ("php", self.with("<?= date('Y-m-d H:i:s') ?>")),
            ("text", self.with(MARK)),
            ("lua", lua(page)),
        ];
        for (ending, text) in templates {
            std::fs::write(page.with_extension(ending), text).cannot("write a page's template")?;
        }
        std::fs::write(page.with_file_name(ASKS_OPCACHE), OPCACHE_SCRIPT).cannot("write a page's template")
    }
}

/// The script that says whether another one is kept compiled; its query string names the other.
pub(super) const ASKS_OPCACHE: &str = "opcache.php";
pub(super) const OPCACHE_SCRIPT: &str =
    "<?= opcache_is_script_cached(__DIR__ . '/' . $_SERVER['QUERY_STRING']) ? 'cached' : 'compiled again' ?>";

/// The module that nginx loads before its worker starts: the page is read and cut in two once.
fn lua(page: &Path) -> String {
    let text = page.with_extension("text");
    format!(
        r#"local file = assert(io.open("{}"))
local text = file:read("*a")
file:close()
local before, after = text:match("^(.-){MARK}(.*)$")
local length = #before + {SHORT_BYTES} + #after
local print, localtime, header = ngx.print, ngx.localtime, ngx.header
return function()
    header.content_length = length
    print(before, localtime(), after)
end
"#,
        text.display()
    )
}

/// Exactly so many bytes of words.
fn prose(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    for (count, word) in site::words().enumerate() {
        if text.len() >= bytes {
            break;
        }
        text.push(if count % 16 == 0 { '\n' } else { ' ' });
        text.push_str(word);
    }
    text.truncate(bytes);
    text
}

/// Returns true if a text is the time now, in either form, in UTC or the machine's own zone, to a second or two.
pub(super) fn is_now(text: &str) -> Outcome<bool> {
    for seconds in -3..=1 {
        for zone in [&[][..], &["-u"]] {
            let mut date = Command::new("date");
            date.env("LC_ALL", "C").args(zone);
            date.args(["-d", &format!("{seconds} seconds"), &format!("+{SHORT_FORMAT}|{TIMEDATE_FORMAT}")]);
            if crate::shell::output_of(&mut date)?.trim().split('|').any(|time| time == text) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::super::coyote;
    use super::*;

    #[test]
    fn a_page_has_its_length_and_gives_back_what_was_inserted() {
        for (bytes, ..) in coyote::PAGES {
            let page = Page::of(bytes - HEAD_BYTES);
            let text = page.with_some_time();
            assert_eq!(text.len(), bytes - HEAD_BYTES);
            assert_eq!(page.inserted(text.as_bytes()), Some(SOME_TIME));
            assert_eq!(page.inserted(page.with("2026-01-01 00:00:00").as_bytes()), Some("2026-01-01 00:00:00"));
            assert_eq!(page.inserted(page.with("now").as_bytes()), None);
            assert_eq!(page.inserted(&text.as_bytes()[1..]), None);
        }
    }

    #[test]
    fn the_time_now_is_known_and_another_is_not() {
        let mut date = Command::new("date");
        let now =
            crate::shell::output_of(date.env("LC_ALL", "C").arg(format!("+{SHORT_FORMAT}|{TIMEDATE_FORMAT}"))).unwrap();
        assert!(now.trim().split('|').all(|time| is_now(time).unwrap()), "{now}");
        assert!(!is_now(SOME_TIME).unwrap());
    }
}
