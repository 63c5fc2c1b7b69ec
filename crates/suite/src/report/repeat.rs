//! The information needed to repeat the measurements: the machine, the command, the servers with their exact settings,
//! the testbeds and the problems.

use crate::document::{ServerEntry, SuiteReport};
use flatout_units::show;
use maud::{Markup, html};

/// Returns the servers, including absent servers.
pub(super) fn servers(report: &SuiteReport) -> Markup {
    html! { section {
        h2 { "Servers" }
        @for server in &report.servers { (one(server)) }
    } }
}

fn one(server: &ServerEntry) -> Markup {
    html! {
        h3 { (server.name) }
        @if !server.about.is_empty() { p { (server.about) } }
        @if let Some(absent) = &server.absent { p.bad { "Left out: " (absent.text) } }
        dl {
            @if let Some(version) = &server.version { dt { "Version" } dd { (version) } }
            @if !server.program.is_empty() { dt { "Program" } dd { (server.program) } }
            @if let Some(package) = &server.package { dt { "Debian package" } dd { (package) } }
            @if !server.command.is_empty() { dt { "Started as" } dd { code { (server.command.join(" ")) } } }
            @if !server.logs.is_empty() { dt { "Logs" } dd { (server.logs.join(", ")) } }
        }
        @for config in &server.configs { details {
            summary { (config.path) }
            pre { (config.text) }
        } }
    }
}

/// Returns the problems that occurred.
pub(super) fn troubles(report: &SuiteReport) -> Markup {
    html! { @if !report.troubles.is_empty() { section {
        h2 { "Problems" }
        @for trouble in &report.troubles {
            p {
                strong.bad { (trouble.why.name) } ": " (trouble.why.text)
                span.facts {
                    " (" (trouble.place)
                    @if let Some(server) = &trouble.server { ", server " (server) }
                    @if let Some(step) = &trouble.step { ", step " (step) }
                    ")"
                }
            }
            @if !trouble.log_tail.is_empty() { pre { (trouble.log_tail.join("\n")) } }
        }
    } } }
}

/// Returns the machine, the command line, the cores and the testbeds.
pub(super) fn method(report: &SuiteReport) -> Markup {
    let machine = &report.machine;
    let cores = |list: &[usize]| match list {
        [] => "chosen by the kernel".to_owned(),
        list => list.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
    };
    html! { section {
        h2 { "To repeat this run" }
        pre { code { (report.command.join(" ")) } }
        dl {
            dt { "Suite" } dd { (report.file) ", kept in the bundle as suite.kdl" }
            dt { "Repetitions" } dd { (report.repetitions) ", with the servers interleaved in each; " (report.seconds) " s per measurement" }
            dt { "Cores" } dd { "servers " (cores(&report.server_cores)) "; clients " (cores(&report.client_cores)) }
            dt { "Machine" } dd {
                (machine.cpu_model) ", " (show::plural(machine.cores as u64, "core", "cores"))
                @if let Some(mhz) = machine.cpu_mhz { " at " (show::count(mhz)) " MHz" }
                ", " (show::bytes(machine.memory_bytes as f64)) ", Linux " (machine.kernel)
                @if let Some(host) = &machine.host { ", host " (host) }
                @if let Some(governor) = &machine.cpu_governor { ", governor " (governor) }
            }
            @if let Some(dollars) = report.given.dollars { dt { "Price" } dd { (dollars) " dollars, as given by the user" } }
            @if let Some(watts) = report.given.watts { dt { "Power" } dd { (watts) " W, as given by the user" } }
            dt { "Limits" } dd {
                "open files " (machine.files_max.map_or_else(|| "not known".to_owned(), show::count))
                @for (name, setting) in &machine.sysctls { "; " (name) " " (setting) }
            }
            dt { "Program" } dd { "flatout " (report.flatout_version) @if let Some(digest) = &machine.binary_digest { ", " (digest) } }
            @for testbed in &report.testbeds {
                dt { "Testbed " (testbed.name) }
                dd {
                    @if let Some(absent) = &testbed.absent { span.bad { "left out: " (absent.text) } " " }
                    @if !testbed.about.is_empty() { (testbed.about) "; " }
                    (show::plural(u64::from(testbed.hosts), "host", "hosts"))
                    @if let Some(mtu) = &testbed.mtu { ", packets of up to " (mtu) " bytes" }
                    @if let Some(rate) = &testbed.rate { ", " (rate) }
                    @if let Some(delay) = &testbed.delay { ", " (delay) " of added delay each way" }
                    @for setting in &testbed.sysctls { ", " (setting) }
                    @if let Some(cpu) = &testbed.cpu { ", servers with " (cpu) " of a core's time" }
                }
            }
        }
    } }
}
