//! Compares two responses of Prometheus' query API.
//!
//! The known differences between Prometheus 3.5 and promlet follow. Queries that show them are not
//! generated, or the difference is tolerated.
//!
//! * Prometheus 3.14 and promlet agree, 3.5 differs: an error about duplicate series names them in
//!   order; annotations name no metric if none is known; range queries warn about `sort`;
//!   `mad_over_time` of NaN; `info` passes info series through, and keeps the mark that a name is
//!   to be removed; histograms are added with compensated sums, their rates are limited at zero,
//!   and their changes ignore empty buckets of a layout; names that are removed at the end may make
//!   labels equal at different steps; pairs that a comparison drops count as matched; a text in
//!   parentheses; functions that 3.5 lacks; an operator after a computed offset does not belong to
//!   the offset.
//! * A defect of 3.5: a function that returns a histogram of its window unchanged returns memory
//!   that is still written to. Empty buckets, and buckets that infinity and NaN fill, depend on how
//!   samples lie in chunks.
//! * Only promlet: the calendar of NaN, infinities and numbers beyond 2^63 is NaN (in Prometheus it
//!   depends on the processor); wrong factors of `double_exponential_smoothing` are an error only
//!   if floats are smoothed (in Prometheus also if all samples are histograms); which of equal
//!   values `topk` keeps; an operator reports every pair of types that it does not accept, and
//!   `quantile` every parameter (in Prometheus only the last one of a step or query); counts and
//!   sums of added histograms warn about conflicting resets whether or not their buckets are used;
//!   a comparison keeps the mark that a name is to be removed at the end; `timestamp` of a selector
//!   with both `@` and an offset returns the times of the selected samples (Prometheus drops the
//!   offset once they are read); which of several errors is reported.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

/// The response of a server to a query.
#[derive(Clone, Debug)]
pub(crate) struct QueryResponse {
    pub(crate) status: u16,
    pub(crate) body: Json,
}

/// How close numbers must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exactness {
    /// The same text.
    Bits,
    /// Relative 1e-6: the last bits depend on a library, or on the order of additions.
    Library,
    /// Any number is accepted, because 3.5 computes it differently.
    Shape,
}

/// The promised order of an instant query's series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Nothing,
    /// No order, and names may be present or absent: 3.5 sometimes forgets which are to be removed
    /// at the end.
    NothingNorNames,
    Values,
    Labels,
}

/// Returns a description of the first difference, if there is one.
pub(crate) fn difference(
    theirs: &QueryResponse,
    ours: &QueryResponse,
    exactness: Exactness,
    order: Order,
) -> Option<String> {
    let kind = |response: &QueryResponse| response.body["errorType"].as_str().unwrap_or("none").to_owned();
    let names_removed = order == Order::NothingNorNames
        && error_text(theirs) == "vector cannot contain metrics with the same labelset";
    if names_removed && ours.status == 200 {
        return None;
    }
    if known_outcome(theirs, ours) {
        return None;
    }
    if theirs.status != ours.status || kind(theirs) != kind(ours) {
        let render = |response: &QueryResponse| {
            format!("{} {} {}", response.status, kind(response), response.body["error"])
        };
        return Some(format!("outcome: {} against {}", render(theirs), render(ours)));
    }
    if theirs.status != 200 {
        let (theirs, ours) = (error_text(theirs), error_text(ours));
        return (theirs != ours).then(|| format!("error text: {theirs} against {ours}"));
    }
    let (their_data, our_data) = (&theirs.body["data"], &ours.body["data"]);
    if their_data["resultType"] != our_data["resultType"] {
        return Some(format!("type: {} against {}", their_data["resultType"], our_data["resultType"]));
    }
    values(&their_data["result"], &our_data["result"], exactness, order)
        .or_else(|| notes("warnings", &theirs.body, &ours.body))
        .or_else(|| notes("infos", &theirs.body, &ours.body))
}

/// Returns whether one response is a result and the other an error for a known reason.
fn known_outcome(theirs: &QueryResponse, ours: &QueryResponse) -> bool {
    // In 3.5, a comparison that drops all pairs but one does not match many with one, so evaluation
    // continues, possibly to duplicates at a later step.
    let continues = theirs.status == 200 || error_text(theirs).starts_with("found duplicate series");
    let dropped = continues && error_text(ours).starts_with("multiple matches for labels");
    // Of several errors at different steps, 3.5 reports that of the first step, promlet that of the
    // first group.
    let reports_duplicates = |response: &QueryResponse| {
        ["found duplicate series", "multiple matches for labels"]
            .iter()
            .any(|text| error_text(response).starts_with(text))
    };
    // An error since 3.14.
    let no_number = theirs.status == 200 && error_text(ours) == "Parameter value is NaN";
    let dropped = dropped || no_number || reports_duplicates(theirs) && reports_duplicates(ours);
    // 3.5 reports a text in parentheses as an internal error.
    dropped || error_text(theirs).starts_with("unexpected result in StepInvariantExpr")
}

