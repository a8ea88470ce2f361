//! Annotations of a result: warnings and infos that do not invalidate it.
//!
//! Texts and rules are those of Prometheus' `util/annotations`. Each text ends with the
//! `(line:col)` of the sub-expression that it concerns. Equal texts are reported once, with the
//! position of the last.

use super::numbers::go_float;
use super::syntax::tree::Span;

/// The annotations of a result, each text once, in the order of their first occurrence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// Something is likely wrong: `PromQL warning: ...`.
    pub warnings: Vec<String>,
    /// Something may be wrong: `PromQL info: ...`.
    pub infos: Vec<String>,
}

/// The annotations collected during an evaluation; positions are rendered at the end.
#[derive(Clone, Debug, Default)]
pub(super) struct AnnotationCollector {
    warnings: Vec<PendingAnnotation>,
    infos: Vec<PendingAnnotation>,
    fixes: Vec<(Span, String, BucketFixes)>,
    /// The number of calls that recorded an annotation, repeated texts included.
    recorded: u64,
}

#[derive(Clone, Debug)]
struct PendingAnnotation {
    text: String,
    span: Span,
}

/// The corrections that made the buckets of one metric monotonic, over all steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct BucketFixes {
    pub(super) lowest: f64,
    pub(super) highest: f64,
    pub(super) max_difference: f64,
    pub(super) first_ms: i64,
    pub(super) last_ms: i64,
    pub(super) count: u64,
}

/// The maximal number of different texts of each kind; further ones are dropped.
const TEXTS_MAX: usize = 1_000;

impl AnnotationCollector {
    pub(super) fn warn(&mut self, span: Span, text: impl Into<String>) {
        self.recorded += 1;
        add(&mut self.warnings, span, text.into());
    }

    pub(super) fn info(&mut self, span: Span, text: impl Into<String>) {
        self.recorded += 1;
        add(&mut self.infos, span, text.into());
    }

    /// Returns the number of calls that recorded an annotation. An equal number later means that
    /// none was recorded in between.
    pub(super) fn recorded(&self) -> u64 {
        self.recorded
    }

    /// Records that the buckets of a metric were made monotonic. Corrections of the same metric at
    /// other steps are merged into one info.
    pub(super) fn fixed_buckets(&mut self, span: Span, about: &str, fixes: BucketFixes) {
        self.recorded += 1;
        let full = self.fixes.len() >= TEXTS_MAX;
        match self.fixes.iter_mut().find(|(at, whose, _)| *at == span && whose == about) {
            Some((_, _, merged)) => {
                merged.lowest = merged.lowest.min(fixes.lowest);
                merged.highest = merged.highest.max(fixes.highest);
                merged.max_difference = merged.max_difference.max(fixes.max_difference);
                merged.first_ms = merged.first_ms.min(fixes.first_ms);
                merged.last_ms = merged.last_ms.max(fixes.last_ms);
                merged.count += fixes.count;
            }
            None if full => {}
            None => self.fixes.push((span, about.to_owned(), fixes)),
        }
    }

    /// Renders all annotations for the text from which the query was parsed.
    pub(super) fn finish(mut self, query: &str) -> Annotations {
        for (span, about, fixes) in std::mem::take(&mut self.fixes) {
            let text = fixes.text(&about);
            self.info(span, text);
        }
        let render = |kind: &str, annotations: Vec<PendingAnnotation>| {
            annotations
                .into_iter()
                .map(|annotation| {
                    format!("PromQL {kind}: {}{}", annotation.text, position(query, annotation.span))
                })
                .collect()
        };
        Annotations { warnings: render("warning", self.warnings), infos: render("info", self.infos) }
    }
}

fn add(annotations: &mut Vec<PendingAnnotation>, span: Span, text: String) {
    // As upstream, the position of a repeated text is that of its last occurrence.
    if let Some(annotation) = annotations.iter_mut().find(|annotation| annotation.text == text) {
        annotation.span = span;
    } else if annotations.len() < TEXTS_MAX {
        annotations.push(PendingAnnotation { text, span });
    }
}

/// Renders ` (line:col)` of the first byte, both counted from one; columns count bytes, as
/// upstream's do.
fn position(query: &str, span: Span) -> String {
    let Some(before) = query.as_bytes().get(..span.start as usize) else { return String::new() };
    if query.is_empty() {
        return String::new();
    }
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
    format!(" ({line}:{column})")
}

impl BucketFixes {
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

/// Renders a positive number with two significant digits.
fn two_digits(value: f64) -> String {
    // The exponent form rounds to two digits; parsed again, the number prints in its shortest form.
    format!("{value:.1e}").parse().map_or_else(|_| value.to_string(), go_float)
}
