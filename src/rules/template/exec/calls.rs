//! Calls of functions: their arguments, and the types of these.

use super::{ExecPlace, Executor, Outcome, Site};
use crate::rules::template::functions::{ParameterType, find};
use crate::rules::template::tree::{Operand, OperandKind};
use crate::rules::template::value::TemplateValue;

impl<'t> Executor<'t, '_> {
    /// Calls a function with its arguments; `last` is the value of the command before.
    pub(super) fn call(
        &mut self,
        dot: &TemplateValue,
        site: Site<'t>,
        args: &'t [Operand],
        last: Option<TemplateValue>,
    ) -> Outcome {
        let name = site.name;
        let function = find(name).ok_or_else(|| self.error(format!("{name:?} is not a defined function")))?;
        let given = args.len() + usize::from(last.is_some());
        let wanted = function.parameters.len();
        if function.variadic.is_some() && given < wanted {
            let message = format!("wrong number of args for {name}: want at least {wanted} got {given}");
            return Err(self.error(message));
        }
        if function.variadic.is_none() && given != wanted {
            return Err(self.error(format!("wrong number of args for {name}: want {wanted} got {given}")));
        }
        if matches!(name, "and" | "or") {
            return self.short_circuit(dot, name == "or", args, last);
        }
        let mut values = Vec::with_capacity(given);
        for (at, arg) in args.iter().enumerate() {
            let parameter = function.parameters.get(at).copied().or(function.variadic);
            values.push(self.argument(dot, arg, parameter.unwrap_or(ParameterType::Any))?);
        }
        if let Some(last) = last {
            let parameter = function.parameters.get(args.len()).copied().or(function.variadic);
            values.push(self.check_type(last, parameter.unwrap_or(ParameterType::Any))?);
        }
        let read = values.iter().map(TemplateValue::bytes).sum();
        let result = match self.context.spend(read) {
            Ok(()) => (function.run)(&mut self.context, &values),
            Err(message) => Err(message),
        };
        result.map_err(|message| {
            // A message names the place of a failed call, otherwise that of the call's last
            // argument.
            self.place = site.place;
            self.error(format!("error calling {name}: {message}"))
        })
    }

    /// Evaluates `and` or `or` up to the first value that decides.
    fn short_circuit(
        &mut self,
        dot: &TemplateValue,
        decides: bool,
        args: &'t [Operand],
        last: Option<TemplateValue>,
    ) -> Outcome {
        let mut value = TemplateValue::Missing;
        for arg in args {
            value = self.argument(dot, arg, ParameterType::Any)?;
            if value.is_true() == decides {
                return Ok(value);
            }
        }
        Ok(last.unwrap_or(value))
    }

    fn argument(&mut self, dot: &TemplateValue, arg: &'t Operand, parameter: ParameterType) -> Outcome {
        let constant = match &arg.kind {
            OperandKind::Bool(_) | OperandKind::Number(..) => parameter != ParameterType::Any,
            OperandKind::Text(..) => !matches!(parameter, ParameterType::Any | ParameterType::Text),
            _ => false,
        };
        if constant {
            self.place = ExecPlace::Operand(arg);
            return Err(self.error(match parameter {
                ParameterType::Text => format!("expected string; found {arg}"),
                _ => format!("can't handle {arg} for arg of type {}", type_name(parameter)),
            }));
        }
        if matches!(arg.kind, OperandKind::Nil) && parameter == ParameterType::Text {
            self.place = ExecPlace::Operand(arg);
            return Err(self.error("cannot assign nil to string"));
        }
        let value = self.operand(dot, arg)?;
        self.check_type(value, parameter)
    }

    fn check_type(&self, value: TemplateValue, parameter: ParameterType) -> Outcome {
        let fits = match (&value, parameter) {
            (_, ParameterType::Any)
            | (TemplateValue::Text(_), ParameterType::Text)
            | (TemplateValue::Sample(_) | TemplateValue::Missing, ParameterType::Sample)
            | (TemplateValue::Samples(_) | TemplateValue::Missing, ParameterType::Samples) => true,
            (TemplateValue::Missing, _) => {
                return Err(self.error(format!("invalid value; expected {}", type_name(parameter))));
            }
            _ => false,
        };
        if fits {
            return Ok(value);
        }
        let (wanted, found) = (type_name(parameter), value.type_name());
        Err(self.error(format!("wrong type for value; expected {wanted}; got {found}")))
    }
}

const fn type_name(parameter: ParameterType) -> &'static str {
    match parameter {
        ParameterType::Any => "interface {}",
        ParameterType::Text => "string",
        ParameterType::Sample => "*template.sample",
        ParameterType::Samples => "template.queryResult",
    }
}
