//! Whether two answers of Prometheus' API are one and the same.
//!
//! What is known to differ between Prometheus 3.5 and us, and why; queries that show it are not made, or it is passed over:
//!
//! * 3.14's and ours: an error about duplicates names them in order; annotations name no metric where none is known; a
//!   warning about `sort` in range queries; `mad_over_time` of NaN; `info` passes series through that tell something
//!   themselves and keeps the mark that a name is to be removed; histograms are added up with what rounding took from
//!   them, their rates stop at zero, their changes do not count empty buckets that a layout has; names that are removed at
//!   the end may make labels equal at different steps; pairs that a comparison drops are matched as well; a text in
//!   parentheses; functions that 3.5 lacks; an operator after a computed offset is none of the offset's.
//! * 3.5's memory: what a window of native histograms answers as it is, is given back while it is written. Which empty
//!   buckets it has, which infinity and NaN fill, is a matter of how samples lie in chunks.
//! * Ours alone: the calendar of NaN, infinities and numbers beyond 2^63 is NaN here, and what the processor makes of such
//!   a number there; wrong factors of `double_exponential_smoothing` are an error where floats are smoothed, there even
//!   where all samples are histograms; which of equal values `topk` keeps; an operator tells of every pair of types that it
//!   cannot take, and `quantile` of every parameter, there of a step's or query's last one; counts and sums of histograms
//!   that are added up warn of conflicting resets whether their buckets are looked at or not; a comparison keeps the mark
//!   that a name is to be removed at the end; `timestamp` of a selector with both `@` and an offset tells of the samples
//!   that it selects, there the offset is forgotten once they are read; of several errors, which is told.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

/// What a server said to a query.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) status: u16,
    pub(crate) body: Json,
}

/// How near numbers must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exactness {
    /// The same text.
    Bits,
    /// Relative 1e-6: the last bits are a library's, or those of sums in another order.
    Library,
    /// Any number will do: the query has something that 3.5 does otherwise.
    Shape,
}

/// What about the order of an instant query's series is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Nothing,
    /// And names may be there or not: 3.5 forgets in places which are to be removed at the end.
    NothingNorNames,
    Values,
    Labels,
}

/// Says what is different, if anything is.
pub(crate) fn difference(theirs: &Said, ours: &Said, exactness: Exactness, order: Order) -> Option<String> {
    let kind = |said: &Said| said.body["errorType"].as_str().unwrap_or("none").to_owned();
    let names_removed = order == Order::NothingNorNames
        && error_text(theirs) == "vector cannot contain metrics with the same labelset";
    if names_removed && ours.status == 200 {
        return None;
    }
    if known_outcome(theirs, ours) {
        return None;
    }
    if theirs.status != ours.status || kind(theirs) != kind(ours) {
        let told = |said: &Said| format!("{} {} {}", said.status, kind(said), said.body["error"]);
        return Some(format!("outcome: {} against {}", told(theirs), told(ours)));
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

/// Whether one has an answer and the other an error for a reason that is known.
fn known_outcome(theirs: &Said, ours: &Said) -> bool {
    // A comparison that drops all pairs but one is no match of many with one in 3.5: it goes on, if only to a later
    // step's duplicates.
    let goes_on = theirs.status == 200 || error_text(theirs).starts_with("found duplicate series");
    let dropped = goes_on && error_text(ours).starts_with("multiple matches for labels");
    // Of several things that are wrong at different steps, 3.5 tells that of the first step, we that of the first group.
    let of_many = |said: &Said| {
        ["found duplicate series", "multiple matches for labels"]
            .iter()
            .any(|text| error_text(said).starts_with(text))
    };
    // Since 3.14.
    let no_number = theirs.status == 200 && error_text(ours) == "Parameter value is NaN";
    let dropped = dropped || no_number || of_many(theirs) && of_many(ours);
    // A text in parentheses is taken for a bug by 3.5.
    dropped || error_text(theirs).starts_with("unexpected result in StepInvariantExpr")
}

/// The error, without which series are duplicates of each other: the first that are met, by 3.14 named in order.
fn error_text(said: &Said) -> &str {
    let text = said.body["error"].as_str().unwrap_or_default();
    let named = text.starts_with("found duplicate series").then(|| text.find(" for the match group"));
    text.get(..named.flatten().unwrap_or(text.len())).unwrap_or_default()
}

/// Annotations: the same texts, in any order. Of more than ten only some are told.
fn notes(kind: &str, theirs: &Json, ours: &Json) -> Option<String> {
    let all = |said: &Json| -> BTreeSet<String> {
        let texts = said[kind].as_array().into_iter().flatten().filter_map(Json::as_str);
        texts.filter(|text| !newer(text)).map(comparable).collect()
    };
    let (theirs, mut ours) = (all(theirs), all(ours));
    ours.retain(|text| theirs.contains(text) || !told_by_us_alone(text));
    if theirs.iter().chain(&ours).any(|text| text.contains("omitted")) {
        return None;
    }
    let only = |a: &BTreeSet<String>, b: &BTreeSet<String>| a.difference(b).cloned().collect::<Vec<_>>();
    (theirs != ours).then(|| {
        format!("{kind}: theirs alone {:?}, ours alone {:?}", only(&theirs, &ours), only(&ours, &theirs))
    })
}

fn told_by_us_alone(text: &str) -> bool {
    text.contains("incompatible sample types encountered for binary operator")
        || text.contains("conflicting counter resets during histogram aggregation")
        || text.contains("quantile value should be between 0 and 1")
}

/// A remark as both versions tell it: 3.14 tells no name where none is known, and which buckets were lifted, when, and by
/// how much.
pub(crate) fn comparable(text: &str) -> String {
    let text = text.replace(" for metric name \"\"", "");
    match (text.split_once(", from buckets "), text.rfind(" (")) {
        (Some((before, _)), Some(place)) => format!("{before}{}", &text[place..]),
        _ => text,
    }
}

/// Annotations that 3.14 has and 3.5 has not.
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
    // A scalar or a text.
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
            "series: theirs alone {:?}, ours alone {:?}",
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
                Some(place) => {
                    left.remove(place);
                    None
                }
                None => found.into_iter().next().flatten(),
            }
        })
    })
}

/// Says where the points of two series with these labels are different, if they are anywhere.
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

/// Series by the text of their labels: more than one where only a name told them apart.
fn by_labels(list: impl IntoIterator<Item = impl std::borrow::Borrow<Json>>) -> BTreeMap<String, Vec<Json>> {
    let mut series: BTreeMap<String, Vec<Json>> = BTreeMap::new();
    for one in list {
        let one = one.borrow();
        series.entry(one["metric"].to_string()).or_default().push(one.clone());
    }
    series
}

/// Series known by their labels without the name.
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
        // As upstream's own scripts have it.
        Exactness::Library => 1e-6,
        Exactness::Shape => return true,
    };
    let numbers = (a.parse::<f64>(), b.parse::<f64>());
    matches!(numbers, (Ok(a), Ok(b)) if (a - b).abs() <= tolerance * a.abs().max(b.abs()))
}
