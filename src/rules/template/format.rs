//! Go's fmt: the texts of values, and `printf`.

use std::fmt::Write as _;

use super::OUTPUT_BYTES_MAX;
use super::float::{FloatForm, format_float};
use super::value::TemplateValue;

/// A verb with its flags.
#[derive(Clone, Copy, Debug, Default)]
struct FormatSpec {
    verb: char,
    plus: bool,
    minus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

/// Formats values like `fmt.Sprint`: with spaces between values of which neither is a text.
pub(super) fn print(values: &[TemplateValue]) -> Result<String, String> {
    let mut out = Formatter::default();
    let mut text_before = true;
    for value in values {
        let text = matches!(value, TemplateValue::Text(_));
        if !text && !text_before {
            out.push(" ")?;
        }
        text_before = text;
        out.plain(value)?;
    }
    Ok(out.text)
}

/// Formats values like `fmt.Sprintln`: with spaces between them and a line feed at the end.
pub(super) fn print_line(values: &[TemplateValue]) -> Result<String, String> {
    let mut out = Formatter::default();
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            out.push(" ")?;
        }
        out.plain(value)?;
    }
    out.push("\n")?;
    Ok(out.text)
}

/// Formats values like `fmt.Sprintf`.
pub(super) fn print_format(format: &str, values: &[TemplateValue]) -> Result<String, String> {
    let mut printer = FormatPrinter { out: Formatter::default(), format, values, next: 0, reordered: false };
    printer.run()?;
    Ok(printer.out.text)
}

/// The part of a text that an expansion may still produce.
#[derive(Default)]
struct Formatter {
    text: String,
}

impl Formatter {
    fn push(&mut self, text: &str) -> Result<(), String> {
        if self.text.len() + text.len() > OUTPUT_BYTES_MAX {
            return Err(format!("the text has more than {OUTPUT_BYTES_MAX} bytes"));
        }
        self.text.push_str(text);
        Ok(())
    }

    fn plain(&mut self, value: &TemplateValue) -> Result<(), String> {
        self.value(FormatSpec { verb: 'v', ..FormatSpec::default() }, value, 0)
    }

    /// Pushes a text within its width.
    fn pad(&mut self, spec: FormatSpec, text: &str) -> Result<(), String> {
        let missing = spec.width.unwrap_or(0).saturating_sub(text.chars().count());
        if missing > OUTPUT_BYTES_MAX {
            return Err(format!("the text has more than {OUTPUT_BYTES_MAX} bytes"));
        }
        if spec.minus {
            self.push(text)?;
            return self.push(&" ".repeat(missing));
        }
        self.push(&if spec.zero { "0" } else { " " }.repeat(missing))?;
        self.push(text)
    }

    /// Pushes a number within its width; zeros follow its sign.
    fn pad_number(&mut self, spec: FormatSpec, number: &str) -> Result<(), String> {
        let (sign, digits) = match number.strip_prefix('-') {
            Some(digits) => ("-", digits),
            None if spec.plus => ("+", number),
            None if spec.space => (" ", number),
            None => ("", number),
        };
        let width = spec.width.unwrap_or(0);
        let zeros = if spec.zero && !spec.minus {
            width.saturating_sub(sign.len() + digits.chars().count()).min(OUTPUT_BYTES_MAX)
        } else {
            0
        };
        let text = format!("{sign}{}{digits}", "0".repeat(zeros));
        self.pad(FormatSpec { zero: false, ..spec }, &text)
    }

    fn bad_verb(&mut self, spec: FormatSpec, value: &TemplateValue) -> Result<(), String> {
        self.push(&format!("%!{}(", spec.verb))?;
        if matches!(value, TemplateValue::Missing) {
            return self.push("<nil>)");
        }
        self.push(value.type_name())?;
        self.push("=")?;
        // The flags stay, as in Go.
        self.value(FormatSpec { verb: 'v', ..spec }, value, 0)?;
        self.push(")")
    }

