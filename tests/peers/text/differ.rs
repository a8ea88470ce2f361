//! Documents generated from a seed, parsed by prometheus_client and by promlet.

use std::collections::{BTreeMap, BTreeSet};

use promlet::ingest::text::{Format, decode};
use promlet::ingest::{DecodeLimits, Translated};
use promlet::model::{METRIC_NAME, Timestamp};
use serde_json::{Value as Json, json};

/// Printed with every difference; another one makes other documents.
const SEED: u64 = 20_261_122;

const DOCUMENTS: usize = 4_000;

/// The time of samples that have none.
const NOW: i64 = 1_795_000_000_000;

/// A small generator of chance: the same documents everywhere.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % n
    }

    fn of<'a>(&mut self, these: &[&'a str]) -> &'a str {
        these[self.below(these.len())]
    }

    fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('\n', r"\n").replace('"', "\\\"")
}

/// `{a="b",...}` with what else must stand in it; empty where nothing does.
fn labels(chance: &mut Chance, quoted_name: Option<&str>, more: Option<String>) -> String {
    let mut inside: Vec<String> =
        quoted_name.map(|name| format!("\"{}\"", escaped(name))).into_iter().collect();
    let mut names = BTreeSet::new();
    for _ in 0..chance.below(4) {
        names.insert(chance.of(&[
            "job",
            "instance",
            "a",
            "_x",
            "label.with.dots",
            "日本",
            "b c",
            "q\"uote",
            "back\\slash",
        ]));
    }
    for name in names {
        let value = chance.of(&[
            "",
            "api",
            "a b",
            "},{",
            "# ",
            "\"",
            "\\",
            "\n",
            "ä",
            "localhost:9090",
            "x\\n",
            "=,",
        ]);
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let name = if is_plain { name.to_owned() } else { format!("\"{}\"", escaped(name)) };
        inside.push(format!("{name}=\"{}\"", escaped(value)));
    }
    inside.extend(more);
    if inside.is_empty() { String::new() } else { format!("{{{}}}", inside.join(",")) }
}

/// A series: name and labels, as they are written.
fn series(chance: &mut Chance, name: &str, more: Option<String>) -> String {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':');
    if is_plain { format!("{name}{}", labels(chance, None, more)) } else { labels(chance, Some(name), more) }
}

fn number(chance: &mut Chance) -> String {
    match chance.below(8) {
        0 => chance
            .of(&["NaN", "+Inf", "-Inf", "0", "-0", "1e300", "4.9e-324", "-1.7560473e+07", ".5", "5."])
            .to_owned(),
        1 => chance.below(1_000_000).to_string(),
        2 => format!(
            "{:e}",
            f64::from_bits(chance.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) & 0x7fef_ffff_ffff_ffff)
        ),
        _ => format!("{}.{}", chance.below(100_000), chance.below(100_000)),
    }
}

/// A document of 0.0.4: every kind of line, lines of one metric together or not.
fn text(chance: &mut Chance) -> String {
    let mut out = String::new();
    for _ in 0..=chance.below(3) {
        let name =
            chance.of(&["up", "http_requests_total", "a:b:c", "_x9", "my.metric", "größe", "with \"quote\\"]);
        let written = if name.is_ascii() && !name.contains(['.', ' ']) {
            name.to_owned()
        } else {
            format!("\"{}\"", escaped(name))
        };
        if chance.once_in(3) {
            let help = chance.of(&["Help.", "Two  words", "back\\\\slash \\n line", "\\x", "\"quoted\""]);
            out.push_str(&format!("# HELP {written} {help}\n"));
        }
        if chance.once_in(3) {
            out.push_str(&format!(
                "# TYPE {written} {}\n",
                chance.of(&["gauge", "untyped", "summary", "histogram"])
            ));
        }
        for _ in 0..=chance.below(3) {
            let blank = chance.of(&[" ", " ", " ", "  ", "\t"]);
            out.push_str(&format!("{}{blank}{}", series(chance, name, None), number(chance)));
            if chance.once_in(2) {
                out.push_str(&format!(
                    "{blank}{}",
                    1_700_000_000_000_u64 + u64::try_from(chance.below(1 << 30)).expect("small")
                ));
            }
            out.push('\n');
        }
        out.push_str(chance.of(&["", "", "\n", "# a comment\n", "#\n"]));
    }
    out
}

