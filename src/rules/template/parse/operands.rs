//! Commands and their operands.

use super::TemplateParser;
use crate::rules::template::lex::{TemplateToken, TemplateTokenKind};
use crate::rules::template::tree::{Operand, OperandKind, PipelineCommand};
use crate::rules::template::{TemplateError, functions, number};

impl TemplateParser<'_> {
    /// Parses operands up to `|`, which it skips, or to the end of the pipeline.
    pub(super) fn command(&mut self) -> Result<PipelineCommand, TemplateError> {
        let mut operands = Vec::new();
        loop {
            let start = self.peek_word();
            if let Some(operand) = self.operand()? {
                operands.push(operand);
            }
            let token = self.take();
            match token.kind {
                TemplateTokenKind::Space => continue,
                TemplateTokenKind::Close | TemplateTokenKind::RightParen => self.next -= 1,
                // A pipeline may end with `|`, as in Go.
                TemplateTokenKind::Pipe => {}
                _ => return Err(self.unexpected(token, "operand")),
            }
            if operands.is_empty() {
                return Err(self.error_at(start.at, "empty command"));
            }
            return Ok(PipelineCommand { operands });
        }
    }

    /// Parses an operand with the fields that follow it.
    fn operand(&mut self) -> Result<Option<Operand>, TemplateError> {
        let Some(mut operand) = self.term()? else { return Ok(None) };
        let mut fields = Vec::new();
        let fields_at = self.peek().at;
        while self.peek().kind == TemplateTokenKind::Field {
            fields.push(field_name(self.take()));
        }
        if fields.is_empty() {
            return Ok(Some(operand));
        }
        match &mut operand.kind {
            OperandKind::Field(have) | OperandKind::Variable(_, have) => {
                have.append(&mut fields);
                operand.at = fields_at;
            }
            OperandKind::Function(_) | OperandKind::Pipeline(_) => {
                let kind = OperandKind::Chain(Box::new(operand), fields);
                operand = Operand { at: fields_at, kind };
            }
            _ => {
                let message = format!("unexpected . after term {:?}", operand.to_string());
                return Err(self.error_at(fields_at, message));
            }
        }
        Ok(Some(operand))
    }

    fn term(&mut self) -> Result<Option<Operand>, TemplateError> {
        let token = self.take_word();
        let kind = match token.kind {
            TemplateTokenKind::Identifier => {
                if !functions::exists(token.text) {
                    return Err(self.error_at(token.at, format!("function {:?} not defined", token.text)));
                }
                OperandKind::Function(token.text.to_owned())
            }
            TemplateTokenKind::Dot => OperandKind::Dot,
            TemplateTokenKind::Nil => OperandKind::Nil,
            TemplateTokenKind::Variable => {
                if !self.variables.iter().any(|known| known == token.text) {
                    return Err(self.error_at(token.at, format!("undefined variable {:?}", token.text)));
                }
                OperandKind::Variable(token.text.to_owned(), Vec::new())
            }
            TemplateTokenKind::Field => OperandKind::Field(vec![field_name(token)]),
            TemplateTokenKind::Bool => OperandKind::Bool(token.text == "true"),
            TemplateTokenKind::Number => self.number_operand(token)?,
            TemplateTokenKind::Char => self.character(token)?,
            TemplateTokenKind::Quoted | TemplateTokenKind::Raw => {
                OperandKind::Text(self.unquoted(token)?.into(), token.text.to_owned())
            }
            TemplateTokenKind::LeftParen => {
                let pipeline = self.pipeline("parenthesized pipeline", TemplateTokenKind::RightParen)?;
                OperandKind::Pipeline(Box::new(pipeline))
            }
            _ => {
                self.next -= 1;
                return Ok(None);
            }
        };
        Ok(Some(Operand { at: token.at, kind }))
    }

    fn number_operand(&self, token: TemplateToken<'_>) -> Result<OperandKind, TemplateError> {
        let bad = || self.error_at(token.at, format!("bad number syntax: {:?}", token.text));
        let constant = number::parse(token.text).ok_or_else(bad)?;
        Ok(OperandKind::Number(constant, token.text.to_owned()))
    }

    fn character(&self, token: TemplateToken<'_>) -> Result<OperandKind, TemplateError> {
        let text = self.unquoted(token)?;
        let mut chars = text.chars();
        let (Some(only), None) = (chars.next(), chars.next()) else {
            return Err(self.error_at(token.at, format!("malformed character constant: {}", token.text)));
        };
        let int = i64::from(u32::from(only));
        let constant =
            number::NumberConstant { int: Some(int), float: number::to_float(int), is_float: false };
        Ok(OperandKind::Number(constant, token.text.to_owned()))
    }
}

fn field_name(token: TemplateToken<'_>) -> String {
    token.text.trim_start_matches('.').to_owned()
}
