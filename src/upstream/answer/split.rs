//! Cuts a JSON response into the elements of its list while it arrives, so that only one element is
//! in memory as text.
//!
//! The list is `data`, or `data.result`. Everything around it is small, and kept as the envelope,
//! in which the list is empty.

/// The deepest nesting of a response.
const DEPTH_MAX: usize = 64;

/// A response that violates the format of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// The text is not the expected JSON.
    Text(String),
    /// One element has more than this many bytes.
    ElementTooLarge(usize),
}

fn malformed<T>(why: impl Into<String>) -> Result<T, Malformed> {
    Err(Malformed::Text(why.into()))
}

/// Takes the elements of a list.
pub(super) trait TakeElement<E> {
    /// Takes the element at the beginning of `text`, and returns its length. `Ok(None)` leaves it
    /// to [`TakeElement::take`], for example because its end has not arrived.
    fn take_first(&mut self, text: &[u8]) -> Result<Option<usize>, E>;

    /// Takes a complete element.
    fn take(&mut self, element: &[u8]) -> Result<(), E>;
}

/// A member of the response on the path to the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PathMember {
    #[default]
    Other,
    Data,
    Result,
}

/// What may follow in the list, before the text in `Splitter::element`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListPlace {
    /// The first element, or the end.
    First,
    /// An element, after a comma.
    Next,
    /// A comma or the end, after an element that was taken at its beginning.
    End,
}

/// Cuts a response.
#[derive(Debug)]
pub(super) struct Splitter {
    envelope: Vec<u8>,
    envelope_max: usize,
    element: Vec<u8>,
    element_max: usize,
    place: ListPlace,
    /// The number of open objects and arrays.
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// The start of the last string of the envelope.
    string_at: usize,
    /// The current members of the outermost object and of the object in it.
    members: [PathMember; 3],
    /// The depth inside of the list, while it is read.
    list: Option<usize>,
    /// The list has been read.
    is_listed: bool,
}

impl Splitter {
    /// Creates a splitter with the most bytes of the envelope and of one element, inclusive.
    pub(super) fn new(envelope_max: usize, element_max: usize) -> Splitter {
        Splitter {
            envelope: Vec::new(),
            envelope_max,
            element: Vec::new(),
            element_max,
            place: ListPlace::First,
            depth: 0,
            in_string: false,
            is_escaped: false,
            string_at: 0,
            members: [PathMember::Other; 3],
            list: None,
            is_listed: false,
        }
    }

    /// Returns the bytes of text that are held.
    pub(super) fn held_bytes(&self) -> usize {
        self.envelope.capacity() + self.element.capacity()
    }

    /// Takes the next bytes, and passes each element to `elements`.
    pub(super) fn push<E: From<Malformed>>(
        &mut self,
        bytes: &[u8],
        elements: &mut impl TakeElement<E>,
    ) -> Result<(), E> {
        let mut rest = bytes;
        while let Some((byte, after)) = rest.split_first() {
            let Some(inside) = self.list else {
                self.outside(*byte)?;
                rest = after;
                continue;
            };
            if *byte == b'{' && self.element.is_empty() && self.place != ListPlace::End {
                let text = rest.get(..self.element_max).unwrap_or(rest);
                if let Some(next) = elements.take_first(text)?.and_then(|length| rest.get(length..)) {
                    (self.place, rest) = (ListPlace::End, next);
                    continue;
                }
            }
            if self.inside(*byte, inside)? {
                let element = self.element.trim_ascii();
                if !element.is_empty() {
                    elements.take(element)?;
                }
                self.element.clear();
                // One huge element does not determine the memory of the others.
                self.element.shrink_to(64 << 10);
            }
            rest = after;
        }
        Ok(())
    }