/// A document that OpenMetrics allows.
fn openmetrics(chance: &mut Chance) -> String {
    let mut out = String::new();
    let names = ["one", "two", "three.dots", "four", "fünf", "six"];
    for name in names.iter().take(1 + chance.below(3)) {
        let kind = chance.of(&["counter", "gauge", "summary", "histogram", "info", "stateset", "unknown"]);
        let is_plain = name.is_ascii() && !name.contains('.');
        let written = if is_plain { (*name).to_owned() } else { format!("\"{name}\"") };
        out.push_str(&format!("# TYPE {written} {kind}\n"));
        if chance.once_in(2) {
            out.push_str(&format!(
                "# HELP {written} {}\n",
                chance.of(&["Help.", "a \\\"b\\\" \\\\ \\n c", "é"])
            ));
        }
        let time = if chance.once_in(2) {
            String::new()
        } else {
            format!(
                " {}.{}",
                1_700_000_000 + chance.below(1 << 24),
                chance.of(&["0", "5", "789", "7899999", "000000001"])
            )
        };
        let exemplar = |chance: &mut Chance| match chance.below(3) {
            0 => format!(
                " # {{trace_id=\"{}\"}} {}",
                chance.of(&["KOO5S4vxi0o", "a\\\\b", "} # {"]),
                chance.below(100)
            ),
            1 => format!(" # {{}} 0.5 {}.25", 1_700_000_000 + chance.below(1 << 24)),
            _ => String::new(),
        };
        let whole = chance.below(1_000);
        let line = |out: &mut String, chance: &mut Chance, end: &str, more: Option<String>, rest: String| {
            let mut own = Chance(chance.0);
            let series = series(&mut own, &format!("{name}{end}"), more);
            out.push_str(&format!("{series} {rest}\n"));
        };
        match kind {
            "counter" => {
                let example = exemplar(chance);
                line(&mut out, chance, "_total", None, format!("{whole}{time}{example}"));
                if chance.0 & 1 == 0 {
                    line(&mut out, chance, "_created", None, format!("1600000000.123{time}"));
                }
            }
            "histogram" => {
                let example = exemplar(chance);
                line(&mut out, chance, "_bucket", Some("le=\"0.5\"".to_owned()), format!("1{time}"));
                line(
                    &mut out,
                    chance,
                    "_bucket",
                    Some("le=\"+Inf\"".to_owned()),
                    format!("{whole}{time}{example}"),
                );
                line(&mut out, chance, "_sum", None, format!("5.25{time}"));
                line(&mut out, chance, "_count", None, format!("{whole}{time}"));
                line(&mut out, chance, "_created", None, format!("1600000000.5{time}"));
            }
            "summary" => {
                line(&mut out, chance, "", Some("quantile=\"0.9\"".to_owned()), format!("1.5{time}"));
                line(&mut out, chance, "_sum", None, format!("5.25{time}"));
                line(&mut out, chance, "_count", None, format!("{whole}{time}"));
                line(&mut out, chance, "_created", None, format!("1600000000{time}"));
            }
            "info" => line(&mut out, chance, "_info", None, format!("1{time}")),
            "stateset" => {
                let state =
                    format!("{}=\"on\"", if is_plain { (*name).to_owned() } else { format!("\"{name}\"") });
                line(&mut out, chance, "", Some(state), format!("1{time}"));
            }
            _ => {
                let value = number(chance);
                line(&mut out, chance, "", None, format!("{value}{time}"));
            }
        }
        chance.below(2);
    }
    out.push_str("# EOF\n");
    out
}

