//! The layout of a body: where the series of its lines end, for a reader that knows the series from
//! an earlier body and needs only the values.

use super::families::CREATED_SUFFIX;
use super::line::LineCursor;
use super::{Format, lines};
use crate::ingest::number;
use crate::ingest::pairs::LabelPairs;
use crate::model::Timestamp;

/// Returns the position in the body after the series of each line with a sample, ascending. `None`
/// if a line is not valid. Lines of OpenMetrics whose name ends in `_created` are left out.
pub fn series_ends(body: &[u8], format: Format) -> Option<Vec<usize>> {
    let mut rest = lines::strip_bom(body);
    let (mut ends, mut pairs) = (Vec::new(), LabelPairs::default());
    loop {
        let start = body.len().saturating_sub(rest.len());
        let Some((line, _)) = lines::next(&mut rest) else { return Some(ends) };
        let line = std::str::from_utf8(line).ok()?;
        let mut cursor = LineCursor::new(line, 0);
        cursor.skip_blanks();
        if cursor.rest().is_empty() || cursor.rest().starts_with('#') {
            continue;
        }
        pairs.clear();
        cursor.series(&mut pairs).ok()?;
        if format == Format::Prometheus || !pairs.metric_name().ends_with(CREATED_SUFFIX) {
            ends.push(start.saturating_add(cursor.at()));
        }
    }
}

/// Removes a value and an optional time from the beginning of `rest`, which is a body after the
/// series of a line, up to the end of that line. `None` if they are not valid, or if an exemplar
/// follows.
#[inline]
pub fn take_value(rest: &mut &[u8], format: Format) -> Option<(f64, Option<Timestamp>)> {
    // Nearly all lines end like this.
    if let [b' ', value @ ..] = *rest
        && let Some((number, length)) = number::take_short(value)
        && let Some(after @ [b'\n', ..]) = value.get(length..)
    {
        *rest = after;
        return Some((number, None));
    }
    let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    let (line, _) = rest.split_at_checked(length)?;
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut exemplar = LabelPairs::default();
    let mut cursor = LineCursor::new(std::str::from_utf8(line).ok()?, 0);
    let tail = cursor.sample_tail(format, &mut exemplar).ok()?;
    *rest = rest.get(line.len()..)?;
    tail.exemplar.is_none().then_some((tail.value, tail.at.map(Timestamp::from_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_follow_the_ends_of_their_series() {
        let body = b"\xef\xbb\xbf# HELP a b\na 1\r\n\n {\"b c\",d=\"}\\\" 2\"} 2 7\nx_created{} 3";
        let ends = series_ends(body, Format::Prometheus).expect("valid");
        let taken = ends.iter().map(|end| {
            let mut rest = &body[*end..];
            let (value, at) = take_value(&mut rest, Format::Prometheus).expect("valid");
            (value, at.map(Timestamp::as_ms), rest.len())
        });
        let taken: Vec<_> = taken.collect();
        assert_eq!(taken, [(1.0, None, 39), (2.0, Some(7), 14), (3.0, None, 0)]);
        assert_eq!(series_ends(body, Format::OpenMetrics).map(|ends| ends.len()), Some(2));
        assert_eq!(series_ends(b"a{ 1\n", Format::Prometheus), None);
    }

    #[test]
    fn short_values_are_taken_as_long_ones_are() {
        for value in
            ["0", "-1.5", "1e+09", "1.7560473e+07", "5.", ".5", "0.1e-5", "1234567890123456", "NaN", "+1"]
        {
            let take = |tail: &str| {
                let text = format!(" {value}{tail}");
                let mut rest = text.as_bytes();
                let (found, at) = take_value(&mut rest, Format::Prometheus).expect("valid");
                (found.to_bits(), at, rest.len())
            };
            // Blanks and a carriage return before the end of the line lead to the other parser.
            assert_eq!(take("\nup 1\n"), take(" \nup 1\n"), "{value}");
            assert_eq!(take("\nup 1\n"), {
                let (bits, at, rest) = take("\r\nup 1\n");
                (bits, at, rest - 1)
            });
            assert_eq!(take("").0, take(" ").0, "{value}");
        }
        for wrong in [" 1e\n", " -\n", " .\n", " 1.2.3\n", " 1e1e1\n", " 1x\n", "\n", " \n"] {
            assert_eq!(take_value(&mut wrong.as_bytes(), Format::Prometheus), None, "{wrong:?}");
        }
    }

    #[test]
    fn wrong_values_and_exemplars_are_refused() {
        for text in ["", "x", "1 x", "1 2 3", "1 # {} 2", "{} 1"] {
            assert_eq!(take_value(&mut text.as_bytes(), Format::OpenMetrics), None, "{text}");
        }
    }
}
