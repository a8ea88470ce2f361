//! Warnings and infos: what is to be said about an answer that is still an answer.
//!
//! Texts and rules as in Prometheus' `util/annotations`: each carries `(line:col)` of the sub-expression it is about,
//! equal texts are told once, with the position of the last.

use super::functions::over_time::go_float;
use super::syntax::tree::Span;

/// What is to be said about an answer, in the order it was found, each text once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// Something is likely wrong: `PromQL warning: ...`.
    pub warnings: Vec<String>,
    /// Something may be wrong: `PromQL info: ...`.
    pub infos: Vec<String>,
}

/// Collects during evaluation; positions are rendered at the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    warnings: Vec<Note>,
    infos: Vec<Note>,
    fixes: Vec<(Span, String, Fixes)>,
    /// How often something was said, be it again.
    told: u64,
}

#[derive(Clone, Debug)]
struct Note {
    text: String,
    span: Span,
}

/// Buckets of one metric that had to be made monotonic, over all steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fixes {
    pub(super) lowest: f64,
    pub(super) highest: f64,
    pub(super) max_difference: f64,
    pub(super) first_ms: i64,
    pub(super) last_ms: i64,
    pub(super) count: u64,
}

/// How many different texts are kept; the rest is the same trouble again.
const NOTES_MAX: usize = 1_000;

impl Notes {
    pub(super) fn warn(&mut self, span: Span, text: impl Into<String>) {
        self.told += 1;
        add(&mut self.warnings, span, text.into());
    }

    pub(super) fn info(&mut self, span: Span, text: impl Into<String>) {
        self.told += 1;
        add(&mut self.infos, span, text.into());
    }

    /// How often something was said: who finds the same number later knows that nothing was said in between.
    pub(super) fn told(&self) -> u64 {
        self.told
    }

    /// Remembers that buckets of `about` were fixed; the same metric at other steps is merged into one info.
    pub(super) fn fixed_buckets(&mut self, span: Span, about: &str, fixes: Fixes) {
        self.told += 1;
        let full = self.fixes.len() >= NOTES_MAX;
        match self.fixes.iter_mut().find(|(at, whose, _)| *at == span && whose == about) {
            Some((_, _, have)) => {
                have.lowest = have.lowest.min(fixes.lowest);
                have.highest = have.highest.max(fixes.highest);
                have.max_difference = have.max_difference.max(fixes.max_difference);
                have.first_ms = have.first_ms.min(fixes.first_ms);
                have.last_ms = have.last_ms.max(fixes.last_ms);
                have.count += fixes.count;
            }
            None if full => {}
            None => self.fixes.push((span, about.to_owned(), fixes)),
        }
    }

    /// Renders for the text the query was parsed from.
    pub(super) fn finish(mut self, query: &str) -> Annotations {
        for (span, about, fixes) in std::mem::take(&mut self.fixes) {
            let text = fixes.text(&about);
            self.info(span, text);
        }
        let render = |kind: &str, notes: Vec<Note>| {
            notes
                .into_iter()
                .map(|note| format!("PromQL {kind}: {}{}", note.text, position(query, note.span)))
                .collect()
        };
        Annotations { warnings: render("warning", self.warnings), infos: render("info", self.infos) }
    }
}

fn add(notes: &mut Vec<Note>, span: Span, text: String) {
    // As upstream keeps them, the last one hides those before it.
    if let Some(note) = notes.iter_mut().find(|note| note.text == text) {
        note.span = span;
    } else if notes.len() < NOTES_MAX {
        notes.push(Note { text, span });
    }
}

/// ` (line:col)` of the first byte, both from one; columns count bytes, as upstream's do.
fn position(query: &str, span: Span) -> String {
    let Some(before) = query.as_bytes().get(..span.start as usize) else { return String::new() };
    if query.is_empty() {
        return String::new();
    }
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
    format!(" ({line}:{column})")
}

impl Fixes {
    fn text(&self, about: &str) -> String {
        let time = |ms: i64| crate::model::Timestamp::from_ms(ms).to_rfc3339();
        let metric = if about.is_empty() { String::new() } else { format!(" for metric name {about:?}") };
        format!(
            "input to histogram_quantile needed to be fixed for monotonicity (see \
             https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile){metric}, \
             from buckets {} to {}, with a max diff of {}, over {} samples from {} to {}",
            go_float(self.lowest),
            go_float(self.highest),
            two_digits(self.max_difference),
            self.count,
            time(self.first_ms),
            time(self.last_ms),
        )
    }
}

/// A positive number with two significant digits.
fn two_digits(value: f64) -> String {
    // The exponent form rounds to the digits asked for; read back, it prints as short as it can.
    format!("{value:.1e}").parse().map_or_else(|_| value.to_string(), go_float)
}
