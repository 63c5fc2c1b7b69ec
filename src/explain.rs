//! `flatout explain` and `flatout config show`: what a configuration does with a request, without a running server, and
//! what a running server has stored in its cache for the request.

use crate::admin::system_candidates;
use crate::config::{Color, complain, find};
use clap::{Args, Subcommand};
use flatout_config::model::Admin;
use flatout_config::{Disk, load};
use flatout_daemon::admin::client::{Candidate, ask};
use flatout_daemon::cache::{CacheReply, cache_target};
use flatout_engine::explain::{Explanation, Question};
use flatout_engine::{Sources, Spec};
use std::io::{self, IsTerminal as _, Write as _};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Exit code if the command line or the configuration is invalid.
const EXIT_USAGE: u8 = 2;

/// Show which site, route, handler and file would respond to a request, and why
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flatout explain https://example.com/cart
  flatout explain http://localhost/api/x -X POST -H 'Origin: https://a.example' --from 192.0.2.7

No server needs to be running: flatout reads the configuration and looks up the files. It assumes that passwords are \
correct, and the request does not count towards rate limits. If a server is running, flatout also asks it over the \
admin socket what its cache has stored, whether origins and PHP-FPM answer, and whether it serves an earlier folder; \
it never contacts an origin. If there is no configuration, as with `flatout accelerate`, the running process explains \
the request.")]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    request: RequestArgs,
    /// Admin socket of the process whose cache to search [default: from the configuration]
    #[arg(long, value_name = "PATH")]
    admin: Option<PathBuf>,
    /// Print the explanation as JSON
    #[arg(long)]
    json: bool,
}

/// Show the settings that apply to a URL
#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    verb: ConfigVerb,
}

#[derive(Subcommand, Debug)]
enum ConfigVerb {
    Show(ShowArgs),
}

/// Print the settings that apply to a URL, with the file and line of each
#[derive(Args, Debug)]
struct ShowArgs {
    #[command(flatten)]
    request: RequestArgs,
}

#[derive(Args, Debug)]
struct RequestArgs {
    /// URL of the request, including the scheme
    #[arg(value_name = "URL")]
    url: String,
    /// Configuration file [default: as for `flatout run`]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Request method
    #[arg(short = 'X', long = "request", value_name = "METHOD", default_value = "GET")]
    method: String,
    /// Add a request header; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    fields: Vec<String>,
    /// IP address of the client [default: 127.0.0.1, or none on a Unix socket]
    #[arg(long, value_name = "ADDR")]
    from: Option<IpAddr>,
    /// When to use colors
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: Color,
}

/// Runs `explain`.
pub(crate) fn explain(arguments: &ExplainArgs) -> ExitCode {
    let request = &arguments.request;
    let question = match request.question() {
        Ok(question) => question,
        Err(message) => return usage(&message),
    };
    // If no configuration is found, as with `flatout accelerate`, the running process has the answer.
    if request.config.is_none()
        && find(None).is_err()
        && let Ok(reply) = ask_running(&arguments.candidates(&Admin::Default), &question)
    {
        return print_reply(reply, arguments.json);
    }
    let (mut told, admin) = match request.explain(&question) {
        Ok(told) => told,
        Err(code) => return code,
    };
    // Only the running process has the folder that it serves, if the path names another one now.
    if (arguments.admin.is_some() || admin != Admin::Off)
        && !told.files.is_empty()
        && let Ok(reply) = ask_running(&arguments.candidates(&admin), &question)
        && reply.keeps_folder_of(&told)
    {
        return print_reply(reply, arguments.json);
    }
    if told.proxy.is_some() || told.php.is_some() {
        let asked = match (&arguments.admin, &admin) {
            (None, Admin::Off) => {
                Err("the configuration disables the admin socket, so the running flatout cannot be queried".to_owned())
            }
            _ => ask_running(&arguments.candidates(&admin), &question),
        };
        add_running_state(&mut told, asked);
    }
    print(&if arguments.json { format!("{:#}\n", told.to_json()) } else { told.to_text(request.color.on_stdout()) })
}

