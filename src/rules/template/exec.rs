//! Executes the tree of a template.

mod calls;
mod methods;

use std::fmt;
use std::sync::Arc;

use super::functions::FunctionContext;
use super::tree::{
    Branch, Operand, OperandKind, PipelineCommand, TemplateCall, TemplateNode, TemplatePipeline, TemplateTree,
};
use super::value::TemplateValue;
use super::{DEPTH_MAX, OUTPUT_BYTES_MAX, STEPS_MAX, TemplateError, format, parse};

/// Runs a template and returns its text.
pub(super) fn execute(
    text: &str,
    tree: &TemplateTree,
    context: FunctionContext<'_>,
) -> Result<String, TemplateError> {
    let root = TemplateValue::Root(Arc::new(context.data.clone()));
    let mut executor = Executor {
        text,
        tree,
        context,
        out: String::new(),
        steps: 0,
        depth: 0,
        place: ExecPlace::Start,
        variables: Vec::new(),
    };
    for name in parse::PREDEFINED {
        let value = match name {
            "$labels" => root.field("Labels"),
            "$externalLabels" => root.field("ExternalLabels"),
            "$externalURL" => root.field("ExternalURL"),
            "$value" => root.field("Value"),
            _ => Ok(root.clone()),
        };
        let value = value.map_err(|message| executor.error(message))?;
        executor.variables.push(TemplateVariable { name, value });
    }
    executor.nodes(&root, &tree.nodes)?;
    Ok(executor.out)
}

/// How the execution continues after a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

/// The node or operand that is executed now, for messages.
#[derive(Clone, Copy)]
enum ExecPlace<'t> {
    Start,
    Operand(&'t Operand),
    Command(&'t PipelineCommand),
    Pipeline(&'t TemplatePipeline),
    Branch(&'t Branch),
    Call(&'t TemplateCall),
}

impl ExecPlace<'_> {
    fn offset(self) -> usize {
        match self {
            ExecPlace::Start => 0,
            ExecPlace::Operand(operand) => operand.at,
            ExecPlace::Command(command) => command.operands.first().map_or(0, |operand| operand.at),
            ExecPlace::Pipeline(pipeline) => pipeline.at,
            ExecPlace::Branch(branch) => branch.at,
            ExecPlace::Call(call) => call.at,
        }
    }
}

impl fmt::Display for ExecPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExecPlace::Start => f.write_str("."),
            ExecPlace::Operand(operand) => write!(f, "{operand}"),
            ExecPlace::Command(command) => write!(f, "{command}"),
            ExecPlace::Pipeline(pipeline) => write!(f, "{pipeline}"),
            ExecPlace::Branch(branch) => write!(f, "{}", branch.pipeline),
            ExecPlace::Call(call) => write!(f, "{{{{template {}}}}}", format::quote(&call.name, '"')),
        }
    }
}

struct TemplateVariable<'t> {
    name: &'t str,
    value: TemplateValue,
}

struct Executor<'t, 'c> {
    text: &'t str,
    tree: &'t TemplateTree,
    context: FunctionContext<'c>,
    out: String,
    steps: usize,
    depth: usize,
    place: ExecPlace<'t>,
    variables: Vec<TemplateVariable<'t>>,
}

type Outcome = Result<TemplateValue, TemplateError>;

