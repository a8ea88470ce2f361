//! Translation of RE2's syntax, as parsed by Go's regexp/syntax, to that of the regex crate.
//!
//! | RE2                                     | the regex crate alone   | translated to       |
//! |-----------------------------------------|-------------------------|---------------------|
//! | `\d` `\w` `\s` `\b` are ASCII           | Unicode                 | classes, `(?-u:\b)` |
//! | `[a&&b]`, `[a[b]`: literals             | set operations, nesting | `\x{..}` for each   |
//! | `\Q...\E`, octal `\101`                 | errors                  | literals            |
//! | `\<` is a literal                       | a word boundary         | escaped literal     |
//! | `{`, `a{,5}`, `a{b}`: literals          | errors                  | escaped literals    |
//! | `x**` `(?x)` `\u0041` `x{1001}`: errors | accepted                | refused here        |
//!
//! It is one pass over the text with an explicit stack; the output is at most about ten times as
//! long as the input.
//!
//! The same pass estimates the cost of compiling the output. The compiled size does not bound it,
//! because the crate expands classes before it counts any bytes: `(?i)[\x{0}-\x{10FFFF}]` takes 5
//! ms and compiles to a few bytes, and `x{0}` compiles to nothing. Estimates are in nanoseconds,
//! measured with an optimised build:
//!
//! * the look-up of a Unicode class and its union with others takes at most 15 µs, its case folding
//!   at most 240 µs;
//! * folding a range takes up to 20 ns per code point, at most 5 ms for all code points;
//! * each copy of a range in the program, forward and reverse, takes some 150 ns; a Unicode class
//!   has up to 700 ranges.
//!
//! If a class has other items in addition to its ranges, the ranges become a nested class. The
//! crate folds such a class once, and the union of folded classes not at all; otherwise
//! `(?i)[\PLa]` would fold a million code points again.

/// Go's limit for one repetition, and for the product of nested ones.
const REPEAT_MAX: u32 = 1000;

/// Cost of the look-up of a Unicode class and its union with others.
const UNICODE_CLASS_UNITS: u64 = 15_000;
/// Cost of folding a Unicode class.
const UNICODE_FOLD_UNITS: u64 = 250_000;
/// Cost of folding one code point of a range.
const FOLD_UNITS: u64 = 20;
/// Number of code points beyond which folding costs nothing more: few of them have another case.
const FOLDED_MAX: u64 = 250_000;
/// Cost of one copy of a range in the program.
const RANGE_UNITS: u64 = 200;
/// Maximum number of ranges of a Unicode class.
const UNICODE_CLASS_RANGES: u64 = 700;
/// Number of ranges to which `.` and a negated class compile.
const NEGATED_RANGES: u64 = 16;

/// A pattern in the syntax of the regex crate.
#[derive(Debug)]
pub(super) struct Translation {
    pub(super) text: String,
    /// Estimated time of compiling the expression, in nanoseconds.
    pub(super) units: u64,
}

/// Translates `pattern`, or returns the error message of Go.
pub(super) fn translate(pattern: &str) -> Result<Translation, String> {
    let mut translator = Translator {
        pattern,
        rest: pattern,
        out: String::new(),
        open: Vec::new(),
        atom: None,
        product: 1,
        folds: false,
        class_units: 0,
        ranges: 0,
    };
    while let Some(character) = translator.rest.chars().next() {
        translator.step(character)?;
    }
    if !translator.open.is_empty() {
        return Err(format!("missing closing ): `{pattern}`"));
    }
    let units = translator.class_units.saturating_add(translator.ranges.saturating_mul(RANGE_UNITS));
    Ok(Translation { text: translator.out, units })
}

struct Translator<'p> {
    pattern: &'p str,
    rest: &'p str,
    out: String,
    /// The state before each open group.
    open: Vec<OuterGroup>,
    /// The item to which a repetition would apply.
    atom: Option<Atom>,
    /// Largest product of nested repetitions in the open group so far.
    product: u32,
    /// Whether case folding was enabled anywhere so far.
    folds: bool,
    /// Cost of looking up and folding classes.
    class_units: u64,
    /// Number of copies of ranges in the open group so far.
    ranges: u64,
}

/// The state of the group around an open one.
#[derive(Clone, Copy)]
struct OuterGroup {
    product: u32,
    ranges: u64,
}

