//! The new servers, ranked in a table of earlier servers, with figures per core, MHz, GiB, dollar and watt.

use super::figures::heading;
use super::seeds::{Ranked, pretty, provenance, ranked};
use crate::document::SuiteReport;
use flatout_units::show;
use maud::{Markup, html};

/// The rate of a new server.
struct Today<'a> {
    server: &'a str,
    /// Operations per second: the server's highest median in the step.
    per_s: f64,
}

/// Number of bytes per GiB.
const GIB: f64 = 1_073_741_824.0;

/// Returns every table with a `rank` directive.
pub(super) fn section(report: &SuiteReport) -> Markup {
    html! { @for table in ranked(report) {
        @let today = today(report, &table);
        (prices(report, &table, &today))
        (history(report, &table, &today))
    } }
}

fn today<'a>(report: &'a SuiteReport, table: &Ranked<'_>) -> Vec<Today<'a>> {
    let Some(step) = report.step(table.step) else { return Vec::new() };
    let best = |server: &'a String| {
        let cells = step.cells.iter().filter(|cell| cell.server == *server);
        let medians = cells.filter_map(|cell| cell.figure(table.measure)).map(|figure| figure.median);
        let per_s = medians.filter(|median| median.is_finite()).fold(0.0, f64::max);
        (per_s > 0.0).then_some(Today { server, per_s })
    };
    step.servers.iter().filter_map(best).collect()
}

/// Returns the number of cores that the servers could use.
fn cores(report: &SuiteReport) -> usize {
    if report.server_cores.is_empty() { report.machine.cores.max(1) } else { report.server_cores.len() }
}

fn prices(report: &SuiteReport, table: &Ranked<'_>, today: &[Today<'_>]) -> Markup {
    let cores = cores(report) as f64;
    let mhz = report.machine.cpu_mhz.map(|mhz| mhz as f64);
    let gib = report.machine.memory_bytes as f64 / GIB;
    let each = |per_s: f64, of: Option<f64>| match of {
        Some(of) if of > 0.0 => show::figure(per_s / of),
        _ => "not given".to_owned(),
    };
    html! { @if !today.is_empty() { section {
        h2 { "Figures relative to the machine" }
        div.wide { table {
            thead { tr { @for head in ["server", "per second", "per core", "per core and MHz", "per GiB of memory", "per dollar", "per watt"] { th scope="col" { (head) } } } }
            tbody { @for Today { server, per_s } in today { tr {
                th scope="row" { (server) }
                td { (show::figure(*per_s)) }
                td { (each(*per_s, Some(cores))) }
                td { (each(*per_s, mhz.map(|mhz| mhz * cores))) }
                td { (each(*per_s, Some(gib))) }
                td { (each(*per_s, report.given.dollars)) }
                td { (each(*per_s, report.given.watts)) }
            } } }
            caption {
                "The best of step " (table.step) " by " (heading(table.measure)) ", with " (show::plural(cores as u64, "core", "cores")) " for the server"
                @if let Some(mhz) = report.machine.cpu_mhz { " at " (show::count(mhz)) " MHz, as reported by the kernel" }
                ", in a machine with " (show::bytes(report.machine.memory_bytes as f64)) ". Dollars and watts were given by the user."
            }
        } }
    } } }
}

fn history(report: &SuiteReport, table: &Ranked<'_>, today: &[Today<'_>]) -> Markup {
    let number = |cell: Option<&String>| cell.and_then(|cell| cell.parse::<f64>().ok()).unwrap_or(0.0);
    let clock = report.machine.cpu_mhz.map(|mhz| mhz as f64 * cores(report) as f64);
    let width = table.table.columns.len();
    let mut rows: Vec<(f64, bool, Vec<String>)> = Vec::new();
    for row in &table.table.rows {
        let per_s = number(row.get(table.column));
        let mhz = number(row.get(table.mhz_column));
        let mut cells: Vec<String> = row.iter().map(|cell| pretty(cell)).collect();
        cells.push(if mhz > 0.0 { show::figure(per_s / mhz) } else { "–".to_owned() });
        rows.push((per_s, false, cells));
    }
    for Today { server, per_s } in today {
        let mut cells = vec![String::new(); width];
        if let Some(first) = cells.first_mut() {
            "today".clone_into(first);
        }
        for (cell, text) in cells.iter_mut().skip(1).zip([(*server).to_owned(), report.machine.cpu_model.clone()]) {
            *cell = text;
        }
        if let Some(mhz) = report.machine.cpu_mhz {
            cells[table.mhz_column] = show::count(mhz);
        }
        cells[table.column] = show::figure(*per_s);
        cells.push(clock.map_or_else(|| "–".to_owned(), |clock| show::figure(per_s / clock)));
        rows.push((*per_s, true, cells));
    }
    rows.sort_by(|one, other| other.0.total_cmp(&one.0));
    html! { section {
        h2 { "Comparison with " (table.table.rows.len()) " published results" }
        p.note { strong { "Other hardware." } " The table's authors measured these figures on the machines that the table names; the new rows were measured here, over loopback or a virtual link, with a similar workload. The table is therefore not a ranking; it shows three decades of hardware." }
        (provenance(table.table))
        div.wide { table {
            thead { tr {
                @for column in &table.table.columns { th scope="col" { (column.replace('_', " ")) } }
                th scope="col" { "per MHz" }
            } }
            tbody { @for (_, is_today, cells) in &rows { tr.today[*is_today] {
                @for (index, cell) in cells.iter().enumerate() {
                    @if index == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                }
            } } }
        } }
    } }
}
