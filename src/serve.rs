//! `flatout serve`: serves a folder as a web site.

use crate::admin::found_admin;
use crate::flags::{ServerArgs, parse_duration_ms};
use clap::Args;
use flatout_config::model::{Admin, Config, Files, Handler, PageSettings, Pages, Php, PhpAddress, StepKind};
use flatout_daemon::Failure;
use flatout_os::root::check_kernel;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

/// Serve the files in a folder
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flatout serve                              the current folder on http://127.0.0.1:8080/
  flatout serve ./public --listen 0.0.0.0:80 --access-log /var/log/flatout.log
  flatout serve ./public --access-log - | grep ' 404 '
  flatout serve ./site --dev                 active pages, in development mode
  flatout serve ./public --php unix:/run/php/php-fpm.sock

On a terminal, flatout prints each request. It does not serve files and folders whose names start with a dot, except \
.well-known. It follows a symbolic link that points outside the folder only if the target is in a folder given with \
--follow-links.

On SIGTERM or Ctrl-C, the server finishes the requests in progress and exits; on a second signal, it exits at once. On \
SIGUSR1, it prints the counters and reopens the access log, for log rotation.")]
pub(crate) struct ServeArgs {
    /// Folder to serve
    #[arg(value_name = "DIR", default_value = ".")]
    folder: PathBuf,

    /// Serve files and folders whose names start with a dot
    #[arg(long)]
    hidden: bool,

    /// Follow symbolic links that point outside the served folder if their target is in DIR; may be repeated
    #[arg(long, value_name = "DIR")]
    follow_links: Vec<PathBuf>,

    /// Minimum time between checks of a file's cached metadata
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration_ms)]
    file_check_interval: u64,

    /// Watch the folder with inotify instead of polling
    #[arg(long)]
    watch: bool,

    /// Confine worker threads to the folder with Landlock, if the kernel supports it
    #[arg(long)]
    landlock: bool,

    /// Run active pages: serve `x.lhtml` at `/x`, and never serve the source of a page or script
    #[arg(long)]
    pages: bool,

    /// Run active pages in development mode: show errors in the browser, and reload it on changes
    ///
    /// Implies --pages. Do not use this mode in production, because errors reveal source code.
    #[arg(long)]
    dev: bool,

    /// Run PHP scripts with PHP-FPM at unix:PATH or tcp:HOST:PORT
    #[arg(long, value_name = "ADDRESS", value_parser = flatout_config::parse_php_address)]
    php: Option<PhpAddress>,

    /// Unix socket for `flatout status`, `reload` and `upgrade`; `off` disables it
    ///
    /// By default, flatout uses the admin socket of the configuration that `flatout run` would load, unless another
    /// process is using that socket. If there is no such configuration, flatout opens no admin socket.
    #[arg(long, value_name = "PATH|off")]
    admin: Option<PathBuf>,

    #[command(flatten)]
    server: ServerArgs,
}

/// Runs the command and returns its exit code.
pub(crate) fn run(arguments: &ServeArgs) -> ExitCode {
    arguments.server.run(settings(arguments), arguments.admin.is_some(), arguments.landlock)
}

/// Returns the configuration equivalent to the flags.
fn settings(arguments: &ServeArgs) -> Result<Config, Failure> {
    check_folder(&arguments.folder)?;
    let mut handler =
        Files { root: arguments.folder.clone(), hidden: arguments.hidden, ..flatout_config::files_defaults() };
    for folder in &arguments.follow_links {
        check_folder(folder)?;
        // Use the path as links name it, if possible. With `..`, the path depends on the links before it.
        let is_plain = folder.components().all(|part| part != Component::ParentDir);
        let named = if is_plain { std::path::absolute(folder) } else { folder.canonicalize() };
        let folder = named.map_err(|error| Failure::usage(format!("cannot use {}: {error}", folder.display())))?;
        if !handler.follow_links.contains(&folder) {
            handler.follow_links.push(folder);
        }
    }
    let settings = PageSettings { dev: arguments.dev, ..PageSettings::default() };
    let pages = (arguments.pages || arguments.dev)
        .then(|| Handler::Pages(Box::new(Pages { path: arguments.folder.clone(), settings })));
    let php = arguments
        .php
        .clone()
        .map(|address| Handler::Php(Box::new(Php { address, root: arguments.folder.clone(), ..Php::default() })));
    let steps = pages.into_iter().chain(php).chain([Handler::Files(Box::new(handler))]).map(StepKind::Handler);
    let mut config = arguments.server.config(steps)?;
    arguments.server.show_requests(&mut config);
    for site in &mut config.sites {
        (site.file_check_interval_ms, site.watch) = (arguments.file_check_interval, arguments.watch);
    }
    let admin = match &arguments.admin {
        None => found_admin().map_or(Admin::Off, |(_, path)| Admin::Path(path)),
        Some(path) if path.as_os_str() == "off" => Admin::Off,
        Some(path) => Admin::Path(path.clone()),
    };
    Ok(Config { admin, ..config })
}

fn check_folder(folder: &Path) -> Result<(), Failure> {
    let shown = folder.display();
    match folder.metadata() {
        Ok(metadata) if !metadata.is_dir() => {
            return Err(Failure::usage(format!("{shown} is not a folder; specify the folder that contains the site")));
        }
        Ok(_) => {}
        Err(error) => return Err(Failure::usage(format!("cannot serve {shown}: {error}"))),
    }
    check_kernel(folder).map_err(|error| {
        Failure::runtime(format!(
            "cannot open {shown} safely: {error}\n  flatout needs openat2: Linux 5.6 or newer, and no sandbox that forbids the call"
        ))
    })
}
