//! Raw samples from the query API of a target: the text of a query, and its response.
//!
//! An instant query of a range selector returns the samples as they are stored. It does not return
//! staleness markers, exemplars or the bucket layout of native histograms.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::model::{Labels, METRIC_NAME, TimeRange};

/// An instant query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadbackQuery {
    /// The expression.
    pub expression: String,
    /// The moment in milliseconds.
    pub at_ms: i64,
}

/// A matcher of equality: label and value.
pub(super) type LabelEquals<'a> = (&'a str, &'a str);

/// Returns the query for the samples in `range` of the series with these labels.
pub(super) fn range_query<'a>(
    labels: impl IntoIterator<Item = LabelEquals<'a>>,
    range: TimeRange,
) -> ReadbackQuery {
    let mut expression = String::from("{");
    for (index, (name, value)) in labels.into_iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        expression.push_str(comma);
        push_name(name, &mut expression);
        expression.push('=');
        push_quoted(value, &mut expression);
    }
    // The start of a range is exclusive since Prometheus 3, and inclusive before.
    let length_ms = range.end.ms_since(range.start).saturating_add(1);
    expression.push_str(&format!("}}[{length_ms}ms]"));
    ReadbackQuery { expression, at_ms: range.end.as_ms() }
}

fn push_name(name: &str, out: &mut String) {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit()) {
        true => out.push_str(name),
        false => push_quoted(name, out),
    }
}

fn push_quoted(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// The samples of one series at the target, ascending in time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RemoteSeries {
    /// The label set, without the label of the tenant.
    pub(super) labels: Labels,
    /// Times in milliseconds and values.
    pub(super) samples: Vec<(i64, f64)>,
    /// Times of native histograms in milliseconds.
    pub(super) histogram_times: Vec<i64>,
}

#[derive(Deserialize)]
struct QueryResponse<D> {
    status: String,
    #[serde(default)]
    error: String,
    #[serde(default = "Option::default")]
    data: Option<D>,
    /// VictoriaMetrics: a part of the cluster did not answer.
    #[serde(default, rename = "isPartial")]
    is_partial: bool,
    /// Thanos: a store did not answer.
    #[serde(default)]
    warnings: Vec<String>,
}

impl<D> QueryResponse<D> {
    /// Returns the data of a complete response.
    fn complete(self) -> Result<D, String> {
        if self.status != "success" {
            return Err(format!("the query failed: {}", self.error));
        }
        if self.is_partial || !self.warnings.is_empty() {
            return Err(format!("the response is partial: {}", self.warnings.join("; ")));
        }
        self.data.ok_or_else(|| "the response has no data".to_owned())
    }
}

#[derive(Deserialize)]
struct QueryData<R = MatrixRow> {
    #[serde(rename = "resultType")]
    kind: String,
    result: Vec<R>,
}

#[derive(Deserialize)]
struct MatrixRow {
    #[serde(default)]
    metric: BTreeMap<String, String>,
    #[serde(default)]
    values: Vec<(f64, String)>,
    #[serde(default)]
    histograms: Vec<(f64, IgnoredAny)>,
}

fn response_of<'a, D: Deserialize<'a>>(body: &'a [u8]) -> Result<D, String> {
    let response: QueryResponse<D> = serde_json::from_slice(body)
        .map_err(|error| format!("the response is not a query result: {error}"))?;
    response.complete()
}

/// Parses the response to a request for the values of a label.
///
/// # Errors
/// A sentence, if the response is not a complete list.
pub fn parse_names(body: &[u8]) -> Result<Vec<String>, String> {
    response_of(body)
}

/// Parses the response to a query for `vector(1)`.
///
/// # Errors
/// A sentence, if the server does not answer queries.
pub fn parse_one(body: &[u8]) -> Result<(), String> {
    match response_of::<QueryData<IgnoredAny>>(body)?.kind.as_str() {
        "vector" => Ok(()),
        kind => Err(format!("the result is of the type {kind:?}, not a vector")),
    }
}

