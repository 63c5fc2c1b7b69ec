//! The command line of a bench, as data: what a result stores, and what a rerun repeats.
//!
//! Three kinds of flags matter: flags that name input files, which a bundle copies; flags that control output, which a
//! rerun drops; and flags that contain secrets, which no result stores.

use flatout_load::report::visible::is_unseen;
use std::fmt::Write as _;

/// The flag that names a list of URLs.
const URLS: &str = "--urls";

/// Flags that name a file to read. A bundle contains a copy of each file.
const INPUTS: [&str; 5] = [URLS, "--filelist", "--replay", "--body", "--cacert"];

/// Flags with a value that control the output.
const OUTPUTS: [&str; 7] = ["--json", "--csv", "--prometheus", "--hlog", "--html", "--bundle", "--view"];

/// Flags without a value that control the output.
const SHOWN: [&str; 2] = ["--tui", "--no-tui"];

/// A flag that only the controller evaluates, because it concerns the whole run.
const STRICT: &str = "--strict";

/// Flags with a value that only the controller uses. Agents have no agents of their own, requirements apply to the
/// whole run, and the controller must never make an agent open a file on the agent's machine.
const CONTROLLER: [&str; 6] = ["--agents", "--listen", "--certs", "--require", "--server-log", "--server-metrics"];

/// Flags that carry a header.
const HEADERS: [&str; 2] = ["-H", "--header"];

/// Flags whose value may be secret, such as a form with a password. The value is neither stored nor shown.
const SECRETS: [&str; 1] = ["--body-text"];

/// Flags that name something on this machine which is not a file to read. A result may be from someone else, so a rerun
/// does not take them from it.
const LOCAL: [&str; 1] = ["--unix-socket"];

/// Header fields whose values are secret. The values are neither stored nor shown.
pub const SECRET_FIELDS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// Replacement for the value of a secret field.
pub const NOT_KEPT: &str = "[not stored]";

/// A flag of a command line with its value, or a word that is not a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    /// The flag as written; `None` for a word that is not a flag.
    flag: Option<String>,
    /// The value of the flag, or the word.
    value: Option<String>,
    /// True if flag and value are one word: `--flag=value`.
    is_joined: bool,
}

/// Parses a command line, without the names of program and command. If a flag is of none of these kinds, the flag and
/// its value are separate words.
fn pieces(words: &[String]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut words = words.iter();
    let kinds: [&[&str]; 6] = [&INPUTS, &OUTPUTS, &CONTROLLER, &HEADERS, &SECRETS, &LOCAL];
    let takes_value = |name: &str| kinds.iter().any(|kind| kind.contains(&name));
    while let Some(word) = words.next() {
        let piece = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") && takes_value(name) => {
                Piece { flag: Some(name.to_owned()), value: Some(value.to_owned()), is_joined: true }
            }
            _ if takes_value(word) => {
                Piece { flag: Some(word.clone()), value: words.next().cloned(), is_joined: false }
            }
            _ => match word.strip_prefix("-H").filter(|value| !value.is_empty()) {
                Some(value) => Piece { flag: Some("-H".to_owned()), value: Some(value.to_owned()), is_joined: false },
                None => Piece { flag: None, value: Some(word.clone()), is_joined: false },
            },
        };
        pieces.push(piece);
    }
    pieces
}

fn words(pieces: Vec<Piece>) -> Vec<String> {
    let mut words = Vec::new();
    for piece in pieces {
        match (piece.flag, piece.value) {
            (Some(flag), Some(value)) if piece.is_joined => words.push(format!("{flag}={value}")),
            (flag, value) => words.extend(flag.into_iter().chain(value)),
        }
    }
    words
}

/// Returns the command line without secrets, as a result stores it.
pub fn kept(command: &[String]) -> Vec<String> {
    let mut pieces = pieces(command);
    for piece in &mut pieces {
        let is_header = piece.flag.as_deref().is_some_and(|flag| HEADERS.contains(&flag));
        if piece.flag.as_deref().is_some_and(|flag| SECRETS.contains(&flag)) {
            piece.value = Some(NOT_KEPT.to_owned());
        }
        if let (true, Some(value)) = (is_header, &mut piece.value)
            && let Some((name, _)) = value.split_once(':')
            && SECRET_FIELDS.iter().any(|secret| name.trim().eq_ignore_ascii_case(secret))
        {
            *value = format!("{name}: {NOT_KEPT}");
        }
    }
    words(pieces)
}

