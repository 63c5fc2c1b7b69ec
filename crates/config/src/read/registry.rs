//! The registry of all settings, for messages about misplaced settings.

use super::setting::names;
use super::{cache, files, log, pages, php, process, proxy, site, step};

/// Returns where the setting `name` belongs, as the rest of a sentence; `None` if no block has such a setting.
pub(super) fn home_of(name: &str) -> Option<&'static str> {
    homes().into_iter().find(|(_, names)| names.contains(&name)).map(|(home, _)| home)
}

/// The blocks, each with the settings that belong there.
fn homes() -> [(&'static str, Vec<&'static str>); 12] {
    let top = [&names(process::SETTINGS)[..], &["site"]].concat().into_iter().filter(|name| *name != "cache").collect();
    let steps = step::names().collect();
    let in_files = names(files::SETTINGS).into_iter().filter(|name| *name != "cache").collect();
    let in_proxy = names(proxy::SETTINGS).into_iter().filter(|name| !matches!(*name, "tls" | "host")).collect();
    [
        (
            "belongs at the top level of the file, or in the block of `proxy`, `php`, `pages` or `page`",
            vec!["trusted-proxies"],
        ),
        ("belongs at the top level of the file", top),
        ("belongs in a `site` block, not in a route", names(site::SETTINGS)),
        ("belongs in a `site` or `route` block", steps),
        ("belongs in the block of `files`", in_files),
        ("belongs in the first block of a `route`", vec!["match"]),
        ("belongs in the block of `timeouts`", names(process::TIMEOUTS.block)),
        ("belongs in the block of `log`", names(log::LOG.block)),
        ("belongs in the block of `proxy`", in_proxy),
        ("belongs in the block of `php`", names(php::SETTINGS)),
        ("belongs in the block of a site's `cache`", names(cache::SETTINGS)),
        ("belongs in the block of `pages` or `page`", names(pages::SETTINGS)),
    ]
}
