//! The values of templates, and the types that messages name.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::TemplateData;
use super::times::{TemplateDuration, TemplateTime};
use crate::promql::{FloatHistogram, VectorSample};

/// The most levels of arguments (`args`) inside each other.
const ARGS_DEPTH_MAX: usize = 16;

/// A value of a template.
#[derive(Clone, Debug)]
pub(super) enum TemplateValue {
    /// No value: a missing field, or `nil`.
    Missing,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Arc<str>),
    /// A map of texts: labels.
    Labels(Arc<BTreeMap<String, String>>),
    /// The result of `args`.
    Args(Arc<TemplateArgs>),
    /// The data of the template.
    Root(Arc<TemplateData>),
    /// A sample of a query.
    Sample(Arc<TemplateSample>),
    /// The result of a query.
    Samples(Arc<[Arc<TemplateSample>]>),
    Histogram(Arc<FloatHistogram>),
    Time(TemplateTime),
    Duration(TemplateDuration),
}

/// Named arguments of a template.
#[derive(Debug)]
pub(super) struct TemplateArgs {
    pub(super) values: BTreeMap<String, TemplateValue>,
    depth: usize,
}

/// A sample of a query.
#[derive(Debug)]
pub(super) struct TemplateSample {
    pub(super) labels: Arc<BTreeMap<String, String>>,
    pub(super) value: TemplateValue,
}

impl TemplateSample {
    /// Returns the bytes of the labels, with an estimate of the map that holds them.
    pub(super) fn bytes(&self) -> usize {
        /// The bytes of an entry of a map without its texts.
        const ENTRY_BYTES: usize = 64;
        self.labels.iter().map(|(name, value)| name.len() + value.len() + ENTRY_BYTES).sum()
    }
}

impl From<VectorSample> for TemplateSample {
    fn from(sample: VectorSample) -> TemplateSample {
        let labels = sample.labels.iter().map(|label| (label.name.to_owned(), label.value.to_owned()));
        let value = match sample.histogram {
            Some(histogram) => TemplateValue::Histogram(histogram),
            None => TemplateValue::Float(sample.value),
        };
        TemplateSample { labels: Arc::new(labels.collect()), value }
    }
}

impl TemplateArgs {
    /// Makes `arg0`, `arg1`, ... of the values.
    pub(super) fn new(values: &[TemplateValue]) -> Result<TemplateArgs, String> {
        let depth = values.iter().map(|value| match value {
            TemplateValue::Args(args) => args.depth,
            _ => 0,
        });
        let depth = depth.max().unwrap_or_default() + 1;
        if depth > ARGS_DEPTH_MAX {
            return Err(format!("arguments are nested more than {ARGS_DEPTH_MAX} levels deep"));
        }
        let named = values.iter().enumerate().map(|(at, value)| (format!("arg{at}"), value.clone()));
        Ok(TemplateArgs { values: named.collect(), depth })
    }
}

impl TemplateValue {
    /// Returns the value as a text.
    pub(super) fn text(text: impl Into<Arc<str>>) -> TemplateValue {
        TemplateValue::Text(text.into())
    }

    /// Returns the name of the value's type in Go.
    pub(super) const fn type_name(&self) -> &'static str {
        match self {
            TemplateValue::Missing => "<nil>",
            TemplateValue::Bool(_) => "bool",
            TemplateValue::Int(_) => "int",
            TemplateValue::Float(_) => "float64",
            TemplateValue::Text(_) => "string",
            TemplateValue::Labels(_) => "map[string]string",
            TemplateValue::Args(_) => "map[string]interface {}",
            TemplateValue::Root(_) => {
                "struct { Labels map[string]string; ExternalLabels map[string]string; \
                 ExternalURL string; Value interface {} }"
            }
            TemplateValue::Sample(_) => "*template.sample",
            TemplateValue::Samples(_) => "template.queryResult",
            TemplateValue::Histogram(_) => "*histogram.FloatHistogram",
            TemplateValue::Time(_) => "*time.Time",
            TemplateValue::Duration(_) => "*time.Duration",
        }
    }

    /// Returns the bytes that a function reads at least if it gets the value.
    pub(super) fn bytes(&self) -> usize {
        match self {
            TemplateValue::Text(text) => text.len(),
            TemplateValue::Samples(samples) => samples.len().saturating_mul(size_of::<usize>()),
            _ => 0,
        }
    }

    /// Returns whether `if` takes the value for true: anything but zero, empty and missing.
    pub(super) fn is_true(&self) -> bool {
        match self {
            TemplateValue::Missing => false,
            TemplateValue::Bool(value) => *value,
            TemplateValue::Int(value) => *value != 0,
            TemplateValue::Float(value) => *value != 0.0,
            TemplateValue::Text(text) => !text.is_empty(),
            TemplateValue::Labels(labels) => !labels.is_empty(),
            TemplateValue::Args(args) => !args.values.is_empty(),
            TemplateValue::Samples(samples) => !samples.is_empty(),
            TemplateValue::Root(_)
            | TemplateValue::Sample(_)
            | TemplateValue::Histogram(_)
            | TemplateValue::Time(_)
            | TemplateValue::Duration(_) => true,
        }
    }

    /// Returns a field of a struct, or the value of a key of a map.
    ///
    /// # Errors
    /// The message for a value that has no such field.
    pub(super) fn field(&self, name: &str) -> Result<TemplateValue, String> {
        let found = match self {
            TemplateValue::Missing => Some(TemplateValue::Missing),
            TemplateValue::Labels(labels) => Some(label(labels, name)),
            TemplateValue::Args(args) => {
                Some(args.values.get(name).cloned().unwrap_or(TemplateValue::Missing))
            }
            TemplateValue::Root(data) => root_field(data, name),
            TemplateValue::Sample(sample) => match name {
                "Labels" => Some(TemplateValue::Labels(Arc::clone(&sample.labels))),
                "Value" => Some(sample.value.clone()),
                _ => None,
            },
            TemplateValue::Histogram(histogram) => match name {
                "Count" => Some(TemplateValue::Float(histogram.count())),
                "Sum" => Some(TemplateValue::Float(histogram.sum())),
                "ZeroCount" => Some(TemplateValue::Float(histogram.zero_count())),
                "ZeroThreshold" => Some(TemplateValue::Float(histogram.zero_threshold())),
                "Schema" => Some(TemplateValue::Int(i64::from(histogram.schema()))),
                _ => None,
            },
            _ => None,
        };
        found.ok_or_else(|| format!("can't evaluate field {name} in type {}", self.type_name()))
    }
}

/// Returns the value of a label; a missing one is the empty text.
pub(super) fn label(labels: &BTreeMap<String, String>, name: &str) -> TemplateValue {
    TemplateValue::text(labels.get(name).map_or("", String::as_str))
}

fn root_field(data: &TemplateData, name: &str) -> Option<TemplateValue> {
    Some(match name {
        "Labels" => TemplateValue::Labels(Arc::clone(&data.labels)),
        "ExternalLabels" => TemplateValue::Labels(Arc::clone(&data.external_labels)),
        "ExternalURL" => TemplateValue::Text(Arc::clone(&data.external_url)),
        "Value" => match &data.histogram {
            Some(histogram) => TemplateValue::Histogram(Arc::clone(histogram)),
            None => TemplateValue::Float(data.value),
        },
        _ => return None,
    })
}
