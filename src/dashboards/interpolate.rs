//! Replaces `$name`, `${name:format}` and `[[name]]` in a query.
//!
//! The text of the document and of values that its author wrote is code. Every other value is data,
//! which must stay where the reference is:
//! - inside quotes it is escaped for that kind of quotes, in any format;
//! - in a comment its line breaks are escaped;
//! - elsewhere it must be a number, a duration or a list of names, or a format that quotes it.
//!
//! Values are never searched for references. At the end the lexer checks that each quoted value is
//! inside one string.

use super::durations::{duration_text, rounded_interval};
use super::formats::{Formatted, Place, is_plain, promql_value};
use super::variables::{Selection, Selections};
use crate::promql::syntax::lex::{TokenKind, lex};

/// Longest text with its references replaced, bytes.
const QUERY_BYTES_MAX: usize = 64 * 1_024;
/// Custom values of All may contain references; this many levels are followed.
const LEVELS_MAX: u32 = 4;
/// Longest parts of a reference.
const NAME_CHARS_MAX: usize = 128;
const PART_CHARS_MAX: usize = 256;
/// All of a variable whose options are not known here, as a pattern.
const ANY: &str = ".+";

/// The time range and the intervals of a query, for `$__range`, `$__interval` and their relatives.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// Start of the time range, milliseconds since 1970.
    pub from_ms: i64,
    /// End of the time range.
    pub to_ms: i64,
    /// `$__interval` in milliseconds.
    pub interval_ms: i64,
    /// `$__rate_interval` in milliseconds.
    pub rate_interval_ms: i64,
}

/// Reasons why values cannot be put into a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InterpolateError {
    /// The result is too long.
    #[error("the query has more than {QUERY_BYTES_MAX} bytes with the values of its variables")]
    TooLong,
    /// The value could change the query.
    #[error(
        "the variable {0} is not inside quotes: its value must be a number, a duration, or names between commas"
    )]
    NotPlain(String),
    /// All has no text outside of quotes.
    #[error("the variable {0} is not inside quotes, where All has no text: send the values instead")]
    AllOutside(String),
    /// The value did not stay inside its quotes.
    #[error("a value of a variable cannot be separated from the query")]
    Unclear,
    /// The server does not support the format.
    #[error("the server does not support the format {0} of a variable")]
    Format(String),
}

/// A reference to a variable.
struct Reference<'t> {
    name: &'t str,
    path: &'t str,
    format: Option<&'t str>,
}

impl super::Dashboard {
    /// Returns a query with its references replaced and with the ad hoc filters.
    /// References to unknown variables stay.
    ///
    /// # Errors
    /// [`InterpolateError`].
    pub fn query(
        &self,
        text: &str,
        selections: &Selections,
        context: &Context,
    ) -> Result<String, InterpolateError> {
        Ok(self.with_filters(self.interpolate(text, selections, context)?, selections))
    }

    /// Returns a text with its references replaced.
    ///
    /// # Errors
    /// [`InterpolateError`].
    pub(super) fn interpolate(
        &self,
        text: &str,
        selections: &Selections,
        context: &Context,
    ) -> Result<String, InterpolateError> {
        let mut writer =
            Writer { dashboard: self, selections, context, out: String::new(), quoted: Vec::new() };
        writer.replace(text, Place::Code, 0)?;
        writer.finish()
    }
}

struct Writer<'a> {
    dashboard: &'a super::Dashboard,
    selections: &'a Selections,
    context: &'a Context,
    out: String,
    /// The ranges of data inside quotes.
    quoted: Vec<(usize, usize)>,
}