#[derive(Clone, Copy)]
struct Atom {
    /// Product of nested repetitions within it.
    product: u32,
    is_repeated: bool,
    /// Number of copies of ranges in it.
    ranges: u64,
}

type TranslateResult = Result<(), String>;

impl<'p> Translator<'p> {
    fn skip(&mut self, bytes: usize) -> &'p str {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    fn atom(&mut self, ranges: u64) {
        self.ranges = self.ranges.saturating_add(ranges);
        self.atom = Some(Atom { product: 1, is_repeated: false, ranges });
    }

    fn literal(&mut self, character: char) {
        push_literal(&mut self.out, character);
        self.atom(if self.folds { 4 } else { 1 });
    }

    /// Adds the cost of a Unicode class. Returns the number of its ranges.
    fn count_unicode_class(&mut self, class: &str) -> u64 {
        let folding = match self.folds {
            false => 0,
            // The only class with a range of all code points.
            true if class.contains("{Any}") => FOLDED_MAX * FOLD_UNITS,
            true => UNICODE_FOLD_UNITS,
        };
        self.class_units = self.class_units.saturating_add(UNICODE_CLASS_UNITS + folding);
        UNICODE_CLASS_RANGES
    }

    /// Adds the cost of a range of a class. Returns the number of ranges to which it compiles.
    fn count_range(&mut self, low: char, high: char) -> u64 {
        if !self.folds {
            return 1;
        }
        let code_points = u64::from(u32::from(high).saturating_sub(u32::from(low))) + 1;
        self.class_units = self.class_units.saturating_add(code_points.min(FOLDED_MAX) * FOLD_UNITS);
        2
    }

    fn step(&mut self, character: char) -> TranslateResult {
        match character {
            '\\' => self.escape(),
            '[' => self.class(),
            '(' => self.group(),
            ')' => {
                let before = self.open.pop().ok_or_else(|| format!("unexpected ): `{}`", self.pattern))?;
                self.skip(1);
                self.out.push(')');
                let ranges = self.ranges;
                self.atom = Some(Atom { product: self.product, is_repeated: false, ranges });
                self.product = self.product.max(before.product);
                self.ranges = before.ranges.saturating_add(ranges);
                Ok(())
            }
            '|' => {
                self.skip(1);
                self.out.push('|');
                self.atom = None;
                Ok(())
            }
            '*' | '+' | '?' => self.repeat(1, None),
            '{' => match counts(self.rest) {
                Some((bytes, low, high)) => self.repeat(bytes, Some((low, high))),
                None => {
                    self.skip(1);
                    self.literal('{');
                    Ok(())
                }
            },
            '.' | '^' | '$' => {
                self.skip(1);
                self.out.push(character);
                self.atom(if character == '.' { NEGATED_RANGES } else { 1 });
                Ok(())
            }
            _ => {
                self.skip(character.len_utf8());
                self.literal(character);
                Ok(())
            }
        }
    }

    /// Translates `*`, `+`, `?`, `{2}`, `{2,}` or `{2,5}`, with or without a lazy `?`.
    fn repeat(&mut self, bytes: usize, counts: Option<(u32, Option<u32>)>) -> TranslateResult {
        let mut operator = self.skip(bytes).to_owned();
        if self.rest.starts_with('?') {
            self.skip(1);
            operator.push('?');
        }
        let Some(atom) = self.atom else {
            return Err(format!("missing argument to repetition operator: `{operator}`"));
        };
        if atom.is_repeated {
            return Err(format!("invalid nested repetition operator: `{operator}`"));
        }
        let mut product = atom.product;
        if let Some((low, high)) = counts {
            let most = high.unwrap_or(low);
            product = product.saturating_mul(most.max(1));
            if low > REPEAT_MAX || most > REPEAT_MAX || low > most || product > REPEAT_MAX {
                return Err(format!("invalid repeat count: `{operator}`"));
            }
            let more = u64::from(most.max(1)) - 1;
            self.ranges = self.ranges.saturating_add(atom.ranges.saturating_mul(more));
        }
        self.out.push_str(&operator);
        self.product = self.product.max(product);
        self.atom = Some(Atom { product, is_repeated: true, ranges: atom.ranges });
        Ok(())
    }

    fn group(&mut self) -> TranslateResult {
        self.skip(1);
        if !self.rest.starts_with('?') {
            self.enter("(");
            return Ok(());
        }
        let named = self.rest.strip_prefix("?P<").or_else(|| self.rest.strip_prefix("?<"));
        if let Some(named) = named {
            let bad = || format!("invalid named capture: `({}`", self.rest);
            let (name, rest) = named.split_once('>').ok_or_else(bad)?;
            if name.is_empty() || !name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric()) {
                return Err(bad());
            }
            self.rest = rest;
            // The regex crate has no names that begin with a digit; such a group keeps its number.
            let opening = if name.starts_with(|first: char| first.is_ascii_digit()) {
                "(".to_owned()
            } else {
                format!("(?P<{name}>")
            };
            self.enter(&opening);
            return Ok(());
        }
        self.flags()
    }

    fn enter(&mut self, opening: &str) {
        self.out.push_str(opening);
        self.open.push(OuterGroup { product: self.product, ranges: self.ranges });
        (self.product, self.ranges) = (1, 0);
        self.atom = None;
    }

    /// Translates `(?i)`, `(?i-s:` or `(?:`; the flags are `i`, `m`, `s` and `U`.
    fn flags(&mut self) -> TranslateResult {
        let bad = |rest: &str, bytes: usize| {
            format!("invalid or unsupported Perl syntax: `({}`", rest.get(..bytes).unwrap_or(rest))
        };
        let mut set = [('i', None), ('m', None), ('s', None), ('U', None)];
        let (mut on, mut any) = (true, false);
        for (at, character) in self.rest.char_indices().skip(1) {
            let end = at + character.len_utf8();
            match character {
                '-' if on => (on, any) = (false, false),
                ')' | ':' if on || any => {
                    self.skip(end);
                    let chosen = |wanted| {
                        set.iter().filter(move |(_, state)| *state == Some(wanted)).map(|(flag, _)| *flag)
                    };
                    let (ons, offs): (String, String) = (chosen(true).collect(), chosen(false).collect());
                    let dash = if offs.is_empty() { "" } else { "-" };
                    if character == ':' {
                        self.enter(&format!("(?{ons}{dash}{offs}:"));
                    } else {
                        if !(ons.is_empty() && offs.is_empty()) {
                            self.out.push_str(&format!("(?{ons}{dash}{offs})"));
                        }
                        self.atom = None;
                    }
                    return Ok(());
                }
                _ => {
                    let flag = set.iter_mut().find(|(flag, _)| *flag == character);
                    let Some((_, state)) = flag else { return Err(bad(self.rest, end)) };
                    *state = Some(on);
                    any = true;
                    self.folds |= on && character == 'i';
                }
            }
        }
        Err(format!("missing closing ): `{}`", self.pattern))
    }

    fn escape(&mut self) -> TranslateResult {
        let Some(character) = self.rest.chars().nth(1) else {
            return Err("trailing backslash at end of expression: ``".to_owned());
        };
        match character {
            'A' | 'z' => {
                self.skip(2);
                self.out.push('\\');
                self.out.push(character);
                self.atom(1);
            }
            'b' | 'B' => {
                self.skip(2);
                self.out.push_str(if character == 'b' { r"(?-u:\b)" } else { r"(?-u:\B)" });
                self.atom(1);
            }
            'Q' => {
                self.skip(2);
                let (quoted, rest) = self.rest.split_once("\\E").unwrap_or((self.rest, ""));
                self.rest = rest;
                quoted.chars().for_each(|character| self.literal(character));
            }
            'p' | 'P' => {
                let class = unicode_class(&mut self.rest)?;
                self.out.push_str(&class);
                let ranges = self.count_unicode_class(&class);
                self.atom(ranges);
            }
            _ => {
                if let Some((inside, negated)) = perl_class(character) {
                    self.skip(2);
                    self.out.push_str(if negated { "[^" } else { "[" });
                    self.out.push_str(inside);
                    self.out.push(']');
                    let ranges = match (negated, self.folds) {
                        (true, _) => NEGATED_RANGES,
                        (false, true) => 8,
                        (false, false) => 4,
                    };
                    self.atom(ranges);
                } else {
                    let literal = escaped_character(&mut self.rest)?;
                    self.literal(literal);
                }
            }
        }
        Ok(())
    }

    fn class(&mut self) -> TranslateResult {
        let start = self.rest;
        let missing = || format!("missing closing ]: `{start}`");
        self.skip(1);
        let negated = self.rest.starts_with('^');
        if negated {
            self.skip(1);
        }
        let mut class = CharClass { ranges: String::new(), others: String::new(), count: 0 };
        let mut first = true;
        loop {
            match self.rest.chars().next() {
                None => return Err(missing()),
                Some(']') if !first => break,
                Some(_) => {}
            }
            first = false;
            if self.posix_class(&mut class)? || self.class_escape(&mut class)? {
                continue;
            }
            let item = self.rest;
            let low = class_character(&mut self.rest).ok_or_else(missing)??;
            let mut high = low;
            let to = self.rest.strip_prefix('-').filter(|to| !to.starts_with(']') && !to.is_empty());
            if let Some(to) = to {
                self.rest = to;
                high = class_character(&mut self.rest).ok_or_else(missing)??;
            }
            if high < low {
                let range = item.get(..item.len() - self.rest.len()).unwrap_or(item);
                return Err(format!("invalid character class range: `{range}`"));
            }
            class.count += self.count_range(low, high);
            class.ranges.push_str(&format!("\\x{{{:X}}}-\\x{{{:X}}}", u32::from(low), u32::from(high)));
        }
        self.skip(1);
        self.out.push_str(if negated { "[^" } else { "[" });
        let CharClass { ranges, others, count } = class;
        self.out.push_str(&others);
        if others.is_empty() || ranges.is_empty() {
            self.out.push_str(&ranges);
        } else {
            self.out.push_str(&format!("[{ranges}]"));
        }
        self.out.push(']');
        self.atom(if negated { count + NEGATED_RANGES } else { count });
        Ok(())
    }

    /// Translates `[:alpha:]` within a class. Returns whether the text had such a class here.
    fn posix_class(&mut self, class: &mut CharClass) -> Result<bool, String> {
        const NAMES: [&str; 14] = [
            "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
            "space", "upper", "word", "xdigit",
        ];
        let Some((name, rest)) = self.rest.strip_prefix("[:").and_then(|inside| inside.split_once(":]"))
        else {
            return Ok(false);
        };
        if !NAMES.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return Err(format!("invalid character class range: `[:{name}:]`"));
        }
        self.rest = rest;
        class.others.push_str(&format!("[:{name}:]"));
        class.count += NEGATED_RANGES;
        Ok(true)
    }

    /// Translates `\d`, `\pL` and similar escapes within a class. Returns whether the text had such
    /// an escape here.
    fn class_escape(&mut self, class: &mut CharClass) -> Result<bool, String> {
        let Some(character) = self.rest.strip_prefix('\\').and_then(|rest| rest.chars().next()) else {
            return Ok(false);
        };
        if matches!(character, 'p' | 'P') {
            let unicode = unicode_class(&mut self.rest)?;
            class.others.push_str(&unicode);
            class.count += self.count_unicode_class(&unicode);
            return Ok(true);
        }
        let Some((inside, negated)) = perl_class(character) else { return Ok(false) };
        self.skip(2);
        if negated {
            class.others.push_str(&format!("[^{inside}]"));
            class.count += NEGATED_RANGES;
        } else {
            class.ranges.push_str(inside);
            class.count += 8;
        }
        Ok(true)
    }
}

