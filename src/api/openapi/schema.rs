//! A compact language for JSON schemas, in which the schema of a response is about as long as the
//! response.
//!
//! ```text
//! string  string(email)  string(1..254)  integer  integer(1..100)  number  boolean  null  any
//! "literal"  Name
//! { a: string, b?: integer 'description' }        an object that may have other members
//! {| a: string |}                                 an object without other members
//! map<integer>   string[]   [number, string]   A | B | null
//! ```

use serde_json::{Map, Value, json};

/// A syntax error in a schema.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why} at byte {at} of {text:?}")]
pub struct SchemaError {
    text: String,
    at: usize,
    why: &'static str,
}

/// Converts `text` to a JSON schema.
///
/// # Errors
/// [`SchemaError`].
pub fn schema(text: &str) -> Result<Value, SchemaError> {
    let mut parser = SchemaParser { text, at: 0, depth: 0 };
    let value = parser.union()?;
    match parser.peek() {
        None => Ok(value),
        Some(_) => Err(parser.fail("unexpected text after the schema")),
    }
}

/// The greatest depth of a schema, inclusive. It limits the recursion of the parser.
const DEPTH_MAX: usize = 16;

struct SchemaParser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl SchemaParser<'_> {
    fn fail(&self, why: &'static str) -> SchemaError {
        SchemaError { text: self.text.to_owned(), at: self.at, why }
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Skips white space, and returns the next character.
    fn peek(&mut self) -> Option<char> {
        let trimmed = self.rest().trim_start();
        self.at = self.text.len() - trimmed.len();
        self.rest().chars().next()
    }

    fn accept(&mut self, token: &str) -> bool {
        self.peek();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &'static str, why: &'static str) -> Result<(), SchemaError> {
        if self.accept(token) { Ok(()) } else { Err(self.fail(why)) }
    }

    fn until(&mut self, end: char, why: &'static str) -> Result<String, SchemaError> {
        let length = self.rest().find(end).ok_or_else(|| self.fail(why))?;
        let found = self.rest().get(..length).unwrap_or_default().to_owned();
        self.at += length + end.len_utf8();
        Ok(found)
    }

    fn word(&mut self) -> Result<String, SchemaError> {
        self.peek();
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = self.rest().find(|c| !is_part(c)).unwrap_or(self.rest().len());
        let word = self.rest().get(..length).unwrap_or_default().to_owned();
        self.at += length;
        if word.is_empty() { Err(self.fail("a name or type is missing")) } else { Ok(word) }
    }

    fn union(&mut self) -> Result<Value, SchemaError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.fail("too deep"));
        }
        let mut all = vec![self.list()?];
        while self.peek() == Some('|') && !self.rest().starts_with("|}") {
            self.at += 1;
            all.push(self.list()?);
        }
        self.depth -= 1;
        Ok(one_of(all))
    }

    fn list(&mut self) -> Result<Value, SchemaError> {
        let mut value = self.single()?;
        while self.accept("[]") {
            value = json!({ "type": "array", "items": value });
        }
        Ok(value)
    }

    fn single(&mut self) -> Result<Value, SchemaError> {
        if self.accept("{|") {
            let mut object = self.members("|}")?;
            object["additionalProperties"] = false.into();
            return Ok(object);
        }
        if self.accept("{") {
            return self.members("}");
        }
        if self.accept("\"") {
            return Ok(json!({ "const": self.until('"', "a literal does not end")? }));
        }
        if self.accept("[") {
            let mut items = vec![self.union()?];
            while self.accept(",") {
                items.push(self.union()?);
            }
            self.expect("]", "a tuple does not end")?;
            let size = items.len();
            return Ok(json!({ "type": "array", "prefixItems": items, "minItems": size, "maxItems": size }));
        }
        let word = self.word()?;
        match word.as_str() {
            "map" => {
                self.expect("<", "map must be followed by <")?;
                let values = self.union()?;
                self.expect(">", "map<...> does not end")?;
                Ok(json!({ "type": "object", "additionalProperties": values }))
            }
            "any" => Ok(json!({})),
            "true" | "false" => Ok(json!({ "const": word == "true" })),
            "string" | "integer" | "number" | "boolean" | "null" => self.simple(&word),
            name if name.starts_with(|c: char| c.is_ascii_uppercase()) => {
                Ok(json!({ "$ref": format!("#/components/schemas/{name}") }))
            }
            _ => Err(self.fail("no such type")),
        }
    }

    fn simple(&mut self, word: &str) -> Result<Value, SchemaError> {
        let mut value = json!({ "type": word });
        if !self.rest().starts_with('(') {
            return Ok(value);
        }
        self.at += 1;
        let inside = self.until(')', "a limit does not end")?;
        let Some((least, most)) = inside.split_once("..") else {
            value["format"] = inside.into();
            return Ok(value);
        };
        let (low, high) = if word == "string" { ("minLength", "maxLength") } else { ("minimum", "maximum") };
        for (name, number) in [(low, least), (high, most)] {
            if !number.is_empty() {
                let number: i64 = number.parse().map_err(|_| self.fail("a limit is not a number"))?;
                value[name] = number.into();
            }
        }
        Ok(value)
    }

    fn members(&mut self, end: &'static str) -> Result<Value, SchemaError> {
        let (mut members, mut required) = (Map::new(), Vec::new());
        while !self.accept(end) {
            let name = self.word()?;
            if !self.accept("?") {
                required.push(Value::from(name.clone()));
            }
            self.expect(":", "a member must have a type")?;
            let mut value = self.union()?;
            if self.accept("'") {
                value["description"] = self.until('\'', "a description does not end")?.into();
            }
            members.insert(name, value);
            if !self.accept(",") {
                self.expect(end, "an object does not end")?;
                break;
            }
        }
        let mut object = json!({ "type": "object", "properties": members });
        if !required.is_empty() {
            object["required"] = required.into();
        }
        Ok(object)
    }
}