    /// Takes a byte of the list. Returns whether an element ends before it.
    fn inside(&mut self, byte: u8, inside: usize) -> Result<bool, Malformed> {
        if self.in_string {
            self.string(byte);
        } else {
            match byte {
                b',' | b']' if self.depth == inside => return self.end_of_element(byte),
                _ if self.place == ListPlace::End && !byte.is_ascii_whitespace() => {
                    return malformed("something follows an element of the list");
                }
                b'"' => self.in_string = true,
                b'{' | b'[' => self.open()?,
                b'}' | b']' if self.depth > inside => self.depth -= 1,
                b'}' | b']' => return malformed("the list is closed twice"),
                _ => {}
            }
        }
        if self.element.len() >= self.element_max {
            return Err(Malformed::ElementTooLarge(self.element_max));
        }
        self.element.push(byte);
        Ok(false)
    }

    /// Takes the comma after an element or the bracket after the last one. Returns whether the
    /// element has not been taken.
    fn end_of_element(&mut self, byte: u8) -> Result<bool, Malformed> {
        let is_empty = self.element.trim_ascii().is_empty();
        let is_missing = match self.place {
            ListPlace::First => is_empty && byte == b',',
            ListPlace::Next => is_empty,
            ListPlace::End => false,
        };
        if is_missing {
            return malformed("an element of the list is missing");
        }
        self.place = ListPlace::Next;
        if byte == b']' {
            self.depth -= 1;
            (self.list, self.is_listed) = (None, true);
            self.envelope.push(byte);
        }
        Ok(true)
    }