    /// Pushes a value; `depth` is the number of values around it.
    fn value(&mut self, spec: FormatSpec, value: &TemplateValue, depth: usize) -> Result<(), String> {
        if spec.verb == 'T' {
            return self.pad(FormatSpec { verb: 's', ..spec }, value.type_name());
        }
        match value {
            TemplateValue::Missing if spec.verb == 'v' => self.pad(spec, "<nil>"),
            TemplateValue::Missing => self.bad_verb(spec, value),
            TemplateValue::Bool(bool) => match spec.verb {
                't' | 'v' => self.pad(spec, if *bool { "true" } else { "false" }),
                _ => self.bad_verb(spec, value),
            },
            TemplateValue::Int(int) => self.int(spec, *int),
            TemplateValue::Float(float) => self.float(spec, *float),
            TemplateValue::Text(text) => self.text(spec, text),
            TemplateValue::Labels(labels) => {
                let pairs = labels.iter().map(|(name, value)| (name, TemplateValue::text(value.as_str())));
                self.map(spec, pairs, depth)
            }
            TemplateValue::Args(args) => {
                let pairs = args.values.iter().map(|(name, value)| (name, value.clone()));
                self.map(spec, pairs, depth)
            }
            TemplateValue::Root(_) => {
                self.fields(spec, value, &["Labels", "ExternalLabels", "ExternalURL", "Value"], depth)
            }
            TemplateValue::Sample(_) => {
                self.push("&")?;
                self.fields(spec, value, &["Labels", "Value"], depth)
            }
            TemplateValue::Samples(samples) => {
                self.push("[")?;
                for (index, sample) in samples.iter().enumerate() {
                    if index > 0 {
                        self.push(" ")?;
                    }
                    self.value(spec, &TemplateValue::Sample(std::sync::Arc::clone(sample)), depth + 1)?;
                }
                self.push("]")
            }
            TemplateValue::Histogram(histogram) => self.shown(spec, value, &histogram.to_string()),
            TemplateValue::Time(time) => self.shown(spec, value, &time.to_string()),
            TemplateValue::Duration(duration) => self.shown(spec, value, &duration.to_string()),
        }
    }

    /// Pushes a value that has a text of its own.
    fn shown(&mut self, spec: FormatSpec, value: &TemplateValue, text: &str) -> Result<(), String> {
        match spec.verb {
            'v' | 's' | 'q' | 'x' | 'X' => self.text(spec, text),
            _ => self.bad_verb(spec, value),
        }
    }

    fn map<'n>(
        &mut self,
        spec: FormatSpec,
        pairs: impl Iterator<Item = (&'n String, TemplateValue)>,
        depth: usize,
    ) -> Result<(), String> {
        self.push("map[")?;
        for (index, (name, value)) in pairs.enumerate() {
            if index > 0 {
                self.push(" ")?;
            }
            self.text(spec, name)?;
            self.push(":")?;
            self.value(spec, &value, depth + 1)?;
        }
        self.push("]")
    }

    fn fields(
        &mut self,
        spec: FormatSpec,
        value: &TemplateValue,
        names: &[&str],
        depth: usize,
    ) -> Result<(), String> {
        self.push("{")?;
        for (index, name) in names.iter().enumerate() {
            if index > 0 {
                self.push(" ")?;
            }
            if spec.plus && spec.verb == 'v' {
                self.push(&format!("{name}:"))?;
            }
            self.value(spec, &value.field(name)?, depth + 1)?;
        }
        self.push("}")
    }

