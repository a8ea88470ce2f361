//! Gives the names that a minified module declares one or two letters, when the binary is built.
//!
//! A name of the source has the same short name wherever it stands in the module, so no scope is
//! computed: two variables with one name still have one name, and two with different names still
//! have different ones. Names of properties, and names that the module does not declare, stay as
//! they are, and no short name is one of them. The one condition is that a module never uses a name
//! both for something of its own and for something of the browser; a test of the peers' tier checks
//! it with TypeScript's compiler.

use std::collections::{BTreeMap, BTreeSet};

use super::minify::joined;
use super::tokens::{Kind, Token, tokens};

/// Words that are not names, or not everywhere.
const WORDS: [&str; 46] = [
    "arguments",
    "as",
    "async",
    "await",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "debugger",
    "default",
    "delete",
    "do",
    "else",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "from",
    "function",
    "get",
    "if",
    "import",
    "in",
    "instanceof",
    "let",
    "new",
    "null",
    "of",
    "return",
    "set",
    "static",
    "super",
    "switch",
    "this",
    "throw",
    "true",
    "try",
    "typeof",
    "var",
    "void",
    "while",
    "with",
    "yield",
];

/// Returns the text of a function's body with short names. It has no import and no export.
///
/// # Errors
/// The byte offset of the token that does not end.
pub(crate) fn with_short_names(source: &str) -> Result<String, usize> {
    let tokens = tokens(source)?;
    let module = Module::new(&tokens);
    let declared = module.declared();
    let roles: Vec<WordRole> = (0..tokens.len()).map(|at| module.role(at)).collect();
    let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
    let mut private: BTreeMap<&str, usize> = BTreeMap::new();
    let mut kept: BTreeSet<&str> = BTreeSet::new();
    for (token, role) in tokens.iter().zip(&roles).filter(|(token, _)| token.kind == Kind::Word) {
        if token.text.starts_with('#') {
            *private.entry(token.text).or_default() += 1;
        } else if declared.contains(token.text) && *role != WordRole::Property {
            *uses.entry(token.text).or_default() += 1;
        } else if *role != WordRole::Property {
            kept.insert(token.text);
        }
    }
    let is_free = |name: &String| !kept.contains(name.as_str()) && !WORDS.contains(&name.as_str());
    let names = numbered(&uses, |number| Some(short(number)).filter(is_free));
    let private = numbered(&private, |number| Some(format!("#{}", short(number))));
    let written: Vec<String> = tokens
        .iter()
        .zip(&roles)
        .map(|(token, role)| {
            let name = names.get(token.text).filter(|_| token.kind == Kind::Word);
            match (role, name) {
                (WordRole::Name, Some(name)) => name.clone(),
                (WordRole::Shorthand, Some(name)) if name != token.text => format!("{}:{name}", token.text),
                _ => private.get(token.text).cloned().unwrap_or_else(|| token.text.to_owned()),
            }
        })
        .collect();
    Ok(joined(tokens.iter().zip(written.iter().map(String::as_str))))
}

/// Assigns a short name to each name, the first ones to the names that are used most. `name`
/// returns `None` for a number whose name is taken.
fn numbered<'a>(
    uses: &BTreeMap<&'a str, usize>,
    name: impl Fn(usize) -> Option<String>,
) -> BTreeMap<&'a str, String> {
    let mut sorted: Vec<(&str, usize)> = uses.iter().map(|(name, uses)| (*name, *uses)).collect();
    sorted.sort_by_key(|(_, uses)| std::cmp::Reverse(*uses));
    let mut free = (0..).filter_map(name);
    sorted.into_iter().filter_map(|(long, _)| Some((long, free.next()?))).collect()
}

/// Returns the short name of a number: `a` to `Z`, then two letters.
pub(crate) fn short(number: usize) -> String {
    const LETTERS: &[u8; 52] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let letter = |number: usize| LETTERS.get(number % 52).copied().map_or('_', char::from);
    let mut name = String::from(letter(number));
    let mut rest = number / 52;
    while rest > 0 {
        name.push(letter(rest - 1));
        rest = (rest - 1) / 52;
    }
    name
}

