//! Removes comments, white space and needless punctuation from modules and style sheets when the
//! binary is built.
//!
//! The build script includes this file; the library compiles it for its tests only. No statement
//! moves. `PROMLET_UI_DIR` serves the sources themselves.

use super::tokens::{Gap, Kind, Token, is_name, tokens};

/// Returns the module without comments, with the white space that its meaning needs, and without
/// the comma after the last item of a list and the semicolon after the last statement of a block.
///
/// A line that ends a statement without a semicolon stays a line: a line break is removed only
/// next to a character at which no statement ends or begins. `import` and `export` at the start of
/// a line stay there, so that they are found without a parser.
///
/// # Errors
/// The byte offset of a text, template, comment or regular expression without an end.
pub(crate) fn module(source: &str) -> Result<String, usize> {
    let tokens = tokens(source)?;
    let needed = needed(&tokens);
    Ok(joined(needed.into_iter().map(|token| (token, token.text))))
}

/// Leaves out commas and semicolons that close a list or a block. A comma for a missing array
/// element stays, and so does a semicolon that may be an empty loop body.
fn needed<'a>(tokens: &'a [Token<'a>]) -> Vec<&'a Token<'a>> {
    // Whether each open parenthesis has the condition of a statement.
    let mut conditions: Vec<bool> = Vec::new();
    let mut is_condition = false;
    let mut found = Vec::with_capacity(tokens.len());
    for (at, token) in tokens.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|last| tokens.get(last));
        let is_before = |texts: &[&str]| before.is_some_and(|one| texts.iter().any(|text| one.is(text)));
        let is_next = |texts: &[&str]| {
            tokens.get(at + 1).is_some_and(|one| one.kind == Kind::Sign && texts.contains(&one.text))
        };
        let is_needless = match token.text {
            "," => is_next(&[")", "]", "}"]) && !is_before(&[",", "[", "("]),
            ";" => is_next(&["}"]) && !is_condition && !is_before(&[";", "{", ":", "else", "do"]),
            _ => false,
        };
        if !is_needless || token.kind != Kind::Sign {
            found.push(token);
        }
        is_condition = token.is(")") && conditions.pop().unwrap_or_default();
        if token.is("(") {
            conditions.push(is_before(&["if", "for", "while", "with", "await"]));
        }
    }
    found
}

/// Returns the text of a module that consists of these tokens, each with its text.
pub(crate) fn joined<'a>(tokens: impl Iterator<Item = (&'a Token<'a>, &'a str)>) -> String {
    let mut out = String::new();
    for (token, text) in tokens {
        let (before, after) = (out.chars().next_back(), text.chars().next());
        if let (Some(before), Some(after)) = (before, after) {
            let joins = "{([,;:?=&|<>".contains(before) || ")]}.,;?:".contains(after);
            let stays = !joins || matches!(token.text, "import" | "export");
            match token.gap {
                Gap::None => {}
                Gap::Line if stays => out.push('\n'),
                Gap::Line | Gap::Space if needs_space(before, after) => out.push(' '),
                Gap::Line | Gap::Space => {}
            }
        }
        out.push_str(text);
    }
    out
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
    let css = dense(css);
    format!("{before}`{css}`{after}")
}

/// Returns the style sheet without comments and without the white space that its meaning does not
/// need. No text in it has white space beside punctuation.
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
    Ok(dense(&text))
}

/// Returns rules without white space beside punctuation.
fn dense(css: &str) -> String {
    let joined = css.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let dense = ["{", "}", ";", ":", ","].iter().fold(joined, |text, mark| {
        // A selector such as `a :hover` keeps the space before its colon.
        let text = if *mark == ":" { text } else { text.replace(&format!(" {mark}"), mark) };
        text.replace(&format!("{mark} "), mark)
    });
    dense.replace(";}", "}")
}

/// Returns the JSON without the white space between its tokens.
pub(crate) fn data(source: &str) -> String {
    let (mut is_text, mut escaped) = (false, false);
    source
        .chars()
        .filter(|character| {
            let kept = is_text || !character.is_whitespace();
            is_text ^= *character == '"' && !escaped;
            escaped = is_text && *character == '\\' && !escaped;
            kept
        })
        .collect()
}

/// Returns whether the two characters may be one token without a space.
fn needs_space(before: char, after: char) -> bool {
    (is_name(before) && is_name(after))
        || (before == after && matches!(before, '+' | '-'))
        || before == '/'
        || after == '/'
        || (before.is_ascii_digit() && after == '.')
}

#[cfg(test)]
mod tests {
    use super::{data, module, style, style_in_template};

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
        assert_eq!(minified("let a;\nexport {\n  a,\n};\n"), "let a;\nexport{a};");
        assert_eq!(minified("a /* b */ c"), "a c");
        assert_eq!(
            minified("export const f = async (x) => {\n  return x ?? null;\n};\n"),
            "export const f=async(x)=>{return x??null};"
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
    fn commas_and_semicolons_before_a_closing_bracket_are_removed_unless_they_mean_something() {
        assert_eq!(minified("f(a, [b, c,], { d, });"), "f(a,[b,c],{d});");
        assert_eq!(minified("if (a) { b(); c(); }"), "if(a){b();c()}");
        assert_eq!(minified("class A { b = 1; #c; d() { return; } }"), "class A{b=1;#c;d(){return}}");
        assert_eq!(minified("f(`${(() => { a(); })()}`)"), "f(`${(()=>{a()})()}`)");
        // Commas of array holes and semicolons of empty statements are kept.
        for source in
            ["[,]", "[a,,]", "{while(a());}", "{for(;;);}", "{for await(a of b);}", "{if(a);else;}", "{a:;}"]
        {
            assert_eq!(minified(source), source);
        }
        for source in ["','", "`,}`", "/,]/", "f(';}')"] {
            assert_eq!(minified(source), source);
        }
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
        let short = ":host{a:var(--b,c);${S.map((s)=>`.d${s}{e:f}`).join(' ')}}.g :hover,h > i{j:k}";
        assert_eq!(
            style_in_template(&format!("const css=`\n{css}\n`;\nexport{{css}};")),
            format!("const css=`{short}`;\nexport{{css}};")
        );
        assert_eq!(style_in_template("a=`b: c`;\nd"), "a=`b: c`;\nd");
    }

    #[test]
    fn a_style_sheet_loses_comments_and_white_space() {
        let sheet =
            "/* A. */\n\na, b :hover > c {\n  b: c d; /* d */\n}\n@media (e: f) {\n  g { h: i; }\n}\n";
        assert_eq!(style(sheet).unwrap(), "a,b :hover > c{b:c d}@media (e:f){g{h:i}}");
    }

    #[test]
    fn data_loses_white_space_between_tokens() {
        assert_eq!(
            data("{\n  \"a \\\" b\": [1, \"\\\\\", \"c \"]\n}\n"),
            "{\"a \\\" b\":[1,\"\\\\\",\"c \"]}"
        );
    }
}
