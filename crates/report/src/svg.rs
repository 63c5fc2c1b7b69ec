//! Elements of inline SVG, which all charts share. Their appearance depends on CSS classes, which the page's style
//! defines.

use std::fmt::{self, Write as _};

/// An `<svg>` element under construction. All positions are in the units of the drawing.
#[derive(Debug)]
pub struct Svg(String);

impl Svg {
    /// Creates a drawing of this size. `label` is its name for screen readers.
    pub fn new(width: f64, height: f64, label: &str) -> Self {
        let mut svg = Self(String::with_capacity(4096));
        svg.add(format_args!(
            r#"<svg class="chart" viewBox="0 0 {width:.0} {height:.0}" role="img" aria-label="{}">"#,
            escape(label)
        ));
        svg
    }

    /// Adds elements unchanged.
    pub fn add(&mut self, elements: fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.0.write_fmt(elements);
    }

    /// Adds a grid line between two points.
    pub fn grid_line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.add(format_args!(r#"<line class="grid" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#));
    }

    /// Adds a path with this class.
    pub fn path(&mut self, class: &str, path: fmt::Arguments<'_>) {
        self.add(format_args!(r#"<path class="{class}" d="{path}"/>"#));
    }

    /// Adds a label with this class that starts at `x`.
    pub fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        self.add(format_args!(r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{}</text>"#, escape(text)));
    }

    /// Adds a label with this class whose `anchor` (`middle`, `end`) is at `x`.
    pub fn anchored_text(&mut self, class: &str, x: f64, y: f64, anchor: &str, text: &str) {
        self.add(format_args!(
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#,
            escape(text)
        ));
    }

    /// Returns the complete element.
    pub fn finish(self) -> String {
        self.0 + "</svg>"
    }
}

/// Escapes text for an element or an attribute.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    // Writing to a String cannot fail.
    let _ = maud::Escaper::new(&mut escaped).write_str(text);
    escaped
}
