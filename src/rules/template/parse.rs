//! Parses the tokens of a template into its tree, with the rules and messages of Go's
//! text/template.

mod operands;

use super::lex::{TemplateToken, TemplateTokenKind, lex};
use super::tree::{Branch, OperandKind, TemplateCall, TemplateNode, TemplatePipeline, TemplateTree};
use super::{NESTING_MAX, TEXT_BYTES_MAX, TemplateError, number};

/// The variables that exist at the start of a template of a rule.
pub(super) const PREDEFINED: [&str; 5] = ["$", "$labels", "$externalLabels", "$externalURL", "$value"];

/// Parses the template of a rule.
pub(super) fn parse(text: &str) -> Result<TemplateTree, TemplateError> {
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("{} bytes, more than the {TEXT_BYTES_MAX} allowed", text.len());
        return Err(TemplateError::at(text, 0, message));
    }
    let tokens = lex(text)?;
    let variables = PREDEFINED.iter().map(|name| (*name).to_owned()).collect();
    let mut parser = TemplateParser {
        text,
        tokens,
        next: 0,
        variables,
        tree: TemplateTree::default(),
        nesting: 0,
        ranges: 0,
    };
    let list = parser.list()?;
    if let Some(end) = list.end {
        return Err(parser.error_at(end.at, format!("unexpected {{{{{}}}}}", end.word)));
    }
    parser.tree.nodes = list.nodes;
    Ok(parser.tree)
}

struct TemplateParser<'t> {
    text: &'t str,
    tokens: Vec<TemplateToken<'t>>,
    next: usize,
    /// The variables that are defined here, the innermost ones last.
    variables: Vec<String>,
    tree: TemplateTree,
    nesting: usize,
    /// The `range` actions around the current node.
    ranges: usize,
}

/// The nodes up to `{{end}}` or `{{else}}`, which is not a node.
struct List {
    nodes: Vec<TemplateNode>,
    end: Option<ListEnd>,
}

/// The keyword that ends a list.
struct ListEnd {
    at: usize,
    word: &'static str,
}

/// The kinds of actions with a body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BranchKind {
    If,
    With,
    Range,
}

impl BranchKind {
    const fn word(self) -> &'static str {
        match self {
            BranchKind::If => "if",
            BranchKind::With => "with",
            BranchKind::Range => "range",
        }
    }
}

