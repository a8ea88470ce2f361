//! The requests of Prometheus' HTTP API that answer a read.

use std::fmt::Write as _;

use crate::model::{Steps, TimeRange, Timestamp};
use crate::outbound::Bytes;

/// A read of a server. Texts already contain the matchers of the scope.
#[derive(Clone, Debug, PartialEq)]
pub enum UpstreamRead {
    /// The result of an expression.
    Query {
        /// The expression.
        expr: String,
        /// The evaluation times.
        steps: Steps,
        /// Whether the result is that of an instant query.
        instant: bool,
        /// The look-back in milliseconds; `None` leaves it to the server.
        lookback_ms: Option<i64>,
    },
    /// The label sets of series.
    Series {
        /// The selectors, at least one.
        selectors: Vec<String>,
        /// The time range.
        range: TimeRange,
        /// The most items, inclusive.
        limit: usize,
    },
    /// The names of labels.
    LabelNames {
        /// The selectors, as of `Series`.
        selectors: Vec<String>,
        /// The time range.
        range: TimeRange,
        /// The most items, inclusive.
        limit: usize,
    },
    /// The values of a label.
    LabelValues {
        /// The label.
        name: String,
        /// The selectors, as of `Series`.
        selectors: Vec<String>,
        /// The time range.
        range: TimeRange,
        /// The most items, inclusive.
        limit: usize,
    },
    /// The types and help texts of metrics.
    Metadata {
        /// The only metric, if there is one.
        metric: Option<String>,
    },
    /// Raw samples by remote read.
    RemoteRead {
        /// The body of the request.
        body: Bytes,
    },
    /// Raw samples by the query API.
    RawMatrix {
        /// A matrix selector.
        selector: String,
        /// The time at which it is evaluated.
        at: Timestamp,
    },
    /// The exemplars of the series that an expression selects.
    Exemplars {
        /// The expression.
        expr: String,
        /// The time range.
        range: TimeRange,
    },
}

/// A request: a path below the target's URL, and a form if it is posted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ApiRequest {
    pub(super) suffix: String,
    pub(super) form: Option<String>,
}

/// The parameters of a request, percent-encoded.
#[derive(Default)]
struct Form(String);

impl Form {
    fn add(&mut self, name: &str, value: &str) {
        if !self.0.is_empty() {
            self.0.push('&');
        }
        encode(name, &mut self.0);
        self.0.push('=');
        encode(value, &mut self.0);
    }

    fn add_range(&mut self, range: TimeRange) {
        // Some servers take a missing start for the last day.
        let start = if range.start == Timestamp::MIN { Timestamp::from_ms(0) } else { range.start };
        self.add("start", &seconds(start.as_ms()));
        if range.end != Timestamp::MAX {
            self.add("end", &seconds(range.end.as_ms()));
        }
    }

    fn add_listing(&mut self, selectors: &[String], range: TimeRange, limit: usize) {
        for selector in selectors {
            self.add("match[]", selector);
        }
        self.add_range(range);
        // One more than the limit shows that there are more.
        if limit < usize::MAX {
            self.add("limit", &(limit + 1).to_string());
        }
    }
}

/// Appends a text with every byte encoded that is not unreserved (RFC 3986).
fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

/// Returns milliseconds as seconds with as many decimals as needed.
fn seconds(ms: i64) -> String {
    let (sign, ms) = (if ms < 0 { "-" } else { "" }, ms.unsigned_abs());
    match ms % 1_000 {
        0 => format!("{sign}{}", ms / 1_000),
        rest => format!("{sign}{}.{rest:03}", ms / 1_000),
    }
}

/// Returns the name of a label in a path: as it is, or escaped as Prometheus 3 does it if it has
/// characters outside of the classic character set.
fn path_name(name: &str) -> String {
    let is_plain = |c: char| c == '_' || c.is_ascii_alphanumeric();
    if !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(is_plain) {
        return name.to_owned();
    }
    let mut escaped = "U__".to_owned();
    for character in name.chars() {
        match character {
            '_' => escaped.push_str("__"),
            plain if plain.is_ascii_alphanumeric() => escaped.push(plain),
            other => {
                // Writing to a String cannot fail.
                let _ = write!(escaped, "_{:x}_", u32::from(other));
            }
        }
    }
    escaped
}

