use std::net::IpAddr;

use http::uri::{Authority, Scheme};
use http::{HeaderValue, Uri};

use super::WebhookError;
use super::guard::Guard;

/// Where a webhook goes: its URL, taken apart once.
#[derive(Clone)]
pub struct Target {
    pub uri: Uri,
    pub host: Host,
    pub port: u16,
    pub tls: bool,
    /// The header's value.
    pub authority: HeaderValue,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    Name(String),
    Literal(IpAddr),
}

impl Target {
    pub fn parse(url: &str, guard: &Guard, ports: &[u16]) -> Result<Self, WebhookError> {
        let uri: Uri = url.parse().map_err(|_| WebhookError::Url("is not a URL in ASCII"))?;
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(WebhookError::Url("must begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or(WebhookError::Url("has no host"))?;
        if authority.as_str().contains('@') {
            return Err(WebhookError::Url("holds a user or password; use a header"));
        }
        let host = host(authority.host())?;
        let port = port(authority)?.unwrap_or(if tls { 443 } else { 80 });
        if !ports.is_empty() && !ports.contains(&port) {
            return Err(WebhookError::Port(port));
        }
        if let Host::Literal(ip) = host
            && !guard.permits(ip)
        {
            return Err(WebhookError::Forbidden(ip));
        }
        let authority = HeaderValue::from_str(authority.as_str());
        let authority = authority.map_err(|_| WebhookError::Url("its host is none"))?;
        Ok(Self { uri, host, port, tls, authority })
    }
}

impl Host {
    pub fn text(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::Literal(ip) => ip.to_string(),
        }
    }
}

/// By hand: to `http`, a port that is too large is no port at all, and the default would be dialled.
fn port(authority: &Authority) -> Result<Option<u16>, WebhookError> {
    match authority.as_str().strip_prefix(authority.host()) {
        Some("") => Ok(None),
        Some(rest) => match rest.strip_prefix(':').map(str::parse) {
            Some(Ok(port)) if port > 0 => Ok(Some(port)),
            _ => Err(WebhookError::Url("its port is none")),
        },
        None => Err(WebhookError::Url("its host is none")),
    }
}

fn host(text: &str) -> Result<Host, WebhookError> {
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let ip = inner.parse().map_err(|_| WebhookError::Url("its host is not an IPv6 address"))?;
        return Ok(Host::Literal(IpAddr::V6(ip)));
    }
    if let Ok(ip) = text.parse() {
        return Ok(Host::Literal(ip));
    }
    // Resolvers read 2130706433, 0x7f.1 and 0177.0.0.1 as addresses: nobody writes them in good faith.
    let last = text.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    let hexadecimal = last.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("0x"));
    if last.is_empty() || last.bytes().all(|byte| byte.is_ascii_digit()) || hexadecimal {
        return Err(WebhookError::Url("its host is a number; write an address as 192.0.2.1 or a name"));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if text.len() > 253 || !text.bytes().all(plain) {
        return Err(WebhookError::Url("its host is not a name"));
    }
    Ok(Host::Name(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Target, WebhookError> {
        Target::parse(url, &Guard::default(), &[])
    }

    #[test]
    fn urls_are_taken_apart() {
        let target = parse("https://example.org/hook?key=1").unwrap();
        assert_eq!((target.host.text().as_str(), target.port, target.tls), ("example.org", 443, true));
        let target = parse("http://[2606:4700::1111]:8080/").unwrap();
        assert_eq!((target.host.text().as_str(), target.port), ("2606:4700::1111", 8080));
        assert_eq!(target.authority, "[2606:4700::1111]:8080");
        assert_eq!(parse("http://example.org").unwrap().port, 80);
    }

    #[test]
    fn inner_addresses_are_refused_in_all_their_spellings() {
        for url in [
            "http://127.0.0.1/",
            "http://10.1.2.3:80/",
            "http://169.254.169.254/latest/meta-data",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://[fd00:ec2::254]/",
        ] {
            assert!(matches!(parse(url).err(), Some(WebhookError::Forbidden(_))), "{url}");
        }
        for url in [
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0X7F.1/",
            "http://0177.0.0.1/",
            "http://127.1/",
            "http://127.0.0.1./",
            "http://1.2.3.4.5/",
            "http://[fe80::1%25eth0]/",
            "http://[127.0.0.1]/",
        ] {
            assert!(matches!(parse(url).err(), Some(WebhookError::Url(_))), "{url}");
        }
    }

    #[test]
    fn what_is_no_plain_http_url_is_refused() {
        for url in [
            "",
            "/hook",
            "example.org/hook",
            "ftp://example.org/",
            "file:///etc/passwd",
            "http://",
            "http://user:secret@example.org/",
            "http://example.org@127.0.0.1/",
            "http://example.org:0/",
            "http://example.org:99999/",
            "http://example.org:/",
            "http://[2606:4700::1111]x/",
            "http://exa mple.org/",
            "http://example.org\r\nx: y/",
            "http://ex%61mple.org/",
            "http://bücher.example/",
        ] {
            assert!(parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn ports_may_be_limited() {
        let guard = Guard::default();
        assert!(Target::parse("https://example.org/", &guard, &[443]).is_ok());
        let refused = Target::parse("https://example.org:22/", &guard, &[443]).err();
        assert_eq!(refused, Some(WebhookError::Port(22)));
    }
}