/// Parses the response to a range query. Samples outside of `range` are left out, and so is the
/// label `tenant`.
///
/// # Errors
/// A sentence, if the response is not a matrix.
pub(super) fn parse_matrix(
    body: &[u8],
    range: TimeRange,
    tenant: Option<&str>,
) -> Result<Vec<RemoteSeries>, String> {
    let data = response_of::<QueryData>(body)?;
    if data.kind != "matrix" {
        return Err(format!("the result is of the type {:?}, not a matrix", data.kind));
    }
    let in_range = |at: &i64| (range.start.as_ms()..=range.end.as_ms()).contains(at);
    let mut all = Vec::with_capacity(data.result.len());
    for row in data.result {
        let labels = row.metric.into_iter().filter(|(name, _)| Some(name.as_str()) != tenant);
        let mut series = RemoteSeries { labels: Labels::from_pairs(labels), ..RemoteSeries::default() };
        for (at, value) in row.values {
            let value: f64 = value.parse().map_err(|_| format!("{value:?} is not a number"))?;
            series.samples.push((milliseconds(at), value));
        }
        series.samples.retain(|(at, _)| in_range(at));
        series
            .histogram_times
            .extend(row.histograms.iter().map(|(at, _)| milliseconds(*at)).filter(in_range));
        series.samples.sort_by_key(|(at, _)| *at);
        series.histogram_times.sort_unstable();
        all.push(series);
    }
    Ok(all)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "times of samples are far below 2^53 ms; others saturate"
)]
fn milliseconds(seconds: f64) -> i64 {
    (seconds * 1_000.0).round() as i64
}

/// Returns the matchers of one series.
pub(super) fn of_series(labels: &Labels) -> impl Iterator<Item = LabelEquals<'_>> {
    labels.iter().map(|label| (label.name, label.value))
}

/// Returns the matcher of all series of a metric.
pub(super) fn of_metric(name: &str) -> [LabelEquals<'_>; 1] {
    [(METRIC_NAME, name)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Timestamp;

    fn range(start: i64, end: i64) -> TimeRange {
        TimeRange::new(Timestamp::from_ms(start), Timestamp::from_ms(end))
    }

    #[test]
    fn a_query_names_each_label_and_covers_both_ends() {
        let query = range_query([("__name__", "up"), ("a.b", "x\"\\\n")], range(1_000, 1_999));
        let expression = r#"{__name__="up","a.b"="x\"\\\n"}[1000ms]"#;
        assert_eq!(query, ReadbackQuery { expression: expression.into(), at_ms: 1_999 });
    }

    #[test]
    fn a_matrix_is_parsed_without_the_label_of_the_tenant() {
        let body = r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"up","t":"a"},
            "values":[[1.001,"0.30000000000000004"],[1.5,"NaN"],[9,"1"]],"histograms":[[1.2,{"count":"1"}]]}]}}"#;
        let found = parse_matrix(body.as_bytes(), range(1_001, 2_000), Some("t")).expect("valid");
        assert_eq!(found[0].labels, Labels::from_pairs([("__name__", "up")]));
        assert_eq!(found[0].samples[0], (1_001, 0.1 + 0.2));
        assert!(found[0].samples[1].1.is_nan() && found[0].samples.len() == 2);
        assert_eq!(found[0].histogram_times, [1_200]);
    }

    #[test]
    fn other_responses_are_refused_with_a_reason() {
        for (body, reason) in [
            ("<html>", "not a query result"),
            (r#"{"status":"error","error":"no"}"#, "the query failed: no"),
            (r#"{"status":"success"}"#, "no data"),
            (
                r#"{"status":"success","isPartial":true,"data":{"resultType":"matrix","result":[]}}"#,
                "partial",
            ),
            (
                r#"{"status":"success","warnings":["a store is away"],"data":{"resultType":"matrix","result":[]}}"#,
                "a store is away",
            ),
            (r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#, "not a matrix"),
            (
                r#"{"status":"success","data":{"resultType":"matrix","result":[{"values":[[1,"x"]]}]}}"#,
                "is not a number",
            ),
        ] {
            let error = parse_matrix(body.as_bytes(), range(0, 10_000), None).expect_err(body);
            assert!(error.contains(reason), "{error}");
        }
        let names =
            |more: &str| parse_names(format!(r#"{{"status":"success"{more},"data":["a"]}}"#).as_bytes());
        assert_eq!(names(""), Ok(vec!["a".to_owned()]));
        assert!(names(r#","isPartial":true"#).is_err() && names(r#","warnings":["w"]"#).is_err());
        assert!(parse_one(br#"{"status":"success","data":{"resultType":"vector","result":[1]}}"#).is_ok());
        assert!(parse_one(b"<html>").is_err());
    }
}
