//! Formatting of an explanation as text, with one fact per line and its place in the configuration on the right.

use super::{Explanation, ProxyExplanation, StepExplanation};
use crate::error::show_place;
use crate::walk::Effect;
use flatout_http::status::reason;
use std::fmt::Write as _;

/// Maximum number of consecutive non-matching routes that are shown individually. More are summarised in one line.
const SKIPPED_SHOWN_MAX: usize = 8;

/// Maximum width of the columns for facts and remarks. Longer text is not aligned.
const COLUMNS_MAX: usize = 72;

struct Row {
    label: &'static str,
    fact: String,
    note: String,
    place: String,
}

impl Explanation {
    /// Formats the explanation as lines of text, with terminal colours if `colour` is true.
    pub fn to_text(&self, colour: bool) -> String {
        let rows = self.rows();
        let label_columns = rows.iter().map(|row| row.label.len()).max().unwrap_or(0);
        let beside = rows.iter().filter(|row| !row.note.is_empty() || !row.place.is_empty());
        let fact_columns = widest(beside.map(|row| &row.fact));
        let note_columns = widest(rows.iter().filter(|row| !row.place.is_empty()).map(|row| &row.note));
        let (bold, dim, plain) = if colour { ("\x1b[1m", "\x1b[2m", "\x1b[0m") } else { ("", "", "") };
        let mut text = format!("{bold}{}{plain}\n", printable(&self.request));
        for Row { label, fact, note, place } in &rows {
            let fact = printable(fact);
            let gap = fact_columns.saturating_sub(fact.chars().count());
            // Writing to a String cannot fail.
            let _ = write!(text, "  {dim}{label:label_columns$}{plain}  {fact}");
            if !note.is_empty() || !place.is_empty() {
                let _ = write!(text, "{:gap$}  {:note_columns$}", "", printable(note));
                let _ = write!(text, "  {dim}{place}{plain}");
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        text
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut add = |label, fact: String, note: &str, place: String| {
            rows.push(Row { label, fact, note: note.to_owned(), place });
        };
        if let Some((name, remark)) = &self.listener {
            add("listener", name.clone(), remark.unwrap_or_default(), String::new());
        }
        if let Some(record) = &self.dns_record {
            add("dns", record.clone(), "lets browsers use HTTP/3 from their first request", String::new());
        }
        if let Some((name, why, place)) = &self.site {
            add("site", name.clone(), why, show_place(place));
        }
        let mut steps = &self.steps[..];
        while let [first, ..] = steps {
            let skipped = steps.iter().take_while(|step| step.is_skipped()).count();
            if skipped > SKIPPED_SHOWN_MAX {
                add("step", format!("{}{skipped} routes", indent(first)), "do not match", String::new());
                steps = &steps[skipped..];
                continue;
            }
            for step in &steps[..skipped.max(1)] {
                let fact = format!("{}{}", indent(step), one_line(&step.written));
                add("step", fact, &step.effect.to_string(), show_place(&step.place));
            }
            steps = &steps[skipped.max(1)..];
        }
        for (name, is) in &self.replaced {
            add("folder", name.clone(), is, String::new());
        }
        for (name, is) in &self.files {
            add("file", name.clone(), is, String::new());
        }
        if let Some((name, place)) = &self.page {
            add("page", name.clone(), "replaces the error", show_place(place));
        }
        if let Some(proxy) = &self.proxy {
            proxy_rows(proxy, &mut add);
            return rows;
        }
        if let Some(php) = &self.php {
            let unknown = || php.unknown.as_ref().map(|why| format!("unknown: {why}"));
            if let Some(state) = php.state.clone().or_else(unknown) {
                add("state", format!("{}: {state}", php.server), "", String::new());
            }
        }
        if self.runs {
            add("response", self.outcome.1.to_owned(), "", String::new());
            return rows;
        }
        let status = format!("{} {}, {} bytes", self.status, reason(self.status), self.body_bytes);
        add("response", status, &format!("[{}] {}", self.outcome.0, self.outcome.1), String::new());
        for field in &self.fields {
            let place = field.place.as_ref().map_or_else(String::new, show_place);
            add("field", format!("{}: {}", field.line.0, field.line.1), "", place);
        }
        rows
    }

    /// Returns the settings that apply to the request, in configuration syntax, with the place of each step.
    pub fn to_effective(&self) -> String {
        let mut text = String::new();
        let Some((name, _, place)) = &self.site else {
            let _ = writeln!(text, "// no site responds: [{}] {}", self.outcome.0, self.outcome.1);
            return text;
        };
        let hosts: String = name.split(' ').map(|host| format!(" \"{}\"", printable(host))).collect();
        let _ = writeln!(text, "site{hosts} {{  // {}", show_place(place));
        if let Some((listener, _)) = &self.listener {
            let _ = writeln!(text, "    // by {listener}");
        }
        let mut shown: Vec<&StepExplanation> = Vec::new();
        for step in self.steps.iter().filter(|step| !step.is_skipped()) {
            // Omit matching routes, whose content is listed, and further rows of the same step.
            let again = shown.last().is_some_and(|last| last.place == step.place && last.written == step.written);
            if again || step.effect == Effect::Matched {
                continue;
            }
            shown.push(step);
            for (index, line) in step.written.lines().enumerate() {
                let place = if index == 0 { format!("  // {}", show_place(&step.place)) } else { String::new() };
                let _ = writeln!(text, "    {}{place}", printable(line));
            }
        }
        text.push_str("}\n");
        text
    }
}

/// Adds the rows for the origins and the stored responses.
fn proxy_rows(proxy: &ProxyExplanation, add: &mut impl FnMut(&'static str, String, &str, String)) {
    let mut row = |label, fact: String| add(label, fact, "", String::new());
    row("origin", proxy.origins.clone());
    if let Some(balance) = &proxy.balance {
        row("", format!("the policy chooses {balance}"));
    }
    for state in &proxy.states {
        row("state", state.clone());
    }
    if let Some((why, fix)) = proxy.refusal {
        if let Some(why) = &proxy.unknown {
            row("state", format!("unknown: {why}"));
        }
        row("stored", format!("NO: {why}"));
        return row("fix", fix.to_owned());
    }
    let kept = match (&proxy.kept, &proxy.unknown) {
        (Some(kept), _) => kept,
        (None, unknown) => {
            let why = unknown.as_deref().unwrap_or("no running flatout was queried");
            return row("stored", format!("unknown: {why}"));
        }
    };
    row("key", format!("{} (of {})", kept.key, kept.realm));
    row("lookup", format!("[{}] {}", kept.lookup.name, kept.lookup.text));
    row("", kept.action.clone());
    let mut fix = &kept.lookup.change;
    for variant in &kept.variants {
        let vary = if variant.vary.is_empty() { String::new() } else { format!(", Vary: {}", variant.vary) };
        row("stored", format!("{}: {}, {} bytes{vary}", variant.place, variant.status, variant.body_bytes));
        match variant.purged.as_str() {
            "hard" => row("", "purged: this response is never served again".to_owned()),
            "soft" => row("", "soft-purged: stale since the purge".to_owned()),
            _ => {}
        }
        if variant.differences.is_empty() {
            variant.freshness.iter().for_each(|line| row("", line.clone()));
        }
        for difference in &variant.differences {
            let show = |value: &Option<String>| value.as_ref().map_or("none".to_owned(), |value| format!("`{value}`"));
            let (name, asked, had) = (&difference.name, show(&difference.asked), show(&difference.kept));
            row("", format!("for another request: {name} is {asked} in this request, but was {had} in the stored one"));
        }
    }
    if let Some(last) = &kept.not_kept {
        let (reason, status, ago_s) = (&last.reason, last.status, last.ago_s);
        row("stored", format!("NO: [{}] {} (the last response, {status}, {ago_s} s ago)", reason.name, reason.text));
        fix = &reason.change;
    } else if kept.variants.is_empty() {
        row("stored", "nothing".to_owned());
    }
    if let Some(marker) = &kept.marker {
        let left_s = marker.left_ms.div_ceil(1000);
        row("marker", format!("[{}] requests are not collapsed for another {left_s} s", marker.reason.name));
        if kept.not_kept.is_none() {
            fix = &marker.reason.change;
        }
    }
    row("fix", fix.clone());
}

fn widest<'a>(texts: impl Iterator<Item = &'a String>) -> usize {
    texts.map(|text| text.chars().count()).filter(|columns| *columns <= COLUMNS_MAX).max().unwrap_or(0)
}

fn indent(step: &StepExplanation) -> String {
    "  ".repeat(step.depth)
}

/// Formats a step in one line. The content of its braces is omitted, unless it is a single setting.
fn one_line(written: &str) -> String {
    let lines: Vec<&str> = written.lines().map(str::trim).collect();
    match lines[..] {
        [] => String::new(),
        [line] => line.to_owned(),
        [first, setting, last] => format!("{first} {setting} {last}"),
        [first, ..] => format!("{first} ... }}"),
    }
}

/// Replaces control characters, for output to a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '\u{fffd}' } else { character }).collect()
}