/// Returns the error without the names of the duplicate series: these are the first ones found, and
/// 3.14 orders them.
fn error_text(response: &QueryResponse) -> &str {
    let text = response.body["error"].as_str().unwrap_or_default();
    let named = text.starts_with("found duplicate series").then(|| text.find(" for the match group"));
    text.get(..named.flatten().unwrap_or(text.len())).unwrap_or_default()
}

/// Compares annotations as sets of texts. If there are more than ten, only some are reported, so
/// the sets may differ.
fn notes(kind: &str, theirs: &Json, ours: &Json) -> Option<String> {
    let all = |response: &Json| -> BTreeSet<String> {
        let texts = response[kind].as_array().into_iter().flatten().filter_map(Json::as_str);
        texts.filter(|text| !newer(text)).map(comparable).collect()
    };
    let (theirs, mut ours) = (all(theirs), all(ours));
    ours.retain(|text| theirs.contains(text) || !only_promlet_reports(text));
    if theirs.iter().chain(&ours).any(|text| text.contains("omitted")) {
        return None;
    }
    let only = |a: &BTreeSet<String>, b: &BTreeSet<String>| a.difference(b).cloned().collect::<Vec<_>>();
    (theirs != ours).then(|| {
        format!("{kind}: only theirs {:?}, only ours {:?}", only(&theirs, &ours), only(&ours, &theirs))
    })
}

fn only_promlet_reports(text: &str) -> bool {
    text.contains("incompatible sample types encountered for binary operator")
        || text.contains("conflicting counter resets during histogram aggregation")
        || text.contains("quantile value should be between 0 and 1")
}

/// Reduces an annotation to the part that both versions share. 3.14 omits an empty metric name, and
/// adds which buckets were corrected, when, and by how much.
pub(crate) fn comparable(text: &str) -> String {
    let text = text.replace(" for metric name \"\"", "");
    match (text.split_once(", from buckets "), text.rfind(" (")) {
        (Some((before, _)), Some(position)) => format!("{before}{}", &text[position..]),
        _ => text,
    }
}

/// Annotations of 3.14 that 3.5 does not have.
fn newer(text: &str) -> bool {
    text.contains("sort is ineffective for range queries")
}

fn values(theirs: &Json, ours: &Json, exactness: Exactness, order: Order) -> Option<String> {
    let (Some(their_list), Some(our_list)) = (theirs.as_array(), ours.as_array()) else {
        return Some(format!("no list: {theirs} against {ours}"));
    };
    if their_list.first().is_none_or(|first| first.is_object())
        && our_list.first().is_none_or(|first| first.is_object())
    {
        return series(their_list, our_list, exactness, order);
    }
    // The value is a scalar or a text.
    same_point(theirs, ours, exactness).err().map(|what| format!("scalar: {what}"))
}

fn series(theirs: &[Json], ours: &[Json], exactness: Exactness, order: Order) -> Option<String> {
    let labels = |list: &[Json]| list.iter().map(|one| one["metric"].to_string()).collect::<Vec<_>>();
    let (their_labels, our_labels) = (labels(theirs), labels(ours));
    let values = |list: &[Json]| list.iter().map(|one| one["value"][1].clone()).collect::<Vec<_>>();
    let (their_values, our_values) = (values(theirs), values(ours));
    match order {
        Order::Values if their_values != our_values => {
            return Some(format!("order: {their_values:?} against {our_values:?}"));
        }
        Order::Labels if their_labels != our_labels => {
            return Some(format!("order: {their_labels:?} against {our_labels:?}"));
        }
        _ => {}
    }
    let (mut theirs, mut ours) = (by_labels(theirs), by_labels(ours));
    if order == Order::NothingNorNames && theirs.keys().ne(ours.keys()) {
        (theirs, ours) = (without_names(theirs), without_names(ours));
    }
    let count = |(labels, list): (&String, &Vec<Json>)| format!("{labels} x{}", list.len());
    let (their_counts, our_counts): (Vec<_>, Vec<_>) =
        (theirs.iter().map(count).collect(), ours.iter().map(count).collect());
    if their_counts != our_counts {
        let only = |a: &[String], b: &[String]| -> Vec<String> {
            a.iter().filter(|one| !b.contains(one)).cloned().collect()
        };
        return Some(format!(
            "series: only theirs {:?}, only ours {:?}",
            only(&their_counts, &our_counts),
            only(&our_counts, &their_counts)
        ));
    }
    theirs.iter().find_map(|(labels, list)| {
        let mut left: Vec<&Json> = ours[labels].iter().collect();
        list.iter().find_map(|one| {
            let found: Vec<Option<String>> =
                left.iter().map(|other| points_differ(labels, one, other, exactness)).collect();
            match found.iter().position(Option::is_none) {
                Some(position) => {
                    left.remove(position);
                    None
                }
                None => found.into_iter().next().flatten(),
            }
        })
    })
}

