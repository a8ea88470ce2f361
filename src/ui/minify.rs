//! Removes comments and white space from modules and style sheets when the binary is built.
//!
//! The build script includes this file; the library compiles it for its tests only. Names stay as
//! they are, and no statement moves, so that messages of a browser still name the functions of the
//! sources. `PROMLET_UI_DIR` serves the sources themselves.

use std::collections::BTreeMap;

/// The kind of the last token, as far as the next token depends on it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// The end of a value: a name, a number, a text, or a closing bracket. `/` divides it.
    Value,
    /// Anything else: `/` begins a regular expression.
    Other,
}

/// Words after which `/` begins a regular expression.
const WORDS_BEFORE_REGEX: [&str; 12] =
    ["return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "do", "else", "await"];

/// Returns the module without comments and with the white space that its meaning needs.
///
/// A line that ends a statement without a semicolon stays a line: a line break is removed only
/// next to a character at which no statement ends or begins. `import` and `export` at the start of
/// a line stay there, so that they are found without a parser.
///
/// # Errors
/// The byte offset of a text, template, comment or regular expression without an end.
pub(crate) fn module(source: &str) -> Result<String, usize> {
    minified(source, None)
}

/// Returns the minified module with one or two letters for each private name. Private names are
/// visible in their class alone, so every class may use the same letters.
///
/// # Errors
/// Those of [`module`].
pub(crate) fn with_short_private_names(source: &str) -> Result<String, usize> {
    minified(source, Some(BTreeMap::new()))
}

fn minified<'a>(source: &'a str, names: Option<BTreeMap<&'a str, String>>) -> Result<String, usize> {
    let mut minifier =
        Minifier { source, at: 0, out: String::with_capacity(source.len()), last: Last::Other, names };
    // Braces that are open in each template expression around the current position.
    let mut templates: Vec<usize> = Vec::new();
    while let Some(next) = minifier.peek() {
        match next {
            _ if next.is_whitespace()
                || minifier.rest().starts_with("//")
                || minifier.rest().starts_with("/*") =>
            {
                minifier.space()?;
            }
            '\'' | '"' => minifier.quoted(next)?,
            '`' => {
                minifier.take(1);
                minifier.template(&mut templates)?;
            }
            '}' if templates.last() == Some(&0) => {
                templates.pop();
                minifier.take(1);
                minifier.template(&mut templates)?;
            }
            '/' if minifier.last == Last::Other => minifier.regex()?,
            _ if is_name(next) => minifier.word(),
            _ => {
                match (next, templates.last_mut()) {
                    ('{', Some(open)) => *open += 1,
                    ('}', Some(open)) => *open -= 1,
                    _ => {}
                }
                minifier.take(next.len_utf8());
                minifier.last = if matches!(next, ')' | ']' | '}') { Last::Value } else { Last::Other };
            }
        }
    }
    if templates.is_empty() { Ok(minifier.out) } else { Err(source.len()) }
}

/// Removes white space from the style sheet in the template of a minified module. The template
/// begins and ends with a line break, and has no other text with white space beside punctuation.
pub(crate) fn style_in_template(module: &str) -> String {
    let parts = module
        .split_once("`\n")
        .and_then(|(before, rest)| rest.rsplit_once("\n`").map(|(css, after)| (before, css, after)));
    let Some((before, css, after)) = parts else {
        return module.to_owned();
    };
    let joined = css.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let css = ["{", "}", ";", ":", ","].iter().fold(joined, |text, mark| {
        // A selector such as `a :hover` keeps the space before its colon.
        let text = if *mark == ":" { text } else { text.replace(&format!(" {mark}"), mark) };
        text.replace(&format!("{mark} "), mark)
    });
    format!("{before}`{css}`{after}")
}

/// Returns the style sheet without comments, indentation and empty lines.
///
/// # Errors
/// The byte offset of a comment without an end.
pub(crate) fn style(source: &str) -> Result<String, usize> {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, after)) = rest.split_once("/*") {
        text.push_str(before);
        let begin = source.len() - after.len() - 2;
        rest = after.split_once("*/").ok_or(begin)?.1;
    }
    text.push_str(rest);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    Ok(lines.fold(String::with_capacity(text.len()), |all, line| all + line + "\n"))
}

fn is_name(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '$' | '#' | '\\')
}

struct Minifier<'a> {
    source: &'a str,
    /// The byte offset of the next character.
    at: usize,
    out: String,
    last: Last,
    /// The short forms of private names, which are written in their place.
    names: Option<BTreeMap<&'a str, String>>,
}