impl Writer<'_> {
    /// Checks that no value ended the string that it is in. A text that is no PromQL is refused
    /// later, by the parser.
    fn finish(self) -> Result<String, InterpolateError> {
        if !self.quoted.is_empty()
            && let Ok(tokens) = lex(&self.out)
        {
            let holds = |&(start, end): &(usize, usize)| {
                tokens.iter().any(|token| {
                    let (from, to) = (token.span.start as usize, token.span.end as usize);
                    token.kind == TokenKind::Text && from < start && end < to
                })
            };
            if !self.quoted.iter().all(holds) {
                return Err(InterpolateError::Unclear);
            }
        }
        Ok(self.out)
    }

    fn push(&mut self, text: &str) -> Result<(), InterpolateError> {
        if self.out.len() + text.len() > QUERY_BYTES_MAX {
            return Err(InterpolateError::TooLong);
        }
        self.out.push_str(text);
        Ok(())
    }

    fn replace(&mut self, text: &str, start: Place, level: u32) -> Result<(), InterpolateError> {
        let (mut last, mut at, mut place) = (0, 0, start);
        while let Some(found) = text[at..].find(['$', '[']) {
            at += found;
            let Some((reference, length)) = Reference::parse(&text[at..]) else {
                at += 1;
                continue;
            };
            let between = &text[last..at];
            self.push(between)?;
            place = place.after(between);
            if !self.one(&reference, place, level)? {
                self.push(&text[at..at + length])?;
            }
            at += length;
            last = at;
        }
        self.push(&text[last..])
    }

    /// Writes the value of a reference. Returns false if nothing has that name.
    fn one(&mut self, reference: &Reference<'_>, place: Place, level: u32) -> Result<bool, InterpolateError> {
        let Some(selection) = self.selections.get(reference.name) else {
            let Some(value) = self.built_in(reference.name, reference.path) else { return Ok(false) };
            let values = [value];
            let formatted =
                Formatted { name: reference.name, values: &values, texts: &values, is_list: false };
            let text = reference.format.map_or(Ok(values[0].clone()), |format| formatted.write(format))?;
            return self.push(&text).map(|()| true);
        };
        let format = reference.format.unwrap_or("promql");
        let is_text = reference.path == "text" || format == "text";
        if selection.is_all && !is_text && !format.starts_with("queryparam") {
            match &selection.all_value {
                Some(_) if level >= LEVELS_MAX => return Ok(true),
                Some(custom) if format != "percentencode" => {
                    self.replace(custom, place, level + 1)?;
                    return Ok(true);
                }
                None if selection.values.is_empty() => return self.any(reference.name, place),
                _ => {}
            }
        }
        let automatic = selection.automatic.map(|(count, least_ms)| {
            let range_ms = self.context.to_ms.saturating_sub(self.context.from_ms);
            vec![duration_text(rounded_interval(range_ms, count).max(least_ms))]
        });
        let values = automatic.as_ref().unwrap_or(&selection.values);
        let formatted =
            Formatted { name: reference.name, values, texts: &selection.texts, is_list: selection.is_list };
        let text = match reference.format {
            _ if reference.path == "text" => selection.texts.join(" + "),
            Some(format) => formatted.write(format)?,
            None => promql_value(values, selection.is_pattern, place),
        };
        self.value(reference, selection, &formatted, text, place)?;
        Ok(true)
    }

    /// Writes a value, so that it stays in its place unless the author of the document wrote it.
    fn value(
        &mut self,
        reference: &Reference<'_>,
        selection: &Selection,
        formatted: &Formatted<'_>,
        text: String,
        place: Place,
    ) -> Result<(), InterpolateError> {
        if selection.is_authored {
            return self.push(&text);
        }
        let is_escaped = reference.format.is_none() && reference.path != "text";
        let text = match place {
            Place::Quotes(_) if is_escaped => text,
            Place::Quotes(_) | Place::Comment => place.escaped(&text),
            Place::Code if reference.format == Some("doublequote") => formatted.literals('"'),
            Place::Code if reference.format == Some("singlequote") => formatted.literals('\''),
            Place::Code if is_plain(&text) => text,
            Place::Code => return Err(InterpolateError::NotPlain(reference.name.to_owned())),
        };
        let start = self.out.len();
        self.push(&text)?;
        if matches!(place, Place::Quotes(_)) {
            self.quoted.push((start, self.out.len()));
        }
        Ok(())
    }

    fn any(&mut self, name: &str, place: Place) -> Result<bool, InterpolateError> {
        if place == Place::Code {
            return Err(InterpolateError::AllOutside(name.to_owned()));
        }
        self.push(ANY).map(|()| true)
    }

    /// Returns the value of a variable of the server. Such values have digits, units and the texts
    /// of the document.
    fn built_in(&self, name: &str, path: &str) -> Option<String> {
        let Context { from_ms, to_ms, interval_ms, rate_interval_ms } = *self.context;
        let range_ms = to_ms.saturating_sub(from_ms).max(0);
        let range_s = range_ms.saturating_add(500) / 1_000;
        Some(match name {
            "__interval" => duration_text(interval_ms),
            "__interval_ms" => interval_ms.to_string(),
            "__rate_interval" => duration_text(rate_interval_ms),
            "__rate_interval_ms" => rate_interval_ms.to_string(),
            "__range" => format!("{range_s}s"),
            "__range_s" => range_s.to_string(),
            "__range_ms" => range_ms.to_string(),
            "__from" => from_ms.to_string(),
            "__to" => to_ms.to_string(),
            "timeFilter" | "__timeFilter" => format!("time >= {from_ms}ms and time <= {to_ms}ms"),
            "__all" => super::ALL.to_owned(),
            "__searchFilter" => ".*".to_owned(),
            "__timezone" => self.dashboard.time_zone(),
            "__dashboard" if path == "uid" => self.dashboard.uid.clone(),
            "__dashboard" => self.dashboard.title.clone(),
            _ => return None,
        })
    }
}

impl<'t> Reference<'t> {
    /// Parses a reference at the start of a text, and returns its length.
    fn parse(text: &'t str) -> Option<(Reference<'t>, usize)> {
        let word_end = |text: &str| {
            text.bytes().position(|b| !(b.is_ascii_alphanumeric() || b == b'_')).unwrap_or(text.len())
        };
        // Returns the part until one of `ends`, if it is not too long and not empty.
        fn part<'p>(text: &'p str, ends: &[char]) -> Option<&'p str> {
            let part = text.split(ends).next()?;
            (1..=PART_CHARS_MAX).contains(&part.chars().count()).then_some(part)
        }
        let (open, close) = if text.starts_with("${") {
            ("${", "}")
        } else if text.starts_with("[[") {
            ("[[", "]]")
        } else {
            let rest = text.strip_prefix('$')?;
            let end = word_end(rest);
            let name = rest.get(..end).filter(|name| !name.is_empty())?;
            return Some((Reference { name, path: "", format: None }, 1 + end));
        };
        let rest = text.strip_prefix(open)?;
        let end = word_end(rest);
        let name = rest.get(..end).filter(|name| (1..=NAME_CHARS_MAX).contains(&name.len()))?;
        let mut at = end;
        let mut path = "";
        if open == "${" && rest[at..].starts_with('.') {
            path = part(&rest[at + 1..], &[':', '}'])?;
            at += 1 + path.len();
        }
        let mut format = None;
        if rest[at..].starts_with(':') {
            let ends: &[char] = if open == "${" { &['}'] } else { &[']'] };
            let found = part(&rest[at + 1..], ends)?;
            at += 1 + found.len();
            format = Some(found);
        }
        rest[at..].starts_with(close).then(|| {
            let length = open.len() + at + close.len();
            (Reference { name, path, format }, length)
        })
    }
}
