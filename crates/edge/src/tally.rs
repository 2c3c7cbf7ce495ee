use http::{Method, StatusCode};
use metrics::{Counter, counter};

const METHODS: [&str; 8] = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "other"];
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// `tidegate_http_requests_total`, with its handles resolved up front: looking one up by labels costs more
/// than the rest of the edge. So the recorder has to be installed before the [`crate::Edge`] is made.
pub(crate) struct Tally {
    requests: [[Counter; CLASSES.len()]; METHODS.len()],
}

impl Tally {
    pub fn new() -> Self {
        Self {
            requests: METHODS.map(|method| {
                CLASSES.map(
                    |class| counter!("tidegate_http_requests_total", "method" => method, "status" => class),
                )
            }),
        }
    }

    pub fn request(&self, method: &Method, status: StatusCode) {
        let method = METHODS.iter().position(|m| *m == method.as_str()).unwrap_or(METHODS.len() - 1);
        let class = usize::from(status.as_u16() / 100).saturating_sub(2).min(CLASSES.len() - 1);
        self.requests[method][class].increment(1);
    }
}

impl std::fmt::Debug for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tally")
    }
}

/// Counts what was turned away before the application saw it. Rare, hence looked up each time.
pub(crate) fn refused(reason: &'static str) {
    counter!("tidegate_http_refused_total", "reason" => reason).increment(1);
}
