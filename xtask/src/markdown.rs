//! The little of Markdown that the checks need: fenced blocks, links and heading anchors.

/// A fenced code block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The info string after the fence, such as `console`.
    pub(crate) language: String,
    /// The line of the opening fence, counted from 1.
    pub(crate) line: usize,
    /// The lines between the fences.
    pub(crate) lines: Vec<String>,
}

/// A link or an image, inline or as a reference definition.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// The line it stands on, counted from 1.
    pub(crate) line: usize,
    /// What it points to, as written.
    pub(crate) target: String,
}

/// The fenced blocks of a document, in order.
pub(crate) fn blocks(text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<(Fence, Block)> = None;
    for (index, line) in text.lines().enumerate() {
        match open.take() {
            None => {
                open = Fence::opened_by(line).map(|(fence, language)| {
                    (fence, Block { language: language.to_owned(), line: index + 1, lines: Vec::new() })
                });
            }
            Some((fence, block)) if fence.is_closed_by(line) => found.push(block),
            Some((fence, mut block)) => {
                block.lines.push(line.to_owned());
                open = Some((fence, block));
            }
        }
    }
    found
}

/// The links of a document, outside code.
pub(crate) fn links(text: &str) -> Vec<Link> {
    let mut found = Vec::new();
    for (line, prose) in prose(text) {
        let mut targets = Vec::new();
        inline_targets(&prose, &mut targets);
        attribute_targets(&prose, &mut targets);
        if let Some(target) = definition_target(&prose) {
            targets.push(target);
        }
        found.extend(targets.into_iter().map(|target| Link { line, target }));
    }
    found
}

/// What stands between backticks in a document's prose, with its line.
pub(crate) fn inline_codes(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in unfenced(text) {
        let codes = line.split('`').skip(1).step_by(2);
        found.extend(codes.filter(|code| !code.is_empty()).map(|code| (number, code.to_owned())));
    }
    found
}

/// The anchors that the document's headings give, as GitHub spells them.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut fence: Option<Fence> = None;
    for line in text.lines() {
        if let Some(open) = &fence {
            if open.is_closed_by(line) {
                fence = None;
            }
            continue;
        }
        if let Some((open, _)) = Fence::opened_by(line) {
            fence = Some(open);
            continue;
        }
        let title = line.trim_start_matches('#');
        if title.len() < line.len() && title.starts_with(' ') {
            let anchor = anchor(title);
            // A second heading of the same name gets a number.
            let repeats = found.iter().filter(|known| **known == anchor).count();
            found.push(if repeats == 0 { anchor } else { format!("{anchor}-{repeats}") });
        }
    }
    found
}

fn anchor(title: &str) -> String {
    let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// An opened fence: its character and how many of them.
struct Fence {
    mark: char,
    length: usize,
}

impl Fence {
    fn opened_by(line: &str) -> Option<(Self, &str)> {
        let text = line.trim_start();
        let mark = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let rest = text.trim_start_matches(mark);
        let length = text.len() - rest.len();
        (length >= 3 && !rest.contains('`')).then(|| (Self { mark, length }, rest.trim()))
    }

    fn is_closed_by(&self, line: &str) -> bool {
        let text = line.trim();
        text.len() >= self.length && text.chars().all(|c| c == self.mark)
    }
}

/// The lines outside fenced blocks, with inline code blanked.
fn prose(text: &str) -> impl Iterator<Item = (usize, String)> {
    unfenced(text).into_iter().map(|(number, line)| {
        let mut inside = false;
        let blanked = line.chars().map(|c| {
            inside ^= c == '`';
            if inside { ' ' } else { c }
        });
        (number, blanked.collect())
    })
}

/// The lines outside fenced blocks, counted from 1.
fn unfenced(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut fence: Option<Fence> = None;
    for (index, line) in text.lines().enumerate() {
        if let Some(open) = &fence {
            if open.is_closed_by(line) {
                fence = None;
            }
        } else if let Some((open, _)) = Fence::opened_by(line) {
            fence = Some(open);
        } else {
            found.push((index + 1, line));
        }
    }
    found
}

fn inline_targets(line: &str, found: &mut Vec<String>) {
    let mut rest = line;
    while let Some(start) = rest.find("](") {
        rest = &rest[start + 2..];
        let Some(end) = rest.find(')') else { return };
        // A title may follow the target: [text](target "title").
        let target = rest[..end].split_whitespace().next().unwrap_or("");
        found.push(target.trim_matches(['<', '>']).to_owned());
        rest = &rest[end..];
    }
}

fn attribute_targets(line: &str, found: &mut Vec<String>) {
    for attribute in ["href=\"", "src=\"", "srcset=\""] {
        let mut rest = line;
        while let Some(start) = rest.find(attribute) {
            rest = &rest[start + attribute.len()..];
            let Some(end) = rest.find('"') else { return };
            found.push(rest[..end].to_owned());
            rest = &rest[end..];
        }
    }
}

fn definition_target(line: &str) -> Option<String> {
    let (_, target) = line.trim_start().strip_prefix('[')?.split_once("]: ")?;
    target.split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
# One, two & `three`

See [a](docs/a.md \"title\"), ![b](b.png) and `[no](code.md)`.
<img src=\"c.svg\"> [ref][r]

[r]: docs/r.md

```console
$ echo '[no](fenced.md)'
```

## Again
## Again
";

    #[test]
    fn links_are_found_in_prose_and_not_in_code() {
        let targets: Vec<String> = links(SAMPLE).into_iter().map(|link| link.target).collect();
        assert_eq!(targets, ["docs/a.md", "b.png", "c.svg", "docs/r.md"]);
    }

    #[test]
    fn inline_code_is_found_with_its_line_and_fenced_code_is_not() {
        let sample = "a `b` c `d/e.rs`\n```\n`f`\n```\n`g`\n";
        let expected = [(1, "b".to_owned()), (1, "d/e.rs".to_owned()), (5, "g".to_owned())];
        assert_eq!(inline_codes(sample), expected);
    }

    #[test]
    fn blocks_know_their_language_and_line() {
        let found = blocks(SAMPLE);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].language.as_str(), found[0].line), ("console", 8));
        assert_eq!(found[0].lines, ["$ echo '[no](fenced.md)'"]);
    }

    #[test]
    fn anchors_are_spelt_as_github_spells_them() {
        assert_eq!(anchors(SAMPLE), ["one-two--three", "again", "again-1"]);
    }

    #[test]
    fn a_longer_fence_may_hold_a_shorter_one() {
        let found = blocks("````md\n```\ninner\n```\n````\n");
        assert_eq!(found[0].lines, ["```", "inner", "```"]);
    }
}