/// Returns where the points of two series with these labels differ, if they do.
fn points_differ(labels: &str, one: &Json, other: &Json, exactness: Exactness) -> Option<String> {
    ["value", "values", "histogram", "histograms"].iter().find_map(|key| {
        let (a, b) = (&one[*key], &other[*key]);
        if a == b {
            return None;
        }
        let points = |json: &Json, many: bool| -> Vec<Json> {
            match json {
                Json::Array(points) if many => points.clone(),
                Json::Null => Vec::new(),
                point => vec![point.clone()],
            }
        };
        let (a, b) = (points(a, key.ends_with('s')), points(b, key.ends_with('s')));
        let times = |points: &[Json]| points.iter().map(|point| point[0].to_string()).collect::<Vec<_>>();
        if times(&a) != times(&b) {
            return Some(format!("{key} times of {labels}: {:?} against {:?}", times(&a), times(&b)));
        }
        let wrong = a.iter().zip(&b).find_map(|(a, b)| same_point(a, b, exactness).err());
        wrong.map(|what| format!("{key} of {labels}: {what}"))
    })
}

/// Groups series by the text of their labels; a group has several series if only the name differed.
fn by_labels(list: impl IntoIterator<Item = impl std::borrow::Borrow<Json>>) -> BTreeMap<String, Vec<Json>> {
    let mut series: BTreeMap<String, Vec<Json>> = BTreeMap::new();
    for one in list {
        let one = one.borrow();
        series.entry(one["metric"].to_string()).or_default().push(one.clone());
    }
    series
}

/// Groups series by their labels without the name.
fn without_names(series: BTreeMap<String, Vec<Json>>) -> BTreeMap<String, Vec<Json>> {
    by_labels(series.into_values().flatten().map(|mut one| {
        if let Some(labels) = one["metric"].as_object_mut() {
            labels.remove("__name__");
        }
        one
    }))
}

fn same_point(theirs: &Json, ours: &Json, exactness: Exactness) -> Result<(), String> {
    if theirs[0] != ours[0] {
        return Err(format!("time {} against {}", theirs[0], ours[0]));
    }
    same(&theirs[1], &ours[1], exactness).map_err(|what| format!("at {}: {what}", theirs[0]))
}

fn same(theirs: &Json, ours: &Json, exactness: Exactness) -> Result<(), String> {
    let differ = || Err(format!("{theirs} against {ours}"));
    match (theirs, ours) {
        (Json::String(a), Json::String(b)) => {
            if a == b || near(a, b, exactness) {
                Ok(())
            } else {
                differ()
            }
        }
        (Json::Array(_), Json::Array(_)) | (Json::Object(_), Json::Object(_))
            if exactness == Exactness::Shape =>
        {
            Ok(())
        }
        (Json::Array(a), Json::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).try_for_each(|(a, b)| same(a, b, exactness)).or_else(|_| differ())
        }
        (Json::Object(a), Json::Object(b)) if a.len() == b.len() => a
            .iter()
            .try_for_each(|(key, a)| same(a, b.get(key).unwrap_or(&Json::Null), exactness))
            .or_else(|_| differ()),
        (a, b) if a == b => Ok(()),
        _ => differ(),
    }
}

fn near(a: &str, b: &str, exactness: Exactness) -> bool {
    let tolerance = match exactness {
        Exactness::Bits => return false,
        // The tolerance of upstream's own scripts.
        Exactness::Library => 1e-6,
        Exactness::Shape => return true,
    };
    let numbers = (a.parse::<f64>(), b.parse::<f64>());
    matches!(numbers, (Ok(a), Ok(b)) if (a - b).abs() <= tolerance * a.abs().max(b.abs()))
}