/// Returns the names of the headers, and the flags, whose values a stored command lacks.
pub fn not_kept(command: &[String]) -> Vec<String> {
    let names = pieces(command).into_iter().filter_map(|piece| {
        let flag = piece.flag.as_deref()?;
        if SECRETS.contains(&flag) {
            return (piece.value.as_deref() == Some(NOT_KEPT)).then(|| flag.to_owned());
        }
        if !HEADERS.contains(&flag) {
            return None;
        }
        let (name, value) = piece.value.as_deref()?.split_once(':')?;
        (value.trim() == NOT_KEPT).then(|| name.trim().to_owned())
    });
    names.collect()
}

/// Returns the flags of a command, with their values, that a rerun does not take from a result.
pub fn not_repeated(command: &[String]) -> Vec<(String, String)> {
    let local = pieces(command).into_iter().filter_map(|piece| {
        let flag = piece.flag.filter(|flag| LOCAL.contains(&flag.as_str()))?;
        Some((flag, piece.value?))
    });
    local.collect()
}

/// A file that a command reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputFile {
    /// The name on the command line. Of the value `LOG,xK` of a replay, only the log is a file.
    pub name: String,
    /// True for a list of URLs, which may itself name files.
    pub is_url_list: bool,
}

/// Returns the files that a command reads, in order.
pub fn inputs(command: &[String]) -> Vec<InputFile> {
    let inputs = pieces(command).into_iter().filter_map(|piece| {
        let flag = piece.flag.filter(|flag| INPUTS.contains(&flag.as_str()))?;
        let name = split_file(&flag, &piece.value?).0.to_owned();
        Some(InputFile { name, is_url_list: flag == URLS })
    });
    inputs.collect()
}

/// Splits the value of a flag into the name of a file and the rest.
fn split_file<'a>(flag: &str, value: &'a str) -> (&'a str, &'a str) {
    match value.rfind(",x") {
        Some(at) if flag == "--replay" => value.split_at(at),
        _ => (value, ""),
    }
}

/// Returns the command line for an agent's share: like [`again`], but without the flags for the controller. Headers are
/// unchanged, because the agent sends them.
pub fn for_agent(command: &[String], place: impl FnMut(usize, &str) -> String) -> Vec<String> {
    let is_for_all = |piece: &Piece| {
        piece.value.as_deref() != Some(STRICT) && !piece.flag.as_deref().is_some_and(|flag| CONTROLLER.contains(&flag))
    };
    again(&words(pieces(command).into_iter().filter(is_for_all).collect()), place)
}

/// Returns the command line of a rerun, without output flags, without headers and bodies that were not stored, and
/// without the flags of [`not_repeated`].
/// `place` returns the path of each input file, given its index and name.
pub fn again(command: &[String], mut place: impl FnMut(usize, &str) -> String) -> Vec<String> {
    let mut index = 0;
    let mut kept = Vec::new();
    for mut piece in pieces(command) {
        let name = piece.flag.as_deref().or(piece.value.as_deref()).unwrap_or_default();
        if OUTPUTS.contains(&name) || SHOWN.contains(&name) || LOCAL.contains(&name) {
            continue;
        }
        if (HEADERS.contains(&name) || SECRETS.contains(&name))
            && piece.value.as_deref().is_some_and(|value| value.ends_with(NOT_KEPT))
        {
            continue;
        }
        if let (Some(flag), Some(value)) = (&piece.flag, &mut piece.value)
            && INPUTS.contains(&flag.as_str())
        {
            let (file, rest) = split_file(flag, value);
            *value = format!("{}{rest}", place(index, file));
            index += 1;
        }
        kept.push(piece);
    }
    words(kept)
}

