//! The HTML page of a listing, without scripts or external resources.

use super::Listing;
use super::entry::{EntryKind, ListingEntry, shown};
use super::order::{By, ListingOrder};
use flatout_http::date::format_rfc3339;
use flatout_units::show;
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("page.css");

/// The icons of a folder, a file and the parent folder, which are defined once and referenced by the rows.
const SYMBOLS: &str = r#"<svg class="o"><symbol id="d" viewBox="0 0 20 20"><path d="M2 5.5V15a1.5 1.5 0 0 0 1.5 1.5h13A1.5 1.5 0 0 0 18 15V7a1.5 1.5 0 0 0-1.5-1.5H10L8 3.5H3.5A1.5 1.5 0 0 0 2 5z"/></symbol><symbol id="f" viewBox="0 0 20 20"><path d="M4.5 2h7L16 6.5V18H4.5zM11.5 2v4.5H16"/></symbol><symbol id="u" viewBox="0 0 20 20"><path d="M10 16.5V4M5 9l5-5 5 5"/></symbol></svg>"#;

/// Returns the page of `listing`, which is sorted by `order`.
pub(super) fn page(listing: &Listing<'_>, order: ListingOrder) -> String {
    let path = shown(listing.shown_path);
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (path) }
                link rel="alternate" type="application/json" href="?format=json";
                style { (PreEscaped(STYLE)) }
            }
            body {
                (PreEscaped(SYMBOLS))
                (crumbs(listing.shown_path))
                main {
                    table {
                        thead { tr {
                            (column("n", "Name", By::Name, order))
                            (column("t", "Modified (UTC)", By::Time, order))
                            (column("s", "Size", By::Size, order))
                        } }
                        tbody {
                            @if listing.shown_path != b"/" {
                                tr.u { td.n { a href="../" { (icon("u")) "Parent folder" } } td.t {} td.s {} }
                            }
                            @for entry in &listing.entries { (row(entry)) }
                        }
                    }
                    @if listing.entries.is_empty() && listing.left_out == 0 && listing.read_whole {
                        p.empty { "This folder is empty." }
                    }
                    @if let Some(note) = note(listing) { p.note { (note) } }
                }
                footer {
                    span { (counts(&listing.entries)) }
                    a href="?format=json" { "JSON" }
                }
            }
        }
    };
    markup.into_string()
}

/// Returns the links to the parent folders. They are relative, so that they are valid at any path prefix.
fn crumbs(shown_path: &[u8]) -> Markup {
    let segments: Vec<&[u8]> = shown_path.split(|&byte| byte == b'/').filter(|segment| !segment.is_empty()).collect();
    let depth = segments.len();
    html! {
        nav aria-label="Path" { h1 { ol {
            li {
                @if depth == 0 { span aria-current="page" { "/" } }
                @else { a href=("../".repeat(depth)) aria-label="Top folder" { "/" } }
            }
            @for (at, segment) in segments.into_iter().enumerate() {
                li {
                    @if at + 1 == depth { bdi aria-current="page" { (shown(segment)) } }
                    @else { a href=("../".repeat(depth - at - 1)) { bdi { (shown(segment)) } } }
                }
            }
        } } }
    }
}

/// Returns the header of a column, which links to the listing sorted by that column. If the listing is already sorted
/// by it, the link reverses the order. Otherwise, sizes begin with the largest and times with the newest.
fn column(class: &str, title: &str, by: By, order: ListingOrder) -> Markup {
    let current = order.by == by;
    let descending = if current { !order.descending } else { by != By::Name };
    let sorted = current.then_some(if order.descending { "descending" } else { "ascending" });
    let direction = if descending { "desc" } else { "asc" };
    html! {
        th class=(class) scope="col" aria-sort=[sorted] {
            a href=(format!("?sort={}&order={direction}", by.name())) { (title) }
        }
    }
}

fn row(entry: &ListingEntry) -> Markup {
    let modified = format_rfc3339(entry.modified_s);
    let name = shown(&entry.name);
    html! {
        tr.d[entry.is_folder()] {
            td.n {
                a href=(entry.href()) {
                    @if entry.is_folder() { (icon("d")) span { bdi { (name) } "/" } }
                    @else { (icon("f")) bdi { (name) } }
                }
            }
            td.t { time datetime=(modified) { (&modified[..10]) " " (&modified[11..16]) } }
            @match entry.kind {
                EntryKind::Folder => td.s {},
                EntryKind::File { size_bytes } => td.s title=(show::plural(size_bytes, "byte", "bytes")) { (show::bytes(size_bytes as f64)) },
            }
        }
    }
}

fn icon(symbol: &str) -> Markup {
    html! { svg aria-hidden="true" { use href=(format!("#{symbol}")) {} } }
}

/// Returns a note about entries that are not listed.
fn note(listing: &Listing<'_>) -> Option<String> {
    match (listing.left_out, listing.read_whole) {
        (0, true) => None,
        (0, false) => Some("This folder has more entries than shown here.".to_owned()),
        (more, true) => Some(format!("{more} more, not shown.")),
        (more, false) => Some(format!("At least {more} more, not shown.")),
    }
}

/// Returns the totals of the listed entries, as in `2 folders, 1 file, 3.0 KiB`.
fn counts(entries: &[ListingEntry]) -> String {
    let folders = entries.iter().filter(|entry| entry.is_folder()).count();
    let files = entries.len() - folders;
    let total_bytes = entries.iter().fold(0_u64, |total, entry| total.saturating_add(entry.size_bytes()));
    format!(
        "{}, {}, {}",
        show::plural(folders as u64, "folder", "folders"),
        show::plural(files as u64, "file", "files"),
        show::bytes(total_bytes as f64)
    )
}