/// One to three small changes.
fn mutated(chance: &mut Chance, document: &str) -> String {
    let mut chars: Vec<char> = document.chars().collect();
    for _ in 0..=chance.below(3) {
        if chars.is_empty() {
            break;
        }
        let at = chance.below(chars.len());
        match chance.below(4) {
            0 => drop(chars.remove(at)),
            1 => chars.insert(at, chars[at]),
            2 => chars.insert(
                at,
                chance
                    .of(&["{", "}", "\"", "\\", ",", "=", " ", "#", "\n", "1", "x", "_", ".", "-", "é", "\t"])
                    .chars()
                    .next()
                    .expect("one"),
            ),
            _ => {
                let other = chance.below(chars.len());
                chars.swap(at, other);
            }
        }
    }
    chars.into_iter().collect()
}

/// A sample as either side has it: name, labels, bits, time, exemplar, start.
type Row = (String, BTreeMap<String, String>, String, i64, Option<String>, Option<i64>);

/// They read `-0` as a whole number, which has no sign; both zeros are one here.
fn bits(value: f64) -> String {
    if value.is_nan() { "nan".to_owned() } else { format!("{:016x}", (value + 0.0).to_bits()) }
}

fn ours(body: &str, format: Format) -> (Translated, Vec<Row>) {
    let read = decode(body.as_bytes(), format, Timestamp::from_ms(NOW), &DecodeLimits::default());
    let read = read.unwrap_or_else(|e| panic!("{body:?}: {e}"));
    let batch = read.batch.batch();
    let mut rows = Vec::new();
    for (place, series) in batch.series.iter().enumerate() {
        let mut pairs = Vec::new();
        (batch.parse_labels)(series.raw_labels, &mut pairs).expect("labels");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        let pairs = pairs.iter().map(|(name, value)| (text(name), text(value)));
        let mut labels: BTreeMap<String, String> = pairs.filter(|(_, value)| !value.is_empty()).collect();
        let name = labels.remove(METRIC_NAME).expect("named");
        for sample in &batch.samples[series.samples.clone()] {
            let start = batch.starts.iter().find(|start| start.series == place && start.at == sample.at);
            let exemplar = batch.exemplars.iter().find(|exemplar| exemplar.series == place).map(|exemplar| {
                let labels: BTreeMap<&str, &str> =
                    batch.exemplar_labels[exemplar.labels.clone()].iter().copied().collect();
                format!("{labels:?} {} {}", bits(exemplar.value), exemplar.at.as_ms())
            });
            rows.push((
                name.clone(),
                labels.clone(),
                bits(sample.value),
                sample.at.as_ms(),
                exemplar,
                start.map(|start| start.start.as_ms()),
            ));
        }
    }
    rows.sort();
    (read, rows)
}

fn theirs(answer: &Json) -> Option<Vec<Row>> {
    let texts = |json: &Json| -> BTreeMap<String, String> {
        let object = json.as_object().expect("labels");
        object.iter().map(|(name, value)| (name.clone(), value.as_str().expect("text").to_owned())).collect()
    };
    let mut rows = Vec::new();
    for sample in answer["samples"].as_array()? {
        let at = sample["at"].as_i64().unwrap_or(NOW);
        let exemplar = &sample["exemplar"];
        let exemplar = exemplar.is_object().then(|| {
            let value = exemplar["value"].as_str().expect("bits");
            format!("{:?} {value} {}", texts(&exemplar["labels"]), exemplar["at"].as_i64().unwrap_or(at))
        });
        rows.push((
            sample["name"].as_str().expect("a name").to_owned(),
            texts(&sample["labels"]),
            sample["value"].as_str().expect("bits").to_owned(),
            at,
            exemplar,
            sample["start"].as_i64(),
        ));
    }
    rows.sort();
    Some(rows)
}

