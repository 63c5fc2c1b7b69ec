//! The live screen on a terminal: it is entered and left, however the run ends. Without a terminal, there is no screen.

use super::super::harness::{Folder, Server, flatout, wait_until};
use super::super::tool::{said, tool};
use std::fs;
use std::process::{Command, Stdio};

/// Enters and leaves the alternate screen of a terminal (xterm's private mode 1049).
const TAKEN: &str = "\x1b[?1049h";
const GIVEN_BACK: &str = "\x1b[?1049l";

/// `script` runs a command on its own terminal. Everything written there appears in its output.
fn on_terminal(command: &str) -> Command {
    let mut script = tool("script");
    script.args(["--quiet", "--return", "--command", command, "/dev/null"]).env("TERM", "xterm-256color");
    script.env_remove("NO_COLOR").stdin(Stdio::null());
    script
}

#[test]
fn the_alternate_screen_is_entered_and_left() {
    let site = Folder::with(&[("a.txt", &[b'a'; 1024])]);
    let server = Server::start(site.path(), &[]);
    let program = flatout().get_program().to_str().unwrap().to_owned();
    let command = format!("stty rows 30 cols 100; {program} bench {} -d 2s -c 4; stty -a", server.url("/a.txt"));
    let output = on_terminal(&command).output().unwrap();
    let text = said(&output);
    let (before, after) =
        text.split_once(GIVEN_BACK).unwrap_or_else(|| panic!("the screen was not restored: {text:?}"));
    assert!(before.contains(TAKEN) && before.contains("responses/s") && before.contains("Ctrl-C"), "{text:?}");
    // The result is printed on the normal screen, and the terminal echoes keys again.
    assert!(after.contains("responses") && after.contains(" echo ") && after.contains(" icanon"), "{after:?}");
}

#[test]
fn a_signal_restores_the_screen() {
    let (site, folder) = (Folder::with(&[("a.txt", &[b'a'; 1024])]), Folder::new());
    let server = Server::start(site.path(), &[]);
    let program = flatout().get_program().to_str().unwrap().to_owned();
    let pid = folder.path().join("pid");
    let url = server.url("/a.txt");
    let command = format!(
        "stty rows 30 cols 100; {program} bench {url} -d 1h -c 1 & echo $! >{}; wait $!; echo ended $?; stty -a",
        pid.display()
    );
    let log = folder.path().join("log");
    let mut child = on_terminal(&command).stdout(fs::File::create(&log).unwrap()).spawn().unwrap();
    wait_until("the alternate screen is entered", || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains("responses/s"))
    });
    let pid = fs::read_to_string(&pid).unwrap();
    assert!(Command::new("kill").args(["-TERM", pid.trim()]).status().unwrap().success());
    child.wait().unwrap();
    let text = fs::read_to_string(&log).unwrap();
    let (_, after) = text.split_once(GIVEN_BACK).unwrap_or_else(|| panic!("the screen was not restored: {text:?}"));
    assert!(after.contains("ended 143") && after.contains(" echo "), "{after:?}");
}

#[test]
fn the_live_screen_needs_a_terminal() {
    let site = Folder::with(&[("a.txt", &[b'a'; 1024])]);
    let server = Server::start(site.path(), &[]);
    let output = flatout().args(["bench", &server.url("/a.txt"), "-n", "100", "-c", "2"]).output().unwrap();
    assert!(!said(&output).contains('\x1b'), "{}", said(&output));
}

/// Removes colours, and the progress lines that were rewritten in place.
fn last_shown(text: &str) -> String {
    let mut plain = String::new();
    let mut in_colour = false;
    for character in text.chars() {
        match character {
            '\x1b' => in_colour = true,
            _ if in_colour => in_colour = !character.is_ascii_alphabetic(),
            _ => plain.push(character),
        }
    }
    plain.lines().map(|line| line.rsplit('\r').find(|part| !part.is_empty()).unwrap_or("").to_owned() + "\n").collect()
}

#[test]
fn a_report_fits_a_terminal_of_80_columns_and_names_each_url() {
    let site = Folder::with(&[("a.txt", &[b'a'; 1024])]);
    let server = Server::start(site.path(), &[]);
    let urls: String = (0..14).map(|number| format!("/a.txt?{number}\n")).chain(["/none\n".to_owned()]).collect();
    site.write("urls", urls.as_bytes());
    let (program, list) = (flatout().get_program().to_str().unwrap().to_owned(), site.path().join("urls"));
    let url = server.url("/");
    let command = format!(
        "stty rows 30 cols 80; {program} bench {url} --urls {} -n 150 --rate 300 -c 4 --no-tui",
        list.display()
    );
    let text = last_shown(&said(&on_terminal(&command).output().unwrap()));
    let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "{wide:#?} in\n{text}");
    let rows = |name: &str| text.lines().filter(|line| line.trim_start().starts_with(name)).count();
    assert_eq!((rows("/a.txt?"), rows("4 others")), (10, 1), "{text}");
    // A URL with errors is named, however many others there are.
    let failed = text.lines().find(|line| line.trim_start().starts_with("/none")).unwrap_or_else(|| panic!("{text}"));
    assert!(failed.ends_with(" 10"), "{failed}");
    let outcome = text.find("FAILED: 10 requests were answered with 4xx").unwrap_or_else(|| panic!("{text}"));
    assert!(outcome < text.find("  latency ").unwrap() && text.contains("  distribution "), "{text}");
}
