//! How tools print: tables for people, JSON for programs.

use serde_json::Value;

use crate::failure::Failure;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Json,
}

/// Prints `value` in JSON, or the lines of `text`. A reader that went away (`| head`) ends it silently.
pub(crate) fn print(form: Form, value: &Value, text: impl FnOnce() -> String) -> Result<(), Failure> {
    let out = match form {
        Form::Json => format!("{value:#}\n"),
        Form::Text => text(),
    };
    write(&out)
}

pub(crate) fn write(text: &str) -> Result<(), Failure> {
    use std::io::Write;
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::failed(error)),
        _ => Ok(()),
    }
}

/// Columns as wide as their widest cell; the first row is the header.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}

/// A row of a table.
pub(crate) fn row<const N: usize>(cells: [&dyn ToString; N]) -> Vec<String> {
    cells.iter().map(|cell| cell.to_string()).collect()
}

/// Numbers with commas between them.
pub(crate) fn list(numbers: &[i32]) -> String {
    numbers.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_their_headers() {
        let rows = [row([&"topic", &"leader"]), row([&"a-long-name", &1])];
        assert_eq!(table(&rows), "topic        leader\na-long-name  1\n");
    }
}