fn answers(documents: &[(Format, String)]) -> Vec<Json> {
    let lines = documents.iter().map(|(format, body)| {
        let format = if *format == Format::OpenMetrics { "openmetrics" } else { "text" };
        json!({ "format": format, "body": body }).to_string() + "\n"
    });
    let said = super::python("text.py", &lines.collect::<String>());
    let answers: Vec<Json> = said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(answers.len(), documents.len());
    answers
}

#[test]
fn documents_are_read_as_the_python_client_reads_them() {
    println!("seed {SEED}");
    let mut chance = Chance(SEED);
    let documents: Vec<(Format, String)> = (0..DOCUMENTS)
        .map(|n| match n % 2 {
            0 => (Format::Prometheus, text(&mut chance)),
            _ => (Format::OpenMetrics, openmetrics(&mut chance)),
        })
        .collect();
    let mut wrong = Vec::new();
    for ((format, body), answer) in documents.iter().zip(answers(&documents)) {
        let (read, rows) = ours(body, *format);
        let theirs = theirs(&answer);
        if read.refused > 0 || Some(&rows) != theirs.as_ref() {
            wrong.push(format!("{body}\nours: {:?} {rows:?}\ntheirs: {answer} {theirs:?}\n", read.refusals));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {DOCUMENTS} differ:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(5)].join("\n")
    );
}

/// A document that is read here and not there, or the other way round, or not alike.
struct Case<'a> {
    format: Format,
    /// The line that was broken.
    line: &'a str,
    /// Why it is refused here; empty where it is not.
    reason: &'a str,
    /// Why it is refused there; empty where it is not.
    error: &'a str,
    /// What was read there.
    read: Option<&'a [Row]>,
}

/// A difference that is meant, and what it is known by.
type Excuse = (&'static str, fn(&Case<'_>) -> bool);

/// Every difference that is meant. What fits none of them fails the test.
const EXCUSES: &[Excuse] = &[
    ("0.0.4: any number is a time there, with a fraction or an exponent, and is cut", |case| {
        case.only_there(Format::Prometheus) && case.reason.contains("is not a time in whole milliseconds")
    }),
    ("0.0.4: the last of many words is the time there, whatever stands between", |case| {
        case.only_there(Format::Prometheus) && case.reason.contains("is unexpected")
    }),
    ("0.0.4: whatever stands before the brace is the name there", |case| {
        let name = case.line.split('{').next().unwrap_or_default().trim();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let is_plain = name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit());
        case.only_there(Format::Prometheus) && case.line.contains('{') && !is_plain
    }),
    ("0.0.4: a comma before the first label is overlooked there", |case| {
        case.only_there(Format::Prometheus) && case.line.contains("{,")
    }),
    ("0.0.4: a label without a value is overlooked there", |case| {
        case.only_there(Format::Prometheus) && (case.line.contains("=}") || case.line.contains("=,"))
    }),
    ("a quote may stand in a quoted name there, if there are two of them", |case| {
        case.read.is_some() && !case.reason.is_empty() && case.line.contains("\"\"")
    }),
    ("a finite number that is out of range is infinite there", |case| {
        case.read.is_some() && case.reason.contains("is out of range")
    }),
    ("label names that begin with two underscores are refused there", |case| {
        case.error.contains("Invalid labels") && case.reason.is_empty() && case.line.contains("__")
    }),
    ("OpenMetrics: a metric with a quoted name and no TYPE is refused there, by mistake", |case| {
        case.only_here(Format::OpenMetrics) && case.error == "ValueError: " && case.line.contains("{\"")
    }),
    ("OpenMetrics: there is one blank between two words there, and none elsewhere", |case| {
        let line = case.line;
        let blanks = line.contains("  ") || line.contains('\t') || line.trim() != line || line.contains(" {");
        case.only_here(Format::OpenMetrics) && blanks
    }),
    ("OpenMetrics: comments and empty lines are refused there", |case| {
        case.only_here(Format::OpenMetrics) && (case.line.is_empty() || case.line.starts_with('#'))
    }),
    ("OpenMetrics: the character behind the brace is overlooked there", |case| {
        let behind = case.line.rsplit_once('}').map_or(' ', |(_, rest)| rest.chars().next().unwrap_or(' '));
        case.format == Format::OpenMetrics && case.read.is_some() && behind != ' '
    }),
    (
        "OpenMetrics: what is no digit may stand in a time there: quotes, what follows a quote, a tab",
        |case| {
            case.only_there(Format::OpenMetrics)
                && (case.reason.contains("is not a time in seconds") || case.line.contains('\t'))
        },
    ),
    ("OpenMetrics: a colon may stand in a label's name there", |case| {
        let has_colon = |row: &Row| row.1.keys().any(|name| name.contains(':'));
        case.only_there(Format::OpenMetrics) && case.read.is_some_and(|rows| rows.iter().any(has_colon))
    }),
];