    fn int(&mut self, spec: FormatSpec, int: i64) -> Result<(), String> {
        let magnitude = int.unsigned_abs();
        let digits = match spec.verb {
            'd' | 'v' => magnitude.to_string(),
            'b' => format!("{magnitude:b}"),
            'o' | 'O' => format!("{magnitude:o}"),
            'x' => format!("{magnitude:x}"),
            'X' => format!("{magnitude:X}"),
            'c' => return self.pad(spec, &character(int).to_string()),
            'q' => return self.pad(spec, &quote(&character(int).to_string(), '\'')),
            'U' => return self.pad(FormatSpec { zero: false, ..spec }, &format!("U+{magnitude:04X}")),
            _ => return self.bad_verb(spec, &TemplateValue::Int(int)),
        };
        let mut digits = match spec.precision {
            Some(0) if int == 0 => String::new(),
            Some(precision) => format!("{digits:0>width$}", width = precision.min(OUTPUT_BYTES_MAX)),
            None => digits,
        };
        let prefix = match spec.verb {
            'O' => "0o",
            'b' if spec.sharp => "0b",
            'o' if spec.sharp => "0",
            'x' if spec.sharp => "0x",
            'X' if spec.sharp => "0X",
            _ => "",
        };
        digits.insert_str(0, prefix);
        if int < 0 {
            digits.insert(0, '-');
        }
        let zero = spec.zero && spec.precision.is_none();
        self.pad_number(FormatSpec { zero, ..spec }, &digits)
    }

    fn float(&mut self, spec: FormatSpec, float: f64) -> Result<(), String> {
        let (form, precision) = match spec.verb {
            'v' | 'g' | 'G' => (FloatForm::General, None),
            'e' | 'E' => (FloatForm::Exponent, Some(6)),
            'f' | 'F' => (FloatForm::Fixed, Some(6)),
            _ => return self.bad_verb(spec, &TemplateValue::Float(float)),
        };
        let precision = spec.precision.map(|precision| precision.min(1_000)).or(precision);
        let mut text = format_float(float, form, precision);
        if matches!(spec.verb, 'E' | 'G') && float.is_finite() {
            text = text.to_ascii_uppercase();
        }
        if !float.is_finite() {
            // A positive infinity always has its sign; a NaN only with a flag.
            let text = if float.is_nan() && spec.plus { "+NaN" } else { &text };
            return self.pad(FormatSpec { zero: false, ..spec }, text);
        }
        self.pad_number(spec, &text)
    }

    fn text(&mut self, spec: FormatSpec, text: &str) -> Result<(), String> {
        let cut: String = match spec.precision {
            Some(precision) => text.chars().take(precision).collect(),
            None => text.to_owned(),
        };
        let shown = match spec.verb {
            'v' if spec.sharp => quote(&cut, '"'),
            'v' | 's' => cut,
            'q' if spec.sharp && !cut.contains('`') => format!("`{cut}`"),
            'q' => quote(&cut, '"'),
            'x' | 'X' => hex(spec, &cut),
            _ => return self.bad_verb(spec, &TemplateValue::text(text)),
        };
        self.pad(spec, &shown)
    }
}

