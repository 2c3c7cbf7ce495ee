use std::fmt;

/// A path pattern in Ant's style, with the semantics of Spring's `AntPathMatcher`: `?` is one character, `*` any
/// number of them within a segment, `**` any number of segments, also none. `/api/**` matches `/api`.
///
/// Compiled once. Matching keeps one place to go back to per kind of star, so its cost is bounded by the product
/// of the two lengths, whatever the pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    text: Box<str>,
    segments: Box<[Segment]>,
    plain: Plain,
}

/// Patterns without surprises, which most are, need no more than a comparison. They are written with single
/// slashes; paths that are not are matched segment by segment like the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Plain {
    /// `/api/send`
    Exact,
    /// `/api/**`: what stands before the last slash.
    Under(Box<str>),
    Not,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Literal(Box<str>),
    Glob(Box<[Glob]>),
    /// `*`: any one segment.
    Any,
    /// `**`
    AnyDepth,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Glob {
    Char(char),
    One,
    Many,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    #[error("a path pattern starts with '/', such as \"/api/**\"")]
    NoSlash,
    #[error("a path pattern has at most {max} bytes", max = PathPattern::BYTES_MAX)]
    TooLong,
    #[error("braces have no meaning in a path pattern: write '*' for one segment")]
    Braces,
    #[error("a path pattern holds no spaces, control characters or '#'")]
    Character,
}

impl PathPattern {
    pub const BYTES_MAX: usize = 256;

    pub fn new(text: &str) -> Result<Self, BadPattern> {
        if !text.starts_with('/') {
            return Err(BadPattern::NoSlash);
        }
        if text.len() > Self::BYTES_MAX {
            return Err(BadPattern::TooLong);
        }
        if text.contains(['{', '}']) {
            return Err(BadPattern::Braces);
        }
        if text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '#') {
            return Err(BadPattern::Character);
        }
        let mut segments: Vec<_> = parts(text).map(Segment::new).collect();
        // Two in a row say no more than one.
        segments.dedup_by(|one, other| (&*one, &*other) == (&Segment::AnyDepth, &Segment::AnyDepth));
        Ok(Self { text: text.into(), plain: Plain::of(text), segments: segments.into() })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `path` without its query, decoded.
    pub fn matches(&self, path: &str) -> bool {
        let plainly = match &self.plain {
            Plain::Exact => *self.text == *path,
            Plain::Under(prefix) => {
                path.strip_prefix(&**prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            Plain::Not => return self.matches_segments(path),
        };
        plainly || ((path.contains("//") || !path.starts_with('/')) && self.matches_segments(path))
    }

    fn matches_segments(&self, path: &str) -> bool {
        let (mut next, mut at) = (0, 0);
        let mut back: Option<(usize, usize)> = None;
        while let Some((segment, end)) = segment_at(path, at) {
            match self.segments.get(next) {
                Some(Segment::AnyDepth) => {
                    next += 1;
                    back = Some((next, at));
                }
                Some(pattern) if pattern.matches(segment) => (next, at) = (next + 1, end),
                _ => {
                    // Let the last `**` have one segment more, and try again behind it.
                    let Some((behind, from)) = back else { return false };
                    let Some((_, end)) = segment_at(path, from) else { return false };
                    (next, at) = (behind, end);
                    back = Some((behind, end));
                }
            }
        }
        let slash = path.ends_with('/');
        match &self.segments[next..] {
            [] => self.segments.last() == Some(&Segment::AnyDepth) || self.text.ends_with('/') == slash,
            // Spring's rule: `/api/*` also matches `/api/`, whose last segment is there and empty.
            [Segment::Any] if back.is_none() && slash => true,
            rest => rest.iter().all(|segment| *segment == Segment::AnyDepth),
        }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Plain {
    fn of(text: &str) -> Self {
        let is_plain = |text: &str| !text.contains(['*', '?']) && !text.contains("//");
        match text.strip_suffix("/**") {
            Some(prefix) if is_plain(prefix) => Self::Under(prefix.into()),
            None if is_plain(text) => Self::Exact,
            _ => Self::Not,
        }
    }
}

impl Segment {
    fn new(text: &str) -> Self {
        match text {
            "**" => Self::AnyDepth,
            "*" => Self::Any,
            text if !text.contains(['*', '?']) => Self::Literal(text.into()),
            text => {
                let glob = |c| match c {
                    '?' => Glob::One,
                    '*' => Glob::Many,
                    c => Glob::Char(c),
                };
                let mut globs: Vec<_> = text.chars().map(glob).collect();
                globs.dedup_by(|one, other| (&*one, &*other) == (&Glob::Many, &Glob::Many));
                Self::Glob(globs.into())
            }
        }
    }

    fn matches(&self, segment: &str) -> bool {
        match self {
            Self::Literal(text) => **text == *segment,
            Self::Glob(globs) => matches_glob(globs, segment),
            Self::Any | Self::AnyDepth => true,
        }
    }
}

fn matches_glob(globs: &[Glob], text: &str) -> bool {
    let (mut next, mut at) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while let Some(c) = text[at..].chars().next() {
        match globs.get(next) {
            Some(Glob::Many) => {
                next += 1;
                back = Some((next, at));
            }
            Some(Glob::One) => (next, at) = (next + 1, at + c.len_utf8()),
            Some(Glob::Char(wanted)) if *wanted == c => (next, at) = (next + 1, at + c.len_utf8()),
            _ => {
                let Some((behind, from)) = back else { return false };
                let end = from + text[from..].chars().next().map_or(1, char::len_utf8);
                (next, at) = (behind, end);
                back = Some((behind, end));
            }
        }
    }
    globs[next..].iter().all(|glob| *glob == Glob::Many)
}

/// Empty segments do not count, as in Spring: `//api///send` has two.
fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

/// The next segment at or after byte `at`, and where it ends.
fn segment_at(path: &str, at: usize) -> Option<(&str, usize)> {
    let bytes = path.as_bytes();
    let start = at + bytes.get(at..)?.iter().position(|byte| *byte != b'/')?;
    let length = bytes[start..].iter().position(|byte| *byte == b'/').unwrap_or(bytes.len() - start);
    Some((&path[start..start + length], start + length))
}

#[cfg(test)]
mod tests;
