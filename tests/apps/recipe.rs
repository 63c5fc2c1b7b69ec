//! The recipes of docs/accelerator.md, run with a different site name, `listen` address and origin.

use std::fmt::Write as _;
use std::path::Path;

/// The heading of the recipe for frameworks with sessions.
pub(super) const SESSIONS: &str = "A framework with sessions: Django, Rails, Laravel, Express";

/// The configuration below the heading `name`, changed to accept every host, listen on a free port and use the origin
/// at `url`.
pub(super) fn recipe(name: &str, url: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/accelerator.md");
    let text = std::fs::read_to_string(path).unwrap();
    let heading = format!("\n### {name}\n");
    let (_, below) = text.split_once(&heading).unwrap_or_else(|| panic!("docs/accelerator.md has no recipe {name}"));
    let below = below.split("\n### ").next().unwrap();
    let (_, block) = below.split_once("```kdl\n").unwrap_or_else(|| panic!("{name} has no configuration"));
    let block = block.split("```").next().unwrap();
    let (_, block) = block.split_once("site \"").unwrap();
    let (_, block) = block.split_once("{\n").unwrap();
    let lines: String =
        block.lines().filter(|line| !line.trim().starts_with("listen ")).map(|line| format!("{line}\n")).collect();
    let mut parts = lines.split("proxy \"http://");
    let mut recipe = String::from("site \"*\" {\n    listen \"127.0.0.1:0\"\n");
    recipe.push_str(parts.next().unwrap());
    for part in parts {
        let (_, rest) = part.split_once('"').unwrap();
        write!(recipe, "proxy \"{url}\"").unwrap();
        recipe.push_str(rest);
    }
    recipe
}
