//! Tests of templates: a table of expansions that promtool 3.5.3 makes, limits, and a property.

mod limits;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::model::{BucketSpan, CounterReset, Histogram, HistogramCounts, HistogramShape, Labels};
use crate::promql::VectorSample;

/// The answers to the queries of the table.
pub(super) struct FixedQueries;

fn sample(labels: &[(&str, &str)], value: f64) -> VectorSample {
    let labels = Labels::from_pairs(labels.iter().copied());
    VectorSample { labels, at: Timestamp::from_ms(0), value, histogram: None }
}

fn histogram_sample() -> VectorSample {
    let positive = vec![BucketSpan { offset: 0, length: 2 }];
    let shape = HistogramShape::new(0, 0.0, Vec::new(), positive, Vec::new()).expect("valid");
    let counts = HistogramCounts::Float { count: 3.0, zero: 0.0, buckets: [1.0, 2.0].into() };
    let stored = Histogram::new(Arc::new(shape), CounterReset::Unknown, 10.0, counts).expect("valid");
    let histogram = Some(Arc::new(FloatHistogram::from(&stored)));
    VectorSample { histogram, ..sample(&[("__name__", "hist")], f64::NAN) }
}

impl TemplateQuery for FixedQueries {
    fn query(&self, expr: &str) -> Result<Vec<VectorSample>, String> {
        let metric =
            |instance: &str, value: f64| sample(&[("__name__", "metric"), ("instance", instance)], value);
        match expr {
            "metric" => Ok(vec![metric("b", 21.0), metric("a", 11.0)]),
            "metric{instance='a'}" => Ok(vec![metric("a", 11.0)]),
            "metric{instance='b'}" => Ok(vec![metric("b", 21.0)]),
            "hist" => Ok(vec![histogram_sample()]),
            "missing" => Ok(Vec::new()),
            _ => Err("1:4: parse error: unexpected end of input".into()),
        }
    }
}

pub(super) fn data() -> TemplateData {
    let map = |pairs: &[(&str, &str)]| -> Arc<BTreeMap<String, String>> {
        Arc::new(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    };
    TemplateData {
        name: "__alert_A".into(),
        labels: map(&[("__name__", "src"), ("instance", "web-1:9100"), ("job", "api")]),
        external_labels: map(&[("cluster", "eu")]),
        external_url: "https://prom.example/base".into(),
        value: 1.5,
        histogram: None,
    }
}

/// Expands a template at 2012-11-24T11:14:12Z.
pub(super) fn expanded(text: &str) -> String {
    match Template::parse(text) {
        Ok(template) => {
            template.expand_or_error(&data(), &FixedQueries, Timestamp::from_ms(1_353_755_652_000))
        }
        Err(error) => error.annotation("__alert_A"),
    }
}

#[test]
fn templates_expand_to_the_same_texts_as_in_prometheus() {
    let mut wrong = Vec::new();
    for line in include_str!("expansions.jsonl").lines() {
        let [template, expected]: [String; 2] = serde_json::from_str(line).expect("two texts");
        let found = expanded(&template);
        if found != expected {
            wrong.push(format!("{template}\n  expected {expected}\n  found    {found}"));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