impl UpstreamRead {
    /// Returns the request. A request that needs a complete answer forbids partial ones.
    pub(super) fn request(&self, is_whole: bool) -> ApiRequest {
        let mut form = Form::default();
        if is_whole {
            // The names of Thanos and of VictoriaMetrics.
            form.add("partial_response", "false");
            form.add("deny_partial_response", "1");
        }
        let posted = |path: &str, form: Form| ApiRequest { suffix: path.to_owned(), form: Some(form.0) };
        match self {
            UpstreamRead::Query { expr, steps, instant, lookback_ms } => {
                form.add("query", expr);
                if let Some(ms) = lookback_ms {
                    form.add("lookback_delta", &seconds(*ms));
                    // VictoriaMetrics' name.
                    form.add("max_lookback", &seconds(*ms));
                }
                // VictoriaMetrics moves the steps of queries that it may cache.
                form.add("nocache", "1");
                if *instant {
                    form.add("time", &seconds(steps.start().as_ms()));
                    return posted("/api/v1/query", form);
                }
                form.add("start", &seconds(steps.start().as_ms()));
                form.add("end", &seconds(steps.end().as_ms()));
                form.add("step", &seconds(steps.step_ms()));
                posted("/api/v1/query_range", form)
            }
            UpstreamRead::Series { selectors, range, limit } => {
                form.add_listing(selectors, *range, *limit);
                posted("/api/v1/series", form)
            }
            UpstreamRead::LabelNames { selectors, range, limit } => {
                form.add_listing(selectors, *range, *limit);
                posted("/api/v1/labels", form)
            }
            UpstreamRead::LabelValues { name, selectors, range, limit } => {
                form.add_listing(selectors, *range, *limit);
                let mut suffix = "/api/v1/label/".to_owned();
                encode(&path_name(name), &mut suffix);
                ApiRequest { suffix: format!("{suffix}/values?{}", form.0), form: None }
            }
            UpstreamRead::Metadata { metric } => {
                if let Some(metric) = metric {
                    form.add("metric", metric);
                }
                ApiRequest { suffix: format!("/api/v1/metadata?{}", form.0), form: None }
            }
            UpstreamRead::RemoteRead { .. } => ApiRequest { suffix: "/api/v1/read".to_owned(), form: None },
            UpstreamRead::RawMatrix { selector, at } => {
                form.add("query", selector);
                form.add("time", &seconds(at.as_ms()));
                posted("/api/v1/query", form)
            }
            UpstreamRead::Exemplars { expr, range } => {
                form.add("query", expr);
                form.add_range(*range);
                posted("/api/v1/query_exemplars", form)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_encoded_and_times_are_seconds() {
        let steps = |start, end, step| {
            Steps::new(Timestamp::from_ms(start), Timestamp::from_ms(end), step).expect("steps")
        };
        let query = |instant, steps| UpstreamRead::Query {
            expr: "a{b=\"&\u{e9}\"}".to_owned(),
            steps,
            instant,
            lookback_ms: None,
        };
        let sent = query(false, steps(1_500, 61_500, 500)).request(false);
        let text = "query=a%7Bb%3D%22%26%C3%A9%22%7D&nocache=1&start=1.500&end=61.500&step=0.500";
        assert_eq!((sent.suffix.as_str(), sent.form.as_deref()), ("/api/v1/query_range", Some(text)));
        let sent = query(true, Steps::once(Timestamp::from_ms(-1_001))).request(true);
        let form = sent.form.expect("a form");
        assert!(form.starts_with("partial_response=false&deny_partial_response=1&query="), "{form}");
        assert!(form.ends_with("&time=-1.001"), "{form}");
    }

    #[test]
    fn a_label_cannot_leave_its_place_in_the_path() {
        let of = |name: &str| {
            let name = name.to_owned();
            let (selectors, range) = (vec!["{a=\"b\"}".to_owned()], TimeRange::ALL);
            UpstreamRead::LabelValues { name, selectors, range, limit: 2 }.request(false).suffix
        };
        let query = "values?match%5B%5D=%7Ba%3D%22b%22%7D&start=0&limit=3";
        assert_eq!(of("job"), format!("/api/v1/label/job/{query}"));
        assert_eq!(of("../x?y"), format!("/api/v1/label/U___2e__2e__2f_x_3f_y/{query}"));
        assert_eq!(of("a.b_c"), format!("/api/v1/label/U__a_2e_b__c/{query}"));
    }
}
