//! Tables of earlier figures: comma-separated values, after lines that begin with `#` and say where the figures come
//! from.

use crate::document::SeedTable;
use std::io::Read;
use std::path::Path;

/// Maximum size of a table, in bytes.
const TABLE_BYTES_MAX: u64 = 1024 * 1024;

/// Reads a table by name from a folder.
///
/// # Errors
/// Returns the reason it cannot be read.
pub fn read(folder: &Path, name: &str) -> Result<SeedTable, String> {
    let path = folder.join(format!("{name}.csv"));
    let mut text = String::new();
    let file = std::fs::File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    file.take(TABLE_BYTES_MAX).read_to_string(&mut text).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(name, &text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Parses the text of a table.
///
/// # Errors
/// Fails if the number of values in a line differs from the number of column names. The error names the line.
pub fn parse(name: &str, text: &str) -> Result<SeedTable, String> {
    let mut table = SeedTable { name: name.to_owned(), ..SeedTable::default() };
    for (index, line) in text.lines().enumerate() {
        if let Some(source) = line.strip_prefix('#') {
            table.source.push(source.trim().to_owned());
        } else if !line.trim().is_empty() {
            let values = split(line);
            if table.columns.is_empty() {
                table.columns = values;
            } else if values.len() == table.columns.len() {
                table.rows.push(values);
            } else {
                let (has, wanted) = (values.len(), table.columns.len());
                return Err(format!("line {} has {has} values, and the heading has {wanted}", index + 1));
            }
        }
    }
    if table.columns.is_empty() { Err("it has no heading".to_owned()) } else { Ok(table) }
}

/// Splits a line into its values. A quoted value may contain commas.
fn split(line: &str) -> Vec<String> {
    let mut values = vec![String::new()];
    let mut is_quoted = false;
    for character in line.chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => values.push(String::new()),
            other => {
                if let Some(value) = values.last_mut() {
                    value.push(other);
                }
            }
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_table_has_its_sources_columns_and_rows() {
        let table = parse("t", "# from a report\n# of 1996\na,b\n1,\"2, or 3\"\n\n4,\n").unwrap();
        assert_eq!(table.source, ["from a report", "of 1996"]);
        assert_eq!((table.columns.len(), table.rows.len()), (2, 2));
        assert_eq!((table.rows[0][1].as_str(), table.rows[1][1].as_str()), ("2, or 3", ""));
        assert!(parse("t", "a,b\n1\n").unwrap_err().contains("line 2 has 1 values"));
        assert!(parse("t", "# nothing\n").is_err());
    }
}
