use tidegate_testkit::load::{Answer, Source, write_request};

/// A connection that pages through all messages while others are admitted: the ledger is being read whenever its writer begins
/// a checkpoint or dies.
#[derive(Debug, Default)]
pub struct LookUps {
    cursor: Option<String>,
    /// Status and body of each answer that a sound gateway does not give.
    pub strange: Vec<(u16, String)>,
}

impl Source for LookUps {
    fn next(&mut self, request: &mut Vec<u8>) -> bool {
        let cursor = self.cursor.as_ref().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        write_request(request, "GET", &format!("/api/v1/messages?limit=50{cursor}"), &[], b"");
        true
    }

    fn answered(&mut self, answer: Answer<'_>) {
        match answer {
            Answer::Response { status: 200, body } => self.cursor = next_in(body),
            // Overloaded or dying.
            Answer::Response { status: 503, .. } | Answer::Unknown => {}
            Answer::Response { status, body } => {
                self.strange.push((status, String::from_utf8_lossy(body).into_owned()));
            }
        }
    }
}

/// None after the last page: then it begins anew.
fn next_in(body: &[u8]) -> Option<String> {
    let page: serde_json::Value = serde_json::from_slice(body).ok()?;
    Some(page.get("next")?.as_str()?.to_owned())
}