/// The role of a word in its statement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WordRole {
    /// A keyword, or a name of a variable.
    Name,
    /// The name of a property and of a variable: `{a}`.
    Shorthand,
    /// The name of a property.
    Property,
}

/// The construct that an opening bracket begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bracket {
    /// Statements.
    Block,
    /// An object or a pattern.
    Object,
    /// The members of a class.
    Class,
    /// Anything else: parameters, arguments, an array, an expression in a template.
    Other,
}

struct Module<'a> {
    tokens: &'a [Token<'a>],
    /// The innermost bracket around each token: its position and its kind.
    around: Vec<Option<(usize, Bracket)>>,
    /// The index of the closing bracket of each opening token.
    closes: BTreeMap<usize, usize>,
}

impl<'a> Module<'a> {
    fn new(tokens: &'a [Token<'a>]) -> Self {
        let mut module = Self { tokens, around: Vec::with_capacity(tokens.len()), closes: BTreeMap::new() };
        // Conditional operators of each open bracket whose colon is still to come.
        let mut open: Vec<(usize, Bracket, usize)> = Vec::new();
        let (mut conditions, mut is_label, mut class) = (0_usize, false, false);
        for (at, token) in tokens.iter().enumerate() {
            let (closes, opens) = match token.kind {
                Kind::Template { closes, opens } => (closes, opens),
                Kind::Sign => (matches!(token.text, ")" | "]" | "}"), matches!(token.text, "(" | "[" | "{")),
                _ => (false, false),
            };
            if closes && let Some((from, _, outer)) = open.pop() {
                module.closes.insert(from, at);
                conditions = outer;
            }
            module.around.push(open.last().map(|(from, bracket, _)| (*from, *bracket)));
            if opens {
                let bracket = match token.text {
                    "{" if class => Bracket::Class,
                    "{" => module.brace(at, is_label),
                    _ => Bracket::Other,
                };
                class &= bracket != Bracket::Class;
                open.push((at, bracket, conditions));
                conditions = 0;
            }
            match token.text {
                "class" if module.role(at) != WordRole::Property => class = true,
                "?" => conditions += 1,
                ":" => {
                    is_label = conditions == 0 && !matches!(open.last(), Some((_, Bracket::Object, _)));
                    conditions = conditions.saturating_sub(1);
                }
                _ => {}
            }
        }
        module
    }

    fn before(&self, at: usize) -> Option<&Token<'a>> {
        self.tokens.get(at.checked_sub(1)?)
    }

    fn is(&self, at: usize, text: &str) -> bool {
        self.tokens.get(at).is_some_and(|token| token.is(text))
    }

    /// Returns the kind of block that the brace begins. `is_label`: whether the last colon ends a
    /// label or a case.
    fn brace(&self, at: usize, is_label: bool) -> Bracket {
        let Some(before) = self.before(at) else { return Bracket::Block };
        let is_block = match before.kind {
            Kind::Literal => false,
            Kind::Template { opens, .. } => !opens,
            Kind::Word => matches!(before.text, "else" | "do" | "try" | "catch" | "finally" | "static"),
            Kind::Sign => match before.text {
                "=>" | ")" | ";" | "{" | "}" => true,
                ":" => is_label,
                _ => false,
            },
        };
        if is_block { Bracket::Block } else { Bracket::Object }
    }

    /// Returns the role of the word at a place.
    fn role(&self, at: usize) -> WordRole {
        let Some(before) = self.before(at) else { return WordRole::Name };
        if before.is(".") || before.is("?.") {
            return WordRole::Property;
        }
        let (from, bracket) = self.around.get(at).copied().flatten().unwrap_or((at, Bracket::Other));
        let begins = |at: usize| {
            at == from + 1
                || match bracket {
                    Bracket::Object => self.is(at - 1, ","),
                    Bracket::Class => self.is(at - 1, ";") || self.is(at - 1, "}"),
                    Bracket::Block | Bracket::Other => false,
                }
        };
        // Modifiers such as `async *` before a name.
        let mut first = at;
        while first > 0 && !begins(first) && self.is_modifier(first - 1) {
            first -= 1;
        }
        let is_key = matches!(bracket, Bracket::Object | Bracket::Class) && begins(first);
        match self.tokens.get(at + 1).map(|token| token.text) {
            _ if !is_key => WordRole::Name,
            Some("," | "}" | "=") if bracket == Bracket::Object => WordRole::Shorthand,
            _ => WordRole::Property,
        }
    }

    fn is_modifier(&self, at: usize) -> bool {
        ["async", "get", "set", "static", "*"].iter().any(|word| self.is(at, word))
    }

    /// Returns the names that the module declares.
    fn declared(&self) -> BTreeSet<&'a str> {
        let mut names = BTreeSet::new();
        for (at, token) in self.tokens.iter().enumerate() {
            if token.kind == Kind::Word && self.role(at) == WordRole::Property {
                continue;
            }
            match token.text {
                "const" | "let" | "var" => self.variables(at + 1, &mut names),
                "function" | "class" => {
                    let name = if self.is(at + 1, "*") { at + 2 } else { at + 1 };
                    self.pattern(name, &mut names);
                }
                "(" if token.kind == Kind::Sign && self.has_parameters(at) => {
                    self.patterns(at, &mut names);
                }
                _ if self.is(at + 1, "=>") && token.kind == Kind::Word => {
                    self.pattern(at, &mut names);
                }
                _ => {}
            }
        }
        names
    }

    /// Returns whether the parenthesis begins the parameters of a function, or those of `catch`.
    fn has_parameters(&self, at: usize) -> bool {
        let Some(close) = self.closes.get(&at) else { return false };
        let controls = ["if", "for", "while", "switch", "with", "await"];
        let controls = self.before(at).is_some_and(|before| controls.iter().any(|word| before.is(word)));
        self.is(close + 1, "=>") || (self.is(close + 1, "{") && !controls)
    }

    /// Collects the names of a declaration: `a=1,{b}=c;`.
    fn variables(&self, from: usize, names: &mut BTreeSet<&'a str>) {
        let mut at = self.pattern(from, names);
        loop {
            if self.is(at, "=") {
                at = self.after_expression(at + 1);
            }
            if !self.is(at, ",") {
                return;
            }
            at = self.pattern(at + 1, names);
        }
    }

    /// Collects the names of the patterns in a bracket, each perhaps with a default value.
    fn patterns(&self, open: usize, names: &mut BTreeSet<&'a str>) {
        let Some(&close) = self.closes.get(&open) else { return };
        let is_object = self.is(open, "{");
        let mut at = open + 1;
        while at < close {
            if is_object && self.is(at, "[") {
                // A computed key.
                at = self.closes.get(&at).map_or(close, |end| end + 2);
            } else if is_object && self.is(at + 1, ":") {
                at += 2;
            }
            at = self.pattern(at, names);
            if self.is(at, "=") {
                at = self.after_expression(at + 1);
            }
            at += 1;
        }
    }

    /// Collects the names of a pattern, and returns the place after it.
    fn pattern(&self, from: usize, names: &mut BTreeSet<&'a str>) -> usize {
        let at = if self.is(from, "...") { from + 1 } else { from };
        match self.tokens.get(at) {
            Some(token) if token.is("{") || token.is("[") => {
                self.patterns(at, names);
                self.closes.get(&at).map_or(self.tokens.len(), |close| close + 1)
            }
            Some(token) if token.kind == Kind::Word && !WORDS.contains(&token.text) => {
                if !token.text.starts_with(|first: char| first.is_ascii_digit()) {
                    names.insert(token.text);
                }
                at + 1
            }
            _ => at,
        }
    }

    /// Returns the place after an expression: that of the comma, semicolon or bracket that ends it.
    fn after_expression(&self, from: usize) -> usize {
        let mut at = from;
        while let Some(token) = self.tokens.get(at) {
            let ends = matches!(token.kind, Kind::Template { closes: true, .. });
            if ends || (token.kind == Kind::Sign && matches!(token.text, "," | ";" | ")" | "]" | "}")) {
                return at;
            }
            at = self.closes.get(&at).copied().map_or(at, |close| self.last_part(close)) + 1;
        }
        at
    }

    /// Returns the last part of a template whose expression closes at this place.
    fn last_part(&self, close: usize) -> usize {
        let mut at = close;
        while let Some(next) = self.closes.get(&at) {
            at = *next;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::{short, with_short_names};

    #[track_caller]
    fn becomes(source: &str, expected: &str) {
        assert_eq!(with_short_names(source).unwrap(), expected);
    }

    #[test]
    fn declared_names_become_letters_wherever_they_stand() {
        becomes("const first=1,second=first+1;", "const a=1,b=a+1;");
        becomes("let one,two;for(const item of two)one(item);", "let b,c;for(const a of c)b(a);");
        becomes("function outer(given,...rest){return given}", "function b(a,...c){return a}");
        becomes("function*outer(){}class Thing extends Other{}", "function*b(){}class a extends Other{}");
        becomes("try{}catch(error){log(error)}", "try{}catch(a){log(a)}");
        becomes("each(item=>item+1,async(item)=>item)", "each(a=>a+1,async(a)=>a)");
        becomes("`${(value)=>`${value}`} value`", "`${(a)=>`${a}`} value`");
    }

    #[test]
    fn names_of_properties_and_of_the_browser_stay() {
        becomes("const name=1;other.name?.name;x={name:name}", "const a=1;other.name?.name;x={name:a}");
        becomes("const name=1;f({name,other})", "const a=1;f({name:a,other})");
        becomes("const{first,second:own=first,...more}=x;", "const{first:a,second:c=a,...b}=x;");
        becomes("({first=1,[key]:second})=>second", "({first:b=1,[key]:a})=>a");
        becomes("const[first,,second]=x;", "const[a,,b]=x;");
        becomes(
            "const get=1;x={get first(){},async*get(){},get}",
            "const get=1;x={get first(){},async*get(){},get}",
        );
        becomes("const log=1;console.log(log)", "const a=1;console.log(a)");
    }

    #[test]
    fn members_of_classes_stay_and_private_names_become_letters() {
        becomes(
            "const open=1;class A{open=open;static #shut=open;get open(){return this.#shut}static{open}}",
            "const a=1;class b{open=a;static #a=a;get open(){return this.#a}static{a}}",
        );
        becomes("class A{#first='#first';f=(a)=>#first in a}", "class b{#a='#first';f=(a)=>#a in a}");
    }

    #[test]
    fn blocks_and_objects_are_told_apart() {
        becomes(
            "const a1=1;switch(x){case 1:{a1}default:{a1}}",
            "const a=1;switch(x){case 1:{a}default:{a}}",
        );
        becomes("const long=1;x=y?{long}:{long:1}", "const a=1;x=y?{long:a}:{long:1}");
        becomes("const long=1;if(x){long}else{long}", "const a=1;if(x){a}else{a}");
        becomes("const long=1;()=>({long});return{long}", "const a=1;()=>({long:a});return{long:a}");
        becomes("const long=1;x={class:long,if:1};{long}", "const a=1;x={class:a,if:1};{a}");
    }

    #[test]
    fn no_short_name_is_a_name_that_stays() {
        becomes("const long=a,longer=c;b(longer)", "const e=a,d=c;b(d)");
        let names: std::collections::BTreeSet<String> = (0..10_000).map(short).collect();
        assert_eq!(names.len(), 10_000);
        let many: String = (0..4_000).map(|number| format!("const long{number}=1;")).collect();
        let text = with_short_names(&many).unwrap();
        for word in ["do", "if", "in", "of", "as"] {
            assert!(!text.contains(&format!("const {word}=")), "{word}");
        }
    }

    #[test]
    fn an_open_end_is_an_error() {
        assert_eq!(with_short_names("a 'b\n'"), Err(2));
    }
}
