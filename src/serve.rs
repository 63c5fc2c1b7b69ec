//! `flatout serve`: a folder as a web site.

use crate::admin::found_admin;
use crate::flags::{ServerArgs, parse_duration_ms};
use clap::Args;
use flatout_config::model::{Admin, Config, Files, Handler, PageSettings, Pages, Php, PhpAddress, StepKind};
use flatout_daemon::Failure;
use flatout_net::root::check_kernel;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

/// Serve the files below a folder.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flatout serve                              the current folder on http://127.0.0.1:8080/
  flatout serve ./public --listen 0.0.0.0:80 --access-log /var/log/flatout.log
  flatout serve ./public --access-log - | grep ' 404 '
  flatout serve ./site --dev                 active pages, for whoever writes them
  flatout serve ./public --php unix:/run/php/php-fpm.sock

Names that begin with a dot are not served (.well-known is), and no symbolic link leads out of the folder,
unless --follow-links names where it may lead.
On a terminal each request is shown. SIGTERM or Ctrl-C finishes what is under way; a second one leaves at once. SIGUSR1 opens the log anew, after it
has been renamed, and prints the counters.")]
pub(crate) struct ServeArgs {
    /// The folder to serve.
    #[arg(value_name = "DIR", default_value = ".")]
    folder: PathBuf,

    /// Serve names that begin with a dot, too.
    #[arg(long)]
    hidden: bool,

    /// Follow symbolic links that lead out of the folder into DIR; may be given more than once
    #[arg(long, value_name = "DIR")]
    follow_links: Vec<PathBuf>,

    /// Believe what is known of a file for so long without looking.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration_ms)]
    recheck: u64,

    /// Have the kernel tell of changes below the folder, so that each is seen at once and nobody needs to look.
    #[arg(long)]
    watch: bool,

    /// Let the worker threads open nothing outside the folder, where the kernel can (Landlock).
    #[arg(long)]
    landlock: bool,

    /// Run active pages: `x.lhtml` answers for `/x`, and the sources of pages and scripts are not given out.
    #[arg(long)]
    pages: bool,

    /// The same for whoever writes them: errors are shown in the browser, and pages load again when they change.
    #[arg(long)]
    dev: bool,
    /// Have PHP-FPM at this address run the folder's scripts: unix:/run/php/php-fpm.sock, or tcp:127.0.0.1:9000.
    #[arg(long, value_name = "ADDRESS", value_parser = flatout_config::parse_php_address)]
    php: Option<PhpAddress>,

    /// Answer `flatout status`, `reload` and `upgrade` on this Unix socket, or `off` on none [default: the one that a
    /// configuration names where `run` would find it, unless another flatout has it]
    #[arg(long, value_name = "PATH|off")]
    admin: Option<PathBuf>,

    #[command(flatten)]
    server: ServerArgs,
}

/// Runs the verb and says how it ended.
pub(crate) fn run(arguments: &ServeArgs) -> ExitCode {
    arguments.server.run(settings(arguments), arguments.admin.is_some())
}

/// The configuration that the flags stand for.
fn settings(arguments: &ServeArgs) -> Result<Config, Failure> {
    check_folder(&arguments.folder)?;
    let mut handler =
        Files { root: arguments.folder.clone(), hidden: arguments.hidden, ..flatout_config::files_defaults() };
    for folder in &arguments.follow_links {
        check_folder(folder)?;
        // As links name it, where that can be told: `..` depends on the links before it.
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
        (site.recheck_ms, site.watch) = (arguments.recheck, arguments.watch);
    }
    let admin = match &arguments.admin {
        None => found_admin().map_or(Admin::Off, |(_, path)| Admin::Path(path)),
        Some(path) if path.as_os_str() == "off" => Admin::Off,
        Some(path) => Admin::Path(path.clone()),
    };
    Ok(Config { landlock: arguments.landlock, admin, ..config })
}

fn check_folder(folder: &Path) -> Result<(), Failure> {
    let shown = folder.display();
    match folder.metadata() {
        Ok(metadata) if !metadata.is_dir() => {
            return Err(Failure::usage(format!("{shown} is not a folder; name the folder that holds the site")));
        }
        Ok(_) => {}
        Err(error) => return Err(Failure::usage(format!("cannot serve {shown}: {error}"))),
    }
    check_kernel(folder).map_err(|error| {
        Failure::runtime(format!(
            "cannot open {shown} safely: {error}\n  flatout needs openat2 (Linux 5.6 or newer, not forbidden by a sandbox)"
        ))
    })
}
