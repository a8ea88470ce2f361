//! Series descriptions, `name{label="value"} 1 2+3x4 _ stale`, and lines of start timestamps.

pub(crate) use promlet::rules::unit_test::series::{
    DescribedSeries as SeriesLine, SeriesItem as Item, number, parse, unquote,
};

/// Parses the items of a line of start timestamps: `_`, `_x3`, `-30s`, `0x2`, `-30s-1mx2`.
pub(crate) fn starts(text: &str) -> Result<Vec<Option<i64>>, String> {
    let mut starts = Vec::new();
    for item in text.split([' ', '\t']).filter(|item| !item.is_empty()) {
        let bad = || format!("not a start time: {item:?}");
        let (what, times) = match item.rsplit_once('x') {
            Some((what, times)) => (what, Some(times.parse::<usize>().map_err(|_| bad())?)),
            None => (item, None),
        };
        if what == "_" {
            starts.extend(std::iter::repeat_n(None, times.unwrap_or(1)));
            continue;
        }
        let sign = what.char_indices().skip(1).find(|(_, c)| "+-".contains(*c)).map(|(at, _)| at);
        let (first, step) = what.split_at(sign.unwrap_or(what.len()));
        let mut offset = signed_duration(first).ok_or_else(bad)?;
        let step = if step.is_empty() { 0 } else { signed_duration(step).ok_or_else(bad)? };
        for _ in 0..=times.unwrap_or(0) {
            starts.push(Some(offset));
            offset += step;
        }
    }
    Ok(starts)
}

/// Parses a duration such as `-30s` as milliseconds; zero may have no unit.
fn signed_duration(text: &str) -> Option<i64> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'-' => (-1, text.get(1..)?),
        b'+' => (1, text.get(1..)?),
        _ => (1, text),
    };
    if rest == "0" { Some(0) } else { promlet::model::parse_duration(rest).ok().map(|ms| sign * ms) }
}
