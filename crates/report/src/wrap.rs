//! Wrapping of text for a terminal, so that no word is broken.

/// Narrowest terminal for which text is wrapped, in columns.
const COLUMNS_MIN: usize = 40;

/// Column of the figures in a [`crate::page::TextPage`], at which further lines of a figure's explanation begin.
const FIGURES_COLUMN: usize = 19;

/// Wraps lines that are wider than `columns` at spaces. Colours have no width.
pub fn wrap(text: &str, columns: usize) -> String {
    if columns < COLUMNS_MIN {
        return text.to_owned();
    }
    let mut wrapped = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        add_line(&mut wrapped, line, columns);
    }
    wrapped
}

fn add_line(wrapped: &mut String, line: &str, columns: usize) {
    let hanging = hanging_of(line);
    let (mut column, mut in_colour) = (0, false);
    // Where the line was last broken or may be broken, and the column there.
    let (mut from, mut space) = (0, None);
    for (at, character) in line.char_indices() {
        if in_colour || character == '\x1b' {
            in_colour = !(in_colour && character.is_ascii_alphabetic());
            continue;
        }
        if character == '\n' {
            break;
        }
        if character == ' ' {
            // Spaces at the start of a line belong to its indentation.
            if line[from..at].contains(|character| character != ' ') {
                space = Some((at, column));
            }
        } else if column >= columns
            && let Some((end, at_column)) = space.take()
        {
            wrapped.push_str(line[from..end].trim_end());
            wrapped.push('\n');
            wrapped.extend(std::iter::repeat_n(' ', hanging));
            let skipped = line[end..].len() - line[end..].trim_start_matches(' ').len();
            from = end + skipped;
            column = hanging + column - at_column - skipped;
        }
        column += 1;
    }
    wrapped.push_str(&line[from..]);
}

/// Returns the indentation of the further lines of a line: that of the figures, or a little more than its own.
fn hanging_of(line: &str) -> usize {
    let mut plain = String::new();
    let mut in_colour = false;
    for character in line.chars() {
        if in_colour || character == '\x1b' {
            in_colour = !(in_colour && character.is_ascii_alphabetic());
        } else {
            plain.push(character);
        }
    }
    let mut around = plain.chars().skip(FIGURES_COLUMN - 2);
    let is_figure = plain.starts_with("  ")
        && (around.next(), around.next()) == (Some(' '), Some(' '))
        && around.next().is_some_and(|character| character != ' ');
    if is_figure { FIGURES_COLUMN } else { plain.len() - plain.trim_start_matches(' ').len() + 2 }
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn lines_are_broken_at_spaces_and_continue_below_their_figures() {
        let text = "  client CPU       4.00 µs per request   1 thread, 40.0 % busy\n  note: short\n";
        assert_eq!(wrap(text, 80), text);
        let narrow =
            "  client CPU       4.00 µs per request   1\n                   thread, 40.0 % busy\n  note: short\n";
        assert_eq!(wrap(text, 42), narrow);
        let note = "  note: other processes used 45 % of the machine during the run; expect the figures to vary";
        let wrapped = wrap(note, 60);
        assert_eq!(
            wrapped,
            "  note: other processes used 45 % of the machine during the\n    run; expect the figures to vary"
        );
        assert_eq!(wrap(note, 20), note);
        // A word that is wider than the terminal is not broken.
        let word = "x".repeat(100);
        assert_eq!(wrap(&word, 80), word);
    }

    #[test]
    fn colours_have_no_width() {
        let text = format!("\x1b[1m{} {}\x1b[0m", "a".repeat(50), "b".repeat(29));
        assert_eq!(wrap(&text, 80), text);
        assert_eq!(wrap(&text, 79).lines().count(), 2);
    }
}
