use std::fmt::{self, Display, Write};

/// Beyond, faults are counted and cost no memory: a body of some megabytes can hold hundreds of thousands.
const NAMED_MAX: usize = 100;
/// Names may be the caller's own.
const FIELD_CHARS_MAX: usize = 128;
const MESSAGE_CHARS_MAX: usize = 400;

/// One wrong field of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    pub field: String,
    pub message: String,
}

/// The wrong fields of a request: the first ones by name, the others as a number.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    named: Vec<FieldError>,
    omitted: usize,
}

/// A text that ends after so many characters.
struct Cut {
    text: String,
    left: usize,
}

impl FieldError {
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

impl Faults {
    pub fn push(&mut self, field: impl Display, message: impl Display) {
        if self.named.len() == NAMED_MAX {
            self.omitted += 1;
            return;
        }
        let (field, message) = (cut(field, FIELD_CHARS_MAX), cut(message, MESSAGE_CHARS_MAX));
        self.named.push(FieldError { field, message });
    }

    /// Takes over the faults of an object that stands at `place`.
    pub fn append(&mut self, inner: Self, place: impl Display) {
        self.omitted += inner.omitted;
        for FieldError { field, message } in inner.named {
            self.push(format_args!("{place}.{field}"), message);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    pub fn named(&self) -> &[FieldError] {
        &self.named
    }

    /// How many are not named.
    pub fn omitted(&self) -> usize {
        self.omitted
    }
}

impl From<Vec<FieldError>> for Faults {
    fn from(fields: Vec<FieldError>) -> Self {
        let mut faults = Self::default();
        for FieldError { field, message } in fields {
            faults.push(field, message);
        }
        faults
    }
}

fn cut(shown: impl Display, chars_max: usize) -> String {
    let mut cut = Cut { text: String::new(), left: chars_max };
    // An error only says that the rest was left out.
    if write!(cut, "{shown}").is_err() {
        cut.text.push('…');
    }
    cut.text
}

impl Write for Cut {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        match piece.char_indices().nth(self.left) {
            Some((end, _)) => {
                self.text.push_str(&piece[..end]);
                Err(fmt::Error)
            }
            None => {
                self.left -= piece.chars().count();
                self.text.push_str(piece);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_faults_are_named_and_the_others_counted() {
        let mut inner = Faults::default();
        for place in 0..150 {
            inner.push(format_args!("f{place}"), "is wrong");
        }
        assert_eq!((inner.named().len(), inner.omitted()), (100, 50));
        let mut outer = Faults::default();
        outer.push("a", "is missing");
        outer.append(inner, "b[7]");
        assert_eq!((outer.named().len(), outer.omitted()), (100, 51));
        assert_eq!(outer.named()[1], FieldError::new("b[7].f0", "is wrong"));
    }

    #[test]
    fn names_and_messages_are_cut() {
        for (long, pieces) in [("ü".repeat(1_000_000), 1), ("ü".repeat(100), 3)] {
            let mut faults = Faults::default();
            faults.push(long.repeat(pieces), format_args!("{long}{long}{long}{long}{long}"));
            let FieldError { field, message } = &faults.named()[0];
            assert_eq!(field, &format!("{}…", "ü".repeat(FIELD_CHARS_MAX)));
            assert_eq!(message, &format!("{}…", "ü".repeat(MESSAGE_CHARS_MAX)));
        }
        assert_eq!(cut("ü".repeat(128), 128), "ü".repeat(128));
    }
}