/// Returns the command line in shell syntax.
pub fn shell_line(words: &[String]) -> String {
    let quoted = |word: &String| {
        if word.chars().any(is_unseen) {
            return ansi_quoted(word);
        }
        let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_./:=,@%+[]".contains(character);
        if !word.is_empty() && word.chars().all(is_plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Quotes a word with `$'…'`, which bash and most other shells support, and which can represent every byte.
fn ansi_quoted(word: &str) -> String {
    let mut quoted = String::from("$'");
    for character in word.chars() {
        if is_unseen(character) {
            let mut bytes = [0; 4];
            for byte in character.encode_utf8(&mut bytes).bytes() {
                // Writing to a String cannot fail. The escape always has three octal digits.
                let _ = write!(quoted, "\\{byte:03o}");
            }
        } else {
            quoted.extend((character == '\'' || character == '\\').then_some('\\'));
            quoted.push(character);
        }
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::{InputFile, again, for_agent, inputs, kept, not_kept, not_repeated, shell_line};

    fn words(text: &str) -> Vec<String> {
        text.split('|').map(str::to_owned).collect()
    }

    #[test]
    fn a_socket_of_this_machine_is_kept_but_not_repeated() {
        let command = words("http://a/|--unix-socket|/run/a.sock|-n|10|--unix-socket=/run/b.sock");
        assert_eq!(kept(&command), command);
        assert_eq!(again(&command, |_, name| name.to_owned()), words("http://a/|-n|10"));
        let flag = |path: &str| ("--unix-socket".to_owned(), path.to_owned());
        assert_eq!(not_repeated(&command), [flag("/run/a.sock"), flag("/run/b.sock")]);
    }

    #[test]
    fn secrets_are_not_kept_and_the_rest_is() {
        let command = words("http://a/|-H|Authorization: Basic x|-HCookie:a=b|--header=X: y|-n|10|--header=cookie : z");
        let expected = words(
            "http://a/|-H|Authorization: [not stored]|-H|Cookie: [not stored]|--header=X: y|-n|10|--header=cookie : [not stored]",
        );
        assert_eq!(kept(&command), expected);
        assert_eq!(not_kept(&expected), ["Authorization", "Cookie", "cookie"]);
        assert!(not_kept(&words("-H|X: y|-H")).is_empty());
        let command = kept(&words("http://a/|--body-text|password=x|-n|10"));
        assert_eq!(command, words("http://a/|--body-text|[not stored]|-n|10"));
        assert_eq!(
            (not_kept(&command), again(&command, |_, _| String::new())),
            (words("--body-text"), words("http://a/|-n|10"))
        );
    }

    #[test]
    fn a_shell_takes_the_line_as_it_was() {
        let line = shell_line(&words("flatout|bench|http://a/?b=c&d|-H|X: it's|"));
        assert_eq!(line, r"flatout bench 'http://a/?b=c&d' -H 'X: it'\''s' ''");
        // The line contains no control sequences.
        let line = shell_line(&["a\x1b[2J'\\1\n\u{9b}é".to_owned()]);
        assert_eq!(line, r"$'a\033[2J\'\\1\012\302\233é'");
    }

    #[test]
    fn a_run_again_reads_the_copies_and_writes_nothing_by_itself() {
        let command = words(
            "http://a/|--urls|/x/list|--json|out.json|--replay=log,x2|--html=r.html|--no-tui|-H|Cookie: [not stored]|--seed|7|--bundle",
        );
        let file = |name: &str, is_url_list| InputFile { name: name.to_owned(), is_url_list };
        assert_eq!(inputs(&command), [file("/x/list", true), file("log", false)]);
        let words_again = again(&command, |index, file| format!("copy-{index}-{}", file.len()));
        assert_eq!(words_again, words("http://a/|--urls|copy-0-7|--replay=copy-1-3,x2|--seed|7"));
        let command = words("http://a/|--agents|2|--listen=:1|--require|p99<1s|--require|errors<1%|--urls|x|--rate|5");
        assert_eq!(for_agent(&command, |_, _| "y".to_owned()), words("http://a/|--urls|y|--rate|5"));
    }
}
