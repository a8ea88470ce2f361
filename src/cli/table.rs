//! Renders JSON rows as aligned columns for people.

use serde_json::Value;

/// The title of a column, and the field of a row that it shows.
pub(super) type TableColumn = (&'static str, &'static str);

/// Renders a line of titles and one line for each row. The last column is not padded.
pub(super) fn table(rows: &[Value], columns: &[TableColumn]) -> String {
    let mut lines: Vec<Vec<String>> = vec![columns.iter().map(|(title, _)| (*title).to_owned()).collect()];
    lines.extend(rows.iter().map(|row| columns.iter().map(|(_, field)| cell(at(row, field))).collect()));
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Renders the names and values of fields, one on each line.
pub(super) fn facts(of: &Value, fields: &[TableColumn]) -> String {
    let shown: Vec<_> = fields.iter().filter(|(_, field)| !at(of, field).is_null()).collect();
    let width = shown.iter().map(|(title, _)| title.chars().count()).max().unwrap_or(0);
    let lines = shown.iter().map(|(title, field)| format!("{title:width$}  {}\n", cell(at(of, field))));
    lines.collect()
}

/// Returns a field, or a field of a field: `usage.series`.
fn at<'v>(row: &'v Value, field: &str) -> &'v Value {
    field.split('.').fold(row, |value, name| &value[name])
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        // A name may contain any text, which must not move the cursor.
        Value::String(text) => text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect(),
        Value::Array(all) => match all.is_empty() {
            true => "-".to_owned(),
            false => all.iter().map(one).collect::<Vec<_>>().join(", "),
        },
        other => other.to_string(),
    }
}

/// Renders `{"slug":"acme","role":"owner"}` as `acme (owner)`.
fn one(value: &Value) -> String {
    match (value["slug"].as_str(), value["role"].as_str()) {
        (Some(slug), Some(role)) => format!("{slug} ({role})"),
        _ => cell(value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_aligned_and_control_characters_are_replaced() {
        let rows = [
            json!({ "email": "a@b.c", "admin": true, "orgs": [{ "slug": "x", "role": "owner" }], "n": { "m": 7 } }),
            json!({ "email": "längere@b.c", "admin": false, "orgs": [], "n": null }),
            json!({ "email": "\u{1b}[31mred", "orgs": ["p", "q"] }),
        ];
        let text = table(&rows, &[("EMAIL", "email"), ("ADMIN", "admin"), ("N", "n.m"), ("IN", "orgs")]);
        let expected = "\
EMAIL        ADMIN  N  IN
a@b.c        yes    7  x (owner)
längere@b.c  no     -  -
\u{fffd}[31mred     -      -  p, q
";
        assert_eq!(text, expected);
        assert_eq!(
            facts(&rows[0], &[("Address", "email"), ("None", "none"), ("M", "n.m")]),
            "Address  a@b.c\nM        7\n"
        );
    }
}