/// Combines alternatives: literals to an enumeration, a simple type and `null` to a list of types,
/// and any others to `anyOf`.
fn one_of(mut all: Vec<Value>) -> Value {
    if all.len() == 1 {
        return all.pop().unwrap_or_default();
    }
    if all.iter().all(|one| one.get("const").is_some()) {
        return json!({ "enum": all.iter().map(|one| one["const"].clone()).collect::<Vec<_>>() });
    }
    if all.len() == 2 && all[1] == json!({ "type": "null" }) && all[0]["type"].is_string() {
        let mut value = all.swap_remove(0);
        value["type"] = json!([value["type"], "null"]);
        return value;
    }
    json!({ "anyOf": all })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_texts_are_converted_to_schemas() {
        let object =
            schema("{ a: string(1..9) 'first', b?: integer(0..)[] | null, c: Name }").expect("a schema");
        assert_eq!(
            object,
            json!({ "type": "object", "required": ["a", "c"], "properties": {
                "a": { "type": "string", "minLength": 1, "maxLength": 9, "description": "first" },
                "b": { "type": ["array", "null"], "items": { "type": "integer", "minimum": 0 } },
                "c": { "$ref": "#/components/schemas/Name" },
            } })
        );
        assert_eq!(schema("\"a\" | \"b\""), Ok(json!({ "enum": ["a", "b"] })));
        assert_eq!(
            schema("string(date-time) | null"),
            Ok(json!({ "type": ["string", "null"], "format": "date-time" }))
        );
        assert_eq!(schema("map<any>"), Ok(json!({ "type": "object", "additionalProperties": {} })));
        assert_eq!(
            schema("{| a?: [number, string] | true |}").expect("a schema")["additionalProperties"],
            false
        );
    }

    #[test]
    fn invalid_texts_are_refused() {
        for text in [
            "",
            "strin",
            "{ a string }",
            "{ a: string",
            "\"a",
            "string(",
            "string(x..)",
            "map<any",
            "string extra",
        ] {
            assert!(schema(text).is_err(), "{text}");
        }
        assert!(schema(&"{a:".repeat(1_000)).is_err());
    }
}