impl<'a> Minifier<'a> {
    fn rest(&self) -> &'a str {
        self.source.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Copies so many bytes.
    fn take(&mut self, bytes: usize) {
        self.out.push_str(self.rest().get(..bytes).unwrap_or_default());
        self.at += bytes;
    }

    /// Skips white space and comments. Writes a line break or a space if the tokens on both sides
    /// need one.
    fn space(&mut self) -> Result<(), usize> {
        let begin = self.at;
        loop {
            let rest = self.rest();
            if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                self.at += rest.find("*/").ok_or(self.at)? + 2;
            } else if rest.starts_with(char::is_whitespace) {
                self.at += rest.len() - rest.trim_start().len();
            } else {
                break;
            }
        }
        let skipped = self.source.get(begin..self.at).unwrap_or_default();
        let (Some(before), Some(after)) = (self.out.chars().next_back(), self.peek()) else {
            return Ok(());
        };
        let joins = "{([,;:?=&|<>".contains(before) || ")]}.,;?:".contains(after);
        let rest = self.rest();
        if skipped.contains('\n') && (!joins || rest.starts_with("import") || rest.starts_with("export")) {
            self.out.push('\n');
        } else if needs_space(before, after) {
            self.out.push(' ');
        }
        Ok(())
    }

    fn quoted(&mut self, quote: char) -> Result<(), usize> {
        let mut escaped = true;
        for (offset, character) in self.rest().char_indices() {
            if character == quote && !escaped {
                self.take(offset + 1);
                self.last = Last::Value;
                return Ok(());
            }
            // The opening quote is the first character, which ends nothing.
            escaped = character == '\\' && !escaped && offset > 0;
            if character == '\n' {
                break;
            }
        }
        Err(self.at)
    }

    /// Copies the text of a template up to its end, or up to the next `${`.
    fn template(&mut self, templates: &mut Vec<usize>) -> Result<(), usize> {
        let mut escaped = false;
        let rest = self.rest();
        for (offset, character) in rest.char_indices() {
            if escaped {
                escaped = false;
            } else if character == '`' {
                self.take(offset + 1);
                self.last = Last::Value;
                return Ok(());
            } else if character == '$' && rest.get(offset..).is_some_and(|text| text.starts_with("${")) {
                self.take(offset + 2);
                self.last = Last::Other;
                templates.push(0);
                return Ok(());
            } else {
                escaped = character == '\\';
            }
        }
        Err(self.at)
    }

    fn regex(&mut self) -> Result<(), usize> {
        let (mut escaped, mut class) = (false, false);
        for (offset, character) in self.rest().char_indices().skip(1) {
            match character {
                '\n' => break,
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '[' => class = true,
                ']' => class = false,
                '/' if !class => {
                    self.take(offset + 1);
                    self.last = Last::Value;
                    return Ok(());
                }
                _ => {}
            }
        }
        Err(self.at)
    }

    /// Copies a name, a keyword or a number.
    fn word(&mut self) {
        let rest = self.rest();
        let length = rest.find(|character| !is_name(character)).unwrap_or(rest.len());
        let member = self.out.ends_with('.');
        let word = rest.get(..length).unwrap_or_default();
        match self.names.as_mut().filter(|_| word.starts_with('#')) {
            Some(names) => {
                let number = names.len();
                self.out.push_str(names.entry(word).or_insert_with(|| short_name(number)));
                self.at += length;
            }
            None => self.take(length),
        }
        let before_regex = !member && WORDS_BEFORE_REGEX.contains(&word);
        self.last = if before_regex { Last::Other } else { Last::Value };
    }
}

/// Returns the private name of a number: `#a` to `#z`, then `#ba` and so on.
fn short_name(number: usize) -> String {
    let mut letters = Vec::new();
    let mut rest = number;
    while rest > 0 || letters.is_empty() {
        letters.push(b"abcdefghijklmnopqrstuvwxyz".get(rest % 26).copied().unwrap_or_default());
        rest /= 26;
    }
    letters.push(b'#');
    letters.iter().rev().map(|letter| char::from(*letter)).collect()
}

/// Returns whether the two characters would be one token without a space.
fn needs_space(before: char, after: char) -> bool {
    (is_name(before) && is_name(after))
        || (before == after && matches!(before, '+' | '-'))
        || before == '/'
        || after == '/'
        || (before.is_ascii_digit() && after == '.')
}