fn character(int: i64) -> char {
    u32::try_from(int).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn hex(spec: FormatSpec, text: &str) -> String {
    let mut out = String::new();
    for (index, byte) in text.bytes().enumerate() {
        if spec.space && index > 0 {
            out.push(' ');
        }
        let _ = if spec.verb == 'X' { write!(out, "{byte:02X}") } else { write!(out, "{byte:02x}") };
    }
    out
}

/// Quotes a text like Go's strconv.Quote.
pub(super) fn quote(text: &str, mark: char) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push(mark);
    for c in text.chars() {
        match c {
            c if c == mark || c == '\\' => {
                out.push('\\');
                out.push(c);
            }
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            ' ' => out.push(' '),
            c if c.is_ascii_control() => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c if c.is_control() || c.is_whitespace() || c == '\u{feff}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push(mark);
    out
}

/// The state of one `printf`.
struct FormatPrinter<'a> {
    out: Formatter,
    format: &'a str,
    values: &'a [TemplateValue],
    /// The index of the next value.
    next: usize,
    /// Whether an index (`%[2]d`) was used, so that unused values are not an error.
    reordered: bool,
}

impl FormatPrinter<'_> {
    fn run(&mut self) -> Result<(), String> {
        let mut rest = self.format;
        while let Some(at) = rest.find('%') {
            self.out.push(rest.get(..at).unwrap_or_default())?;
            rest = self.verb(rest.get(at + 1..).unwrap_or_default())?;
        }
        self.out.push(rest)?;
        if self.reordered || self.next >= self.values.len() {
            return Ok(());
        }
        self.out.push("%!(EXTRA ")?;
        for (index, value) in self.values.iter().enumerate().skip(self.next) {
            if index > self.next {
                self.out.push(", ")?;
            }
            self.out.push(value.type_name())?;
            if !matches!(value, TemplateValue::Missing) {
                self.out.push("=")?;
                self.out.plain(value)?;
            }
        }
        self.out.push(")")
    }

    /// Prints one verb; returns the rest of the format.
    fn verb<'f>(&mut self, format: &'f str) -> Result<&'f str, String> {
        let mut spec = FormatSpec::default();
        let mut rest = format;
        while let Some(flag) = rest.chars().next().filter(|c| "#0+- ".contains(*c)) {
            match flag {
                '#' => spec.sharp = true,
                '0' => spec.zero = true,
                '+' => spec.plus = true,
                '-' => spec.minus = true,
                _ => spec.space = true,
            }
            rest = rest.get(1..).unwrap_or_default();
        }
        spec.zero &= !spec.minus;
        let mut good = true;
        rest = self.index(rest, &mut good);
        if let Some(after) = rest.strip_prefix('*') {
            rest = after;
            match self.star() {
                Some(width) => {
                    spec.minus |= width < 0;
                    spec.width = usize::try_from(width.unsigned_abs()).ok();
                }
                None => self.out.push("%!(BADWIDTH)")?,
            }
        } else {
            (spec.width, rest) = leading_number(rest);
        }
        if let Some(after) = rest.strip_prefix('.') {
            rest = self.index(after, &mut good);
            if let Some(after) = rest.strip_prefix('*') {
                rest = after;
                match self.star() {
                    Some(precision) => spec.precision = usize::try_from(precision).ok(),
                    None => self.out.push("%!(BADPREC)")?,
                }
            } else {
                let (precision, after) = leading_number(rest);
                spec.precision = Some(precision.unwrap_or(0));
                rest = after;
            }
        }
        rest = self.index(rest, &mut good);
        let Some(verb) = rest.chars().next() else {
            self.out.push("%!(NOVERB)")?;
            return Ok(rest);
        };
        spec.verb = verb;
        self.print(spec, good)?;
        Ok(rest.get(verb.len_utf8()..).unwrap_or_default())
    }

    fn print(&mut self, spec: FormatSpec, good: bool) -> Result<(), String> {
        if spec.verb == '%' {
            return self.out.push("%");
        }
        if !good {
            return self.out.push(&format!("%!{}(BADINDEX)", spec.verb));
        }
        let Some(value) = self.values.get(self.next) else {
            return self.out.push(&format!("%!{}(MISSING)", spec.verb));
        };
        self.next += 1;
        self.out.value(spec, value, 0)
    }

    /// Takes the next value as a width or precision.
    fn star(&mut self) -> Option<i64> {
        let value = self.values.get(self.next);
        self.next += 1;
        match value {
            Some(TemplateValue::Int(int)) if int.unsigned_abs() <= 1_000_000 => Some(*int),
            _ => None,
        }
    }

    /// Reads `[3]`, the index of the next value from 1.
    fn index<'f>(&mut self, format: &'f str, good: &mut bool) -> &'f str {
        let Some(inner) = format.strip_prefix('[') else { return format };
        self.reordered = true;
        let Some((number, rest)) = inner.split_once(']') else {
            *good = false;
            return inner;
        };
        match number.parse::<usize>() {
            Ok(number) if (1..=self.values.len()).contains(&number) => self.next = number - 1,
            _ => *good = false,
        }
        rest
    }
}

fn leading_number(text: &str) -> (Option<usize>, &str) {
    let len = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(len);
    (digits.parse().ok(), rest)
}