impl<'t> Executor<'t, '_> {
    /// Makes an error at the current place.
    fn error(&self, message: impl Into<String>) -> TemplateError {
        /// The most bytes of an operand in a message.
        const SHOWN_MAX: usize = 200;
        let mut operand = self.place.to_string();
        operand.truncate(operand.floor_char_boundary(SHOWN_MAX));
        TemplateError { operand, ..TemplateError::at(self.text, self.place.offset(), message) }
    }

    fn step(&mut self) -> Result<(), TemplateError> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(self.error(format!("the expansion takes more than {STEPS_MAX} steps")));
        }
        Ok(())
    }

    /// Runs a part one level deeper.
    fn deeper<T>(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<T, TemplateError>,
    ) -> Result<T, TemplateError> {
        self.step()?;
        if self.depth >= DEPTH_MAX {
            return Err(self.error(format!("exceeded maximum template depth ({DEPTH_MAX})")));
        }
        self.depth += 1;
        let result = run(self);
        self.depth -= 1;
        result
    }

    fn write(&mut self, text: &str) -> Result<(), TemplateError> {
        if self.out.len() + text.len() > OUTPUT_BYTES_MAX {
            return Err(self.error(format!("the text has more than {OUTPUT_BYTES_MAX} bytes")));
        }
        self.out.push_str(text);
        Ok(())
    }

    fn nodes(&mut self, dot: &TemplateValue, nodes: &'t [TemplateNode]) -> Result<Flow, TemplateError> {
        for node in nodes {
            let flow = self.deeper(|executor| executor.node(dot, node))?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn node(&mut self, dot: &TemplateValue, node: &'t TemplateNode) -> Result<Flow, TemplateError> {
        match node {
            TemplateNode::Text(text) => self.write(text)?,
            TemplateNode::Action(pipeline) => {
                let value = self.pipeline(dot, pipeline)?;
                if pipeline.variables.is_empty() {
                    self.print(&value)?;
                }
            }
            TemplateNode::If(branch) => return self.choose(dot, branch, false),
            TemplateNode::With(branch) => return self.choose(dot, branch, true),
            TemplateNode::Range(branch) => return self.range(dot, branch),
            TemplateNode::Template(call) => self.call_template(dot, call)?,
            TemplateNode::Break => return Ok(Flow::Break),
            TemplateNode::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn print(&mut self, value: &TemplateValue) -> Result<(), TemplateError> {
        let text = match value {
            TemplateValue::Missing => "<no value>".to_owned(),
            TemplateValue::Text(text) => return self.write(text),
            // A pointer to a struct is printed as the struct.
            TemplateValue::Sample(_) => {
                let text = format::print(std::slice::from_ref(value)).map_err(|e| self.error(e))?;
                text.trim_start_matches('&').to_owned()
            }
            other => format::print(std::slice::from_ref(other)).map_err(|e| self.error(e))?,
        };
        self.write(&text)
    }

    /// Executes `if`, or `with`, which sets the dot.
    fn choose(
        &mut self,
        dot: &TemplateValue,
        branch: &'t Branch,
        sets_dot: bool,
    ) -> Result<Flow, TemplateError> {
        let known = self.variables.len();
        let value = self.pipeline(dot, &branch.pipeline)?;
        let flow = if value.is_true() {
            self.nodes(if sets_dot { &value } else { dot }, &branch.body)?
        } else {
            self.nodes(dot, &branch.otherwise)?
        };
        self.variables.truncate(known);
        Ok(flow)
    }

    fn range(&mut self, dot: &TemplateValue, branch: &'t Branch) -> Result<Flow, TemplateError> {
        self.place = ExecPlace::Branch(branch);
        let known = self.variables.len();
        let value = self.pipeline(dot, &branch.pipeline)?;
        let mark = self.variables.len();
        let items: Box<dyn Iterator<Item = RangeItem>> = match value {
            TemplateValue::Missing => Box::new(std::iter::empty()),
            TemplateValue::Samples(samples) => {
                let item = move |at: usize| {
                    let sample = samples.get(at)?;
                    let key = TemplateValue::Int(i64::try_from(at).unwrap_or(i64::MAX));
                    Some(RangeItem { key, value: TemplateValue::Sample(Arc::clone(sample)) })
                };
                Box::new((0..).map_while(item))
            }
            TemplateValue::Labels(labels) => {
                self.steps = self.steps.saturating_add(labels.len());
                let pairs: Vec<RangeItem> = labels
                    .iter()
                    .map(|(name, value)| RangeItem {
                        key: TemplateValue::text(name.as_str()),
                        value: TemplateValue::text(value.as_str()),
                    })
                    .collect();
                Box::new(pairs.into_iter())
            }
            TemplateValue::Args(args) => {
                self.steps = self.steps.saturating_add(args.values.len());
                let pairs: Vec<RangeItem> = args
                    .values
                    .iter()
                    .map(|(name, value)| RangeItem {
                        key: TemplateValue::text(name.as_str()),
                        value: value.clone(),
                    })
                    .collect();
                Box::new(pairs.into_iter())
            }
            TemplateValue::Int(end) => {
                if branch.pipeline.variables.len() > 1 {
                    return Err(self.error(format!("can't use {end} to iterate over more than one variable")));
                }
                Box::new(
                    (0..end)
                        .map(|at| RangeItem { key: TemplateValue::Int(at), value: TemplateValue::Int(at) }),
                )
            }
            other => {
                let shown = format::print(&[other]).unwrap_or_default();
                return Err(self.error(format!("range can't iterate over {shown}")));
            }
        };
        let mut any = false;
        for item in items {
            any = true;
            self.step()?;
            let flow = self.iteration(branch, item)?;
            self.variables.truncate(mark);
            if flow == Flow::Break {
                break;
            }
        }
        let flow = if any { Flow::Next } else { self.nodes(dot, &branch.otherwise)? };
        self.variables.truncate(known);
        Ok(flow)
    }

    fn iteration(&mut self, branch: &'t Branch, item: RangeItem) -> Result<Flow, TemplateError> {
        let RangeItem { key, value } = item;
        let values = match branch.pipeline.variables.as_slice() {
            [] => vec![],
            [_] => vec![value.clone()],
            _ => vec![key, value.clone()],
        };
        for (name, value) in branch.pipeline.variables.iter().zip(values) {
            // The innermost variable of the name is the one of this `range`, or the assigned one.
            self.assign(name, value)?;
        }
        self.nodes(&value, &branch.body)
    }

    fn assign(&mut self, name: &str, value: TemplateValue) -> Result<(), TemplateError> {
        match self.variables.iter_mut().rev().find(|variable| variable.name == name) {
            Some(variable) => variable.value = value,
            None => return Err(self.error(format!("undefined variable: {name}"))),
        }
        Ok(())
    }

    fn call_template(&mut self, dot: &TemplateValue, call: &'t TemplateCall) -> Result<(), TemplateError> {
        self.place = ExecPlace::Call(call);
        let Some(body) = self.tree.defined.get(&call.name) else {
            return Err(self.error(format!("template {} not defined", format::quote(&call.name, '"'))));
        };
        let value = match &call.pipeline {
            Some(pipeline) => self.pipeline(dot, pipeline)?,
            None => TemplateValue::Missing,
        };
        let root = TemplateVariable { name: "$", value: value.clone() };
        let outer = std::mem::replace(&mut self.variables, vec![root]);
        self.nodes(&value, body)?;
        self.variables = outer;
        Ok(())
    }

    fn pipeline(&mut self, dot: &TemplateValue, pipeline: &'t TemplatePipeline) -> Outcome {
        self.place = ExecPlace::Pipeline(pipeline);
        let mut value = None;
        for command in &pipeline.commands {
            value = Some(self.deeper(|executor| executor.command(dot, command, value))?);
        }
        let value = value.unwrap_or(TemplateValue::Missing);
        for name in &pipeline.variables {
            if pipeline.assigns {
                self.assign(name, value.clone())?;
            } else {
                self.variables.push(TemplateVariable { name, value: value.clone() });
            }
        }
        Ok(value)
    }

    /// Evaluates a command; `last` is the value of the command before it.
    fn command(
        &mut self,
        dot: &TemplateValue,
        command: &'t PipelineCommand,
        last: Option<TemplateValue>,
    ) -> Outcome {
        let Some((first, args)) = command.operands.split_first() else {
            return Err(self.error("empty command"));
        };
        match &first.kind {
            OperandKind::Function(name) => {
                self.place = ExecPlace::Operand(first);
                return self.call(dot, Site { place: ExecPlace::Command(command), name }, args, last);
            }
            OperandKind::Field(fields) => {
                self.place = ExecPlace::Operand(first);
                return self.fields(dot, dot.clone(), fields, args, last);
            }
            OperandKind::Variable(name, fields) => {
                self.place = ExecPlace::Operand(first);
                let value = self.variable(name)?;
                return self.fields(dot, value, fields, args, last);
            }
            OperandKind::Chain(operand, fields) => {
                self.place = ExecPlace::Operand(first);
                let value = self.operand(dot, operand)?;
                return self.fields(dot, value, fields, args, last);
            }
            _ => {}
        }
        if !matches!(first.kind, OperandKind::Pipeline(_)) {
            self.place = ExecPlace::Operand(first);
        }
        self.refuse_arguments(first, args, last.as_ref())?;
        if matches!(first.kind, OperandKind::Nil) {
            return Err(self.error("nil is not a command"));
        }
        self.operand(dot, first)
    }

    fn refuse_arguments(
        &self,
        first: &Operand,
        args: &[Operand],
        last: Option<&TemplateValue>,
    ) -> Result<(), TemplateError> {
        if args.is_empty() && last.is_none() {
            return Ok(());
        }
        Err(self.error(format!("can't give argument to non-function {first}")))
    }

    fn variable(&self, name: &str) -> Outcome {
        let found = self.variables.iter().rev().find(|variable| variable.name == name);
        found
            .map(|variable| variable.value.clone())
            .ok_or_else(|| self.error(format!("undefined variable: {name}")))
    }

    /// Evaluates an operand without arguments.
    fn operand(&mut self, dot: &TemplateValue, operand: &'t Operand) -> Outcome {
        self.deeper(|executor| executor.operand_value(dot, operand))
    }

    fn operand_value(&mut self, dot: &TemplateValue, operand: &'t Operand) -> Outcome {
        if !matches!(operand.kind, OperandKind::Pipeline(_)) {
            self.place = ExecPlace::Operand(operand);
        }
        match &operand.kind {
            OperandKind::Bool(value) => Ok(TemplateValue::Bool(*value)),
            OperandKind::Number(constant, _) => Ok(match constant.int {
                Some(int) if !constant.is_float => TemplateValue::Int(int),
                _ => TemplateValue::Float(constant.float),
            }),
            OperandKind::Text(text, _) => Ok(TemplateValue::Text(Arc::clone(text))),
            OperandKind::Nil => Ok(TemplateValue::Missing),
            OperandKind::Dot => Ok(dot.clone()),
            OperandKind::Field(fields) => self.fields(dot, dot.clone(), fields, &[], None),
            OperandKind::Variable(name, fields) => {
                let value = self.variable(name)?;
                self.fields(dot, value, fields, &[], None)
            }
            OperandKind::Function(name) => {
                let site = Site { place: ExecPlace::Operand(operand), name };
                self.call(dot, site, &[], None)
            }
            OperandKind::Pipeline(pipeline) => {
                let known = self.variables.len();
                let value = self.pipeline(dot, pipeline);
                self.variables.truncate(known);
                value
            }
            OperandKind::Chain(inner, fields) => {
                let value = self.operand(dot, inner)?;
                self.fields(dot, value, fields, &[], None)
            }
        }
    }

    /// Follows fields; the last one may be a method with arguments.
    fn fields(
        &mut self,
        dot: &TemplateValue,
        mut value: TemplateValue,
        fields: &'t [String],
        args: &'t [Operand],
        last: Option<TemplateValue>,
    ) -> Outcome {
        let Some((final_field, before)) = fields.split_last() else {
            if args.is_empty() && last.is_none() {
                return Ok(value);
            }
            return Err(self.error(format!("can't give argument to non-function {}", self.place)));
        };
        for field in before {
            value = self.field(&value, field)?;
        }
        let place = self.place;
        let mut arguments = Vec::with_capacity(args.len() + 1);
        for arg in args {
            arguments.push(self.operand(dot, arg)?);
        }
        arguments.extend(last);
        self.place = place;
        if let Some(result) = methods::call(&value, final_field, &arguments) {
            return result.map_err(|message| self.error(message));
        }
        let found = self.field(&value, final_field)?;
        if !arguments.is_empty() {
            let message = match value {
                TemplateValue::Labels(_) | TemplateValue::Args(_) => {
                    format!("{final_field} is not a method but has arguments")
                }
                _ => format!("{final_field} has arguments but cannot be invoked as function"),
            };
            return Err(self.error(message));
        }
        Ok(found)
    }

    fn field(&self, value: &TemplateValue, name: &str) -> Outcome {
        if let Some(result) = methods::call(value, name, &[]) {
            return result.map_err(|message| self.error(message));
        }
        value.field(name).map_err(|message| self.error(message))
    }
}

/// One round of a `range`.
struct RangeItem {
    key: TemplateValue,
    value: TemplateValue,
}

/// The place and name of a call, for messages.
#[derive(Clone, Copy)]
struct Site<'t> {
    place: ExecPlace<'t>,
    name: &'t str,
}
