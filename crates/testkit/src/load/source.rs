/// Where a connection's requests come from, and where their answers go.
pub trait Source: Send + 'static {
    /// Writes the next request, whole, or returns false when there is none.
    fn next(&mut self, request: &mut Vec<u8>) -> bool;

    /// Called once per request.
    fn answered(&mut self, answer: Answer<'_>);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<'a> {
    Response {
        status: u16,
        body: &'a [u8],
    },
    /// Sent, at least in part, and not answered: it may or may not have been done.
    Unknown,
}

/// The same request again and again: the cheapest source there is.
#[derive(Debug, Clone)]
pub struct Repeat(pub Vec<u8>);

impl Source for Repeat {
    fn next(&mut self, request: &mut Vec<u8>) -> bool {
        request.extend_from_slice(&self.0);
        true
    }

    fn answered(&mut self, _: Answer<'_>) {}
}
