//! Federation: the newest sample of each selected series in the Prometheus text format
//! (Prometheus, `web/federate.go`).
//!
//! As in Prometheus, a series without the label `instance` gets an empty one, and native histograms
//! are left out, because the text format has none. Names that the text format 0.0.4 does not know
//! are quoted if `Accept` has `escaping=allow-utf-8`; otherwise an underscore replaces each of
//! their other characters.

use std::collections::{BTreeMap, HashMap};

use axum::extract::{FromRequest as _, Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;

use super::in_parameter;
use crate::api::callers::Permission;
use crate::api::error::ApiResult;
use crate::api::orgs::query::ReadDeps;
use crate::api::orgs::query::body::BodyWriter;
use crate::api::orgs::query::request::ReadRequest;
use crate::api::orgs::query::response::QueryBody;
use crate::api::orgs::query::run::{EvalOptions, QueryRun};
use crate::api::prom_json;
use crate::model::{Labels, METRIC_NAME, Matcher, Sample, Steps, Timestamp, is_label_name, is_metric_name};
use crate::promql::syntax::tree::{DurationExpr, Expr, MatrixSelector};
use crate::promql::{Query, Value};

pub(super) async fn federate(State(deps): State<ReadDeps>, request: Request) -> ApiResult<Response> {
    let quotes_names = accepts_utf8_names(request.headers());
    let ReadRequest { query, params, .. } = ReadRequest::from_request(request, &deps).await?;
    let mut params = params;
    let texts = params.many(&["match[]"]);
    let now = deps.clock.now();
    let work = move |run: &mut QueryRun| {
        run.grant.require(Permission::SeriesOfResults)?;
        let selectors = run.selectors("match[]", &texts).map_err(in_parameter("match[]"))?;
        let mut found = BTreeMap::new();
        for matchers in selectors {
            newest_samples(run, matchers, now, &mut found)?;
        }
        let body = run.plain_body(|out| write(&found, quotes_names, out))?;
        Ok(QueryBody::whole(body, run.coding))
    };
    let mut response = deps.run(query, work).await?.into_response();
    let media = match quotes_names {
        true => "text/plain; version=1.0.0; charset=utf-8; escaping=allow-utf-8",
        false => "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
    };
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    Ok(response)
}

fn accepts_utf8_names(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.into_iter().any(|value| value.contains("escaping=allow-utf-8"))
}

/// Samples by the name of their metric and their labels.
type NewestSamples = BTreeMap<(String, Labels), Sample>;

/// Adds the newest sample of each series that has one at `now`. An instant selector returns the
/// series that are not stale, and their values; the samples of the lookback have the times.
fn newest_samples(
    run: &QueryRun,
    matchers: Vec<Matcher>,
    now: Timestamp,
    found: &mut NewestSamples,
) -> ApiResult<()> {
    let Expr::Vector(selector) = Expr::selector(matchers) else { return Ok(()) };
    let lookback_ms = run.options.promql.lookback_ms;
    let window =
        MatrixSelector { selector: selector.clone(), range: DurationExpr::Fixed(lookback_ms.max(1)) };
    let evaluated = |expr: Expr| {
        let text = expr.to_string().into();
        let query = Query { expr: expr.into(), text, steps: Steps::once(now), instant: true };
        run.evaluate(&query, EvalOptions { lookback_ms: None, nocache: true }).map(|result| result.value)
    };
    let Value::Vector(live) = evaluated(Expr::Vector(selector))? else { return Ok(()) };
    let Value::Matrix(samples) = evaluated(Expr::Matrix(Box::new(window)))? else { return Ok(()) };
    let newest = samples.iter().filter_map(|series| Some((&series.labels, series.samples.last()?)));
    let newest: HashMap<&Labels, &Sample> = newest.collect();
    for series in live {
        let name = series.labels.get(METRIC_NAME).map_or("", |name| &**name);
        if series.histogram.is_some() || name.is_empty() {
            continue;
        }
        let at = newest.get(&series.labels).map_or(now, |sample| sample.at);
        found.insert((name.to_owned(), series.labels.clone()), Sample { at, value: series.value });
    }
    Ok(())
}

fn write(found: &NewestSamples, quotes_names: bool, out: &mut BodyWriter<'_>) -> ApiResult<()> {
    let mut previous = "";
    for ((name, labels), sample) in found {
        if name != previous {
            out.write(|out| {
                out.extend_from_slice(b"# TYPE ");
                written_name(name, true, quotes_names, out);
                out.extend_from_slice(b" untyped\n");
            })?;
            previous = name;
        }
        out.write(|out| write_sample(name, labels, *sample, quotes_names, out))?;
    }
    Ok(())
}

fn write_sample(name: &str, labels: &Labels, sample: Sample, quotes_names: bool, out: &mut Vec<u8>) {
    let is_quoted = quotes_names && !is_classic(name, true);
    if !is_quoted {
        written_name(name, true, quotes_names, out);
    }
    out.push(b'{');
    let mut separator: &[u8] = b"";
    if is_quoted {
        written_name(name, true, quotes_names, out);
        separator = b",";
    }
    let has_instance = labels.get("instance").is_some();
    let instance = (!has_instance).then_some(("instance", ""));
    let mut all: Vec<(&str, &str)> =
        labels.iter().map(|label| (label.name, label.value)).chain(instance).collect();
    all.retain(|(name, _)| *name != METRIC_NAME);
    all.sort_unstable();
    for (name, value) in all {
        out.extend_from_slice(separator);
        separator = b",";
        written_name(name, false, quotes_names, out);
        out.extend_from_slice(b"=\"");
        escaped(value, out);
        out.push(b'"');
    }
    out.extend_from_slice(b"} ");
    prom_json::number(sample.value, out);
    out.extend_from_slice(format!(" {}\n", sample.at.as_ms()).as_bytes());
}

/// Returns whether the text format 0.0.4 can express a name; only metric names have colons.
fn is_classic(name: &str, is_metric: bool) -> bool {
    if is_metric { is_metric_name(name) } else { is_label_name(name) }
}

fn written_name(name: &str, is_metric: bool, quotes_names: bool, out: &mut Vec<u8>) {
    if is_classic(name, is_metric) {
        out.extend_from_slice(name.as_bytes());
    } else if quotes_names {
        out.push(b'"');
        escaped(name, out);
        out.push(b'"');
    } else {
        let fits = |at: usize, c: char| {
            c.is_ascii_alphabetic() || (is_metric && c == ':') || (at > 0 && c.is_ascii_digit())
        };
        let plain: String =
            name.chars().enumerate().map(|(at, c)| if fits(at, c) { c } else { '_' }).collect();
        out.extend_from_slice(plain.as_bytes());
    }
}

/// Appends a text with the escapes of the text format.
pub(in crate::api::orgs) fn escaped(text: &str, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        match byte {
            b'\\' => out.extend_from_slice(br"\\"),
            b'"' => out.extend_from_slice(br#"\""#),
            b'\n' => out.extend_from_slice(br"\n"),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(pairs: &[(&str, &str)], quotes_names: bool) -> String {
        let labels = Labels::from_pairs(pairs.iter().copied());
        let name = labels.get(METRIC_NAME).map_or("", |name| &**name).to_owned();
        let mut out = Vec::new();
        write_sample(
            &name,
            &labels,
            Sample { at: Timestamp::from_ms(1_500), value: 0.5 },
            quotes_names,
            &mut out,
        );
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn a_sample_has_its_time_an_instance_and_escaped_values() {
        let up = [("__name__", "up"), ("job", "a\"b\\c\nd")];
        assert_eq!(line(&up, false), "up{instance=\"\",job=\"a\\\"b\\\\c\\nd\"} 0.5 1500\n");
        let own = [("__name__", "up"), ("instance", "x")];
        assert_eq!(line(&own, false), "up{instance=\"x\"} 0.5 1500\n");
    }

    #[test]
    fn names_beyond_the_classic_format_are_quoted_or_replaced() {
        let dotted = [("__name__", "my.name"), ("a.b", "c"), ("instance", "x")];
        assert_eq!(line(&dotted, true), "{\"my.name\",\"a.b\"=\"c\",instance=\"x\"} 0.5 1500\n");
        assert_eq!(line(&dotted, false), "my_name{a_b=\"c\",instance=\"x\"} 0.5 1500\n");
    }
}
