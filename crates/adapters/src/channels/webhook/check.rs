use std::slice;

use tidegate_domain::Headers;

use super::guard::Guard;
use super::request::header;
use super::signature::Signer;
use super::target::Target;
use super::{WebhookError, WebhookOptions, tls};

impl WebhookOptions {
    /// Everything that is wrong, where a channel names the first only. An empty URL is none to be judged. Connects
    /// nowhere.
    pub fn faults(&self) -> Vec<WebhookError> {
        let mut faults = Vec::new();
        if !self.url.is_empty() {
            faults.extend(self.url_fault(&self.url));
        }
        let unfit = |secret| Signer::new(slice::from_ref(secret)).err().map(WebhookError::Secret);
        faults.extend(self.secrets.iter().filter_map(unfit));
        faults.extend(self.header_faults());
        faults.extend(self.ca_pem.as_deref().and_then(|pem| tls::given(pem).err()));
        faults
    }

    /// What is wrong with a URL that is dialled as these options say; whom they trust by themselves is judged apart.
    pub fn url_fault(&self, url: &str) -> Option<WebhookError> {
        let guard = Guard::new(self.allow.clone());
        let target = match Target::parse(url, &guard, &self.ports) {
            Ok(target) => target,
            Err(fault) => return Some(fault),
        };
        let name = target.tls.then(|| tls::server_name(&target.host).err()).flatten();
        let trust = || (target.tls && self.ca_pem.is_none()).then(|| tls::system().err()).flatten();
        name.or_else(trust)
    }

    fn header_faults(&self) -> Vec<WebhookError> {
        let mut faults = Vec::new();
        for (name, value) in &self.headers {
            let alone = Headers(vec![(name.clone(), value.clone())]).check();
            faults.extend(alone.and_then(|()| header(name, value).map(drop)).err());
        }
        if faults.is_empty() {
            // Too many of them, or too large together.
            faults.extend(Headers(self.headers.clone()).check().err());
        }
        faults.into_iter().map(|fault| WebhookError::Header(fault.to_string())).collect()
    }
}
