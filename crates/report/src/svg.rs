//! Elements of inline SVG that charts share. Looks are classes, which the style of the page defines.

use std::fmt::{self, Write as _};

/// An `<svg>` element under construction. All positions are in its own units.
#[derive(Debug)]
pub struct Svg(String);

impl Svg {
    /// A drawing of this size; `label` is its name for screen readers.
    pub fn new(width: f64, height: f64, label: &str) -> Self {
        let mut svg = Self(String::with_capacity(4096));
        svg.add(format_args!(
            r#"<svg class="chart" viewBox="0 0 {width:.0} {height:.0}" role="img" aria-label="{}">"#,
            escape(label)
        ));
        svg
    }

    /// Adds elements as they are.
    pub fn add(&mut self, elements: fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.0.write_fmt(elements);
    }

    /// Adds a grid line between two points.
    pub fn grid_line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.add(format_args!(r#"<line class="grid" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#));
    }

    /// Adds a path of this class.
    pub fn path(&mut self, class: &str, path: fmt::Arguments<'_>) {
        self.add(format_args!(r#"<path class="{class}" d="{path}"/>"#));
    }

    /// Adds a label of this class that starts at `x`.
    pub fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        self.add(format_args!(r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{}</text>"#, escape(text)));
    }

    /// Adds a label of this class with its `anchor` (`middle`, `end`) at `x`.
    pub fn anchored_text(&mut self, class: &str, x: f64, y: f64, anchor: &str, text: &str) {
        self.add(format_args!(
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#,
            escape(text)
        ));
    }

    /// The whole element.
    pub fn finish(self) -> String {
        self.0 + "</svg>"
    }
}

/// Escapes text for an element or an attribute.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}
