//! `flatout pages check` and `flatout pages new`: commands for developing active pages.

use crate::config::Color;
use clap::{Args, Subcommand};
use flatout_config::{Diagnostic, Diagnostics};
use flatout_daemon::Failure;
use flatout_pages::check::{TemplateFolder, check};
use flatout_template::is_part;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

/// Exit code if the command line or a page is invalid.
const EXIT_USAGE: u8 = 2;

/// Maximum depth of folders. Deeper folders are an error.
const DEPTH_MAX: usize = 32;

/// Maximum number of pages that one command checks.
const PAGES_MAX: usize = 100_000;

/// Maximum number of errors shown, as for configurations. Further errors are only counted.
const SHOWN_MAX: usize = flatout_config::diagnostic::SHOWN_MAX;

/// Check active pages, or create a new site
#[derive(Args, Debug)]
pub(crate) struct PagesArgs {
    #[command(subcommand)]
    verb: PagesVerb,
}

#[derive(Debug, Subcommand)]
enum PagesVerb {
    Check(CheckArgs),
    New(NewArgs),
}

/// Compile pages and scripts and report every error
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flatout pages check                      all pages in the current folder and its subfolders
  flatout pages check site                 all pages in the folder `site`
  flatout pages check site/index.lhtml     one page and its includes
  flatout pages check --json site          all pages, with the result as JSON

Pages are `*.lhtml` files; scripts are `*.luau` files. A file whose name starts with `_` is an include; flatout checks it \
as part of the pages that include it. `flatout help CODE` explains an error code.

Exit codes:
  0  no errors
  2  a page or script has an error, or the command line is invalid")]
struct CheckArgs {
    /// Print the result as JSON to standard output
    #[arg(long)]
    json: bool,
    /// When to use colors
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: Color,
    /// Folders and pages to check [default: .]
    ///
    /// The pages in FOLDER may include any file in FOLDER. A page given as FILE may include any file in the current
    /// folder if the page itself is in the current folder or a subfolder; otherwise, any file in its own folder.
    #[arg(value_name = "FOLDER|FILE")]
    paths: Vec<PathBuf>,
}

/// Create a small site of active pages
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flatout pages new hello
  flatout run -c hello/flatout.kdl         then open http://127.0.0.1:8080/

If any of the new site's files already exists, nothing is written.")]
struct NewArgs {
    /// Folder for the new site; created if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Runs the command and returns its exit code.
pub(crate) fn run(arguments: &PagesArgs) -> ExitCode {
    let ended = match &arguments.verb {
        PagesVerb::Check(arguments) => check_all(arguments),
        PagesVerb::New(arguments) => begin(&arguments.folder),
    };
    ended.unwrap_or_else(|failure| failure.report())
}

/// Pages to check, by name within a folder.
struct PageSet {
    folder: PathBuf,
    names: Vec<String>,
}

fn check_all(arguments: &CheckArgs) -> Result<ExitCode, Failure> {
    let here = [PathBuf::from(".")];
    let paths = if arguments.paths.is_empty() { &here[..] } else { &arguments.paths };
    let mut found = Diagnostics::default();
    let (mut pages, mut scripts) = (0, 0);
    for path in paths {
        let group = group(path)?;
        let folder = TemplateFolder::open(&group.folder).map_err(|error| cannot_read(&group.folder, &error))?;
        for name in &group.names {
            if is_script(name) {
                scripts += 1;
            } else {
                pages += 1;
            }
            if let Err(wrong) = check(name, &folder) {
                gather(&mut found, wrong);
            }
        }
    }
    if arguments.json {
        print(&format!("{:#}\n", found.to_json()));
    } else if found.list.is_empty() {
        print(&format!("no errors in {} and {}\n", count(pages, "page"), count(scripts, "script")));
    } else {
        let summary =
            format!("{} and {}: {}", count(pages, "page"), count(scripts, "script"), count(found.count(), "error"));
        eprint!("{}\n{summary}\n", found.render(arguments.color.style()));
    }
    Ok(if found.list.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_USAGE) })
}

fn count(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Adds the errors of a page. An error in a file that several pages include is added only once.
fn gather(found: &mut Diagnostics, wrong: Diagnostics) {
    let is_same = |one: &Diagnostic, two: &Diagnostic| (one.code, &one.place) == (two.code, &two.place);
    for diagnostic in wrong.list {
        if found.list.iter().any(|known| is_same(known, &diagnostic)) {
            continue;
        }
        if found.list.len() < SHOWN_MAX {
            found.list.push(diagnostic);
        } else {
            found.more += 1;
        }
    }
    found.more += wrong.more;
}

fn is_script(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "luau")
}