/// The items of a class.
struct CharClass {
    /// Characters and ranges.
    ranges: String,
    /// Unicode, POSIX and negated classes.
    others: String,
    /// Number of ranges to which all of them compile.
    count: u64,
}

fn push_literal(out: &mut String, character: char) {
    if character.is_ascii_alphanumeric() || !character.is_ascii() {
        out.push(character);
    } else {
        out.push_str(&format!("\\x{{{:X}}}", u32::from(character)));
    }
}

/// Parses `{2}`, `{2,}` or `{2,5}` at the start of `text`. Returns its length and its numbers.
fn counts(text: &str) -> Option<(usize, u32, Option<u32>)> {
    let (inside, _) = text.strip_prefix('{')?.split_once('}')?;
    // A number that is too large is still a repetition, which is refused later.
    let number = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let has_leading_zero = digits.len() > 1 && digits.starts_with('0');
        (is_number && !has_leading_zero).then(|| digits.parse().unwrap_or(u32::MAX))
    };
    let (low, high) = match inside.split_once(',') {
        None => (number(inside)?, Some(number(inside)?)),
        Some((low, "")) => (number(low)?, None),
        Some((low, high)) => (number(low)?, Some(number(high)?)),
    };
    Some((inside.len() + 2, low, high))
}

/// Returns the content of the class for `\d` and similar escapes, and whether it is negated.
fn perl_class(character: char) -> Option<(&'static str, bool)> {
    let inside = match character.to_ascii_lowercase() {
        'd' => "0-9",
        'w' => "0-9A-Za-z_",
        's' => r"\t\n\x0C\r ",
        _ => return None,
    };
    Some((inside, character.is_ascii_uppercase()))
}