impl Case<'_> {
    fn only_there(&self, format: Format) -> bool {
        self.format == format && self.read.is_some() && !self.reason.is_empty()
    }

    fn only_here(&self, format: Format) -> bool {
        self.format == format && self.read.is_none() && self.reason.is_empty()
    }
}

#[test]
fn broken_documents_are_refused_where_the_python_client_refuses_them() {
    println!("seed {SEED}");
    let mut chance = Chance(SEED ^ 0x5eed);
    let documents: Vec<(Format, String)> = (0..DOCUMENTS)
        .map(|n| {
            let name = chance.of(&["up", "a:b", "my.metric"]);
            let line = format!("{} {}", series(&mut chance, name, None), number(&mut chance));
            match n % 2 {
                0 => {
                    let line = if chance.once_in(2) { line } else { format!("{line} 1700000000000") };
                    (Format::Prometheus, mutated(&mut chance, &line) + "\n")
                }
                _ => {
                    let line = if chance.once_in(2) { line } else { format!("{line} 1700000000.5") };
                    let written = if name.contains('.') { format!("\"{name}\"") } else { name.to_owned() };
                    let line = mutated(&mut chance, &line);
                    (Format::OpenMetrics, format!("# TYPE {written} unknown\n{line}\n# EOF\n"))
                }
            }
        })
        .collect();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for ((format, body), answer) in documents.iter().zip(answers(&documents)) {
        let (read, rows) = ours(body, *format);
        let theirs = theirs(&answer);
        let mine = (read.refused == 0).then_some(rows);
        if mine == theirs {
            *seen.entry(if mine.is_some() { "both read it alike" } else { "both refuse it" }).or_default() +=
                1;
            continue;
        }
        let reason = read.refusals.first().map_or("", |refusal| &*refusal.reason);
        // A line that was broken in two is two; the last is the end.
        let lines = body.lines().skip(usize::from(*format == Format::OpenMetrics));
        let line = lines.take_while(|line| *line != "# EOF").collect::<Vec<_>>().join("\n");
        let error = answer["error"].as_str().unwrap_or_default();
        let case = Case { format: *format, line: &line, reason, error, read: theirs.as_deref() };
        match EXCUSES.iter().find(|(_, excuses)| excuses(&case)) {
            Some((excuse, _)) => *seen.entry(excuse).or_default() += 1,
            None => wrong.push(format!("{body:?}\n  ours: {reason:?} {mine:?}\n  theirs: {answer}")),
        }
    }
    let unseen = EXCUSES.iter().filter(|(excuse, _)| !seen.contains_key(excuse));
    let unseen: Vec<&str> = unseen.map(|(excuse, _)| *excuse).collect();
    println!("{seen:#?}");
    assert!(wrong.is_empty(), "{} of {DOCUMENTS} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(unseen.is_empty(), "no longer different: {unseen:?}");
}