impl<'t> TemplateParser<'t> {
    fn peek(&self) -> TemplateToken<'t> {
        let end = TemplateToken { kind: TemplateTokenKind::End, text: "", at: self.text.len() };
        self.tokens.get(self.next).copied().unwrap_or(end)
    }

    fn take(&mut self) -> TemplateToken<'t> {
        let token = self.peek();
        self.next += 1;
        token
    }

    fn skip_spaces(&mut self) {
        while self.peek().kind == TemplateTokenKind::Space {
            self.next += 1;
        }
    }

    fn peek_word(&mut self) -> TemplateToken<'t> {
        self.skip_spaces();
        self.peek()
    }

    fn take_word(&mut self) -> TemplateToken<'t> {
        self.skip_spaces();
        self.take()
    }

    fn error_at(&self, at: usize, message: impl Into<String>) -> TemplateError {
        TemplateError::at(self.text, at, message)
    }

    fn unexpected(&self, token: TemplateToken<'_>, context: &str) -> TemplateError {
        let what = match token.kind {
            TemplateTokenKind::End => "EOF".to_owned(),
            TemplateTokenKind::Keyword => format!("<{}>", token.text),
            _ => format!("{:?}", token.text),
        };
        self.error_at(token.at, format!("unexpected {what} in {context}"))
    }

    /// Counts a level of nesting, so that no text makes the tree too deep.
    fn enter(&mut self, at: usize) -> Result<(), TemplateError> {
        self.nesting += 1;
        if self.nesting > NESTING_MAX {
            return Err(self.error_at(at, format!("nested more than {NESTING_MAX} levels deep")));
        }
        Ok(())
    }

    fn list(&mut self) -> Result<List, TemplateError> {
        let mut nodes = Vec::new();
        loop {
            let token = self.take();
            match token.kind {
                TemplateTokenKind::Text => nodes.push(TemplateNode::Text(token.text.into())),
                TemplateTokenKind::Open => {
                    if let Some(end) = self.action(token.at, &mut nodes)? {
                        return Ok(List { nodes, end: Some(end) });
                    }
                }
                _ => return Ok(List { nodes, end: None }),
            }
        }
    }

    /// Parses an action after its `{{`.
    fn action(&mut self, at: usize, nodes: &mut Vec<TemplateNode>) -> Result<Option<ListEnd>, TemplateError> {
        let token = self.peek_word();
        if token.kind != TemplateTokenKind::Keyword {
            let pipeline = self.pipeline("command", TemplateTokenKind::Close)?;
            nodes.push(TemplateNode::Action(pipeline));
            return Ok(None);
        }
        self.take();
        match token.text {
            "if" => nodes.push(TemplateNode::If(self.branch(token.at, BranchKind::If)?)),
            "with" => nodes.push(TemplateNode::With(self.branch(token.at, BranchKind::With)?)),
            "range" => nodes.push(TemplateNode::Range(self.branch(token.at, BranchKind::Range)?)),
            "template" => nodes.push(TemplateNode::Template(self.template_call()?)),
            "block" => nodes.push(TemplateNode::Template(self.block(token.at)?)),
            "define" => self.define(token.at)?,
            "break" | "continue" => {
                self.close(token.text)?;
                if self.ranges == 0 {
                    let message = format!("{{{{{}}}}} outside {{{{range}}}}", token.text);
                    return Err(self.error_at(at, message));
                }
                nodes.push(if token.text == "break" { TemplateNode::Break } else { TemplateNode::Continue });
            }
            "end" => {
                self.close("end")?;
                return Ok(Some(ListEnd { at: token.at, word: "end" }));
            }
            _ => return Ok(Some(ListEnd { at: token.at, word: "else" })),
        }
        Ok(None)
    }

    fn close(&mut self, context: &str) -> Result<(), TemplateError> {
        let token = self.take_word();
        if token.kind == TemplateTokenKind::Close { Ok(()) } else { Err(self.unexpected(token, context)) }
    }

    /// Parses the rest of `if`, `with` or `range` with its body and its alternatives.
    fn branch(&mut self, at: usize, kind: BranchKind) -> Result<Branch, TemplateError> {
        self.enter(at)?;
        let known = self.variables.len();
        let pipeline = self.pipeline(kind.word(), TemplateTokenKind::Close)?;
        self.ranges += usize::from(kind == BranchKind::Range);
        let list = self.list()?;
        self.ranges -= usize::from(kind == BranchKind::Range);
        let mut otherwise = Vec::new();
        let end = self.end_of(at, kind.word(), list.end)?;
        if end.word == "else" {
            otherwise = self.otherwise(at, kind)?;
        }
        self.variables.truncate(known);
        self.nesting -= 1;
        Ok(Branch { at, pipeline, body: list.nodes, otherwise })
    }

    fn end_of(&self, at: usize, what: &str, end: Option<ListEnd>) -> Result<ListEnd, TemplateError> {
        end.ok_or_else(|| self.error_at(at, format!("unexpected EOF: {{{{{what}}}}} has no {{{{end}}}}")))
    }

    /// Parses the alternative of a branch after `else`.
    fn otherwise(&mut self, at: usize, kind: BranchKind) -> Result<Vec<TemplateNode>, TemplateError> {
        let token = self.peek_word();
        if token.kind == TemplateTokenKind::Keyword && kind != BranchKind::Range && token.text == kind.word()
        {
            // `{{else if x}}` is an `if` inside of the alternative; one `{{end}}` ends both.
            self.take();
            let inner = self.branch(token.at, kind)?;
            return Ok(vec![if kind == BranchKind::If {
                TemplateNode::If(inner)
            } else {
                TemplateNode::With(inner)
            }]);
        }
        self.close("else")?;
        let list = self.list()?;
        let end = self.end_of(at, kind.word(), list.end)?;
        if end.word != "end" {
            return Err(self.error_at(end.at, "expected end; found {{else}}"));
        }
        Ok(list.nodes)
    }

    /// Parses the name of a template, a string.
    fn template_name(&mut self, context: &str) -> Result<String, TemplateError> {
        let token = self.take_word();
        match token.kind {
            TemplateTokenKind::Quoted | TemplateTokenKind::Raw => self.unquoted(token),
            _ => Err(self.unexpected(token, context)),
        }
    }

    fn unquoted(&self, token: TemplateToken<'_>) -> Result<String, TemplateError> {
        number::unquote(token.text).map_err(|message| self.error_at(token.at, message))
    }

    fn template_call(&mut self) -> Result<TemplateCall, TemplateError> {
        let at = self.peek_word().at;
        let name = self.template_name("template clause")?;
        let pipeline = if self.peek_word().kind == TemplateTokenKind::Close {
            self.take();
            None
        } else {
            Some(self.pipeline("template clause", TemplateTokenKind::Close)?)
        };
        Ok(TemplateCall { at, name, pipeline })
    }

    /// Parses the body of a defined template, which has no variables but `$`.
    fn defined_body(&mut self, at: usize, what: &str) -> Result<Vec<TemplateNode>, TemplateError> {
        let outer = std::mem::replace(&mut self.variables, vec!["$".to_owned()]);
        let outer_ranges = std::mem::take(&mut self.ranges);
        let list = self.list()?;
        self.variables = outer;
        self.ranges = outer_ranges;
        let end = self.end_of(at, what, list.end)?;
        if end.word != "end" {
            return Err(self.error_at(end.at, format!("unexpected {{{{else}}}} in {what} clause")));
        }
        Ok(list.nodes)
    }

    fn define(&mut self, at: usize) -> Result<(), TemplateError> {
        if self.nesting > 0 {
            return Err(self.error_at(at, "unexpected <define> in command"));
        }
        self.enter(at)?;
        let name = self.template_name("define clause")?;
        self.close("define clause")?;
        let body = self.defined_body(at, "define")?;
        self.nesting -= 1;
        self.add_defined(at, name, body)
    }

    fn add_defined(&mut self, at: usize, name: String, body: Vec<TemplateNode>) -> Result<(), TemplateError> {
        let blank = |nodes: &[TemplateNode]| {
            nodes.iter().all(|node| matches!(node, TemplateNode::Text(text) if text.trim().is_empty()))
        };
        match self.tree.defined.get(&name) {
            // An empty definition neither replaces another one nor counts as one.
            Some(_) if blank(&body) => {}
            Some(have) if !blank(have) => {
                return Err(self.error_at(at, format!("multiple definition of template {name:?}")));
            }
            _ => {
                self.tree.defined.insert(name, body);
            }
        }
        Ok(())
    }

    /// Parses `{{block "name" pipeline}}`: a definition and its use.
    fn block(&mut self, at: usize) -> Result<TemplateCall, TemplateError> {
        self.enter(at)?;
        let name = self.template_name("block clause")?;
        let pipeline = self.pipeline("block clause", TemplateTokenKind::Close)?;
        let body = self.defined_body(at, "block")?;
        self.nesting -= 1;
        self.add_defined(at, name.clone(), body)?;
        Ok(TemplateCall { at, name, pipeline: Some(pipeline) })
    }

    /// Parses a pipeline with its closing token.
    fn pipeline(&mut self, context: &str, end: TemplateTokenKind) -> Result<TemplatePipeline, TemplateError> {
        let at = self.peek_word().at;
        self.enter(at)?;
        let mut pipeline =
            TemplatePipeline { at, variables: Vec::new(), assigns: false, commands: Vec::new() };
        self.declarations(context, &mut pipeline)?;
        loop {
            let token = self.take_word();
            match token.kind {
                kind if kind == end => break,
                TemplateTokenKind::Bool
                | TemplateTokenKind::Char
                | TemplateTokenKind::Dot
                | TemplateTokenKind::Field
                | TemplateTokenKind::Identifier
                | TemplateTokenKind::Number
                | TemplateTokenKind::Nil
                | TemplateTokenKind::Raw
                | TemplateTokenKind::Quoted
                | TemplateTokenKind::Variable
                | TemplateTokenKind::LeftParen => {
                    self.next -= 1;
                    let command = self.command()?;
                    pipeline.commands.push(command);
                }
                _ => return Err(self.unexpected(token, context)),
            }
        }
        self.check_pipeline(&pipeline, context)?;
        // Go takes an assigned variable for defined, too; the expansion fails if it is not.
        self.variables.extend(pipeline.variables.iter().cloned());
        self.nesting -= 1;
        Ok(pipeline)
    }

    /// Parses `$x :=`, `$x =`, and `$i, $x :=` of a `range`.
    fn declarations(&mut self, context: &str, pipeline: &mut TemplatePipeline) -> Result<(), TemplateError> {
        let start = self.next;
        let mut names: Vec<TemplateToken<'_>> = Vec::new();
        loop {
            let token = self.peek_word();
            if token.kind != TemplateTokenKind::Variable {
                break;
            }
            self.take();
            names.push(token);
            let after = self.peek_word();
            match after.kind {
                TemplateTokenKind::Declare | TemplateTokenKind::Assign => {
                    self.take();
                    pipeline.assigns = after.kind == TemplateTokenKind::Assign;
                    return self.check_declarations(context, &names, pipeline);
                }
                TemplateTokenKind::Comma if context == "range" && names.len() < 2 => {
                    self.take();
                }
                TemplateTokenKind::Comma => {
                    return Err(self.error_at(token.at, format!("too many declarations in {context}")));
                }
                _ => break,
            }
        }
        if names.len() > 1 {
            return Err(self.error_at(pipeline.at, "range can only initialize variables"));
        }
        self.next = start;
        Ok(())
    }

    fn check_declarations(
        &self,
        context: &str,
        names: &[TemplateToken<'_>],
        pipeline: &mut TemplatePipeline,
    ) -> Result<(), TemplateError> {
        for name in names {
            pipeline.variables.push(name.text.to_owned());
        }
        if names.len() > 1 && context != "range" {
            return Err(self.error_at(pipeline.at, format!("too many declarations in {context}")));
        }
        Ok(())
    }

    fn check_pipeline(&self, pipeline: &TemplatePipeline, context: &str) -> Result<(), TemplateError> {
        if pipeline.commands.is_empty() {
            return Err(self.error_at(pipeline.at, format!("missing value for {context}")));
        }
        for (index, command) in pipeline.commands.iter().enumerate().skip(1) {
            let Some(first) = command.operands.first() else { continue };
            let constant = matches!(
                first.kind,
                OperandKind::Bool(_)
                    | OperandKind::Dot
                    | OperandKind::Nil
                    | OperandKind::Number(..)
                    | OperandKind::Text(..)
            );
            if constant {
                let message = format!("non executable command in pipeline stage {}", index + 1);
                return Err(self.error_at(first.at, message));
            }
        }
        Ok(())
    }
}