impl ExplainArgs {
    /// Returns the admin sockets to try. `admin` is the admin socket in the configuration.
    fn candidates(&self, admin: &Admin) -> Vec<Candidate> {
        match (&self.admin, admin) {
            (Some(path), _) | (None, Admin::Path(path)) => vec![Candidate::new(path.clone())],
            (None, Admin::Default | Admin::Off) => system_candidates(),
        }
    }
}

/// Adds the states of servers and of the cache in the running process's reply.
fn add_running_state(told: &mut Explanation, asked: Result<CacheReply, String>) {
    let different = "the running flatout uses a different configuration";
    if let Some(php) = &mut told.php {
        let states = asked.as_ref().map(|reply| reply.states_of(&php.server).unwrap_or_default());
        php.state = states.as_ref().ok().and_then(|states| states.first().cloned());
        php.unknown = php.state.is_none().then(|| states.err().cloned().unwrap_or_else(|| different.to_owned()));
    }
    let Some(proxy) = &mut told.proxy else { return };
    match asked {
        Err(why) => proxy.unknown = Some(why),
        Ok(reply) => {
            let is_cached = proxy.refusal.is_none();
            let states = reply.states_of(&proxy.origins);
            proxy.kept = reply.cache.filter(|kept| is_cached && kept.realm == proxy.realm);
            if states.is_none() || (is_cached && proxy.kept.is_none()) {
                proxy.unknown = Some(different.to_owned());
            }
            proxy.states = states.unwrap_or_default();
        }
    }
}

/// Asks the running process what its cache has stored for a request. Returns the reason if that is impossible.
fn ask_running(candidates: &[Candidate], question: &Question) -> Result<CacheReply, String> {
    match ask(candidates, "GET", &cache_target(question)) {
        Ok(reply) if reply.status == 200 => serde_json::from_str(&reply.body)
            .map_err(|error| format!("this version cannot read the running flatout's response: {error}")),
        Ok(reply) => Err(reply.body.trim_end().trim_start_matches("error: ").to_owned()),
        Err(failure) => Err(failure.text.lines().next().unwrap_or_default().to_owned()),
    }
}

/// Prints the running process's own explanation.
fn print_reply(reply: CacheReply, as_json: bool) -> ExitCode {
    print(&if as_json { format!("{:#}\n", reply.explanation) } else { reply.text })
}

/// Runs `config`.
pub(crate) fn config(arguments: &ConfigArgs) -> ExitCode {
    let ConfigVerb::Show(show) = &arguments.verb;
    let question = match show.request.question() {
        Ok(question) => question,
        Err(message) => return usage(&message),
    };
    match show.request.explain(&question) {
        Ok((told, _)) => print(&told.to_effective()),
        Err(code) => code,
    }
}

fn print(text: &str) -> ExitCode {
    // If the reader has closed the pipe, that is not an error.
    let _ = io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush());
    ExitCode::SUCCESS
}

fn usage(message: &str) -> ExitCode {
    eprintln!("error: {message}");
    ExitCode::from(EXIT_USAGE)
}

impl Color {
    /// Returns whether output to standard output is coloured.
    fn on_stdout(self) -> bool {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        match self {
            Self::Always => true,
            Self::Auto => io::stdout().is_terminal() && !no_color,
            Self::Never => false,
        }
    }
}

impl RequestArgs {
    /// Explains what the configuration does with `question`. Also returns the admin socket of its process.
    fn explain(&self, question: &Question) -> Result<(Explanation, Admin), ExitCode> {
        let path = find(self.config.as_deref()).map_err(|message| usage(&message))?;
        let config = load(&path, &Disk).map_err(|errors| complain(&path, &errors, self.color.style()))?;
        match Spec::compile(&config, &Sources::default()) {
            Ok(spec) => Ok((Arc::new(spec).explain(question), config.admin)),
            Err(errors) => {
                for error in &errors {
                    eprintln!("error: {error}");
                }
                Err(ExitCode::from(EXIT_USAGE))
            }
        }
    }

    fn question(&self) -> Result<Question, String> {
        Question::parse(&self.method, &self.url, &self.fields, self.from)
    }
}