/// Translates `\pN`, `\p{Greek}`, `\P{Lu}` or `\p{^Lu}`.
fn unicode_class(rest: &mut &str) -> Result<String, String> {
    let start = *rest;
    let bad = || format!("invalid character class range: `{start}`");
    let mut negated = start.starts_with("\\P");
    let after = start.get(2..).ok_or_else(bad)?;
    let (mut name, after) = match after.strip_prefix('{') {
        Some(braced) => braced.split_once('}').ok_or_else(bad)?,
        None => after.split_at_checked(1).ok_or_else(bad)?,
    };
    if let Some(inverted) = name.strip_prefix('^') {
        negated = !negated;
        name = inverted;
    }
    let plain = name.starts_with(|first: char| first.is_ascii_uppercase())
        && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphabetic());
    if !plain {
        return Err(bad());
    }
    *rest = after;
    Ok(format!("\\{}{{{name}}}", if negated { 'P' } else { 'p' }))
}

/// Parses one character of a class, plain or escaped; `None` at the end.
fn class_character(rest: &mut &str) -> Option<Result<char, String>> {
    let character = rest.chars().next()?;
    if character == '\\' {
        return Some(escaped_character(rest));
    }
    *rest = rest.get(character.len_utf8()..).unwrap_or_default();
    Some(Ok(character))
}