    fn outside(&mut self, byte: u8) -> Result<(), Malformed> {
        if self.envelope.is_empty() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => return Ok(()),
                b'{' => {}
                _ => return malformed("it is not a JSON object"),
            }
        } else if self.depth == 0 && !byte.is_ascii_whitespace() {
            return malformed("something follows the JSON object");
        }
        if self.envelope.len() >= self.envelope_max {
            return malformed(format!("more than {} bytes in addition to the list", self.envelope_max));
        }
        self.envelope.push(byte);
        if self.in_string {
            self.string(byte);
            return Ok(());
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.string_at = self.envelope.len() - 1;
            }
            b':' => {
                let name = self.envelope.get(self.string_at..).unwrap_or_default();
                let member = match name.strip_suffix(b":").unwrap_or(name).trim_ascii_end() {
                    b"\"data\"" => PathMember::Data,
                    b"\"result\"" => PathMember::Result,
                    _ => PathMember::Other,
                };
                if let Some(current) = self.members.get_mut(self.depth) {
                    *current = member;
                }
            }
            b'[' => {
                self.open()?;
                let is_data = self.members[1] == PathMember::Data;
                let is_list = is_data
                    && (self.depth == 2 || (self.depth == 3 && self.members[2] == PathMember::Result));
                if is_list && self.is_listed {
                    return malformed("there are two lists");
                }
                if is_list {
                    self.list = Some(self.depth);
                }
            }
            b'{' => {
                self.open()?;
                if let Some(current) = self.members.get_mut(self.depth) {
                    *current = PathMember::Other;
                }
            }
            b'}' | b']' => match self.depth.checked_sub(1) {
                Some(depth) => self.depth = depth,
                None => return malformed("it closes too much"),
            },
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self) -> Result<(), Malformed> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { malformed(format!("more than {DEPTH_MAX} levels")) } else { Ok(()) }
    }

    fn string(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' => self.is_escaped = true,
            b'"' => self.in_string = false,
            _ => {}
        }
    }

    /// Returns the envelope of a complete response.
    pub(super) fn finish(self) -> Result<Vec<u8>, Malformed> {
        match self.depth == 0 && !self.envelope.is_empty() {
            true => Ok(self.envelope),
            false => malformed("it ends early"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Takes `{"usual":1}` at its beginning.
    impl TakeElement<Malformed> for Vec<String> {
        fn take_first(&mut self, text: &[u8]) -> Result<Option<usize>, Malformed> {
            let usual = "{\"usual\":1}";
            let is_usual = text.starts_with(usual.as_bytes());
            self.extend(is_usual.then(|| usual.to_owned()));
            Ok(is_usual.then_some(usual.len()))
        }

        fn take(&mut self, element: &[u8]) -> Result<(), Malformed> {
            self.push(String::from_utf8_lossy(element).into_owned());
            Ok(())
        }
    }

    fn split(text: &str, pieces: &[usize]) -> Result<(Vec<String>, String), Malformed> {
        let (mut splitter, mut elements, mut rest) =
            (Splitter::new(1 << 10, 1 << 10), Vec::<String>::new(), text.as_bytes());
        for piece in pieces {
            let (now, later) = rest.split_at((*piece).min(rest.len()));
            splitter.push(now, &mut elements)?;
            rest = later;
        }
        splitter.push(rest, &mut elements)?;
        Ok((elements, String::from_utf8(splitter.finish()?).expect("UTF-8")))
    }

    #[test]
    fn the_elements_of_the_list_are_cut_out() {
        let text = r#" {"status":"success","data":{"resultType":"matrix","result":[ {"metric":{"a":"]},{\""},"values":[[1,"2"],[3,"4"]]} ,{"metric":{}}]},"warnings":["x",[1]]}"#;
        let (elements, envelope) = split(text, &[]).expect("well-formed");
        assert_eq!(elements, [r#"{"metric":{"a":"]},{\""},"values":[[1,"2"],[3,"4"]]}"#, r#"{"metric":{}}"#]);
        assert_eq!(
            envelope,
            r#"{"status":"success","data":{"resultType":"matrix","result":[]},"warnings":["x",[1]]}"#
        );
        let (elements, envelope) =
            split(r#"{"data":["a","b\"]"],"status":"success"}"#, &[]).expect("well-formed");
        assert_eq!(elements, [r#""a""#, r#""b\"]""#]);
        assert_eq!(envelope, r#"{"data":[],"status":"success"}"#);
        // Metadata has no list.
        let text = r#"{"data":{"up":[{"type":"gauge"}],"result":{"x":[1]}}}"#;
        assert_eq!(split(text, &[]).expect("well-formed"), (Vec::new(), text.to_owned()));
    }

    #[test]
    fn responses_that_are_no_object_or_too_long_are_refused() {
        let long = format!(r#"{{"data":["{}"]}}"#, "x".repeat(2_000));
        let deep = format!(r#"{{"data":{}"#, "[".repeat(100));
        for text in [
            "",
            "<html>",
            "[1]",
            "null",
            r#"{"data":["#,
            r#"{"data":[1,,2]}"#,
            r#"{"data":[1,]}"#,
            r#"{"data":[,1]}"#,
            r#"{"data":[{"usual":1},]}"#,
            r#"{"data":[{"usual":1}{"usual":1}]}"#,
            r#"{"data":[{"usual":1} 1]}"#,
            r#"{"data":[{"usual":1}}]}"#,
            r#"{"data":[{"usual":1},,{"usual":1}]}"#,
            r#"{"data":[1}"#,
            r#"{"data":[]}}"#,
            r#"{"data":[]}x"#,
            r#"{"data":[1],"data":[2]}"#,
            r#"{"data":{"result":[1],"result":[2]}}"#,
            &long,
            &deep,
            &long.replace("data", "other"),
        ] {
            assert!(split(text, &[]).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_give_the_same_elements(pieces in prop::collection::vec(0..9_usize, 0..30)) {
            let text = r#"{"status":"success","data":{"resultType":"vector","result":[{"a\\":"\"]"},{"usual":1},[1,{"b":[2]}] , {"usual":1} ,"x",{"usual":1}]}}"#;
            prop_assert_eq!(split(text, &pieces), split(text, &[]));
        }

        #[test]
        fn no_bytes_panic(text in "[\\[\\]{}\",:a\\\\d]{0,60}", pieces in prop::collection::vec(0..9_usize, 0..9)) {
            let with = |text: &str| split(text, &pieces).is_ok();
            with(&text);
            with(&format!("{{\"data\":[{text}"));
            with(&format!("{{\"data\":{{\"result\":[{text}"));
        }
    }
}
