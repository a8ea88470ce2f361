//! The tree of a template.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::number::NumberConstant;

/// A parsed template with the templates that it defines.
#[derive(Clone, Debug, Default)]
pub(super) struct TemplateTree {
    pub(super) nodes: Vec<TemplateNode>,
    pub(super) defined: BTreeMap<String, Vec<TemplateNode>>,
}

/// A part of a template.
#[derive(Clone, Debug)]
pub(super) enum TemplateNode {
    Text(Arc<str>),
    Action(TemplatePipeline),
    If(Branch),
    With(Branch),
    Range(Branch),
    Template(TemplateCall),
    Break,
    Continue,
}

/// An action with a body and an alternative.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    pub(super) at: usize,
    pub(super) pipeline: TemplatePipeline,
    pub(super) body: Vec<TemplateNode>,
    pub(super) otherwise: Vec<TemplateNode>,
}

/// The use of a defined template.
#[derive(Clone, Debug)]
pub(super) struct TemplateCall {
    pub(super) at: usize,
    pub(super) name: String,
    pub(super) pipeline: Option<TemplatePipeline>,
}

/// Commands, each of which gets the value of the one before as its last argument.
#[derive(Clone, Debug)]
pub(super) struct TemplatePipeline {
    pub(super) at: usize,
    /// The variables that get the value, with their `$`.
    pub(super) variables: Vec<String>,
    /// Whether the variables exist already.
    pub(super) assigns: bool,
    pub(super) commands: Vec<PipelineCommand>,
}

/// An operand, with the arguments that are given to it.
#[derive(Clone, Debug)]
pub(super) struct PipelineCommand {
    pub(super) operands: Vec<Operand>,
}

/// An operand with its position.
#[derive(Clone, Debug)]
pub(super) struct Operand {
    pub(super) at: usize,
    pub(super) kind: OperandKind,
}

#[derive(Clone, Debug)]
pub(super) enum OperandKind {
    Bool(bool),
    /// A number or character, with its text.
    Number(NumberConstant, String),
    /// A string, with its text in quotes.
    Text(Arc<str>, String),
    Nil,
    Dot,
    /// `.a.b`.
    Field(Vec<String>),
    /// `$x.a.b`: the name with its `$`, and the fields.
    Variable(String, Vec<String>),
    /// The name of a function.
    Function(String),
    /// A pipeline in parentheses.
    Pipeline(Box<TemplatePipeline>),
    /// Fields of a pipeline in parentheses, or of the result of a function.
    Chain(Box<Operand>, Vec<String>),
}

fn write_fields(f: &mut fmt::Formatter<'_>, fields: &[String]) -> fmt::Result {
    fields.iter().try_for_each(|field| write!(f, ".{field}"))
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            OperandKind::Bool(value) => write!(f, "{value}"),
            OperandKind::Number(_, text) | OperandKind::Text(_, text) => f.write_str(text),
            OperandKind::Nil => f.write_str("nil"),
            OperandKind::Dot => f.write_str("."),
            OperandKind::Field(fields) => write_fields(f, fields),
            OperandKind::Variable(name, fields) => {
                f.write_str(name)?;
                write_fields(f, fields)
            }
            OperandKind::Function(name) => f.write_str(name),
            OperandKind::Pipeline(pipeline) => write!(f, "({pipeline})"),
            OperandKind::Chain(operand, fields) => {
                write!(f, "{operand}")?;
                write_fields(f, fields)
            }
        }
    }
}

impl fmt::Display for PipelineCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, operand) in self.operands.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{operand}")?;
        }
        Ok(())
    }
}

impl fmt::Display for TemplatePipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.variables.is_empty() {
            let sign = if self.assigns { "=" } else { ":=" };
            write!(f, "{} {sign} ", self.variables.join(", "))?;
        }
        for (index, command) in self.commands.iter().enumerate() {
            let bar = if index == 0 { "" } else { " | " };
            write!(f, "{bar}{command}")?;
        }
        Ok(())
    }
}
