//! The first lines of output: clickable URLs, and the served folder or origins.

use crate::failure::say;
use crate::here::find_exposed;
use crate::listeners::Address;
use crate::memory::{default_bytes, memory_limit};
use crate::source::ConfigSource;
use flatout_config::model::{Config, Handler, ListenAddress, StepKind, StoreBudget};
use flatout_config::show_origin;
use flatout_server::Protocol;
use flatout_units::quantity::exact_size;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// Prints the lines, the warning for root, and the path of the local authority's root certificate.
pub(crate) fn introduce(
    source: &ConfigSource,
    config: &Config,
    addresses: &[Address],
    workers: usize,
    (root_warning, authority_root): (Option<&str>, Option<&Path>),
) {
    if let Some(root) = authority_root {
        say(&format!(
            "the local certificate authority signs certificates for this machine; trust {} (curl --cacert, or the browser's settings)",
            root.display()
        ));
    }
    // The URLs come first on the stream to which they are written.
    let is_alone = !config.logs_to_stdout();
    if let Some(warning) = root_warning.filter(|_| is_alone) {
        say(warning);
    }
    announce(source, config, addresses, workers);
    if let Some(warning) = root_warning.filter(|_| !is_alone) {
        say(warning);
    }
    for warning in find_exposed(config) {
        say(&warning);
    }
}

/// Prints the lines to standard output, or to standard error if a log uses standard output.
fn announce(source: &ConfigSource, config: &Config, addresses: &[Address], workers: usize) {
    let mut text = String::new();
    for address in addresses {
        let scheme = if address.protocol == Protocol::Tls { "https" } else { "http" };
        // Writing to a `String` cannot fail.
        let _ = match &address.bound {
            ListenAddress::Ip(bound) => writeln!(text, "{scheme}://{}/", openable(*bound)),
            ListenAddress::Unix(path) => {
                writeln!(text, "{}: curl --unix-socket {} {scheme}://localhost/", address.bound, path.display())
            }
        };
    }
    let plural = if workers == 1 { "worker" } else { "workers" };
    let what = match source {
        ConfigSource::File(path) => {
            let sites = config.sites.len();
            format!("serving {sites} {} of {}", if sites == 1 { "site" } else { "sites" }, path.display())
        }
        ConfigSource::Flags(_) => of_flags(config, &mut text),
    };
    let _ = writeln!(text, "{what} with {workers} {plural}; press Ctrl-C to stop");
    // A closed stream is not a reason to stop.
    let _ = if config.logs_to_stdout() {
        io::stderr().write_all(text.as_bytes())
    } else {
        io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush())
    };
}

/// Replaces an unspecified IP address, which browsers cannot open, by the loopback address.
fn openable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Describes the served content according to flags. Origins and the store's limits are appended to `text` as separate
/// lines.
fn of_flags(config: &Config, text: &mut String) -> String {
    let steps = || config.sites.iter().flat_map(|site| &site.block).map(|step| &step.kind);
    let handler = steps().find_map(|step| match step {
        StepKind::Handler(handler) => Some(handler),
        _ => None,
    });
    match handler {
        Some(Handler::Proxy(proxy)) => {
            let origins: Vec<String> = proxy.origins.iter().map(show_origin).collect();
            let _ = writeln!(text, "forwarding to {}", origins.join(", "));
            let keeps = steps().any(|step| matches!(step, StepKind::Cache(cache) if cache.rules.enabled));
            let holding =
                if keeps { holding(&config.store) } else { "nothing: every request is forwarded to the origin".into() };
            let _ = writeln!(text, "caching {holding}");
            "accelerating".to_owned()
        }
        Some(Handler::Files(files)) => format!("serving {}", shown(&files.root)),
        Some(Handler::Pages(pages)) => {
            let dev = if pages.settings.dev { ", for development" } else { "" };
            format!("serving {} with active pages{dev}", shown(&pages.path))
        }
        _ => "serving".to_owned(),
    }
}

fn shown(folder: &Path) -> String {
    folder.canonicalize().unwrap_or_else(|_| folder.to_owned()).display().to_string()
}

/// Describes the store's limits: `up to 256MiB and 1000000 objects in memory, 10GiB in /var/cache/flatout`.
fn holding(store: &StoreBudget) -> String {
    let StoreBudget { memory_bytes_max, memory_objects_max, disks } = store;
    let memory = memory_bytes_max.unwrap_or_else(|| default_bytes(memory_limit()));
    let mut text = format!("up to {} and {memory_objects_max} objects in memory", exact_size(memory));
    for (folder, bytes_max) in disks {
        // Writing to a `String` cannot fail.
        let _ = write!(text, ", {} in {}", exact_size(*bytes_max), folder.display());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{holding, of_flags};
    use flatout_config::load_text;
    use flatout_config::model::StoreBudget;

    #[test]
    fn the_banner_describes_the_flags() {
        let said = |steps: &str| {
            let config = load_text(&format!("store memory=\"1GiB\"\nsite {{ {steps} }}")).unwrap();
            let mut text = String::new();
            let what = of_flags(&config, &mut text);
            (text, what)
        };
        let (text, what) = said("cache; proxy \"http://127.0.0.1:3000\" \"https://[::1]\"");
        let lines =
            "forwarding to http://127.0.0.1:3000, https://[::1]\ncaching up to 1GiB and 1000000 objects in memory\n";
        assert_eq!((text.as_str(), what.as_str()), (lines, "accelerating"));
        for steps in ["proxy 3000", "cache off=#true; proxy 3000"] {
            let (text, _) = said(steps);
            assert!(text.ends_with("\ncaching nothing: every request is forwarded to the origin\n"), "{text}");
        }
        assert_eq!(said("files \"/\""), (String::new(), "serving /".to_owned()));
        let (_, what) = said("pages \"/\" { dev }; files \"/\"");
        assert_eq!(what, "serving / with active pages, for development");
    }

    #[test]
    fn each_volume_is_named() {
        let store = StoreBudget {
            memory_bytes_max: Some(1 << 30),
            memory_objects_max: 5,
            disks: vec![("/a".into(), 10 << 30), ("b".into(), 1_000_000_000)],
        };
        assert_eq!(holding(&store), "up to 1GiB and 5 objects in memory, 10GiB in /a, 1000000000B in b");
    }
}
