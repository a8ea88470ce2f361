//! Decodes CSV: columns from the request and from a header, quotes, times, and errors.

use proptest::prelude::*;

use super::*;
use crate::ingest::text;
use crate::model::Labels;

const NOW: Timestamp = Timestamp::from_ms(1_700_000_000_000);

/// A sample: printed labels, milliseconds, value.
type CsvSample = (String, i64, f64);

fn decoded(body: &str, columns: &CsvColumns) -> Translated {
    decode(body.as_bytes(), columns, NOW, &DecodeLimits::default()).expect("within the limits")
}

fn rows(read: &Translated) -> Vec<CsvSample> {
    let batch = read.batch.batch();
    let mut rows = Vec::new();
    for series in &batch.series {
        let mut pairs = Vec::new();
        (batch.parse_labels)(series.raw_labels, &mut pairs).expect("labels");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        let labels = Labels::from_pairs(pairs.into_iter().map(|(name, value)| (text(name), text(value))));
        for sample in &batch.samples[series.samples.clone()] {
            rows.push((labels.to_string(), sample.at.as_ms(), sample.value));
        }
    }
    rows
}

fn row(labels: &str, at: i64, value: f64) -> CsvSample {
    (labels.to_owned(), at, value)
}

#[test]
fn columns_are_described_as_in_victoriametrics() {
    let columns =
        CsvColumns::parse("2:metric:ask,3:metric:bid, 1:label:ticker,4:time:unix_s").expect("valid");
    let body = "GOOG,1.23,4.56,1583865146\r\nMSFT,,+Inf,1583865146.5,more\n\nMSFT,3.21,,1583865147\n";
    let read = decoded(body, &columns);
    assert_eq!(read.refusals, []);
    assert_eq!(
        rows(&read),
        [
            row(r#"{__name__="ask", ticker="GOOG"}"#, 1_583_865_146_000, 1.23),
            row(r#"{__name__="bid", ticker="GOOG"}"#, 1_583_865_146_000, 4.56),
            row(r#"{__name__="bid", ticker="MSFT"}"#, 1_583_865_146_500, f64::INFINITY),
            row(r#"{__name__="ask", ticker="MSFT"}"#, 1_583_865_147_000, 3.21),
        ]
    );
    let bare = CsvColumns::parse("1:metric:up").expect("valid");
    assert_eq!(
        rows(&decoded("1\n2", &bare)),
        [row(r#"{__name__="up"}"#, NOW.as_ms(), 1.0), row(r#"{__name__="up"}"#, NOW.as_ms(), 2.0)]
    );
}

#[test]
fn a_header_names_the_columns() {
    let body = "\u{feff}Time:unix_ms, metric ,value,host,\"a \"\"b\"\"\"\r\n\
                1583865146000,cpu load,0.7,web1,\"x,\"\"y\"\"\r\nz\"\r\n\
                1583865147000,up,1,,\"\"\n1583865148000,up,,web1,\n";
    let read = decoded(body, &CsvColumns::header());
    assert_eq!(read.refusals, []);
    assert_eq!(
        rows(&read),
        [
            row(
                "{__name__=\"cpu load\", a \"b\"=\"x,\\\"y\\\"\\r\\nz\", host=\"web1\"}",
                1_583_865_146_000,
                0.7
            ),
            row(r#"{__name__="up"}"#, 1_583_865_147_000, 1.0),
        ]
    );
    let either = "timestamp,__name__,value\n2026-11-22T10:00:00.25Z,up,1\n1795341600.25,up,2\n";
    let at = 1_795_341_600_250;
    assert_eq!(
        rows(&decoded(either, &CsvColumns::header())),
        [row(r#"{__name__="up"}"#, at, 1.0), row(r#"{__name__="up"}"#, at, 2.0)]
    );
}

#[test]
fn times_are_parsed_in_the_stated_format() {
    let at = |format: &str, cell: &str| {
        let columns = CsvColumns::parse(&format!("1:time:{format},2:metric:up")).expect("valid");
        rows(&decoded(&format!("{cell},1"), &columns)).first().map(|(_, at, _)| *at)
    };
    let expected = Some(1_520_879_607_789);
    assert_eq!(at("unix_s", "1520879607.7899"), expected);
    assert_eq!(at("unix_s", "1.520879607789e9"), expected);
    assert_eq!(at("unix_ms", " 1520879607789 "), expected);
    assert_eq!(at("unix_ns", "1520879607789999999"), expected);
    assert_eq!(at("rfc3339", "2018-03-12T18:33:27.789Z"), expected);
    assert_eq!(at("rfc3339", "\"2018-03-12T19:33:27.789+01:00\""), expected);
    for (format, cell) in
        [("unix_s", "2018-03-12T18:33:27Z"), ("rfc3339", "1520879607"), ("unix_ms", "x"), ("unix_s", "")]
    {
        assert_eq!(at(format, cell), None, "{format} {cell}");
    }
}

#[test]
fn invalid_column_descriptions_and_headers_are_refused() {
    let cases = [
        (
            "",
            "\"\" is not a column: write number, kind and name or format, as in 2:metric:ask, 3:label:market or 1:time:unix_s",
        ),
        (
            "1:metric",
            "\"1:metric\" is not a column: write number, kind and name or format, as in 2:metric:ask, 3:label:market or 1:time:unix_s",
        ),
        (
            "1:metric:",
            "\"1:metric:\" is not a column: write number, kind and name or format, as in 2:metric:ask, 3:label:market or 1:time:unix_s",
        ),
        (
            "1:thing:x",
            "\"1:thing:x\" is not a column: write number, kind and name or format, as in 2:metric:ask, 3:label:market or 1:time:unix_s",
        ),
        ("0:metric:x", "\"0\" is not a column number from 1 to 2048"),
        ("-1:metric:x", "\"-1\" is not a column number from 1 to 2048"),
        ("99999999999999999999:metric:x", "\"99999999999999999999\" is not a column number from 1 to 2048"),
        (
            "1:time:custom:2006",
            "\"custom:2006\" is not a time format: use unix_s, unix_ms, unix_ns or rfc3339",
        ),
        ("1:metric:x,1:label:y", "column 1 occurs twice"),
        ("1:metric:x,2:time:unix_s,3:time:unix_s", "the time occurs twice"),
        ("1:metric:x,2:label:y,3:label:y", "the label \"y\" occurs twice"),
        ("1:metric:x,2:label:__name__", "the label \"__name__\" occurs twice"),
        ("1:label:y", "no column is a metric: 2:metric:NAME"),
    ];
    for (format, expected) in cases {
        assert_eq!(
            CsvColumns::parse(format).map_err(|e| e.to_string()),
            Err(expected.to_owned()),
            "{format}"
        );
    }
    let headers = [
        ("\n\n", "the first line must name the columns: the body has none"),
        (
            "a,\"b",
            "the first line must name the columns: a quote is not closed; the rest of the body is not read",
        ),
        ("up,1", "no column is named value"),
        ("value,time", "no column is named metric"),
        ("value,metric,", "the first line must name the columns: a name is empty"),
        ("value,metric,Value", "Value occurs twice"),
        ("value,metric,time,timestamp", "the time occurs twice"),
        ("value,metric,a,a", "the label \"a\" occurs twice"),
        ("value,metric,time:unix", "\"unix\" is not a time format: use unix_s, unix_ms, unix_ns or rfc3339"),
    ];
    for (body, expected) in headers {
        let read = decode(body.as_bytes(), &CsvColumns::header(), NOW, &DecodeLimits::default());
        assert_eq!(read.map(|_| ()).map_err(|e| e.to_string()), Err(format!("csv: {expected}")), "{body}");
    }
}

#[test]
fn an_invalid_csv_line_is_refused_with_its_position_and_the_others_are_stored() {
    let cases: [(&str, &str, usize); 10] = [
        ("1,up", "2 cells, the header has 4", 1),
        ("1,up,1,a,b", "5 cells, the header has 4", 1),
        ("1,up,x,a", "column 3: \"x\" is not a number", 1),
        ("1,up,1e400,a", "column 3: \"1e400\" is out of range: the greatest value is about 1.8e308", 1),
        ("x,up,1,a", "column 1: \"x\" is not a time in unix seconds or RFC 3339", 1),
        (",up,1,a", "column 1: \"\" is not a time in unix seconds or RFC 3339", 1),
        ("1,,1,a", "the series has no metric name", 1),
        ("1,\"up\"x,1,a", "a closing quote must be followed by a comma or a line end", 1),
        ("1,\"u\np\"x,1,a", "a closing quote must be followed by a comma or a line end", 1),
        ("1,up,1,\"a", "a quote is not closed; the rest of the body is not read", 2),
    ];
    for (line, reason, lines) in cases {
        let read =
            decoded(&format!("time,metric,value,host\n1,up,1,a\n{line}\n2,up,2,b\n"), &CsvColumns::header());
        assert_eq!(read.refusals.len(), 1, "{line}");
        assert_eq!(read.refusals[0].reason, format!("line 3: {reason}"), "{line}");
        assert_eq!((read.refused, rows(&read).len()), (lines, 3 - lines), "{line}");
    }
    let columns = CsvColumns::parse("1:metric:a,2:metric:b").expect("valid");
    let read = decode(b"1,2\n\xff,3\nx,4\n5\n", &columns, NOW, &DecodeLimits::default()).expect("small");
    let error_of: Vec<&str> = read.refusals.iter().map(|refusal| &*refusal.reason).collect();
    assert_eq!(
        error_of,
        [
            "line 2: it is not UTF-8",
            "line 3: column 1: \"x\" is not a number",
            "line 4: 1 cells, the format needs 2"
        ]
    );
    assert_eq!(rows(&read).len(), 3, "the valid cell of a line with an invalid one is stored");
    let many = decoded(&format!("{}\n1,2\n", ",".repeat(5_000)), &columns);
    assert_eq!((many.refused, rows(&many).len()), (1, 2));
    // A quote inside an unquoted cell is an ordinary character.
    let inches = decoded("value,metric,size\n1,disk,5\"\n", &CsvColumns::header());
    assert_eq!(rows(&inches)[0].0, r#"{__name__="disk", size="5\""}"#);
}

#[test]
fn limits_of_csv_bodies_are_enforced() {
    let columns = CsvColumns::parse("1:metric:a,2:label:b").expect("valid");
    let error_of = |limits: DecodeLimits, body: &str| {
        decode(body.as_bytes(), &columns, NOW, &limits).map(|_| ()).map_err(|e| e.to_string())
    };
    let few = DecodeLimits { series_max: 2, ..DecodeLimits::default() };
    assert_eq!(error_of(few, "1,a\n2,b\n3,b\n"), Ok(()));
    assert_eq!(
        error_of(few, "1,a\n2,b\n3,c\n"),
        Err("the request has 3 series; at most 2 are allowed".into())
    );
    let few = DecodeLimits { samples_max: 1, ..DecodeLimits::default() };
    assert_eq!(error_of(few, "1,a\n2,a\n"), Err("the request has 2 samples; at most 1 are allowed".into()));
    let few = DecodeLimits { decompressed_bytes_max: 3, ..DecodeLimits::default() };
    assert_eq!(
        error_of(few, "1\n2\n"),
        Err("the request has 4 bytes after decompression; at most 3 are allowed".into())
    );
    assert_eq!(error_of(DecodeLimits::default(), ""), Err("the body is empty".into()));
}

fn cell(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

proptest! {
    #[test]
    fn csv_samples_round_trip_to_the_bit(
        samples in prop::collection::vec(
            (any::<String>(), "[ -~]{0,6}", any::<f64>(), -1_000_000_000_000_000_i64..=1_000_000_000_000_000),
            1..8,
        ),
        crlf: bool,
    ) {
        let end = if crlf { "\r\n" } else { "\n" };
        let mut csv = format!("a,value,metric,time:unix_ms,b{end}");
        let mut lines = String::new();
        for (a, b, value, at) in &samples {
            csv.push_str(&format!("{},{value:?},\"up\",{at},{}{end}", cell(a), cell(b)));
            let quoted = |text: &str| text.replace('\\', r"\\").replace('\n', r"\n").replace('"', "\\\"");
            lines.push_str(&format!("up{{a=\"{}\",b=\"{}\"}} {value:?} {at}\n", quoted(a), quoted(b)));
        }
        let read = decoded(&csv, &CsvColumns::header());
        prop_assert_eq!(&read.refusals, &[]);
        let text = text::decode(lines.as_bytes(), text::Format::Prometheus, NOW, &DecodeLimits::default()).expect("valid");
        let bits = |read: &Translated| -> Vec<_> {
            rows(read).into_iter().map(|(labels, at, value)| (labels, at, value.to_bits())).collect()
        };
        prop_assert_eq!(bits(&read), bits(&text));
    }

    #[test]
    fn lines_end_in_quotes_where_records_continue(
        pieces in prop::collection::vec(prop::sample::select(vec!["\"", ",", "\n", "\r\n", "\r", "\\", "a"]), 1..40),
    ) {
        let body = pieces.concat();
        let (mut is_quoted, mut read) = (false, 0);
        for line in body.as_bytes().split_inclusive(|byte| *byte == b'\n') {
            is_quoted = ends_in_quotes(line, is_quoted);
            read = body.len().min(line.len().saturating_add(read));
            let mut records = CsvRecord::new(body.as_bytes().get(..read).unwrap_or_default());
            let mut is_open = false;
            loop {
                match records.read_next() {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => is_open |= error.reason.starts_with("a quote is not closed"),
                }
            }
            prop_assert_eq!(is_quoted, is_open, "{:?}", &body[..read]);
        }
    }

    #[test]
    fn arbitrary_csv_bodies_are_decoded_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 1..300),
        pieces in prop::collection::vec(prop::sample::select(vec!["\"", ",", "\n", "\r\n", "1", "up", "é"]), 1..60),
    ) {
        let few = DecodeLimits { series_max: 4, ..DecodeLimits::default() };
        for columns in [CsvColumns::parse("1:metric:a,3:label:b,2:time:unix_s").expect("valid"), CsvColumns::header()] {
            for body in [bytes.clone(), pieces.concat().into_bytes(), [b"metric,value,a\n", pieces.concat().as_bytes()].concat()] {
                let Ok(read) = decode(&body, &columns, NOW, &few) else { continue };
                let lines = body.split(|byte| *byte == b'\n').count();
                prop_assert!(read.batch.len() <= 4 && read.refused <= lines);
                prop_assert!(read.refusals.iter().all(|refusal| refusal.reason.starts_with("line ")));
            }
        }
    }
}