fn is_page(name: &str) -> bool {
    is_script(name) || Path::new(name).extension().is_some_and(|extension| extension == "lhtml")
}

fn cannot_read(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("cannot read {}: {error}", path.display()))
}

/// Returns the pages that an argument refers to.
fn group(path: &Path) -> Result<PageSet, Failure> {
    if fs::metadata(path).map_err(|error| cannot_read(path, &error))?.is_dir() {
        let mut names = Vec::new();
        list(path, "", 0, &mut names)?;
        if names.is_empty() {
            return Err(Failure::usage(format!("{} contains no pages (*.lhtml, *.luau)", path.display())));
        }
        names.sort_unstable();
        return Ok(PageSet { folder: path.to_owned(), names });
    }
    let is_below = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let folder = if is_below { PathBuf::from(".") } else { path.parent().unwrap_or(Path::new("")).to_owned() };
    let name = if is_below {
        path.components().filter(|part| *part != Component::CurDir).collect()
    } else {
        path.file_name().map(PathBuf::from).unwrap_or_default()
    };
    let name = name
        .to_str()
        .filter(|name| is_page(name))
        .ok_or_else(|| Failure::usage(format!("{} is not a page or script: use *.lhtml or *.luau", path.display())))?;
    Ok(PageSet { folder, names: vec![name.to_owned()] })
}

/// Adds the pages in a folder and its subfolders. Leaves out names that begin with a dot, which are not served, and
/// names that begin with `_`, which are only included.
fn list(folder: &Path, prefix: &str, depth: usize, names: &mut Vec<String>) -> Result<(), Failure> {
    if depth > DEPTH_MAX {
        return Err(Failure::usage(format!("{} is nested more than {DEPTH_MAX} folders deep", folder.display())));
    }
    for entry in fs::read_dir(folder).map_err(|error| cannot_read(folder, &error))? {
        let entry = entry.map_err(|error| cannot_read(folder, &error))?;
        let Ok(file_name) = entry.file_name().into_string() else { continue };
        if file_name.starts_with('.') || is_part(&file_name) {
            continue;
        }
        let name = format!("{prefix}{file_name}");
        let kind = entry.file_type().map_err(|error| cannot_read(&entry.path(), &error))?;
        if kind.is_dir() {
            list(&entry.path(), &format!("{name}/"), depth + 1, names)?;
        } else if is_page(&name) {
            if names.len() == PAGES_MAX {
                return Err(Failure::usage(format!("the folder has more than {PAGES_MAX} pages")));
            }
            names.push(name);
        }
    }
    Ok(())
}

/// The files of the starter site, as path and content.
const STARTER: &[(&str, &str)] = &[
    ("flatout.kdl", include_str!("pages/starter/flatout.kdl")),
    ("site/index.lhtml", include_str!("pages/starter/index.lhtml")),
    ("site/_head.lhtml", include_str!("pages/starter/_head.lhtml")),
    ("public/style.css", include_str!("pages/starter/style.css")),
];

fn begin(folder: &Path) -> Result<ExitCode, Failure> {
    let cannot_write =
        |path: &Path, error: &io::Error| Failure::runtime(format!("cannot write {}: {error}", path.display()));
    if let Some(taken) = STARTER.iter().map(|(name, _)| folder.join(name)).find(|path| path.symlink_metadata().is_ok())
    {
        return Err(Failure::usage(format!("{} already exists; nothing was written", taken.display())));
    }
    for (name, text) in STARTER {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(|error| cannot_write(parent, &error))?;
        let written = OpenOptions::new().write(true).create_new(true).open(&path);
        written.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| cannot_write(&path, &error))?;
        print(&format!("{}\n", path.display()));
    }
    print(&format!("\nnext: flatout run -c {}\n", folder.join("flatout.kdl").display()));
    Ok(ExitCode::SUCCESS)
}

/// Prints to standard output. A closed pipe is not an error.
fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::STARTER;
    use flatout_pages::check::check;
    use flatout_template::MemoryFiles;

    #[test]
    fn the_starter_is_right() {
        let files = STARTER.iter().fold(MemoryFiles::new(), |files, (name, text)| files.file(*name, *text));
        check("site/index.lhtml", &files).unwrap();
    }
}
