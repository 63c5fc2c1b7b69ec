//! `flatout explain` and `flatout config show`: what a configuration makes of a request, without a running server.

use crate::config::{Color, complain, find};
use clap::{Args, Subcommand};
use flatout_config::{Disk, load};
use flatout_engine::explain::{Explanation, Question};
use flatout_engine::{Sources, Spec};
use std::io::{self, IsTerminal as _, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// The command line or the configuration is wrong.
const EXIT_USAGE: u8 = 2;

/// Tell which site, route, handler and file would answer a request, and why
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flatout explain https://example.com/cart
  flatout explain http://localhost:8080/api/x -X POST -H 'Origin: https://a.example' --from 192.0.2.7

No server needs to run: the files are looked at as a request would, now. Passwords are taken as given, and no rate is
counted.")]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    request: RequestArgs,
    /// Print the explanation as JSON
    #[arg(long)]
    json: bool,
}

/// Work with configurations
#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    verb: ConfigVerb,
}

#[derive(Subcommand, Debug)]
enum ConfigVerb {
    Show(ShowArgs),
}

/// Print what is in force for a URL, each line with its place
#[derive(Args, Debug)]
struct ShowArgs {
    /// Only what is in force for the URL; nothing else can be shown yet
    #[arg(long, required = true)]
    effective: bool,
    #[command(flatten)]
    request: RequestArgs,
}

#[derive(Args, Debug)]
struct RequestArgs {
    /// The URL, with its scheme
    #[arg(value_name = "URL")]
    url: String,
    /// The configuration [default: as for validate]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The method
    #[arg(short = 'X', long = "request", value_name = "METHOD", default_value = "GET")]
    method: String,
    /// A field of the request; may be given more than once
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    fields: Vec<String>,
    /// The address that asks
    #[arg(long, value_name = "ADDR", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    from: IpAddr,
    /// When to use colours
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: Color,
}

/// Runs `explain`.
pub(crate) fn explain(arguments: &ExplainArgs) -> ExitCode {
    match arguments.request.explain() {
        Ok(told) if arguments.json => print(&format!("{:#}\n", told.to_json())),
        Ok(told) => print(&told.to_text(arguments.request.color.on_stdout())),
        Err(code) => code,
    }
}

/// Runs `config`.
pub(crate) fn config(arguments: &ConfigArgs) -> ExitCode {
    let ConfigVerb::Show(show) = &arguments.verb;
    match show.request.explain() {
        Ok(told) => print(&told.to_effective()),
        Err(code) => code,
    }
}

fn print(text: &str) -> ExitCode {
    // A reader that has seen enough is no failure.
    let _ = io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush());
    ExitCode::SUCCESS
}

fn usage(message: &str) -> ExitCode {
    eprintln!("error: {message}");
    ExitCode::from(EXIT_USAGE)
}

impl Color {
    /// Whether standard output is for colours.
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
    fn explain(&self) -> Result<Explanation, ExitCode> {
        let question = self.question().map_err(|message| usage(&message))?;
        let path = find(self.config.as_deref()).map_err(|message| usage(&message))?;
        let config = load(&path, &Disk).map_err(|errors| complain(&path, &errors, self.color.style()))?;
        match Spec::compile(&config, &Sources::default()) {
            Ok(spec) => Ok(Arc::new(spec).explain(&question)),
            Err(errors) => {
                for error in &errors {
                    eprintln!("error: {error}");
                }
                Err(ExitCode::from(EXIT_USAGE))
            }
        }
    }

    fn question(&self) -> Result<Question, String> {
        let (secure, host, target) = split_url(&self.url)?;
        let port = port_of(host).unwrap_or(if secure { 443 } else { 80 });
        let field = |line: &String| match line.split_once(':') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.trim().to_owned())),
            _ => Err(format!("`{line}` is not a field: write 'Name: value'")),
        };
        let fields = self.fields.iter().map(field).collect::<Result<_, _>>()?;
        let (method, host) = (self.method.clone(), host.to_owned());
        Ok(Question { method, secure, host, port, target, fields, client: self.from })
    }
}

/// Whether the scheme is https, the authority, and path and query with their first slash.
fn split_url(url: &str) -> Result<(bool, &str, String), String> {
    let (scheme, rest) =
        url.split_once("://").ok_or_else(|| format!("`{url}` is not a URL: write http://host/path"))?;
    let secure = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        _ => return Err(format!("`{scheme}` is neither http nor https")),
    };
    // What follows `#` is for the browser alone.
    let rest = rest.split('#').next().unwrap_or_default();
    let (host, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if host.is_empty() {
        return Err(format!("`{url}` names no host"));
    }
    let slash = if target.starts_with('/') { "" } else { "/" };
    Ok((secure, host, format!("{slash}{target}")))
}

fn port_of(host: &str) -> Option<u16> {
    let (name, port) = host.rsplit_once(':')?;
    // A colon within brackets is an address's.
    if name.starts_with('[') == name.ends_with(']') { port.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::{port_of, split_url};

    #[test]
    fn urls_are_split() {
        for (url, secure, host, target) in [
            ("http://a/b?c#d", false, "a", "/b?c"),
            ("HTTPS://a:1", true, "a:1", "/"),
            ("https://[::1]:8443?x", true, "[::1]:8443", "/?x"),
        ] {
            assert_eq!(split_url(url), Ok((secure, host, target.to_owned())), "{url}");
        }
        for bad in ["", "a/b", "ftp://a/", "http:///x", "http://#"] {
            assert!(split_url(bad).is_err(), "{bad}");
        }
        for (host, port) in [("a", None), ("a:80", Some(80)), ("[::1]", None), ("[::1]:9", Some(9)), ("a:", None)] {
            assert_eq!(port_of(host), port, "{host}");
        }
    }
}