#[cfg(test)]
mod tests {
    use super::{module, style, style_in_template, with_short_private_names};

    fn minified(source: &str) -> String {
        module(source).unwrap()
    }

    #[test]
    fn comments_and_white_space_between_tokens_are_removed() {
        assert_eq!(
            minified(
                "// What it is.\n\nimport { h } from './dom.js';\n\n/** @type {number} */\nconst a = (1 + 2) * 3; // six\n"
            ),
            "import{h}from'./dom.js';const a=(1+2)*3;"
        );
        assert_eq!(minified("let a;\nexport {\n  a,\n};\n"), "let a;\nexport{a,};");
        assert_eq!(minified("a /* b */ c"), "a c");
        assert_eq!(
            minified("export const f = async (x) => {\n  return x ?? null;\n};\n"),
            "export const f=async(x)=>{return x??null;};"
        );
    }

    #[test]
    fn a_line_break_stays_where_it_may_end_a_statement() {
        assert_eq!(minified("let a = b\nlet c = d\n"), "let a=b\nlet c=d");
        assert_eq!(minified("return\nvalue"), "return\nvalue");
        assert_eq!(minified("a\n++b"), "a\n++b");
        assert_eq!(minified("a\n(b)"), "a\n(b)");
        assert_eq!(minified("if (a) {\n}\nb()"), "if(a){}\nb()");
        assert_eq!(minified("a\n  .b()\n  ? c\n  : d"), "a.b()?c:d");
    }

    #[test]
    fn tokens_stay_apart_that_would_be_another_token() {
        assert_eq!(minified("a + +b - -c"), "a+ +b- -c");
        assert_eq!(minified("1 .toFixed()"), "1 .toFixed()");
        assert_eq!(minified("a / b /c/ d"), "a / b /c/ d");
        assert_eq!(minified("typeof a in b"), "typeof a in b");
    }

    #[test]
    fn texts_templates_and_regular_expressions_are_copied() {
        for source in [
            r"'//  \'  /*'",
            r#""a  \\""#,
            "`a  // ${b}  ${`c  ${d}  '`}  \\`  $ {`",
            "`${{a:{b:'}'}}.a}  x`",
            "x=/[/]  \\/ '  /g",
            "return /  '/",
            "a.in / '2'",
            "(/ \\/* /)",
        ] {
            assert_eq!(minified(source), source);
        }
        assert_eq!(minified("`${ a + `${ b }  ` }`"), "`${a+`${b}  `}`");
    }

    #[test]
    fn private_names_become_letters_and_nothing_else_changes() {
        let source = "class A {\n  #first = '#first';\n  static #second;\n  f = (a) => #first in a;\n}";
        assert_eq!(
            with_short_private_names(source).unwrap(),
            "class A{#a='#first';static #b;f=(a)=>#a in a;}"
        );
        let many: String = (0..800).map(|number| format!("this.#name{number};")).collect();
        let short = with_short_private_names(&many).unwrap();
        let names: std::collections::BTreeSet<_> = short.split_terminator(';').collect();
        assert_eq!(names.len(), 800);
    }

    #[test]
    fn an_open_end_is_an_error_at_its_beginning() {
        assert_eq!(module("a 'b\n'"), Err(2));
        assert_eq!(module("a /* b"), Err(2));
        assert_eq!(module("`${a"), Err(4));
        assert_eq!(module("`a"), Err(1));
        assert_eq!(module("=/a\n/"), Err(1));
        assert_eq!(style("a{} /*"), Err(4));
    }

    #[test]
    fn a_style_sheet_in_a_template_loses_white_space_beside_punctuation() {
        let css = ":host {\n  a: var(--b, c); ${S.map((s)=>`.d${s} { e: f; }`).join(' ')}\n}\n.g :hover, h > i { j: k }";
        let short = ":host{a:var(--b,c);${S.map((s)=>`.d${s}{e:f;}`).join(' ')}}.g :hover,h > i{j:k}";
        assert_eq!(
            style_in_template(&format!("const css=`\n{css}\n`;\nexport{{css}};")),
            format!("const css=`{short}`;\nexport{{css}};")
        );
        assert_eq!(style_in_template("a=`b: c`;\nd"), "a=`b: c`;\nd");
    }

    #[test]
    fn a_style_sheet_loses_comments_and_indentation() {
        assert_eq!(style("/* A. */\n\na {\n  b: c; /* d */\n}\n").unwrap(), "a {\nb: c;\n}\n");
    }
}
