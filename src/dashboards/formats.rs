//! Formats of a variable's value: `${name:csv}`, `${name:regex}`, and the escaping inside PromQL.

use super::interpolate::InterpolateError;
use super::json::number;
use crate::model::percent_encoded;

/// The lexical context of a reference in PromQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Outside of strings and comments.
    Code,
    /// Inside a string with these quotes: `"`, `'` or a backtick.
    Quotes(char),
    /// A place inside a comment.
    Comment,
}

impl Place {
    /// Returns the context at the end of `text`, which begins in this context.
    pub(super) fn after(self, text: &str) -> Place {
        let mut place = self;
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            place = match (place, c) {
                (Place::Code, '"' | '\'' | '`') => Place::Quotes(c),
                (Place::Code, '#') => Place::Comment,
                (Place::Comment, '\n' | '\r') => Place::Code,
                (Place::Quotes(quote), c) if c == quote => Place::Code,
                (Place::Quotes(quote), '\\') if quote != '`' => {
                    chars.next();
                    place
                }
                (place, _) => place,
            };
        }
        place
    }

    /// Escapes a text for this context, so that it cannot end a string or a comment.
    pub(super) fn escaped(self, text: &str) -> String {
        match self {
            Place::Quotes('`') => text.replace('`', "."),
            Place::Comment => text.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r"),
            Place::Quotes(quote) => {
                let text = text.replace('\\', "\\\\").replace('\n', "\\n");
                text.replace(quote, &format!("\\{quote}"))
            }
            Place::Code => text.replace('\\', "\\\\").replace('\n', "\\n"),
        }
    }
}

/// Returns a pattern that matches `text` only. `slash` escapes slashes too, as Grafana's format
/// `regex` does.
fn pattern(text: &str, slash: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if r"\^$*+?.()|[]{}".contains(c) || slash && c == '/' {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn alternatives(all: Vec<String>) -> String {
    match <[String; 1]>::try_from(all) {
        Ok([only]) => only,
        Err(all) => format!("({})", all.join("|")),
    }
}

/// Returns the value of a reference without a format: a literal, or for variables with several
/// values a pattern of escaped alternatives. The result is escaped for its context.
pub(super) fn promql_value(values: &[String], has_several: bool, place: Place) -> String {
    if has_several {
        return alternatives(values.iter().map(|one| place.escaped(&pattern(one, false))).collect());
    }
    let text = values.join(",");
    if matches!(place, Place::Quotes(_)) { place.escaped(&text) } else { text }
}

/// A value to format.
#[derive(Clone, Copy)]
pub(super) struct Formatted<'v> {
    pub(super) name: &'v str,
    pub(super) values: &'v [String],
    /// The display texts of the values, for the format `text`.
    pub(super) texts: &'v [String],
    /// Whether the variable may have several values. Then even a single value is a list.
    pub(super) is_list: bool,
}

impl Formatted<'_> {
    fn each(&self, separator: &str, map: impl Fn(&str) -> String) -> String {
        let all: Vec<String> = self.values.iter().map(|one| map(one)).collect();
        all.join(separator)
    }

    fn glob(&self) -> String {
        match self.values {
            [only] => only.clone(),
            values if self.is_list => format!("{{{}}}", values.join(",")),
            values => values.first().cloned().unwrap_or_default(),
        }
    }

    /// Returns the value in a named format; an unknown one counts as `glob`.
    ///
    /// # Errors
    /// [`InterpolateError::Format`] for dates that are not numbers.
    pub(super) fn write(&self, format: &str) -> Result<String, InterpolateError> {
        let (name, args) = format.split_once(':').map_or((format, None), |(name, args)| (name, Some(args)));
        let plain = |text: &str| text.to_owned();
        Ok(match name {
            "csv" | "raw" => self.each(",", plain),
            "pipe" => self.each("|", plain),
            "join" => self.each(args.and_then(|args| args.split(':').next()).unwrap_or(","), plain),
            "text" => self.texts.join(" + "),
            "regex" => alternatives(self.values.iter().map(|one| pattern(one, true)).collect()),
            "doublequote" => self.each(",", |one| format!("\"{}\"", one.replace('"', "\\\""))),
            "singlequote" => self.each(",", |one| format!("'{}'", one.replace('\'', "\\'"))),
            "sqlstring" => self.each(",", |one| format!("'{}'", one.replace('\'', "''"))),
            "distributed" => {
                let rest = self.values.iter().skip(1).map(|one| format!("{}={one}", self.name));
                self.values.iter().take(1).cloned().chain(rest).collect::<Vec<_>>().join(",")
            }
            "queryparam" => {
                let name = percent_encoded(self.name);
                self.each("&", |one| format!("var-{name}={}", percent_encoded(one)))
            }
            "percentencode" if self.is_list => percent_encoded(&format!("{{{}}}", self.values.join(","))),
            "percentencode" => percent_encoded(&self.values.join(",")),
            "html" => {
                let joined = self.values.join(", ");
                let joined = joined.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
                joined.replace('"', "&quot;").replace('\'', "&#39;")
            }
            "json" if self.is_list => serde_json::Value::from(self.values).to_string(),
            "json" => self.values.join(","),
            "lucene" if self.is_list => match self.values {
                [] => "__empty__".to_owned(),
                _ => format!("({})", self.each(" OR ", |one| format!("\"{}\"", lucene(one)))),
            },
            "lucene" => self.each(",", lucene),
            "date" => self.dates(args)?,
            "uriencode" => return Err(InterpolateError::Format(name.to_owned())),
            _ => self.glob(),
        })
    }

    fn dates(&self, args: Option<&str>) -> Result<String, InterpolateError> {
        let unsupported = || InterpolateError::Format(format!("date:{}", args.unwrap_or("iso")));
        let mut all = Vec::new();
        for one in self.values {
            let ms = number(Some(&serde_json::Value::from(one.as_str()))).ok_or_else(unsupported)?;
            all.push(match args {
                Some("seconds") => format!("{:.0}", (ms / 1_000.0).round()),
                Some("ms") => format!("{ms:.0}"),
                _ => return Err(unsupported()),
            });
        }
        Ok(all.join(","))
    }

    /// Returns the values as string literals in quotes of this kind, separated by commas.
    pub(super) fn literals(&self, quote: char) -> String {
        self.each(",", |one| format!("{quote}{}{quote}", Place::Quotes(quote).escaped(one)))
    }
}

fn lucene(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if "!*+-=<>&|()[]{}^~?:\\/\"".contains(c) || c.is_whitespace() {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Returns whether a text is a number, a duration, or names between commas. Outside of quotes, such
/// texts are whole tokens in any context.
pub(super) fn is_plain(text: &str) -> bool {
    let is_word = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':')
    };
    let is_number = |text: &str| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        digits.starts_with(|c: char| c.is_ascii_digit())
            && digits.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.')
    };
    text.len() <= 64 * 1_024
        && text.split(',').map(|part| part.trim_matches(' ')).all(|part| is_word(part) || is_number(part))
}