/// Parses an escape of one character: punctuation, `\n`, `\x7F`, `\x{10FFFF}`, `\012`.
fn escaped_character(rest: &mut &str) -> Result<char, String> {
    let start = *rest;
    let bad = |bytes: usize| format!("invalid escape sequence: `{}`", start.get(..bytes).unwrap_or(start));
    let Some(character) = start.chars().nth(1) else {
        return Err("trailing backslash at end of expression: ``".to_owned());
    };
    let after = start.get(1 + character.len_utf8()..).unwrap_or_default();
    let (value, after) = match character {
        'a' => ('\x07', after),
        'f' => ('\x0C', after),
        'n' => ('\n', after),
        'r' => ('\r', after),
        't' => ('\t', after),
        'v' => ('\x0B', after),
        '0'..='7' => {
            let digits = start
                .get(1..)
                .unwrap_or_default()
                .bytes()
                .take(3)
                .take_while(|byte| matches!(byte, b'0'..=b'7'))
                .count();
            // A single digit other than zero would be a back-reference.
            if digits == 1 && character != '0' {
                return Err(bad(2));
            }
            let (number, after) =
                start.get(1..).and_then(|rest| rest.split_at_checked(digits)).ok_or_else(|| bad(2))?;
            (code_point(number, 8).ok_or_else(|| bad(1 + digits))?, after)
        }
        'x' => {
            let (number, after) = match after.strip_prefix('{') {
                Some(braced) => braced.split_once('}').ok_or_else(|| bad(3))?,
                None => after.split_at_checked(2).ok_or_else(|| bad(4))?,
            };
            (code_point(number, 16).ok_or_else(|| bad(start.len() - after.len()))?, after)
        }
        punctuation if punctuation.is_ascii() && !punctuation.is_ascii_alphanumeric() => (punctuation, after),
        other => return Err(bad(1 + other.len_utf8())),
    };
    *rest = after;
    Ok(value)
}

fn code_point(digits: &str, radix: u32) -> Option<char> {
    let all_digits = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    all_digits.then(|| u32::from_str_radix(digits, radix).ok()).flatten().and_then(char::from_u32)
}
